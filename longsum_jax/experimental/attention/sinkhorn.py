"""Sinkhorn attention: blocks attend to themselves and to a softly sorted block (Tay et
al. 2020; in summarization Huang et al. 2021).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.experimental.attention.sorted_blocks import kernel_of_blocks
from longsum_jax.experimental.ops.sinkhorn import (
    sinkhorn_attention,
    sinkhorn_row,
    soft_permutation,
)
from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.options import SinkhornOptions
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


class SinkhornAttention(EncoderSelfAttention):
    """Attention to a query's block and to a softly sorted block.

    The order of blocks has no parameters; in training Gumbel noise explores
    other orders.
    """

    Options = SinkhornOptions
    context_class = FullContext

    options: SinkhornOptions = SinkhornOptions()

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        options = self.options
        mask, bias = context
        batch, length, _ = x.shape
        fused = kernel_of_blocks(
            self,
            batch,
            sinkhorn_row(length, options.block_size),
            block=options.block_size,
            has_bias=bias is not None,
            deterministic=deterministic,
        )
        q = self.q(x)
        k, v = self.project_kv(x)
        noise = None
        if not deterministic:
            # Gumbel noise for every pair of blocks.
            num_blocks = -(-length // options.block_size)
            shape = (batch, self.num_heads, num_blocks, num_blocks)
            noise = jax.random.gumbel(
                self.make_rng("dropout"), shape, jnp.float32
            )

        def attend(
            q: Array,
            k: Array,
            v: Array,
            mask: Array,
            noise: Array | None,
            **others: Any,
        ) -> Array:
            # [batch, heads, num_blocks, num_blocks], whose rows and columns sum
            # to about one
            order = soft_permutation(
                q,
                k,
                mask,
                block_size=options.block_size,
                noise=noise,
                iterations=options.sinkhorn_iterations,
                temperature=options.sinkhorn_temperature,
            )
            block_size = options.block_size
            others |= {"block_size": block_size, "fused": fused}
            return sinkhorn_attention(q, k, v, mask, order, **others)

        y = self.attend_by_heads(
            attend,
            deterministic,
            text={"q": q, "k": k, "v": v},
            rows={"mask": mask},
            heads={
                "noise": ByHead(noise, ("batch", "heads")),
                "distance_bias": ByHead(bias),
            },
        )
        return self.o(y)
