"""What a stack of transformer layers is made of: one description that every family fills in from
its own config."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.attention.options import CrossAttentionOptions, EncoderAttentionOptions
from longsum_jax.layers.dense import NORMS, FeedForward, normal, torch_uniform
from longsum_jax.layers.partitioning import Initializer
from longsum_jax.ops.memory import Overflow
from longsum_jax.ops.remat import SAVE_MARKED_POLICY


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """How a source of any length is read page by page, each as if it were alone; config.json has
    them if it is.

    Attributes:
        page_length: tokens that the encoder reads at a time, positions counted anew; 0 reads the
            source in one piece.
        page_context: tokens on either side of a page that are read with it and not kept, part of
            its length (Unlimiformer: a quarter).
        page_decoding: the decoder reads one page at a time, too, and its outputs are averaged by
            learned weights (PageSum); otherwise it reads the states of all pages side by side.
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
    """What layers keep from segment to segment of a document (AWESOME), and which; config.json has
    them if any does.

    Attributes:
        memory: "compressive" (the newest states and older ones compressed, read by self-attention),
            "attentive" (slots rewritten by gates, read by an attention of their own) or "none".
        memory_layers: "firstN", "lastN", "all" or their indices; None for the first three of a
            compressive, the last three of an attentive memory. N may exceed the number of layers.
        memory_decoder: whether the same layers of the decoder have one.
        memory_size: slots of one layer.
        memory_compression: states that become one (``compressive``).
        memory_overflow: see ``ops.memory.compressive_update`` (``compressive``).
        memory_reconstruction: what the mean error of attending to compressed states instead of the
            states adds to the loss, for every layer; trains the compression alone
            (``compressive``).
        memory_hidden: "normalised" memorises what the part after self-attention reads, "raw" what
            self-attention gave (``attentive``).
        memory_backprop: segments whose writing gradients go back through, 0 for all of a document.
        salient_vectors: encoder states of important sentences elsewhere in the document that all
            layers of the encoder read as further keys, at most so many; 0 for none.
        salient_projection: whether keys and values share the map of those states, which is the
            identity at first.
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

    Memories are left out: which layers have one, and whether they can read it, is a matter of all
    layers together.
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
        remat: gradients compute layers again from their inputs; otherwise only what costs little:
            all but products with parameters and the convolutions of S4D.
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
        return None if self.remat else SAVE_MARKED_POLICY

    def make_norm(self, **names: Any) -> nn.Module:
        return NORMS[self.norm](self.norm_epsilon, self.dtype, **names)

    def make_feed_forward(self) -> FeedForward:
        std = self.attention_init if isinstance(self.attention_init, float) else None
        return FeedForward(
            self.d_ff,
            self.feed_forward,
            self.activation_dropout_rate,
            self.feed_forward_bias,
            std,
            self.dtype,
        )

    @property
    def attention_fields(self) -> dict[str, Any]:
        """Arguments of ``layers.attention.multi_head.Attention``."""
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
            return (
                normal((self.d_model * self.d_kv) ** -0.5),
                normal(self.d_model**-0.5),
                normal(inner**-0.5),
            )
        return (normal(self.attention_init),) * 3
