"""The two halves of every encoder attention.

Its context, made once per encoder, turns the mask into what all layers share (masks, biases, global
tokens in front of the text) and takes back what it added. Its layer holds the projections and
computes the attention; a call gets the normalised stream, the context and what belongs to this
layer alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.attention.multi_head import Attention, RelativePositionBias
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.layer_groups import LayerGroup
from longsum_jax.layers.partitioning import constrain, sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blockwise import Dropout
from longsum_jax.ops.attention.local import local_block_size, local_distances
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import Array


class Context(nn.Module):
    """Hands the mask on; the base of contexts that do more."""

    stack: StackConfig

    def begin(
        self, x: Array, mask: Array, relative_bias: RelativePositionBias | None, deterministic: bool
    ) -> tuple[Array, Any, Any]:
        """What the layers get: the stream, what they share, and what each has for itself.

        Contexts that take more (``EncoderAttention.inputs``) get it as keywords.

        Args:
            x: embeddings [B, L, D].
            mask: bool [B, L], True on real tokens.
            relative_bias: T5's bias by distance, None for models without one.

        Returns:
            x [B, G + L, D] (G tokens of its own in front), a pytree for all layers, a pytree with
            one row per layer.
        """
        return x, mask, ()

    def part(self, context: Any, layer_inputs: Any, group: LayerGroup) -> tuple[Any, Any]:
        """What of ``begin``'s is for the layers of ``group``."""
        return context, group.rows(layer_inputs)

    def end(self, x: Array, length: int) -> Array:
        """The stream [B, L, D], L = ``length``, without what ``begin`` added."""
        return x


class SparseAttention(Attention):
    """The base of attentions that are computed block by block."""

    def sparse_options(self, deterministic: bool) -> dict[str, Any]:
        """``scale`` and ``dropout`` for functions of ``ops.attention.local``."""
        if deterministic or not self.dropout_rate:
            return {"scale": self.scale}
        return {
            "scale": self.scale,
            "dropout": Dropout(self.make_rng("dropout"), self.dropout_rate),
        }

    def over_text(
        self,
        attention: Callable[..., Any],
        deterministic: bool,
        *,
        text: Mapping[str, Any],
        rows: Mapping[str, Any] | None = None,
        shared: Mapping[str, Any] | None = None,
        block: int = 1,
        outputs: tuple[str, ...] | str = "text",
    ) -> Any:
        """``attention`` of the text; where a mesh cuts it, by every device for its part
        (``ops.sequence_sharding.shard_map_sequence``)."""
        options = self.sparse_options(deterministic)
        cut = sequence_sharding(next(iter(text.values())).shape[0])
        if cut is None:
            return attention(**text, **(rows or {}), **(shared or {}), **options)
        dropout = options.pop("dropout", None)

        def run(rng: Array | None = None, **arrays: Any) -> Any:
            more = {} if rng is None else {"dropout": dropout._replace(rng=rng)}
            return attention(**arrays, **options, **more)

        rng = None if dropout is None else dropout.rng
        return shard_map_sequence(
            run, cut, text=text, rows=rows, shared=shared, block=block, rng=rng, outputs=outputs
        )


def pad_to_shards(x: Array, block: int) -> Array:
    """[B, L, ...] -> the same, or longer by zeros (False), so that a mesh cuts it into parts of
    whole blocks."""
    cut = sequence_sharding(x.shape[0])
    extra = 0 if cut is None else -x.shape[1] % (cut.num_shards * block)
    return jnp.pad(x, ((0, 0), (0, extra)) + ((0, 0),) * (x.ndim - 2)) if extra else x


def join_tokens(tokens: Array, text: Array) -> Array:
    """[B, G, ...] in front of [B, L, ...]; where a mesh cuts the text, each part of it has its
    share of the tokens.

    The text must be ``pad_to_shards`` then. A device's share is ceil(G / parts) of the tokens, the
    last ones zeros.
    """
    cut = sequence_sharding(text.shape[0])
    if cut is None:
        return jnp.concatenate([tokens, text], 1)
    extra = -tokens.shape[1] % cut.num_shards
    tokens = jnp.pad(tokens, ((0, 0), (0, extra)) + ((0, 0),) * (tokens.ndim - 2))
    tokens, text = (_in_parts(x, cut.num_shards) for x in (tokens, text))
    return _in_line(jnp.concatenate([tokens, text], 2))


def split_tokens(x: Array, count: int) -> tuple[Array, Array]:
    """The ``count`` tokens and the text of ``join_tokens``."""
    cut = sequence_sharding(x.shape[0])
    if cut is None:
        return x[:, :count], x[:, count:]
    share = -(-count // cut.num_shards)
    x = _in_parts(x, cut.num_shards)
    return _in_line(x[:, :, :share])[:, :count], _in_line(x[:, :, share:])


def _in_parts(x: Array, parts: int) -> Array:
    x = x.reshape(x.shape[0], parts, -1, *x.shape[2:])
    return constrain(x, "batch", "length", *[None] * (x.ndim - 2))


def _in_line(x: Array) -> Array:
    x = x.reshape(x.shape[0], -1, *x.shape[3:])
    return constrain(x, "batch", "length", *[None] * (x.ndim - 2))


def window_bias(
    relative_bias: RelativePositionBias | None, radius: int, block_size: int = 0
) -> Array | None:
    """T5's bias for every place of a window, float [H, C, W]; keys outside a window have none."""
    if relative_bias is None:
        return None
    return relative_bias.of_distances(
        jnp.asarray(local_distances(block_size or local_block_size(radius), radius))
    )


class EncoderAttention(NamedTuple):
    """One kind.

    Attributes:
        make_layer: module of one layer, called with (x, context, layer_input, deterministic).
        make_context: module with ``begin`` and ``end``.
        options: the fields of EncoderAttentionOptions that it reads.
        make_norm: the norm of the layer's input.
        inputs: what ``begin`` takes besides. ``embedding_norm`` is the model's own: the norm (or
            None) that tokens went through, for what stands beside them.
        pads_to: the option whose multiple an input may be padded to, where longer padding would
            change results.
        check: raises InputError for options that do not fit together.
        limit: the option with the tokens of the longest input, "" where any length will do.
        extra_keys: whether a layer takes ``further``, keys that every token sees beside those of
            the text.
    """

    make_layer: Callable[[StackConfig], nn.Module]
    make_context: Callable[[StackConfig], Context] = Context
    options: tuple[str, ...] = ()
    make_norm: Callable[[StackConfig], nn.Module] = StackConfig.make_norm
    inputs: tuple[str, ...] = ()
    pads_to: str = ""
    check: Callable[[EncoderAttentionOptions], None] = lambda options: None
    limit: str = ""
    extra_keys: bool = False


def from_stack(module: type[Attention], **fields: str) -> Callable[[StackConfig], Attention]:
    """Builds ``module`` from a stack; ``fields`` map further attributes to names of options."""

    def make(stack: StackConfig) -> Attention:
        further = {name: getattr(stack.options, option) for name, option in fields.items()}
        return module(**stack.attention_fields, **further)

    return make
