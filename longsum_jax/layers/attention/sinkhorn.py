"""Sinkhorn: blocks see themselves and a softly sorted block (Tay et al. 2020; in summarisation
Huang et al. 2021)."""

from typing import Any

import jax

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import EncoderAttention, SparseAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.options import EncoderAttentionOptions
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.sinkhorn import sinkhorn_attention, soft_permutation
from longsum_jax.typing import Array


class SinkhornAttention(SparseAttention):
    """The order of blocks has no parameters; Gumbel noise explores others in training alone."""

    options: EncoderAttentionOptions = EncoderAttentionOptions()

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        (mask, bias), o = context, self.options
        q, (k, v) = self.q(x), self.project_kv(x)
        noise = None
        if not deterministic:
            blocks = -(-x.shape[1] // o.block_size)
            noise = jax.random.gumbel(
                self.make_rng("dropout"), (x.shape[0], self.num_heads, blocks, blocks)
            )
        sizes = {"iterations": o.sinkhorn_iterations, "temperature": o.sinkhorn_temperature}
        order = soft_permutation(q, k, mask, block_size=o.block_size, noise=noise, **sizes)
        options = {
            "block_size": o.block_size,
            "distance_bias": bias,
            **self.sparse_options(deterministic),
        }
        return self.o(sinkhorn_attention(q, k, v, mask, order, **options))


def _check(options: EncoderAttentionOptions) -> None:
    for key in ("block_size", "sinkhorn_iterations"):
        if getattr(options, key) < 1:
            raise InputError(f"{key} is {getattr(options, key)}; it must be at least 1")
    if options.sinkhorn_temperature <= 0:
        raise InputError(
            f"sinkhorn_temperature is {options.sinkhorn_temperature}; it must be above 0"
        )


def _make_sinkhorn(stack: StackConfig) -> SinkhornAttention:
    return SinkhornAttention(**stack.attention_fields, options=stack.options)


SINKHORN = EncoderAttention(
    _make_sinkhorn,
    FullContext,
    ("block_size", "sinkhorn_iterations", "sinkhorn_temperature"),
    check=_check,
)
