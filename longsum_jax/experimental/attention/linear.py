"""Linear and efficient attention: weights are products of features of queries
and keys (Katharopoulos et al. 2020; Shen et al. 2021).
"""

from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float

from longsum_jax.experimental.ops.linear import (
    efficient_attention,
    linear_attention,
)
from longsum_jax.layers.attention.base import EncoderSelfAttention
from longsum_jax.typing import AnyArray


class FeatureAttention(EncoderSelfAttention):
    """The base class of attentions by products of features.

    There are no weights of pairs, so that T5's bias and dropout of attention
    weights do not apply. If a mesh shards the length, sums of [features,
    head_dim] per head are exchanged between devices.
    """

    def __call__(
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        k, v = self.project_kv(x)
        text = {"q": self.q(x), "k": k, "v": v, "mask": context}
        attention, shared = self.feature_attention(layer_input, deterministic)
        # Without dropout, because no weights of pairs of tokens are computed.
        return self.o(
            self.attend_sharded(attention, True, text=text, shared=shared)
        )

    def feature_attention(
        self, layer_input: Any, deterministic: bool
    ) -> tuple[Callable[..., Array], dict[str, Array]]:
        """Returns the function of ``ops.attention``, called with ``scale``, and its
        arguments other than queries, keys, values and mask.
        """
        raise NotImplementedError


class LinearAttention(FeatureAttention):
    """Attention with the features elu(x) + 1 (Katharopoulos et al. 2020)."""

    def feature_attention(
        self, layer_input: Any, deterministic: bool
    ) -> tuple[Callable[..., Array], dict[str, Array]]:
        return _without_scale(linear_attention), {}


class EfficientAttention(FeatureAttention):
    """Attention with a softmax of queries over features and of keys over positions."""

    def feature_attention(
        self, layer_input: Any, deterministic: bool
    ) -> tuple[Callable[..., Array], dict[str, Array]]:
        return _without_scale(efficient_attention), {}


def _without_scale(attention: Callable[..., Array]) -> Callable[..., Array]:
    # These functions do not scale the products of queries and keys.
    def attend(*, scale: float, **arguments: Any) -> Array:
        return attention(**arguments)

    return attend
