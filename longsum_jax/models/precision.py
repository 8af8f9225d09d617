"""The matmul precision of a model."""

from typing import Any

import flax.linen as nn
import jax

from longsum_jax.models.config import ModelConfig


class PreciseModule(nn.Module):
    """A module of a model that computes with the matmul precision of its config.

    The defaults of devices depend on their kind: TPUs round factors of float32
    matmuls to bfloat16, GPUs to TF32 (``jax.default_matmul_precision``).
    """

    config: ModelConfig

    @nn.nowrap
    def apply(self, *arguments: Any, **options: Any) -> Any:
        """Calls a method, see ``flax.linen.Module.apply``."""
        with jax.default_matmul_precision(self.config.matmul_precision):
            return super().apply(*arguments, **options)
