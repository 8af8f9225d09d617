"""Precision of products: of float32 arrays in gradients, and of bfloat16 arrays with a scalar or
into float32 results.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.ops.platform import target_platform
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


def products_of_rows(
    x: Float[AnyArray, "*leading features"],
    table: Float[AnyArray, "rows features"],
) -> Float[Array, "*leading rows"]:
    """Returns float32 products of vectors with the rows of a table of the same type.

    Gradients of the result are float32, too, and a product of float32 and
    bfloat16 arrays is one of float32: 15 times slower than one of bfloat16 on
    GPUs, and up to six passes on TPUs. There the gradient consists of two
    bfloat16 arrays, which represent it to 2**-16 of each entry.
    """
    if x.dtype == jnp.bfloat16 and target_platform() != "cpu":
        return _products_of_bfloat16_rows(x, table)
    return _products_of_rows(x, table)


def _products_of_rows(x: AnyArray, table: AnyArray) -> Array:
    return jnp.einsum(
        "...d,vd->...v", x, table, preferred_element_type=jnp.float32
    )


_products_of_bfloat16_rows = jax.custom_vjp(_products_of_rows)


def _products_forward(
    x: AnyArray, table: AnyArray
) -> tuple[Array, tuple[AnyArray, AnyArray]]:
    return _products_of_rows(x, table), (x, table)


def _products_backward(
    factors: tuple[AnyArray, AnyArray], gradient: AnyArray
) -> tuple[Array, Array]:
    x, table = factors
    parts = bfloat16_parts(gradient)

    def sum_of_products(axes: str, factor: AnyArray) -> Array:
        products = [
            jnp.einsum(axes, part, factor, preferred_element_type=jnp.float32)
            for part in parts
        ]
        return sum(products[1:], products[0]).astype(factor.dtype)

    return (
        sum_of_products("...v,vd->...d", table),
        sum_of_products("...v,...d->vd", x),
    )


_products_of_bfloat16_rows.defvjp(_products_forward, _products_backward)


def bfloat16_parts(
    x: Float[AnyArray, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Returns two bfloat16 arrays whose sum is a float32 array to 2**-16 of each entry.

    Entries below 2**-110 may lose more.
    """
    # Bits, because XLA may leave out a conversion to bfloat16 and back, and
    # kernels have no ``reduce_precision``.
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) + 2**15
    high = jax.lax.bitcast_convert_type(bits & -(2**16), jnp.float32)
    low = jnp.asarray(x - high, jnp.bfloat16)
    return high.astype(jnp.bfloat16), low
