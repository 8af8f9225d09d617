"""What encoders and decoders share of Linformer (Wang et al. 2020)."""

from longsum_jax.layers.attention.multi_head import Attention
from longsum_jax.layers.dense import torch_uniform
from longsum_jax.layers.partitioning import logical
from longsum_jax.ops.attention.linformer import compress_length
from longsum_jax.typing import Array


class CompressedAttention(Attention):
    """Keys and values of P learned means over all positions; one projection for both and for all
    heads.

    Attributes:
        size: P.   max_length: positions that the projection has weights for.
    """

    size: int = 256
    max_length: int = 1024

    def setup(self) -> None:
        super().setup()
        init = logical(torch_uniform(self.max_length), "compressed", "positions")
        self.length_projection = self.param("length_projection", init, (self.size, self.max_length))

    def compress(self, x: Array) -> Array:
        """[B, L, D], zero on padding -> [B, P, D]; InputError where L is larger than
        ``max_length``."""
        return compress_length(x.astype(self.dtype), self.length_projection)

    def project_kv(self, x: Array) -> tuple[Array, Array]:
        """[B, L, D], zero on padding -> two [B, P, H, K]."""
        return super().project_kv(self.compress(x))
