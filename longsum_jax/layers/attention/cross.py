"""What a decoder reads the encoder with: every cross-attention by name, each a part that fits every
decoder."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.layers.attention.linformer_compression import CompressedAttention
from longsum_jax.layers.attention.multi_head import Attention
from longsum_jax.layers.attention.options import CrossAttentionOptions
from longsum_jax.layers.dense import Linear
from longsum_jax.layers.partitioning import sequence_sharding
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blocks import to_blocks
from longsum_jax.ops.attention.blockwise import Dropout
from longsum_jax.ops.attention.dense import (
    dot_product_attention,
    largest_scores,
    masked_softmax,
    mix_states,
)
from longsum_jax.ops.attention.hepos import (
    mix_strided,
    project_strided,
    strided_key_mask,
    strided_length,
)
from longsum_jax.ops.sequence_sharding import shard_map_sequence
from longsum_jax.typing import Array


class SourceAttention(Attention):
    """Every position of a source that a mesh may cut: devices attend to their parts, one softmax
    merges what they find.

    Keys, values and states stay where they are; queries and their results are on every device.
    """

    def attend(
        self,
        x: Array,
        k: Array,
        v: Array,
        *,
        mask: Array | None = None,
        bias: Array | None = None,
        deterministic: bool = True,
    ) -> Array:
        """As in ``Attention``; without a bias where the mesh cuts the source."""
        if sequence_sharding(x.shape[0]) is None or bias is not None:
            return super().attend(x, k, v, mask=mask, bias=bias, deterministic=deterministic)
        rate = 0.0 if deterministic else self.dropout_rate

        def attend(
            q: Array, k: Array, v: Array, mask: Array, rng: Array | None = None, **options: Any
        ) -> Array:
            dropout = None if rng is None else Dropout(rng, rate)
            return dot_product_attention(
                q, k, v, mask=mask, scale=self.scale, dropout=dropout, **options
            )

        rng = self.make_rng("dropout") if rate else None
        return self.o(_over_source(attend, self.q(x), mask, {"k": k, "v": v}, rng))

    def attend_absorbed(self, x: Array, states: Array, *, mask: Array | None = None) -> Array:
        """As in ``Attention``."""
        if sequence_sharding(x.shape[0]) is None:
            return super().attend_absorbed(x, states, mask=mask)
        mix = lambda **arrays: mix_states(**arrays, scale=self.scale)  # noqa: E731
        return self.project_mixed(
            _over_source(mix, self.unprojected_queries(x), mask, {"states": states}), mask
        )


def _over_source(
    attend: Callable[..., Array],
    q: Array,
    mask: Array | None,
    source: dict[str, Array],
    rng: Array | None = None,
) -> Array:
    """``attend(q=, mask=, **source, axes=)`` [B, T, ...], by every device for its part of
    ``source`` [B, M, ...]."""
    rows, keys = next(iter(source.values())).shape[:2]
    mask = jnp.ones((rows, 1, 1, keys), bool) if mask is None else mask

    def run(mask: Array, **arrays: Any) -> Array:
        return attend(mask=jnp.moveaxis(mask, 1, -1), **arrays)

    text = source | {"mask": jnp.moveaxis(mask, -1, 1)}
    return shard_map_sequence(
        run, sequence_sharding(rows), text=text, rows={"q": q}, rng=rng, outputs="rows"
    )


class HeposAttention(SourceAttention):
    """Head h reads every ``stride``-th position from h on (Huang et al. 2021, equation 1); no new
    parameters."""

    stride: int = 4

    def project_kv(self, x: Array) -> tuple[Array, Array]:
        """[B, L, D] -> two [B, ceil(L / S), H, K]."""
        if self.stride > x.shape[1] and not self.is_initializing():
            raise InputError(
                f"hepos_stride is {self.stride}, but the source has {x.shape[1]} tokens, so that some heads would read "
                "nothing; give a longer source or a smaller stride"
            )
        return self._project(self.k, x), self._project(self.v, x)

    def _project(self, projection: Linear, x: Array) -> Array:
        y = project_strided(x.astype(self.dtype), projection.kernel.astype(self.dtype), self.stride)
        return y + projection.bias.astype(self.dtype) if self.use_bias else y

    def attend_absorbed(self, x: Array, states: Array, *, mask: Array | None = None) -> Array:
        """As in ``Attention``; ``mask`` is what ``CROSS_ATTENTIONS["hepos"]`` prepares."""
        q, options = self.unprojected_queries(x), {"stride": self.stride, "scale": self.scale}
        if sequence_sharding(x.shape[0]) is None:
            return self.project_mixed(mix_strided(q, states, mask, **options), mask)

        def mix(rows: Array, **arrays: Any) -> Array:
            return mix_strided(
                states=rows.reshape(rows.shape[0], -1, rows.shape[-1]), **arrays, **options
            )

        return self.project_mixed(
            _over_source(mix, q, mask, {"rows": to_blocks(states, self.stride)}), mask
        )


class LinformerCrossAttention(CompressedAttention):
    """Every head reads learned means over the source."""

    def attend_absorbed(self, x: Array, states: Array, *, mask: Array | None = None) -> Array:
        """As in ``Attention``, with the states compressed anew."""
        return super().attend_absorbed(x, self.compress(states), mask=mask)


class NearestAttention(Attention):
    """A head reads the positions with the largest scores alone (Unlimiformer, Bertsch et al. 2023;
    exact search)."""

    count: int = 1024

    def attend(
        self,
        x: Array,
        k: Array,
        v: Array,
        *,
        mask: Array | None = None,
        bias: Array | None = None,
        deterministic: bool = True,
    ) -> Array:
        """As in ``Attention``; equal scores at the limit are all read."""
        q = self.q(x)
        scores = (
            jnp.einsum("bthk,blhk->bhtl", q, k, preferred_element_type=jnp.float32) * self.scale
        )
        nearest = largest_scores(scores, mask, self.count)
        dropout = None if deterministic else lambda w: self.dropout(w, deterministic=False)
        return self.o(
            dot_product_attention(q, k, v, mask=nearest, scale=self.scale, dropout=dropout)
        )

    def attend_absorbed(self, x: Array, states: Array, *, mask: Array | None = None) -> Array:
        """As in ``Attention``."""
        q = self.unprojected_queries(x)
        scores = (
            jnp.einsum("bthd,bld->bhtl", q, states, preferred_element_type=jnp.float32) * self.scale
        )
        nearest = largest_scores(scores, mask, self.count)
        weights = masked_softmax(scores, nearest).astype(states.dtype)
        return self.project_mixed(jnp.einsum("bhtl,bld->bthd", weights, states), mask)


class CrossAttention(NamedTuple):
    """One kind.

    Attributes:
        make_layer: module of one layer: ``Attention`` or one that overrides ``project_kv`` and
            ``attend_absorbed``.
        prepare: (stack, states [B, L, D], bool mask [B, L]) -> what the layers get of both, once
            per document: states, and a mask of their keys that broadcasts to [B, H, T, number of
            keys].
        num_keys: (stack, L) -> keys of every head, which is what decoding keeps.
        options: the fields of CrossAttentionOptions that it reads.
        limit: the option with the tokens of the longest source, "" where any length will do.
    """

    make_layer: Callable[[StackConfig], Attention]
    prepare: Callable[[StackConfig, Array, Array], tuple[Array, Array]]
    num_keys: Callable[[StackConfig, int], int]
    options: tuple[str, ...] = ()
    limit: str = ""


def _make_hepos(stack: StackConfig) -> HeposAttention:
    return HeposAttention(**stack.attention_fields, stride=stack.cross.hepos_stride)


def _prepare_hepos(stack: StackConfig, states: Array, mask: Array) -> tuple[Array, Array]:
    return states, strided_key_mask(mask, stack.num_heads, stack.cross.hepos_stride)[:, :, None]


def _make_linformer(stack: StackConfig) -> LinformerCrossAttention:
    o = stack.cross
    return LinformerCrossAttention(
        **stack.attention_fields,
        size=o.cross_linformer_size,
        max_length=o.cross_linformer_max_length,
    )


def _prepare_linformer(stack: StackConfig, states: Array, mask: Array) -> tuple[Array, Array]:
    """Means over a text see all of it or, without a single real token, nothing."""
    return jnp.where(mask[..., None], states, 0), mask.any(-1)[:, None, None, None]


CROSS_ATTENTIONS: dict[str, CrossAttention] = {
    "full": CrossAttention(
        lambda stack: SourceAttention(**stack.attention_fields),
        lambda stack, states, mask: (states, mask[:, None, None, :]),
        lambda stack, length: length,
    ),
    "hepos": CrossAttention(
        _make_hepos,
        _prepare_hepos,
        lambda stack, length: strided_length(length, stack.cross.hepos_stride),
        ("hepos_stride",),
    ),
    "linformer": CrossAttention(
        _make_linformer,
        _prepare_linformer,
        lambda stack, length: stack.cross.cross_linformer_size,
        ("cross_linformer_size", "cross_linformer_max_length"),
        "cross_linformer_max_length",
    ),
    "nearest": CrossAttention(
        lambda stack: NearestAttention(**stack.attention_fields, count=stack.cross.cross_nearest),
        lambda stack, states, mask: (states, mask[:, None, None, :]),
        lambda stack, length: length,
        ("cross_nearest",),
    ),
}


def get_cross_attention(options: CrossAttentionOptions, num_heads: int) -> CrossAttention:
    """The kind that ``options`` name, for decoders of ``num_heads``.

    Raises:
        InputError: an unknown name, or sizes out of range.
    """
    name = options.cross_attention
    if name not in CROSS_ATTENTIONS:
        raise InputError(
            f'cross_attention "{name}" is unknown; {did_you_mean(name, CROSS_ATTENTIONS)}'
        )
    kind = CROSS_ATTENTIONS[name]
    for key in kind.options:
        if getattr(options, key) < 1:
            raise InputError(f"{key} is {getattr(options, key)}; it must be at least 1")
    if name == "hepos" and options.hepos_stride > num_heads:
        raise InputError(
            f"hepos_stride is {options.hepos_stride}, but the decoder has {num_heads} heads, so that some positions "
            f"would be read by none; give at most {num_heads}"
        )
    return kind
