"""Performer: softmax attention by random features (Choromanski et al. 2021)."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.experimental.attention.linear import FeatureAttention
from longsum_jax.experimental.ops.performer import (
    draw_projection,
    performer_attention,
)
from longsum_jax.layers.attention.base import Context
from longsum_jax.layers.attention.multi_head import RelativePositionBias
from longsum_jax.layers.attention.options import PerformerOptions
from longsum_jax.typing import AnyArray


class PerformerContext(Context):
    """The mask, and the index of each layer."""

    def prepare(
        self,
        x: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"],
        relative_bias: RelativePositionBias | None,
        deterministic: bool,
    ) -> tuple[Float[AnyArray, "batch extended_length d_model"], Any, Any]:
        return x, mask, jnp.arange(self.stack.num_layers)


class PerformerAttention(FeatureAttention):
    """Attention by positive random features.

    The features are drawn again in every training step, and otherwise from a
    fixed seed per layer.
    """

    Options = PerformerOptions
    context_class = PerformerContext

    options: PerformerOptions = PerformerOptions()

    def feature_attention(
        self, layer_input: Any, deterministic: bool
    ) -> tuple[Callable[..., Array], dict[str, Array]]:
        key = self.random_key(layer_input, deterministic)
        projection = draw_projection(
            key, self.options.performer_num_features, self.d_kv
        )
        return performer_attention, {"projection": projection}
