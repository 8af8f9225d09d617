"""LSH: tokens see those that hash alike (Reformer, Kitaev et al. 2020; in summarisation Huang et
al. 2021)."""

from typing import Any

import jax
import jax.numpy as jnp

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import EncoderAttention, SparseAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.lsh import draw_rotations, hash_buckets, lsh_attention
from longsum_jax.typing import Array


class NumberedContext(FullContext):
    """The mask, T5's bias by distance, and for each layer its number."""

    def begin(self, x, mask, relative_bias, deterministic):
        x, context, _ = super().begin(x, mask, relative_bias, deterministic)
        return x, context, jnp.arange(self.stack.num_layers)


class LshAttention(SparseAttention):
    """Queries and keys are the mean of both projections, so that a pretrained model's are both in
    use.

    Rotations are drawn anew in every training step, and from a fixed seed for each layer otherwise.
    """

    options: EncoderAttentionOptions = EncoderAttentionOptions()

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        (mask, bias), o = context, self.options
        k, v = self.project_kv(x)
        vectors = (self.q(x) + k) / 2
        key = (
            jax.random.fold_in(jax.random.key(0), layer_input)
            if deterministic
            else self.make_rng("dropout")
        )
        rotations = draw_rotations(
            key, self.num_heads, self.d_kv, o.lsh_num_hashes, o.lsh_num_buckets
        )
        dropout = self.sparse_options(deterministic).get("dropout")
        buckets = hash_buckets(vectors, mask, rotations)
        options = {"chunk_length": o.lsh_chunk_length, "distance_bias": bias, "dropout": dropout}
        return self.o(lsh_attention(vectors, v, mask, buckets, **options))


def _check(options: EncoderAttentionOptions) -> None:
    for key in LSH.options:
        if getattr(options, key) < 1:
            raise InputError(f"{key} is {getattr(options, key)}; it must be at least 1")
    if options.lsh_num_buckets % 2:
        raise InputError(
            f"lsh_num_buckets is {options.lsh_num_buckets}; buckets come in pairs, so give an even number"
        )


def _make_lsh(stack: StackConfig) -> LshAttention:
    return LshAttention(**stack.attention_fields, options=stack.options)


LSH = EncoderAttention(
    _make_lsh,
    NumberedContext,
    ("lsh_num_hashes", "lsh_num_buckets", "lsh_chunk_length"),
    check=_check,
)
