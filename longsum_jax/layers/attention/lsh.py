"""LSH attention: tokens attend to tokens with the same hash (Reformer, Kitaev et al. 2020; in
summarisation Huang et al. 2021)."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    LshOptions,
)
from longsum_jax.ops.attention.fused import Choice
from longsum_jax.ops.attention.lsh import draw_rotations, hash_buckets, lsh_attention
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


class LshContext(FullContext):
    """The mask, T5's bias for each distance, and the number of each layer."""

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        x, context, _ = super().prepare(x, mask, relative_bias, deterministic)
        return x, context, jnp.arange(self.stack.num_layers)


class LshAttention(EncoderSelfAttention):
    """Attention inside buckets of a random hash.

    Queries and keys are the mean of both projections, so that both of a pretrained model are in
    use. Rotations are drawn anew in every training step, and from a fixed seed for each layer
    otherwise.
    """

    Options = LshOptions
    context_class = LshContext

    @classmethod
    def check(cls, options: EncoderAttentionOptions) -> None:
        if options.lsh_num_buckets % 2:
            raise InputError(
                f"lsh_num_buckets is {options.lsh_num_buckets}; buckets come in pairs, so give an "
                "even number"
            )

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        self.noted(Choice(None, "keys sorted by hash"))
        options = self.options
        mask, bias = context
        k, v = self.project_kv(x)
        vectors = (self.q(x) + k) / 2
        if deterministic:
            key = jax.random.fold_in(jax.random.key(0), layer_input)
        else:
            key = self.make_rng("dropout")
        rotations = draw_rotations(
            key, self.num_heads, self.d_kv, options.lsh_num_hashes, options.lsh_num_buckets
        )

        def attend(
            vectors: Array, v: Array, mask: Array, rotations: Array, scale: float, **arrays: Any
        ) -> Array:
            buckets = hash_buckets(vectors, mask, rotations)
            chunks = {"chunk_length": options.lsh_chunk_length}
            return lsh_attention(vectors, v, mask, buckets, **arrays, **chunks)

        y = self.attend_by_heads(
            attend,
            deterministic,
            text={"vectors": vectors, "v": v},
            rows={"mask": mask},
            heads={"rotations": ByHead(rotations), "distance_bias": ByHead(bias)},
        )
        return self.o(y)
