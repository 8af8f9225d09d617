"""Options of encoder attentions and cross-attentions."""

from dataclasses import dataclass
from typing import Literal

from longsum_jax.errors import InputError
from longsum_jax.layers.s4d import StepInit
from longsum_jax.ops.attention.lsg_selection import SparsityType
from longsum_jax.ops.ssm.convolution import Backend
from longsum_jax.ops.ssm.kernel import Discretization

RUNTIME_OPTIONS = ("ssm_backend", "ssm_operands")


@dataclass(frozen=True, kw_only=True)
class EncoderAttentionOptions:
    """Which attention an encoder uses, and what each kind reads; names as in the Hugging Face
    configs that have them.

    Every model config inherits these fields, so that every kind goes into every encoder.

    Attributes:
        encoder_attention: a name of ``layers.attention.registry.ENCODER_ATTENTIONS``, patterns
            joined by "+" ("window+global"), or what each layer has, from the first on
            ("window*3,full").
        local_radius: tokens seen on either side (``local``, ``transient_global``).
        global_block_size: tokens that one transient global stands for (``transient_global``).
        attention_window: tokens seen on both sides together, even; one number for every layer or
            one for all (``longformer``, ``window``, ``adaptive_span``).
        block_size: tokens of a block (``block_staggered``, ``bigbird``, ``lsg``, ``random``,
            ``sinkhorn``).
        num_global_tokens: learned tokens in front of the text (``block_staggered``; ``lsg``: at
            most 512).
        stagger_local_blocks: shifts the blocks of every second layer by half a block
            (``block_staggered``).
        num_random_blocks: further blocks that a block sees (``random``; ``bigbird``: in training).
        attention_stride: tokens from one key to the next (``stride``).
        span_ramp: tokens over which a span fades out (``adaptive_span``).
        span_penalty: what a token of the mean span adds to the loss (``adaptive_span``).
        linformer_size, linformer_max_length: rows that a text is compressed to, and its longest
            length (``linformer``).
        lsh_num_hashes, lsh_num_buckets, lsh_chunk_length: rounds of hashing, buckets of each, even,
            and tokens of a chunk, which sees itself and the chunk before it (``lsh``).
        sinkhorn_iterations, sinkhorn_temperature: of the soft order of blocks (``sinkhorn``).
        sparse_block_size, sparsity_factor, sparsity_type: sparse keys on either side, tokens that
            one stands for, and how they are selected; see ``ops.attention.lsg`` (``lsg``).
        mask_first_token: hides the first token, which the first global token then replaces
            (``lsg``).
        pool_with_global: the first token's state is the first global token's (``lsg``).
        pass_global_tokens_to_decoder: the encoder gives G + L states, globals first, and pools
            nothing (``lsg``).
        lsh_num_pre_rounds: rounds of clustering before the last one (``lsg``).
        adaptive: kept for the published code; here inputs are always padded to whole blocks
            (``lsg``).
        reference_quirks: does what the published code does where it is wrong, see
            ``ops.attention.lsg`` (``lsg``).
        d_state, bidirectional, gating, ssm_*: see ``layers.s4d.S4D`` (``s4d``); those of
            RUNTIME_OPTIONS say how to compute and are not written to checkpoints.
    """

    encoder_attention: str = "full"
    local_radius: int = 127
    global_block_size: int = 16
    attention_window: tuple[int, ...] = (512,)
    block_size: int = 64
    num_global_tokens: int = 32
    stagger_local_blocks: bool = True
    num_random_blocks: int = 3
    attention_stride: int = 8
    span_ramp: int = 16
    span_penalty: float = 0.0
    linformer_size: int = 256
    linformer_max_length: int = 1024
    lsh_num_hashes: int = 4
    lsh_num_buckets: int = 32
    lsh_chunk_length: int = 64
    sinkhorn_iterations: int = 7
    sinkhorn_temperature: float = 0.7
    sparse_block_size: int = 128
    sparsity_factor: int = 2
    sparsity_type: SparsityType = "norm"
    mask_first_token: bool = False
    pool_with_global: bool = True
    pass_global_tokens_to_decoder: bool = True
    lsh_num_pre_rounds: int = 1
    adaptive: bool = True
    reference_quirks: bool = False
    d_state: int = 512
    bidirectional: bool = True
    gating: bool = True
    ssm_shared_dynamics: bool = True
    ssm_dt_min: float = 1e-3
    ssm_dt_max: float = 1e-1
    ssm_dt_init: StepInit = "log_uniform"
    ssm_discretization: Discretization = "zoh"
    ssm_backend: Backend | Literal["auto"] = "auto"
    ssm_operands: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        if self.d_state < 2 or self.d_state % 2:
            raise InputError(
                f"d_state is {self.d_state}; it must be even, because modes stand for conjugate pairs"
            )


@dataclass(frozen=True, kw_only=True)
class CrossAttentionOptions:
    """Which cross-attention a decoder uses, and what each kind reads; config.json has them unless
    it is ``full``.

    Attributes:
        cross_attention: a name of ``layers.attention.cross.CROSS_ATTENTIONS``.
        hepos_stride: every how many positions a head reads one (``hepos``).
        cross_linformer_size: rows that the source is compressed to (``linformer``).
        cross_linformer_max_length: longest source, in tokens (``linformer``).
        cross_nearest: positions that a head reads for a query, those of the largest scores
            (``nearest``).
    """

    cross_attention: str = "full"
    hepos_stride: int = 4
    cross_linformer_size: int = 256
    cross_linformer_max_length: int = 1024
    cross_nearest: int = 1024
