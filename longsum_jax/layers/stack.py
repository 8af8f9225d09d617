"""What a stack of transformer layers is made of: one description that every family fills in from its own config."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.common import NORMS, FeedForward, Initializer, normal, torch_uniform
from longsum_jax.layers.s4d import StepInit
from longsum_jax.ops.gradients import KEEP
from longsum_jax.ops.lsg_selection import SparsityType
from longsum_jax.ops.memory import Overflow
from longsum_jax.ops.ssm import Discretization
from longsum_jax.ops.ssm_conv import Backend

RUNTIME_OPTIONS = ("ssm_backend", "ssm_operands")


@dataclass(frozen=True, kw_only=True)
class EncoderAttentionOptions:
    """Which attention an encoder uses, and what each kind reads; names as in the Hugging Face configs that have them.

    Every model config inherits these fields, so that every kind goes into every encoder.

    Attributes:
        encoder_attention: a name of ``layers.encoder_attention.ENCODER_ATTENTIONS``, patterns joined by "+"
            ("window+global"), or what each layer has, from the first on ("window*3,full").
        local_radius: tokens seen on either side (``local``, ``transient_global``).
        global_block_size: tokens that one transient global stands for (``transient_global``).
        attention_window: tokens seen on both sides together, even; one number for every layer or one for all
            (``longformer``, ``window``, ``adaptive_span``).
        block_size: tokens of a block (``block_staggered``, ``bigbird``, ``lsg``, ``random``, ``sinkhorn``).
        num_global_tokens: learned tokens in front of the text (``block_staggered``; ``lsg``: at most 512).
        stagger_local_blocks: shifts the blocks of every second layer by half a block (``block_staggered``).
        num_random_blocks: further blocks that a block sees (``random``; ``bigbird``: in training).
        attention_stride: tokens from one key to the next (``stride``).
        span_ramp: tokens over which a span fades out (``adaptive_span``).
        span_penalty: what a token of the mean span adds to the loss (``adaptive_span``).
        linformer_size, linformer_max_length: rows that a text is compressed to, and its longest length (``linformer``).
        lsh_num_hashes, lsh_num_buckets, lsh_chunk_length: rounds of hashing, buckets of each, even, and tokens of a
            chunk, which sees itself and the chunk before it (``lsh``).
        sinkhorn_iterations, sinkhorn_temperature: of the soft order of blocks (``sinkhorn``).
        sparse_block_size, sparsity_factor, sparsity_type: sparse keys on either side, tokens that one stands for, and
            how they are selected; see ``ops.lsg`` (``lsg``).
        mask_first_token: hides the first token, which the first global token then replaces (``lsg``).
        pool_with_global: the first token's state is the first global token's (``lsg``).
        pass_global_tokens_to_decoder: the encoder gives G + L states, globals first, and pools nothing (``lsg``).
        lsh_num_pre_rounds: rounds of clustering before the last one (``lsg``).
        adaptive: kept for the published code; here inputs are always padded to whole blocks (``lsg``).
        reference_quirks: does what the published code does where it is wrong, see ``ops.lsg`` (``lsg``).
        d_state, bidirectional, gating, ssm_*: see ``layers.s4d.S4D`` (``s4d``); those of RUNTIME_OPTIONS say how to
            compute and are not written to checkpoints.
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
            raise InputError(f"d_state is {self.d_state}; it must be even, because modes stand for conjugate pairs")


@dataclass(frozen=True, kw_only=True)
class CrossAttentionOptions:
    """Which cross-attention a decoder uses, and what each kind reads; config.json has them unless it is ``full``.

    Attributes:
        cross_attention: a name of ``layers.cross_attention.CROSS_ATTENTIONS``.
        hepos_stride: every how many positions a head reads one (``hepos``).
        cross_linformer_size: rows that the source is compressed to (``linformer``).
        cross_linformer_max_length: longest source, in tokens (``linformer``).
        cross_nearest: positions that a head reads for a query, those of the largest scores (``nearest``).
    """

    cross_attention: str = "full"
    hepos_stride: int = 4
    cross_linformer_size: int = 256
    cross_linformer_max_length: int = 1024
    cross_nearest: int = 1024


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """How a source of any length is read page by page, each as if it were alone; config.json has them if it is.

    Attributes:
        page_length: tokens that the encoder reads at a time, positions counted anew; 0 reads the source in one piece.
        page_context: tokens on either side of a page that are read with it and not kept, part of its length
            (Unlimiformer: a quarter).
        page_decoding: the decoder reads one page at a time, too, and its outputs are averaged by learned weights
            (PageSum); otherwise it reads the states of all pages side by side.
    """

    page_length: int = 0
    page_context: int = 0
    page_decoding: bool = False

    @property
    def page_body(self) -> int:
        """Tokens of a page that are kept."""
        return self.page_length - 2 * self.page_context


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """What layers keep from segment to segment of a document (AWESOME), and which; config.json has them if any does.

    Attributes:
        memory: "compressive" (the newest states and older ones compressed, read by self-attention), "attentive" (slots
            rewritten by gates, read by an attention of their own) or "none".
        memory_layers: "firstN", "lastN", "all" or their indices; None for the first three of a compressive, the last
            three of an attentive memory. N may exceed the number of layers.
        memory_decoder: whether the same layers of the decoder have one.
        memory_size: slots of one layer.
        memory_compression: states that become one (``compressive``).
        memory_overflow: see ``ops.memory.compressive_update`` (``compressive``).
        memory_reconstruction: what the mean error of attending to compressed states instead of the states adds to the
            loss, for every layer; trains the compression alone (``compressive``).
        memory_hidden: "normalised" memorises what the part after self-attention reads, "raw" what self-attention gave
            (``attentive``).
        memory_backprop: segments whose writing gradients go back through, 0 for all of a document.
        salient_vectors: encoder states of important sentences elsewhere in the document that all layers of the encoder
            read as further keys, at most so many; 0 for none.
        salient_projection: whether keys and values share the map of those states, which is the identity at first.
    """

    memory: Literal["none", "compressive", "attentive"] = "none"
    memory_layers: str | tuple[int, ...] | None = None
    memory_decoder: bool = True
    memory_size: int = 1024
    memory_compression: int = 5
    memory_overflow: Overflow = "left_pad"
    memory_reconstruction: float = 0.0
    memory_hidden: Literal["normalised", "raw"] = "normalised"
    memory_backprop: int = 1
    salient_vectors: int = 0
    salient_projection: Literal["shared", "separate"] = "shared"


def with_attention(options: EncoderAttentionOptions, name: str) -> EncoderAttentionOptions:
    """The options of layers that all have the encoder attention ``name``.

    Memories are left out: which layers have one, and whether they can read it, is a matter of all layers together.
    """
    plain = {"memory": "none", "salient_vectors": 0} if isinstance(options, MemoryOptions) else {}
    return dataclasses.replace(options, encoder_attention=name, **plain)


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """Sizes, order and numbers of one encoder or decoder stack.

    Attributes:
        d_kv: size of one head.
        feed_forward: of ``FEED_FORWARD_KINDS``.
        pre_norm: normalises before each part (T5, PEGASUS); else after each residual (BART, BERT).
        final_norm: normalises once more at the end.
        attention_scale: factor of the query-key products.
        attention_init: "torch", "t5", or the standard deviation of all kernels.
        dropout_rate: of embeddings and of each part's output.
        output_dropout_rate: after the final norm.
        relative_attention: (buckets, largest distance) of T5's bias, None without.
        options: which encoder attention; decoders do not look at it.
        cross: which cross-attention; encoders do not look at it.
        memory: what all layers of this stack keep from segment to segment.
        remat: gradients compute layers again from their inputs; otherwise only what costs little: all but products with
            parameters and the convolutions of S4D.
        length_chunk: positions per piece in dense maps of an encoder; 0 for all at once.
    """

    d_model: int
    num_heads: int
    d_kv: int
    d_ff: int
    num_layers: int
    feed_forward: str
    norm: Literal["rms", "layer"]
    norm_epsilon: float
    pre_norm: bool
    final_norm: bool
    attention_bias: bool = False
    feed_forward_bias: bool = False
    attention_scale: float = 1.0
    attention_init: Literal["torch", "t5"] | float = "t5"
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    activation_dropout_rate: float = 0.0
    output_dropout_rate: float = 0.0
    relative_attention: tuple[int, int] | None = None
    options: EncoderAttentionOptions = EncoderAttentionOptions()
    cross: CrossAttentionOptions = CrossAttentionOptions()
    memory: MemoryOptions = MemoryOptions()
    dtype: Any = jnp.float32
    remat: bool = False
    length_chunk: int = 0

    @property
    def kept_for_gradients(self) -> Callable[..., bool] | None:
        """Of ``jax.checkpoint``: what of a layer its gradient finds, and does not compute again."""
        return None if self.remat else KEEP

    def make_norm(self, **names: Any) -> nn.Module:
        return NORMS[self.norm](self.norm_epsilon, self.dtype, **names)

    def make_feed_forward(self) -> FeedForward:
        std = self.attention_init if isinstance(self.attention_init, float) else None
        return FeedForward(
            self.d_ff, self.feed_forward, self.activation_dropout_rate, self.feed_forward_bias, std, self.dtype
        )

    @property
    def attention_fields(self) -> dict[str, Any]:
        """Arguments of ``layers.attention.Attention``."""
        query, projection, output = self._attention_initializers()
        return {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_kv": self.d_kv,
            "projection_init": projection,
            "output_init": output,
            "query_init": query,
            "scale": self.attention_scale,
            "use_bias": self.attention_bias,
            "dropout_rate": self.attention_dropout_rate,
            "dtype": self.dtype,
        }

    def _attention_initializers(self) -> tuple[Initializer, Initializer, Initializer]:
        """Of queries, of keys and values, of the output."""
        inner = self.num_heads * self.d_kv
        if self.attention_init == "torch":
            return torch_uniform(self.d_model), torch_uniform(self.d_model), torch_uniform(inner)
        if self.attention_init == "t5":
            # T5 leaves the scale of the products to its queries.
            return normal((self.d_model * self.d_kv) ** -0.5), normal(self.d_model**-0.5), normal(inner**-0.5)
        return (normal(self.attention_init),) * 3
