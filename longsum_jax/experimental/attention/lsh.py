"""LSH attention: tokens attend to tokens with the same hash (Reformer, Kitaev et al.
2020; in summarization Huang et al. 2021).
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.experimental.attention.sorted_blocks import kernel_of_blocks
from longsum_jax.experimental.ops.lsh import (
    draw_rotations,
    hash_buckets,
    lsh_attention,
    lsh_row,
)
from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.layers.attention.full import FullContext
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import (
    EncoderAttentionOptions,
    LshOptions,
)
from longsum_jax.ops.attention.key_sets import WeightDropout
from longsum_jax.ops.sequence_sharding import ByHead
from longsum_jax.typing import AnyArray


class LshContext(FullContext):
    """The mask, T5's bias for each distance, and the index of each layer."""

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

    Queries and keys are both the mean of the two projections, so that a
    pretrained model uses both. Rotations are drawn again in every training
    step, and otherwise from a fixed seed for each layer.
    """

    Options = LshOptions
    context_class = LshContext

    options: LshOptions = LshOptions()

    @classmethod
    def check(
        cls, options: EncoderAttentionOptions, max_length: int | None
    ) -> None:
        options = LshOptions.of(options)
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
        options = self.options
        mask, bias = context
        k, v = self.project_kv(x)
        # Queries and keys are the same vectors.
        vectors = (self.q(x) + k) / 2
        # A fixed key outside of training makes the hash deterministic.
        rotations = draw_rotations(
            self.random_key(layer_input, deterministic),
            self.num_heads,
            self.d_kv,
            options.lsh_num_hashes,
            options.lsh_num_buckets,
        )
        batch, length, _ = x.shape
        fused = kernel_of_blocks(
            self,
            batch,
            lsh_row(length, options.lsh_chunk_length),
            block=options.lsh_chunk_length,
            has_bias=bias is not None,
            has_parts=True,
            deterministic=deterministic,
        )

        def attend(
            vectors: Array,
            v: Array,
            mask: Array,
            rotations: Array,
            distance_bias: Array | None,
            scale: float,
            dropout: WeightDropout | None = None,
        ) -> Array:
            del scale  # keys have length 1, and products are not scaled
            return lsh_attention(
                vectors,
                v,
                mask,
                hash_buckets(vectors, mask, rotations),
                chunk_length=options.lsh_chunk_length,
                distance_bias=distance_bias,
                dropout=dropout,
                fused=fused,
            )

        # Equal hashes may be anywhere in the text, so that devices exchange
        # heads of whole sequences.
        y = self.attend_by_heads(
            attend,
            deterministic,
            text={"vectors": vectors, "v": v},
            rows={"mask": mask},
            heads={
                "rotations": ByHead(rotations),
                "distance_bias": ByHead(bias),
            },
        )
        return self.o(y)
