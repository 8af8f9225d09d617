"""Options of encoder attentions and cross-attentions: one small dataclass for each.

A model config holds the options of the attentions that it uses. The names of
the fields are keys of config.json; if a config of Hugging Face has the same
option, they are its names. Names in double backquotes without a module, such as
``lsg``, are names of attentions (``layers.attention.registry``).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.lsg_selection import SparsityType
from longsum_jax.ops.ssm.options import (
    Discretization,
    InputInit,
    StepInit,
    check_state_size,
)
from longsum_jax.schema import (
    Length,
    PositiveFloat,
    Size,
    SizeOrNone,
    Weight,
    check_ranges,
    from_dict,
)


@dataclass(frozen=True, kw_only=True)
class FlatOptions:
    """The base class of options: one object in a model config, flat keys in config.json.

    Raises:
        InputError: a value out of range.
    """

    def __post_init__(self) -> None:
        check_ranges(self)

    @classmethod
    def of(cls, options: Any) -> Self:
        """Returns ``options`` unchanged, after checking that they are an instance of this class.

        Raises:
            TypeError: they are not.
        """
        if not isinstance(options, cls):
            raise TypeError(
                f"expected {cls.__name__}, got {type(options).__name__}"
            )
        return options

    def flat(self) -> dict[str, Any]:
        """Returns the options by their keys in config.json."""
        return {name: getattr(self, name) for name in option_names(type(self))}


@dataclass(frozen=True, kw_only=True)
class EncoderAttentionOptions(FlatOptions):
    """The options of an encoder attention; subclasses add fields."""


@dataclass(frozen=True, kw_only=True)
class CrossAttentionOptions(FlatOptions):
    """The options of a cross-attention; subclasses add fields."""


# The options of attentions that have none. A config replaces them by the
# default options of the attention in use.
ENCODER_DEFAULTS = EncoderAttentionOptions()
CROSS_DEFAULTS = CrossAttentionOptions()


@dataclass(frozen=True, kw_only=True)
class PartOptions(EncoderAttentionOptions):
    """Options of several attentions: of the layers of a hybrid, or of joined patterns.

    Attributes:
        parts: name and options of each attention. An option that several of
            them have has the same value in all, because it is one key in
            config.json.
    """

    parts: tuple[tuple[str, EncoderAttentionOptions], ...]

    def part(self, name: str) -> EncoderAttentionOptions:
        """Returns the options of the attention ``name``.

        Raises:
            KeyError: it is not one of the attentions.
        """
        return dict(self.parts)[name]

    def flat(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for _, options in self.parts:
            values |= options.flat()
        return values


@dataclass(frozen=True, kw_only=True)
class BlockOptions(EncoderAttentionOptions):
    """Options shared by all attentions over blocks.

    Attributes:
        block_size: number of tokens of a block.
    """

    block_size: Size = 64


@dataclass(frozen=True, kw_only=True)
class GlobalTokenOptions(EncoderAttentionOptions):
    """Options shared by all attentions with global tokens.

    Attributes:
        num_global_tokens: number of global tokens. ``global``: the first tokens
            of the input; ``block_staggered``, ``lsg`` (at most 512): learned
            tokens before the input.
    """

    num_global_tokens: SizeOrNone = 32


@dataclass(frozen=True, kw_only=True)
class WindowOptions(EncoderAttentionOptions):
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
class StrideOptions(EncoderAttentionOptions):
    """Options of ``stride``.

    Attributes:
        attention_stride: number of tokens from one key of a query to the next.
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
class LocalOptions(EncoderAttentionOptions):
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
        global_block_size: number of tokens that are summed to make one
            transient global token.
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
        sparse_block_size: number of sparse keys on either side of the window of
            three blocks; 0 for none.
        sparsity_factor: number of tokens per sparse key, a divisor of
            ``block_size``; 0 for no sparse keys.
        sparsity_type: method that selects the sparse keys, see
            ``ops.attention.lsg_selection``.
        mask_first_token: True to hide the first token; the first global token
            replaces it.
        pool_with_global: True to return the first global token's state as the
            first token's state.
        pass_global_tokens_to_decoder: True if the encoder also returns the
            states of the global tokens, before the states of the text;
            ``pool_with_global`` then has no effect.
        lsh_num_pre_rounds: number of rounds of clustering before the last one,
            for ``sparsity_type`` "lsh".
        reference_quirks: True to reproduce the errors of the published code,
            which ``ops.attention.lsg`` lists.
    """

    sparse_block_size: SizeOrNone = 128
    sparsity_factor: SizeOrNone = 2
    sparsity_type: SparsityType = "norm"
    mask_first_token: bool = False
    pool_with_global: bool = True
    pass_global_tokens_to_decoder: bool = True
    lsh_num_pre_rounds: SizeOrNone = 1
    reference_quirks: bool = False

    def flat(self) -> dict[str, Any]:
        # The published code reads one more key. Here inputs of any length are
        # padded to whole blocks, which it calls adaptive.
        return super().flat() | {"adaptive": True}


@dataclass(frozen=True, kw_only=True)
class LinformerOptions(EncoderAttentionOptions):
    """Options of ``linformer``.

    Attributes:
        linformer_size: number of keys that an input is compressed to.
        linformer_max_length: maximum input length in tokens.
    """

    linformer_size: Size = 256
    linformer_max_length: Length = 1024


@dataclass(frozen=True, kw_only=True)
class LshOptions(EncoderAttentionOptions):
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
class PerformerOptions(EncoderAttentionOptions):
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
class DisentangledOptions(EncoderAttentionOptions):
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
class S4DOptions(EncoderAttentionOptions):
    """Options of ``s4d``; ``layers.s4d.S4D`` documents them, without the prefix "ssm_"."""

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
        super().__post_init__()
        check_state_size(self.d_state)


@dataclass(frozen=True, kw_only=True)
class HeposOptions(CrossAttentionOptions):
    """Options of the cross-attention ``hepos``.

    Attributes:
        hepos_stride: number of positions from one key of a head to the next.
    """

    hepos_stride: Size = 4


@dataclass(frozen=True, kw_only=True)
class CrossLinformerOptions(CrossAttentionOptions):
    """Options of the cross-attention ``linformer``.

    Attributes:
        cross_linformer_size: number of keys that the source is compressed to.
        cross_linformer_max_length: maximum source length in tokens.
    """

    cross_linformer_size: Size = 256
    cross_linformer_max_length: Length = 1024


@dataclass(frozen=True, kw_only=True)
class NearestOptions(CrossAttentionOptions):
    """Options of the cross-attention ``nearest``.

    Attributes:
        cross_nearest: number of keys that a head reads for each query, the keys
            with the largest scores.
    """

    cross_nearest: Length = 1024


# The option classes of all attentions of this library. Several attentions may
# share a class.
ENCODER_OPTIONS: tuple[type[EncoderAttentionOptions], ...] = (
    S4DOptions,
    LsgOptions,
    PerformerOptions,
    DisentangledOptions,
    SinkhornOptions,
    LshOptions,
    LinformerOptions,
    AdaptiveSpanOptions,
    StrideOptions,
    RandomBlockOptions,
    StaggeredOptions,
    WindowSizeOptions,
    TransientGlobalOptions,
)
CROSS_OPTIONS: tuple[type[CrossAttentionOptions], ...] = (
    HeposOptions,
    CrossLinformerOptions,
    NearestOptions,
)

Options = TypeVar("Options", bound=FlatOptions)


def option_names(options: type) -> tuple[str, ...]:
    """Returns the names of the fields of a dataclass of options."""
    return tuple(field.name for field in dataclasses.fields(options))


def read_options(
    options: type[Options], values: Mapping[str, Any], where: str
) -> Options:
    """Returns an instance of ``options`` with the values of its fields among flat values.

    Args:
        options: dataclass of options.
        values: values by key; keys of other dataclasses are ignored.
        where: name of the values in error messages.

    Raises:
        InputError: a value of the wrong type or out of range.
    """
    names = option_names(options)
    entries = {name: values[name] for name in names if name in values}
    return from_dict(options, entries, where)


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
