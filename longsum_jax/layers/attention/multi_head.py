"""Multi-head attention with parameters, and T5's relative position bias."""

from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from longsum_jax.layers.dense import Linear, normal
from longsum_jax.layers.partitioning import Initializer, logical
from longsum_jax.ops.attention.dense import dot_product_attention, mix_states
from longsum_jax.ops.attention.relative_position import relative_position_bucket
from longsum_jax.typing import Array


class ExtraKeyValues(NamedTuple):
    """States that every query sees beside its own text: a memory, important tokens of elsewhere.

    Attributes:
        keys, values: what keys and values are made of, [B, m, D] each, often the same array.
        valid: bool [B, m].
    """

    keys: Array
    values: Array
    valid: Array


class Attention(nn.Module):
    """Multi-head attention, in three steps so that keys and values can be kept.

    Attributes:
        scale: factor of the query-key products (T5: 1, most others K**-0.5).
        projection_init, output_init: of k and v (and q), and of the output map.
        query_init: of q where it differs.
        use_bias: adds a bias to all four maps.
    """

    d_model: int
    num_heads: int
    d_kv: int
    projection_init: Initializer
    output_init: Initializer
    scale: float = 1.0
    query_init: Initializer | None = None
    use_bias: bool = False
    dropout_rate: float = 0.0
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.q = self.projection(self.query_init)
        self.k, self.v = self.projection(), self.projection()
        shape, names = (self.num_heads, self.d_kv, self.d_model), ("heads", "kv", "embed")
        self.o = Linear(shape, names, self.output_init, self._bias_init, inputs=2, dtype=self.dtype)
        self.dropout = nn.Dropout(self.dropout_rate)

    def projection(self, init: Initializer | None = None) -> Linear:
        """A map [B, L, D] -> [B, L, H, K]."""
        shape, names = (self.d_model, self.num_heads, self.d_kv), ("embed", "heads", "kv")
        return Linear(shape, names, init or self.projection_init, self._bias_init, dtype=self.dtype)

    @property
    def _bias_init(self) -> Initializer | None:
        return nn.initializers.zeros if self.use_bias else None

    def project_kv(self, x: Array) -> tuple[Array, Array]:
        """[B, L, D] -> two [B, L, H, K]."""
        return self.k(x), self.v(x)

    def keys_values_of(self, further: ExtraKeyValues) -> tuple[Array, Array]:
        """Two [B, m, H, K]."""
        return self.k(further.keys), self.v(further.values)

    def keys_values_for(self, x: Array) -> tuple[Array, Array]:
        """``project_kv`` with gradients for ``x`` alone, none for the maps."""
        return tuple(linear.without_gradients(x) for linear in (self.k, self.v))

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
        """Queries of ``x`` [B, T, D] against kept keys and values [B, L, H, K]; returns [B, T,
        D]."""
        dropout = None if deterministic else lambda w: self.dropout(w, deterministic=False)
        return self.o(
            dot_product_attention(
                self.q(x), k, v, mask=mask, bias=bias, scale=self.scale, dropout=dropout
            )
        )

    def attend_absorbed(self, x: Array, states: Array, *, mask: Array | None = None) -> Array:
        """``attend`` with the keys and values of ``states`` [B, L, D], none of which are ever
        formed.

        The key map moves to the queries and the value map behind the weights: H times the products,
        but no [B, L, H, K] arrays. For decoding over very long inputs. A bias of the keys adds the
        same to every score of a query, so it falls out of the softmax; weights sum to one, so a
        bias of the values is added at the end.
        """
        return self.project_mixed(
            mix_states(self.unprojected_queries(x), states, mask, scale=self.scale), mask
        )

    def unprojected_queries(self, x: Array) -> Array:
        """[B, T, D] -> [B, T, H, D], to be multiplied with states in the place of keys."""
        return jnp.einsum("bthk,dhk->bthd", self.q(x), self.k.kernel.astype(self.dtype))

    def project_mixed(self, mixed: Array, mask: Array | None) -> Array:
        """Weighted means of states [B, T, H, D] -> [B, T, D]; a head whose ``mask`` is all False
        adds nothing."""
        values = jnp.einsum("bthd,dhk->bthk", mixed, self.v.kernel.astype(self.dtype))
        if self.use_bias:
            bias = self.v.bias.astype(self.dtype)
            values += (
                bias if mask is None else jnp.where(mask.any(-1).swapaxes(1, 2)[..., None], bias, 0)
            )
        return self.o(values)


class RelativePositionBias(nn.Module):
    """T5's learned bias per head and distance bucket."""

    num_heads: int
    num_buckets: int
    max_distance: int
    bidirectional: bool

    def setup(self) -> None:
        init = logical(normal(1.0), "buckets", "heads")
        self.embedding = self.param("embedding", init, (self.num_buckets, self.num_heads))

    def __call__(self, query_positions: Array, key_positions: Array) -> Array:
        """Positions [T] and [L] -> bias float32 [1, H, T, L]."""
        return self.of_distances(key_positions[None, :] - query_positions[:, None])[None]

    def of_distances(self, distances: Array) -> Array:
        """Distances [...], key position minus query position -> bias float32 [H, ...]."""
        buckets = relative_position_bucket(
            distances,
            bidirectional=self.bidirectional,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
        )
        return jnp.moveaxis(self.embedding[buckets], -1, 0)
