"""The config of a stack of transformer layers, which every model family fills from its config."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.attention.options import (
    CROSS_DEFAULTS,
    ENCODER_DEFAULTS,
    CrossAttentionOptions,
    EncoderAttentionOptions,
    FlatOptions,
    PartOptions,
)
from longsum_jax.layers.dense import (
    NORMS,
    FeedForward,
    Linear,
    SandwichNorm,
    normal,
    torch_uniform,
)
from longsum_jax.layers.partitioning import Initializer
from longsum_jax.ops.attention.dense import Scale
from longsum_jax.ops.attention.fused import AttentionBackend
from longsum_jax.ops.memory import Overflow
from longsum_jax.ops.positions import Rotary
from longsum_jax.ops.remat import POLICIES, Remat
from longsum_jax.ops.ssm.options import Backend
from longsum_jax.schema import (
    LengthOrNone,
    Size,
    SizeOrNone,
    Weight,
)


@dataclass(frozen=True, kw_only=True)
class PageOptions(FlatOptions):
    """Options for encoding a source of any length in pages that do not see each other; config.json
    has them if ``page_length`` is set.

    Attributes:
        page_length: number of tokens of a page, whose positions begin at 0; 0
            encodes the source in one piece.
        page_context: number of tokens on either side of a page that only serve
            as context, and whose states come from the previous or next page;
            part of ``page_length`` (Unlimiformer: a quarter). The first page
            has no context before it and the last none after it; see
            ``ops.pages``. Pages without context do not overlap.
        page_decoding: True if the decoder also reads one page at a time, and
            its outputs are averaged by learned weights (PageSum); otherwise it
            reads the states of all pages.
        page_recompute: True to encode pages one after another, and in training
            again for their gradients, so that memory contains the states of all
            pages but the activations of only one (CachED, Saxena et al. 2025);
            otherwise all pages are encoded at once. Both compute the same
            result.
    """

    page_length: LengthOrNone = 0
    page_context: LengthOrNone = 0
    page_decoding: bool = False
    page_recompute: bool = False

    @property
    def page_body(self) -> int:
        """Number of tokens of a page without its context."""
        return self.page_length - 2 * self.page_context


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(FlatOptions):
    """Options for memories that layers carry from segment to segment of a document (AWESOME);
    config.json has them if any is in use.

    Attributes:
        memory: memory type: "compressive" (the newest states and older ones
            compressed, read by self-attention), "attentive" (slots rewritten by
            gates, read by a separate attention) or "none".
        memory_layers: layers with a memory: "firstN", "lastN", "all" or their
            indices; None for the first three of a compressive, the last three
            of an attentive memory. N may exceed the number of layers.
        memory_decoder: True if the same layers of the decoder also have a
            memory.
        memory_size: number of slots per layer.
        memory_compression: number of states that are compressed to one
            (``compressive``).
        memory_overflow: treatment of incomplete strides, see
            ``ops.memory.compressive_update`` (``compressive``).
        memory_reconstruction: weight of an additional loss of each layer, the
            mean squared difference between attention to the compressed states
            and attention to the original states (Rae et al. 2020). Its
            gradients only reach the compression (``compressive``).
        memory_hidden: states to store: "normalised" for the input of the
            sublayer after self-attention, "raw" for the output of
            self-attention (``attentive``).
        memory_backprop: number of segments through whose writes to the memory
            gradients flow back; 0 for all segments of a document.
        salient_vectors: maximum number of encoder states of important sentences
            elsewhere in the document that all layers of the encoder read as
            extra keys; 0 for none.
        salient_projection: projection of these states, initially the identity:
            "shared" by keys and values, or "separate".
    """

    memory: Literal["none", "compressive", "attentive"] = "none"
    memory_layers: str | tuple[int, ...] | None = None
    memory_decoder: bool = True
    memory_size: Size = 1024
    memory_compression: Size = 5
    memory_overflow: Overflow = "left_pad"
    memory_reconstruction: Weight = 0.0
    memory_hidden: Literal["normalised", "raw"] = "normalised"
    memory_backprop: SizeOrNone = 1
    salient_vectors: SizeOrNone = 0
    salient_projection: Literal["shared", "separate"] = "shared"

    @property
    def is_used(self) -> bool:
        """True if states are carried from one segment of a document to the next."""
        return self.memory != "none" or self.salient_vectors > 0


NO_PAGES = PageOptions()
NO_MEMORY = MemoryOptions()


class AttentionInitializers(NamedTuple):
    """The initializers of an attention's maps; keys and values share one."""

    query: Initializer
    projection: Initializer
    output: Initializer


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """The config of one encoder or decoder stack.

    Attributes:
        d_model: size of the states.
        num_heads: number of heads of every attention.
        num_kv_heads: number of heads of keys and values, each for a group of
            consecutive heads of the queries (Ainslie et al. 2023); None for
            ``num_heads``.
        d_kv: size of one head.
        d_ff: hidden size of the feed-forward network.
        num_layers: number of layers.
        feed_forward: feed-forward type, a key of
            ``layers.dense.FEED_FORWARD_KINDS``.
        norm: norm type, "rms" (T5), "gemma_rms" (an RMS norm whose scale is 1 +
            a parameter), "layer" or "layer_without_bias".
        norm_epsilon: constant added to the variance in norms.
        pre_norm: True to normalize before each sublayer (T5, PEGASUS);
            otherwise after each residual (BART, BERT).
        sandwich_norm: True to also normalize the output of each sublayer,
            before its residual; for stacks with ``pre_norm``.
        final_norm: True to normalize once more after the last layer.
        normalizes_first: False if the first layer of an encoder with
            ``pre_norm`` does not normalize the input of its self-attention
            (ModernBERT, whose embeddings are normalized).
        attention_bias: True to add biases to the maps of every attention.
        feed_forward_bias: True to add biases to the feed-forward network.
        attention_scale: factor of the query-key products, possibly with a soft
            cap of the scores.
        qk_norm: True to normalize the queries and keys of each head.
        merged_attention: True if the layers of a decoder read source and target
            by one attention: its maps are applied to both, with rotary
            positions only in the target, and one softmax is over the keys of
            both (T5Gemma 2).
        rotary: rotary positions of self-attention, one for all layers or one
            per layer; () for none.
        windows: number of tokens that a token of each decoder layer sees,
            itself included, 0 for all; () for 0 in all layers. Encoders have
            windows by their attention.
        attention_init: initialization of the attention's maps, "torch" or
            "t5"; or the standard deviation of all kernels of the stack.
        source_size: size of the encoder states that a decoder reads; None for
            ``d_model``.
        mapped_source_size: size of encoder states that a linear layer maps to
            ``d_model`` before the layers of a decoder read them; None for no
            map.
        embedding_size: size of embeddings that a linear layer maps to
            ``d_model``; None for embeddings of size ``d_model``, without a map.
        shares_layers: True if all layers have the same parameters, stored once,
            without an axis of layers.
        dropout_rate: dropout rate of the embeddings and of the output of each
            sublayer.
        attention_dropout_rate: dropout rate of the attention weights.
        activation_dropout_rate: dropout rate of the hidden states of the
            feed-forward network.
        output_dropout_rate: dropout rate after the final norm.
        relative_attention: number of buckets and maximum distance of T5's bias,
            None for no bias.
        bias_per_layer: True if every layer has a relative bias (umT5),
            otherwise all layers share one. Encoders support it with full
            attention.
        causal: True if tokens of an encoder see no later tokens, for language
            models without a source; decoders ignore it.
        encoder_attention: name of the encoder attention; decoders ignore it.
        attention: options of the encoder attention.
        cross_attention: name of the cross-attention; encoders ignore it.
        cross: options of the cross-attention.
        memory: options of the layers' memories.
        attention_backend: kernel of attention to all keys, windows and blocks,
            see ``ops.attention.fused.choose_kernel``.
        ssm_backend: backend of the convolutions of S4D, see
            ``ops.ssm.convolution.ssm_convolution``.
        dtype: dtype of all computations except softmax, norms and activations.
        remat: True to recompute each layer from its input in the backward pass;
            "attention" to store the results of attentions and of the
            convolutions of S4D; "projections" to store also the products with
            parameters, except the hidden states of the feed-forward; False to
            store these, too, and to recompute only the other, cheap operations.
        length_chunk: number of positions per chunk in dense maps of an encoder;
            0 for all at once.
    """

    d_model: int
    num_heads: int
    d_kv: int
    d_ff: int
    num_layers: int
    feed_forward: str
    norm: Literal["rms", "gemma_rms", "layer", "layer_without_bias"]
    norm_epsilon: float
    pre_norm: bool
    final_norm: bool
    num_kv_heads: int | None = None
    sandwich_norm: bool = False
    normalizes_first: bool = True
    attention_bias: bool = False
    feed_forward_bias: bool = False
    attention_scale: Scale = 1.0
    qk_norm: bool = False
    merged_attention: bool = False
    rotary: tuple[Rotary, ...] = ()
    windows: tuple[int, ...] = ()
    source_size: int | None = None
    mapped_source_size: int | None = None
    attention_init: Literal["torch", "t5"] | float = "t5"
    embedding_size: int | None = None
    shares_layers: bool = False
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    activation_dropout_rate: float = 0.0
    output_dropout_rate: float = 0.0
    relative_attention: tuple[int, int] | None = None
    bias_per_layer: bool = False
    causal: bool = False
    encoder_attention: str = "full"
    attention: EncoderAttentionOptions = ENCODER_DEFAULTS
    cross_attention: str = "full"
    cross: CrossAttentionOptions = CROSS_DEFAULTS
    memory: MemoryOptions = NO_MEMORY
    attention_backend: AttentionBackend = "auto"
    ssm_backend: Backend | Literal["auto"] = "auto"
    dtype: Any = jnp.float32
    remat: Remat = False
    length_chunk: int = 0

    def with_attention(self, name: str) -> "StackConfig":
        """Returns the config for layers that all have the attention ``name`` of this stack."""
        if name == self.encoder_attention:
            return self
        options = PartOptions.of(self.attention).part(name)
        return dataclasses.replace(
            self, encoder_attention=name, attention=options
        )

    @property
    def remat_policy(self) -> Callable[..., bool] | None:
        """The ``policy`` of ``nn.remat``: results of a layer saved for the backward pass."""
        return POLICIES[self.remat]

    @property
    def recomputes_projections(self) -> bool:
        """True if products with parameters are recomputed in the backward pass."""
        return self.remat in (True, "attention")

    @property
    def recomputes_hidden(self) -> bool:
        """True if hidden states of the feed-forward are recomputed in the backward pass."""
        return self.remat is not False

    @property
    def kernel_std(self) -> float | None:
        """The standard deviation of all kernels, None if each has its own (T5, PyTorch)."""
        if isinstance(self.attention_init, str):
            return None
        return self.attention_init

    @property
    def num_biases(self) -> int | None:
        """Number of relative biases, None for one that all layers share."""
        if self.bias_per_layer:
            return self.num_layers
        return None

    def make_norm(self, **names: Any) -> nn.Module:
        """Makes a norm of this stack."""
        return NORMS[self.norm](self.norm_epsilon, self.dtype, **names)

    def make_sublayer_norm(
        self, make: Callable[[], nn.Module] | None = None
    ) -> nn.Module:
        """Makes the norm of a sublayer, or its two norms with ``sandwich_norm``.

        Args:
            make: function that makes one norm; None for ``make_norm``.
        """
        make = make or self.make_norm
        if self.sandwich_norm:
            return SandwichNorm(make)
        return make()

    def make_feed_forward(self) -> FeedForward:
        """Makes the feed-forward of one layer."""
        return FeedForward(
            self.d_ff,
            self.feed_forward,
            self.activation_dropout_rate,
            self.feed_forward_bias,
            self.kernel_std,
            self.dtype,
        )

    def make_embedding_map(self) -> Linear | None:
        """Makes the map from embeddings to states, None if they have the same size."""
        return self._make_map(self.embedding_size)

    def make_source_map(self) -> Linear | None:
        """Makes the map from encoder states to ``d_model``, None without one."""
        return self._make_map(self.mapped_source_size)

    def _make_map(self, size: int | None) -> Linear | None:
        """Makes a linear layer from ``size`` features to ``d_model``; None for None."""
        if size is None:
            return None
        init, zeros = (
            normal(cast(float, self.kernel_std)),
            nn.initializers.zeros,
        )
        names = ("embed", "embed_out")
        return Linear(
            (size, self.d_model), names, init, zeros, dtype=self.dtype
        )

    @property
    def kv_heads(self) -> int:
        """``num_kv_heads``, with None resolved."""
        if self.num_kv_heads is None:
            return self.num_heads
        return self.num_kv_heads

    @property
    def absorbs_keys(self) -> bool:
        """True if steps of decoding can absorb the projection of keys into their queries."""
        return not self.qk_norm  # a norm after the projection is not linear

    def rotary_of(self, layer: int) -> Rotary | None:
        """Returns the rotary positions of a layer."""
        if len(self.rotary) > 1:
            return self.rotary[layer]
        return self.rotary[0] if self.rotary else None

    @property
    def self_attention_fields(self) -> dict[str, Any]:
        """Attributes of the self-attention of one layer, whose rotary positions are the first."""
        return self.attention_fields | {"rotary": self.rotary_of(0)}

    @property
    def attention_fields(self) -> dict[str, Any]:
        """Attributes of ``layers.attention.multi_head.MultiHeadAttention``."""
        init = self.attention_initializers
        return {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "num_kv_heads": self.kv_heads,
            "d_kv": self.d_kv,
            "norm_epsilon": self.norm_epsilon if self.qk_norm else None,
            "projection_init": init.projection,
            "output_init": init.output,
            "query_init": init.query,
            "scale": self.attention_scale,
            "use_bias": self.attention_bias,
            "dropout_rate": self.attention_dropout_rate,
            "backend": self.attention_backend,
            "dtype": self.dtype,
        }

    @property
    def attention_initializers(self) -> AttentionInitializers:
        """The initializers of an attention's maps."""
        d_inner = self.num_heads * self.d_kv
        if self.attention_init == "torch":
            projection = torch_uniform(self.d_model)
            return AttentionInitializers(
                projection, projection, torch_uniform(d_inner)
            )
        if self.attention_init == "t5":
            # T5 does not scale its query-key products, but initializes small
            # queries instead.
            query = normal((self.d_model * self.d_kv) ** -0.5)
            projection, output = (
                normal(self.d_model**-0.5),
                normal(d_inner**-0.5),
            )
            return AttentionInitializers(query, projection, output)
        init = normal(self.attention_init)
        return AttentionInitializers(init, init, init)
