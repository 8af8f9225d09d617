"""Adafactor for parameters that are stacks of layers (Shazeer & Stern 2018)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from longsum_jax.training.trees import name_of
from longsum_jax.typing import Array

# Path of a parameter ("encoder/layers/self_attention/q/kernel") to the logical
# names of its axes.
ParameterAxes = Mapping[str, Sequence[str | None]]

_LAYERS = "layers"
_HEADS = ("heads", "kv")  # adjacent, they form one side of a matrix
_TINY_SQUARE = 1e-30  # the paper's first epsilon
_SMALLEST_SCALE = 1e-3  # the paper's second epsilon


class AdafactorState(NamedTuple):
    """The second moments.

    Attributes:
        count: number of updates so far, () int32.
        rows: mean squared gradient over the columns of every factored
            parameter; its shape is the parameter's shape without the axes of
            the columns.
        columns: mean squared gradient over the rows, likewise.
        full: mean squared gradient of every other parameter, in the parameter's
            shape.
    """

    count: Array  # type: ignore[assignment] # hides tuple.count
    rows: Any
    columns: Any
    full: Any


class _Moments(NamedTuple):
    """The second moments of one parameter; unused moments are empty trees."""

    rows: Any = optax.MaskedNode()
    columns: Any = optax.MaskedNode()
    full: Any = optax.MaskedNode()


class _ParameterAxes(NamedTuple):
    """The axes of one parameter.

    Attributes:
        layer: all axes except the axis of layers.
        rows, columns: axes of the matrices whose second moments are factored;
            () for other parameters.
    """

    layer: tuple[int, ...]
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()


def scale_by_adafactor(
    axes: ParameterAxes,
    *,
    decay_rate: float = 0.8,
    clip_threshold: float = 1.0,
    min_dim_size_to_factor: int = 128,
) -> optax.GradientTransformation:
    """Divides gradients by their root mean squares, without first moment or learning rate.

    With G the gradient and d = 1 - step**-decay_rate, the moments of a matrix
    and its update are (algorithm 4)

        R = d R + (1 - d) mean of G**2 over columns
        C = d C + (1 - d) mean of G**2 over rows
        U = G / sqrt(R C / mean of R)

    and the moments of other parameters V = d V + (1 - d) G**2, U = G / sqrt(V).
    The update is clipped, U / max(1, rms(U) / clip_threshold). Each layer is a
    separate parameter although arrays contain all layers, and the axes "heads"
    and "kv" are one side of a matrix, as in fairseq and transformers, whose
    layers have matrices [d_model, d_model]. Of more than two axes the last two
    form the matrices.

    Args:
        axes: names of the parameters' axes; a parameter without names is not a
            stack of layers.
        decay_rate: exponent of the moments' decay.
        clip_threshold: largest root mean square of the update of one layer's
            parameter.
        min_dim_size_to_factor: smallest size of both sides of a matrix for
            which moments are factored.
    """

    def layout_of(path: Any, param: Array) -> _ParameterAxes:
        return _layout(
            _names(path, param, axes), param.shape, min_dim_size_to_factor
        )

    def init(params: Any) -> AdafactorState:
        flat, tree = jax.tree_util.tree_flatten_with_path(params)
        moments = [
            _zero_moments(param, layout_of(path, param)) for path, param in flat
        ]
        return _state(jnp.zeros((), jnp.int32), moments, tree)

    def update(
        updates: Any, state: AdafactorState, params: Any = None
    ) -> tuple[Any, AdafactorState]:
        del params
        count = optax.safe_increment(state.count)
        # 0 in the first step, so that the moments need no bias correction.
        decay = 1.0 - count.astype(jnp.float32) ** -decay_rate
        tree: Any
        flat, tree = jax.tree_util.tree_flatten_with_path(updates)
        # Moments that a parameter does not have are empty subtrees.
        slots = (
            tree.flatten_up_to(slot)
            for slot in (state.rows, state.columns, state.full)
        )

        # A Python loop over parameters: their layouts are static.
        steps, moments = [], []
        for (path, gradient), *old in zip(flat, *slots, strict=True):
            layout = layout_of(path, gradient)
            new = _next_moments(gradient, _Moments(*old), layout, decay)
            step = _normalize(gradient, new, layout)
            # Clipping is per layer, although the array has all layers.
            excess = _rms(step, layout.layer) / clip_threshold
            steps.append(step / jnp.maximum(1.0, excess))
            moments.append(new)
        return tree.unflatten(steps), _state(count, moments, tree)

    return optax.GradientTransformation(init, update)


def scale_by_parameter_rms(axes: ParameterAxes) -> optax.GradientTransformation:
    """Multiplies updates by the root mean square of their parameter, at least 1e-3.

    Each layer is a separate parameter (Shazeer & Stern 2018, section 8).

    Args:
        axes: names of the parameters' axes.
    """

    def update(
        updates: Any, state: optax.EmptyState, params: Any
    ) -> tuple[Any, optax.EmptyState]:
        def scale(path: Any, step: Array, param: Array) -> Array:
            layer = _layer_axes(_names(path, param, axes))
            return step * jnp.maximum(_SMALLEST_SCALE, _rms(param, layer))

        return jax.tree_util.tree_map_with_path(scale, updates, params), state

    return optax.GradientTransformation(lambda _: optax.EmptyState(), update)


def _names(
    path: Any, param: Array, axes: ParameterAxes
) -> Sequence[str | None]:
    """Returns the names of a parameter's axes."""
    return axes.get(name_of(path), (None,) * param.ndim)


def _layer_axes(names: Sequence[str | None]) -> tuple[int, ...]:
    """Returns all axes except the axis of layers."""
    return tuple(axis for axis, name in enumerate(names) if name != _LAYERS)


def _layout(
    names: Sequence[str | None], shape: Sequence[int], min_size: int
) -> _ParameterAxes:
    """Returns the axes of a parameter and of its matrices."""
    layer = _layer_axes(names)
    # Sides of matrices: single axes, or "heads" and "kv" together.
    sides: list[tuple[int, ...]] = []
    for axis in layer:
        if axis and (names[axis - 1], names[axis]) == _HEADS:
            sides[-1] += (axis,)
        else:
            sides.append((axis,))
    # Vectors (norms, biases) have no second side to factor over.
    if len(sides) < 2:
        return _ParameterAxes(layer)
    rows, columns = sides[-2:]
    # Narrow matrices keep full second moments.
    if min(_size(shape, rows), _size(shape, columns)) < min_size:
        return _ParameterAxes(layer)
    return _ParameterAxes(layer, rows, columns)


def _size(shape: Sequence[int], axes: Iterable[int]) -> int:
    return math.prod(shape[axis] for axis in axes)


def _zero_moments(param: Array, layout: _ParameterAxes) -> _Moments:
    zeros = jnp.zeros(param.shape, jnp.float32)
    if not layout.rows:
        return _Moments(full=zeros)
    return _Moments(
        # of [layers, rows, columns]: [layers, rows] and [layers, columns]
        rows=zeros.mean(layout.columns),
        columns=zeros.mean(layout.rows),
    )


def _next_moments(
    gradient: Array, moments: _Moments, layout: _ParameterAxes, decay: Array
) -> _Moments:
    """Returns the decayed means of the squares, including the squares of ``gradient``."""
    square = jnp.square(gradient.astype(jnp.float32)) + _TINY_SQUARE
    if not layout.rows:
        return _Moments(full=decay * moments.full + (1.0 - decay) * square)
    rows = decay * moments.rows + (1.0 - decay) * square.mean(layout.columns)
    columns = decay * moments.columns + (1.0 - decay) * square.mean(layout.rows)
    return _Moments(rows=rows, columns=columns)


def _normalize(
    gradient: Array, moments: _Moments, layout: _ParameterAxes
) -> Array:
    """Returns the gradient divided by the root of its mean squares."""
    if not layout.rows:
        return gradient * jax.lax.rsqrt(moments.full)
    # Back to the rank of the gradient, with size 1 on the side that was
    # averaged.
    rows = jnp.expand_dims(moments.rows, layout.columns)
    columns = jnp.expand_dims(moments.columns, layout.rows)
    # Two square roots, because the product of two small squares would underflow
    # in float32.
    relative_rows = rows / rows.mean(layout.rows, keepdims=True)
    return gradient * jax.lax.rsqrt(relative_rows) * jax.lax.rsqrt(columns)


def _rms(x: Array, axes: tuple[int, ...]) -> Array:
    """Returns the root mean square over ``axes``, which are kept with size 1."""
    return jnp.sqrt(jnp.square(x).mean(axes, keepdims=True))


def _state(
    count: Array, moments: Sequence[_Moments], tree: Any
) -> AdafactorState:
    """Returns the moments of all parameters as trees with the structure of the parameters."""
    rows, columns, full = zip(*moments, strict=True)
    return AdafactorState(
        count,
        tree.unflatten(rows),
        tree.unflatten(columns),
        tree.unflatten(full),
    )
