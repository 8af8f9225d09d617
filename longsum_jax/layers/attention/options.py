"""Options of encoder attentions and cross-attentions: one small dataclass for each.

Model configs inherit all of them, so that every attention works in every model.
Field names are keys of config.json, the same as in Hugging Face configs if one
has them.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from longsum_jax.errors import InputError
from longsum_jax.layers.s4d import InputInit, StepInit
from longsum_jax.ops.attention.fused import AttentionBackend
from longsum_jax.ops.attention.lsg_selection import SparsityType
from longsum_jax.ops.ssm.backends import Backend
from longsum_jax.ops.ssm.kernel import Discretization
from longsum_jax.schema import (
    Length,
    PositiveFloat,
    Size,
    SizeOrNone,
    Weight,
    check_ranges,
)


@dataclass(frozen=True, kw_only=True)
class NoOptions:
    """The options of an attention without any."""


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """Options shared by all attentions over blocks.

    Attributes:
        block_size: number of tokens of a block.
    """

    block_size: Size = 64


@dataclass(frozen=True, kw_only=True)
class GlobalTokenOptions:
    """Options shared by all attentions with global tokens.

    Attributes:
        num_global_tokens: number of global tokens. ``global``: the first tokens
            of the input; ``block_staggered``, ``lsg`` (at most 512): learned
            tokens before the input.
    """

    num_global_tokens: SizeOrNone = 32


@dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """Options of ``window`` and ``longformer``.

    Attributes:
        attention_window: number of tokens that a query sees to its left and
            right together, even; one for all layers, or one per layer.
    """

    attention_window: tuple[SizeOrNone, ...] = (512,)


@dataclass(frozen=True, kw_only=True)
class AdaptiveSpanOptions(WindowOptions):
    """Options of ``adaptive_span``, whose spans are limited to the window.

    Attributes:
        span_ramp: number of tokens over which a span fades out.
        span_penalty: weight in the loss of the mean span in tokens.
    """

    span_ramp: Size = 16
    span_penalty: Weight = 0.0


@dataclass(frozen=True, kw_only=True)
class StrideOptions:
    """Options of ``stride``.

    Attributes:
        attention_stride: number of tokens from one key to the next.
    """

    attention_stride: Size = 8


@dataclass(frozen=True, kw_only=True)
class RandomBlockOptions(BlockOptions):
    """Options of ``random`` and ``bigbird``.

    Attributes:
        num_random_blocks: number of random blocks that a block attends to
            (``bigbird``: in training).
    """

    num_random_blocks: SizeOrNone = 3


@dataclass(frozen=True, kw_only=True)
class PatternOptions(
    AdaptiveSpanOptions, GlobalTokenOptions, StrideOptions, RandomBlockOptions
):
    """Options of all patterns of keys, which "+" combines."""


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Options of ``local`` and ``transient_global``.

    Attributes:
        local_radius: number of tokens that a query sees on either side.
    """

    local_radius: Size = 127


@dataclass(frozen=True, kw_only=True)
class WindowSizeOptions(LocalOptions):
    """Options of ``local``.

    Attributes:
        local_even: True to leave out the farthest token on the left, so that a
            window has ``2 local_radius`` tokens; other libraries make windows
            of an even size.
    """

    local_even: bool = False


@dataclass(frozen=True, kw_only=True)
class TransientGlobalOptions(LocalOptions):
    """Options of ``transient_global``.

    Attributes:
        global_block_size: number of tokens summed to one transient global
            token.
    """

    global_block_size: Size = 16


@dataclass(frozen=True, kw_only=True)
class StaggeredOptions(GlobalTokenOptions, BlockOptions):
    """Options of ``block_staggered`` (PEGASUS-X, Phang et al. 2022).

    Attributes:
        stagger_local_blocks: True to shift the blocks of every second layer by
            half a block.
    """

    stagger_local_blocks: bool = True


@dataclass(frozen=True, kw_only=True)
class LsgOptions(GlobalTokenOptions, BlockOptions):
    """Options of ``lsg``; see ``ops.attention.lsg``.

    Attributes:
        sparse_block_size: number of sparse keys on either side of a block.
        sparsity_factor: number of tokens per sparse key.
        sparsity_type: method that selects the sparse keys.
        mask_first_token: True to hide the first token; the first global token
            replaces it.
        pool_with_global: True to return the first global token's state as the
            first token's state.
        pass_global_tokens_to_decoder: True if the encoder also returns the
            states of the global tokens, before the others, and does not pool.
        lsh_num_pre_rounds: number of rounds of clustering before the last one.
        adaptive: key of the published code without effect here: inputs are
            always padded to a multiple of the block size.
        reference_quirks: True to reproduce the errors of the published code.
    """

    sparse_block_size: SizeOrNone = 128
    sparsity_factor: SizeOrNone = 2
    sparsity_type: SparsityType = "norm"
    mask_first_token: bool = False
    pool_with_global: bool = True
    pass_global_tokens_to_decoder: bool = True
    lsh_num_pre_rounds: SizeOrNone = 1
    adaptive: bool = True
    reference_quirks: bool = False


@dataclass(frozen=True, kw_only=True)
class LinformerOptions:
    """Options of ``linformer``.

    Attributes:
        linformer_size: number of keys that an input is compressed to.
        linformer_max_length: maximum input length in tokens.
    """

    linformer_size: Size = 256
    linformer_max_length: Length = 1024


@dataclass(frozen=True, kw_only=True)
class LshOptions:
    """Options of ``lsh``.

    Attributes:
        lsh_num_hashes: number of rounds of hashing.
        lsh_num_buckets: number of buckets per round, even.
        lsh_chunk_length: number of tokens of a chunk, which attends to itself
            and the previous chunk.
    """

    lsh_num_hashes: Size = 4
    lsh_num_buckets: Size = 32
    lsh_chunk_length: Size = 64


@dataclass(frozen=True, kw_only=True)
class PerformerOptions:
    """Options of ``performer`` (Choromanski et al. 2021).

    Attributes:
        performer_num_features: number of random features per query or key.
    """

    performer_num_features: Size = 256


@dataclass(frozen=True, kw_only=True)
class SinkhornOptions(BlockOptions):
    """Options of ``sinkhorn``.

    Attributes:
        sinkhorn_iterations: number of normalizations of the soft order of
            blocks.
        sinkhorn_temperature: temperature of the soft order.
    """

    sinkhorn_iterations: Size = 7
    sinkhorn_temperature: PositiveFloat = 0.7


@dataclass(frozen=True, kw_only=True)
class DisentangledOptions:
    """Options of ``disentangled``.

    Attributes:
        position_buckets: number of buckets of relative positions on either
            side.
        max_relative_positions: distance in tokens from which all keys share a
            bucket.
    """

    position_buckets: Size = 256
    max_relative_positions: Length = 512


@dataclass(frozen=True, kw_only=True)
class S4DOptions:
    """Options of ``s4d``: attributes of ``layers.s4d.S4D`` with the same names, some of
    them prefixed with "ssm_".
    """

    d_state: Size = 512
    bidirectional: bool = True
    gating: bool = True
    ssm_shared_dynamics: bool = True
    ssm_dt_min: PositiveFloat = 1e-3
    ssm_dt_max: PositiveFloat = 1e-1
    ssm_dt_init: StepInit = "log_uniform"
    ssm_b_init: InputInit = "one"
    ssm_discretization: Discretization = "zoh"

    def __post_init__(self) -> None:
        if self.d_state < 2 or self.d_state % 2:
            raise InputError(
                f"d_state is {self.d_state}; it must be even, because modes stand for conjugate "
                "pairs"
            )


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions:
    """Options that select how to compute; they are not written to checkpoints.

    Attributes:
        attention_backend: kernel of attention to all keys, windows and blocks,
            without a bias or dropout, in encoders and decoders; see
            ``ops.attention.fused.choose_kernel``.
        ssm_backend: backend of convolutions, see
            ``ops.ssm.convolution.ssm_convolution``.
    """

    attention_backend: AttentionBackend = "auto"
    ssm_backend: Backend | Literal["auto"] = "auto"


@dataclass(frozen=True, kw_only=True)
class EncoderAttentionOptions(
    RuntimeOptions,
    S4DOptions,
    LsgOptions,
    PerformerOptions,
    DisentangledOptions,
    SinkhornOptions,
    LshOptions,
    LinformerOptions,
    PatternOptions,
    StaggeredOptions,
    WindowSizeOptions,
    TransientGlobalOptions,
):
    """The selected encoder attention, and the options of all encoder attentions.

    Attributes:
        encoder_attention: name in
            ``layers.attention.registry.ENCODER_ATTENTIONS``, patterns joined by
            "+" ("window+global"), or the attention of each layer, beginning
            with the first ("window*3,full").
    """

    encoder_attention: str = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self)


@dataclass(frozen=True, kw_only=True)
class HeposOptions:
    """Options of the cross-attention ``hepos``.

    Attributes:
        hepos_stride: number of positions from one key of a head to the next.
    """

    hepos_stride: Size = 4


@dataclass(frozen=True, kw_only=True)
class CrossLinformerOptions:
    """Options of the cross-attention ``linformer``.

    Attributes:
        cross_linformer_size: number of keys that the source is compressed to.
        cross_linformer_max_length: maximum source length in tokens.
    """

    cross_linformer_size: Size = 256
    cross_linformer_max_length: Length = 1024


@dataclass(frozen=True, kw_only=True)
class NearestOptions:
    """Options of the cross-attention ``nearest``.

    Attributes:
        cross_nearest: number of keys that a head reads for each query, the keys
            with the largest scores.
    """

    cross_nearest: Length = 1024


@dataclass(frozen=True, kw_only=True)
class CrossAttentionOptions(
    NearestOptions, CrossLinformerOptions, HeposOptions
):
    """The selected cross-attention, and the options of all cross-attentions; config.json has them
    unless the selection is ``full``.

    Attributes:
        cross_attention: name in ``layers.attention.registry.CROSS_ATTENTIONS``.
    """

    cross_attention: str = "full"

    def __post_init__(self) -> None:
        check_ranges(self)


def option_names(options: type) -> tuple[str, ...]:
    """Returns the names of the fields of a dataclass of options."""
    return tuple(field.name for field in dataclasses.fields(options))


RUNTIME_OPTIONS = option_names(RuntimeOptions)


def check_windows(windows: Sequence[int]) -> None:
    """Raises InputError unless windows are even and include a token on either side."""
    if any(window < 2 or window % 2 for window in windows):
        raise InputError(
            f"attention_window is {windows}; windows must be even and at least 2"
        )


def check_num_windows(windows: Sequence[int], num_layers: int) -> None:
    """Raises InputError unless there is one window, or one per layer."""
    if len(windows) not in (1, num_layers):
        raise InputError(
            f"attention_window has {len(windows)} numbers for {num_layers} layers; give one, or "
            "one each"
        )
