"""Cross-attention to the keys with the largest scores (Unlimiformer, Bertsch et al. 2023)."""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.layers.attention.cross import CrossAttention
from longsum_jax.layers.attention.multi_head import joint_mask
from longsum_jax.layers.attention.options import NearestOptions
from longsum_jax.ops.attention.dense import (
    dot_product_attention,
    key_products,
    largest_scores,
    masked_softmax,
    scaled_scores,
)
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.typing import AnyArray


class NearestAttention(CrossAttention):
    """Attention of every head only to the positions with the largest scores
    (Unlimiformer, Bertsch et al. 2023; exact search). Positions tied with the
    smallest of these scores are also read.
    """

    Options = NearestOptions
    packs = True

    options: NearestOptions = NearestOptions()

    def attend(  # type: ignore[override]  # without a bias
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
        segment_ids: SegmentIds | None = None,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend``."""
        if segment_ids is not None:
            mask = joint_mask(mask, segment_ids.mask())
        q = self.q(x)
        nearest = self._nearest(q, k, mask)
        dropout = None
        if not deterministic:
            dropout = functools.partial(self.dropout, deterministic=False)
        y = dot_product_attention(
            q, k, v, mask=nearest, scale=self.scale, dropout=dropout
        )
        return self.o(y)

    def attend_with(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        k: Float[AnyArray, "batch num_keys heads head_dim"],
        v: Float[AnyArray, "batch num_keys heads head_dim"],
        others: Sequence[KeySet],
        *,
        mask: Bool[AnyArray, "#batch #q_heads #query_length #num_keys"],
        positions: Int[AnyArray, "#batch query_length"] | None = None,
        segment_ids: SegmentIds | None = None,
        causal: bool = False,
        deterministic: bool = True,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``SourceAttention.attend_with``; only keys of the source are selected."""
        if segment_ids is not None:
            mask = joint_mask(mask, segment_ids.mask())
        return super().attend_with(
            x,
            k,
            v,
            others,
            mask=self._nearest(self.q(x, positions), k, mask),
            positions=positions,
            deterministic=deterministic,
        )

    def _nearest(
        self, q: AnyArray, k: AnyArray, mask: AnyArray | None
    ) -> AnyArray:
        """Returns the mask of the keys that each query reads."""
        # [batch, heads, query_length, num_keys]
        scores = scaled_scores(key_products(q, k), self.scale)
        return largest_scores(scores, mask, self.options.cross_nearest)

    def attend_absorbed(
        self,
        x: Float[AnyArray, "batch query_length d_model"],
        states: Float[AnyArray, "batch key_length source_size"],
        *,
        mask: Bool[AnyArray, "#batch #heads #query_length #num_keys"]
        | None = None,
    ) -> Float[Array, "batch query_length d_model"]:
        """See ``MultiHeadAttention.attend_absorbed``."""
        q = self.absorbed_queries(x)
        scores = jnp.einsum(
            "bthd,bld->bhtl", q, states, preferred_element_type=jnp.float32
        )
        scores = scaled_scores(scores, self.scale)
        nearest = largest_scores(scores, mask, self.options.cross_nearest)
        weights = masked_softmax(scores, nearest).astype(states.dtype)
        mixed = jnp.einsum("bhtl,bld->bthd", weights, states)
        return self.project_mixed(mixed, mask)
