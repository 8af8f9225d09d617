"""Precision of products: of float32 arrays in gradients, and of bfloat16 arrays with a scalar."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Float

from longsum_jax.typing import AnyArray


def define_gradient(
    function: jax.custom_vjp[Any],
    forward: Callable[..., tuple[Any, Any]],
    backward: Callable[..., tuple[Any, ...]],
) -> None:
    """Defines the rules of a ``jax.custom_vjp``; both use the matmul precision of the call.

    JAX traces ``backward`` later, when the context
    ``jax.default_matmul_precision`` around the call has been left.

    Args:
        function: function to define the gradient for.
        forward, backward: arguments of ``function.defvjp``.
    """

    def forward_with_precision(*arguments: Any) -> tuple[Any, Any]:
        out, residuals = forward(*arguments)
        precision = jax.config.jax_default_matmul_precision  # type: ignore[attr-defined]
        # Residuals must be a pytree of arrays; this one has no leaves.
        context = jax.tree_util.Partial(
            partial(jax.default_matmul_precision, precision)
        )
        return out, (residuals, context)

    def backward_with_precision(*arguments: Any) -> tuple[Any, ...]:
        *static, (residuals, context), gradient = arguments
        with context():
            return backward(*static, residuals, gradient)

    function.defvjp(forward_with_precision, backward_with_precision)


def scaled(
    x: Float[AnyArray, "*shape"], factor: float
) -> Float[AnyArray, "*shape"]:
    """Multiplies by a number in float32 and returns the type of ``x``.

    In bfloat16 the number itself would be rounded: 768**-0.5 to a value that is
    0.13 % larger.
    """
    return (x.astype(jnp.float32) * factor).astype(x.dtype)
