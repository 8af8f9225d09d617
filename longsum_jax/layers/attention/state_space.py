"""The state-space layer of LOCOST in place of an encoder attention."""

from typing import Any

import flax.linen as nn
from jaxtyping import Array, Float

from longsum_jax.layers.attention.base import EncoderAttention
from longsum_jax.layers.attention.options import S4DOptions
from longsum_jax.layers.s4d import S4D
from longsum_jax.layers.stack import StackConfig
from longsum_jax.typing import AnyArray


class StateSpaceAttention(EncoderAttention, S4D):
    """A state-space layer; its convolution encodes order, so it needs no positions."""

    Options = S4DOptions

    @classmethod
    def from_stack(cls, stack: StackConfig) -> nn.Module:
        options = S4DOptions.of(stack.attention)
        return cls(
            stack.d_model,
            options.d_state,
            bidirectional=options.bidirectional,
            gating=options.gating,
            shared_dynamics=options.ssm_shared_dynamics,
            dt_min=options.ssm_dt_min,
            dt_max=options.ssm_dt_max,
            dt_init=options.ssm_dt_init,
            b_init=options.ssm_b_init,
            discretization=options.ssm_discretization,
            backend=stack.ssm_backend,
            length_chunk=stack.length_chunk,
            recompute=stack.recomputes_projections,
            dtype=stack.dtype,
        )

    def __call__(  # type: ignore[override]  # called like an attention
        self,
        x: Float[AnyArray, "batch length d_model"],
        context: Any,
        layer_input: Any,
        deterministic: bool,
    ) -> Float[Array, "batch length d_model"]:
        mask = context
        return super().__call__(x, mask)
