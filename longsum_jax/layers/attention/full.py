"""Dense attention, and the state-space layer that can stand in its place."""

from typing import Any

import jax.numpy as jnp

from longsum_jax.layers.attention.base import Context, EncoderAttention, SparseAttention, from_stack
from longsum_jax.layers.attention.multi_head import ExtraKeyValues
from longsum_jax.layers.s4d import S4D
from longsum_jax.layers.stack import StackConfig
from longsum_jax.ops.attention.blockwise import KeySet, full_attention, max_score_bytes
from longsum_jax.ops.attention.dense import prepend_keys
from longsum_jax.typing import Array


class FullContext(Context):
    """The mask, and T5's bias by distance, float [H, 2 L - 1]."""

    def begin(self, x, mask, relative_bias, deterministic):
        length = x.shape[1]
        bias = (
            None
            if relative_bias is None
            else relative_bias.of_distances(jnp.arange(1 - length, length))
        )
        return x, (mask, bias), ()


class FullAttention(SparseAttention):
    """Every token sees every token; long inputs block by block, in memory linear in the length."""

    def __call__(
        self,
        x: Array,
        context: Any,
        layer_input: Any,
        deterministic: bool,
        further: ExtraKeyValues | None = None,
    ) -> Array:
        mask, bias = context
        batch, length = mask.shape
        k, v = self.project_kv(x)
        more = () if further is None else (*self.keys_values_of(further), further.valid)
        keys = length if further is None else length + further.valid.shape[1]
        if 4 * batch * self.num_heads * length * keys > max_score_bytes():
            options = self.sparse_options(deterministic)
            sets = [KeySet(*more[:2], more[2][:, None, None, None])] if more else []
            return self.o(
                full_attention(self.q(x), k, v, mask, distance_bias=bias, extra=sets, **options)
            )
        mask = mask[:, None, None, :]
        if bias is not None:
            positions = jnp.arange(length)
            bias = bias[None, :, positions - positions[:, None] + length - 1]
        if more:
            k, v, mask, bias = prepend_keys(k, v, mask, bias, more)
        return self.attend(x, k, v, mask=mask, bias=bias, deterministic=deterministic)


class StateSpace(S4D):
    """The state-space layer of LOCOST in the place of attention; it carries order, so it needs no
    positions."""

    def __call__(self, x: Array, context: Any, layer_input: Any, deterministic: bool) -> Array:
        return super().__call__(x, context)


def _make_state_space(stack: StackConfig) -> StateSpace:
    o = stack.options
    return StateSpace(
        stack.d_model,
        o.d_state,
        bidirectional=o.bidirectional,
        gating=o.gating,
        shared_dynamics=o.ssm_shared_dynamics,
        dt_min=o.ssm_dt_min,
        dt_max=o.ssm_dt_max,
        dt_init=o.ssm_dt_init,
        discretization=o.ssm_discretization,
        backend=o.ssm_backend,
        operands=o.ssm_operands,
        length_chunk=stack.length_chunk,
        dtype=stack.dtype,
    )


FULL = EncoderAttention(from_stack(FullAttention), FullContext, extra_keys=True)
S4D_LAYER = EncoderAttention(
    _make_state_space,
    options=(
        "d_state",
        "bidirectional",
        "gating",
        "ssm_shared_dynamics",
        "ssm_dt_min",
        "ssm_dt_max",
        "ssm_dt_init",
        "ssm_discretization",
    ),
)
