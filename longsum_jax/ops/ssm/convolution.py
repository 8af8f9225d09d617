"""Convolution with the two-sided state-space kernel, exact for every length up to 2**24.

    y[j] = sum_{l<=j} kf[j-l] u[l] + sum_{l>=j} kb[l-j] u[l] + D u[j]

A loop runs over blocks of channels, so that temporary memory is for a single
block; on TPUs another loop may run over parts that have several blocks.
``fft.py`` and ``matmul.py`` are the two backends that convolve a block;
``fused.py`` (GPUs) and ``chunked.py`` (TPUs) convolve all channels in
kernels; ``backends.py`` selects the backend and the size of blocks. The backward
pass recomputes blocks; its residuals are inputs and parameters, and on CPUs the
spectra of kernels of moderate length.
"""

import math
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Complex, Float

from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.ssm.backends import (
    ConvolutionPlan,
    channels_per_block,
    channels_per_block_of_spectra,
    plan_convolution,
)
from longsum_jax.ops.ssm.fft import (
    apply_spectrum,
    convolve_by_fft,
    count_frequencies,
    kernel_spectrum,
)
from longsum_jax.ops.ssm.kernel import (
    DiagonalSSM,
    Modes,
    discretize,
    first_direction,
    slice_channels,
)
from longsum_jax.ops.ssm.matmul import convolve_by_matmul
from longsum_jax.ops.ssm.options import Backend, Discretization
from longsum_jax.typing import AnyArray


def ssm_convolution(
    u: Float[AnyArray, "batch length channels"],
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    *,
    causal: bool = False,
    discretization: Discretization = "zoh",
    block: int | None = None,
    backend: Backend | Literal["auto"] = "auto",
) -> Float[Array, "batch length channels"]:
    """Convolves every channel of ``u`` with its kernel.

    LOCOST, section 4.1, equation 3, with the skip D of the published code.

    Args:
        u: inputs of any float type; computed in float32. The products of
            "matmul" have the precision that ``backends.product_precision``
            names for this type.
        ssm: parameters of the channels, float32.
        D: skip weights, float32.
        causal: True to use only the first direction, so that output j depends
            on inputs 0..j; implied if ``ssm`` has one direction.
        discretization: see ``kernel.discretize``.
        block: number of channels that are convolved at a time, at most all;
            by default derived from the memory that one channel needs. "fused"
            convolves all of them.
        backend: "fft"; "matmul"; "fused" for a kernel on TPUs and recent GPUs
            if it supports the inputs (``backends.can_fuse``), else the faster
            of the others; or "auto" for the fastest that was measured or is
            expected, see ``backends.plan_convolution``.

    Returns:
        The outputs in the type of ``u``.

    Raises:
        InputError: ``block`` is less than one channel.
    """
    if causal:
        ssm = first_direction(ssm)
    modes = discretize(ssm, discretization)
    plan = plan_convolution(
        u.shape, modes, backend=backend, block=block, dtype=u.dtype
    )
    # The integers ``high`` and ``low`` have no gradients and are separate
    # arguments.
    floats = _Floats(u, modes.decay, modes.theta, modes.Ct, D)
    return _convolve(plan, floats, modes.high, modes.low)


def ssm_convolution_sharded(
    u: Float[AnyArray, "batch length channels"],
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    spec: PartitionSpec,
    **options: Any,
) -> Float[Array, "batch length channels"]:
    """Computes ``ssm_convolution`` of ``u`` sharded as ``spec`` over the active mesh.

    Before JAX 0.12 XLA does not partition FFTs, and gathers the batch on every
    device; inside ``shard_map`` each device convolves its own rows and
    channels. If ``spec`` shards the length, one all-to-all exchanges it for
    channels and another one exchanges it back; the result is exactly the same as
    on a single device.

    Args:
        u, ssm, D: see ``ssm_convolution``.
        spec: mesh axes of (batch, length, channels).
        **options: other arguments of ``ssm_convolution``.

    Raises:
        ValueError: the channels do not divide over the devices of the length
            axis.
    """
    batch, length, channels = (*spec, None, None, None)[:3]
    mesh = jax.sharding.get_abstract_mesh()
    # each device convolves its share of the channels
    axes = _axes(channels) + _axes(length)
    shards = math.prod(mesh.shape[axis] for axis in axes)
    if u.shape[2] % shards:
        raise ValueError(
            f"{u.shape[2]} channels do not divide over the {shards} devices of {axes}"
        )

    def convolve(u: AnyArray, ssm: DiagonalSSM, D: AnyArray) -> Array:
        if not length:
            return ssm_convolution(u, ssm, D, **options)
        swap = partial(lax.all_to_all, axis_name=_axes(length), tiled=True)
        # [batch, shard_length, channels] -> [batch, length, channels / shards]
        u = swap(u, split_axis=2, concat_axis=1)
        y = ssm_convolution(u, ssm, D, **options)
        return swap(y, split_axis=1, concat_axis=2)

    layout = PartitionSpec(batch, length, channels)
    # Parameters are [sets, channels, ...].
    parameters = jax.tree.map(lambda _: PartitionSpec(None, axes or None), ssm)
    return jax.shard_map(
        convolve,
        in_specs=(layout, parameters, PartitionSpec(axes or None)),
        out_specs=layout,
        # With a custom_vjp inside, shard_map sums the cotangents of replicated
        # parameters.
        check_vma=False,
    )(u, ssm, D)


def _axes(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the mesh axes of one entry of a PartitionSpec."""
    if entry is None:
        return ()
    if isinstance(entry, str):
        return (entry,)
    return tuple(entry)


def ssm_spectrum(
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    length: int,
    *,
    discretization: Discretization = "zoh",
) -> Complex[Array, "channels num_frequencies"]:
    """Computes the spectra of the kernels, for ``convolve_with_spectrum``.

    They only depend on the parameters and the length, so that calls may share
    them.

    Args:
        ssm, D, discretization: as for ``ssm_convolution``.
        length: length of the inputs to convolve.

    Returns:
        complex64 spectra of the circular kernels: 8 bytes per channel and
        position.
    """
    modes = discretize(ssm, discretization)
    channels = ssm.log_dt.shape[1]
    block = channels_per_block((1, length, channels), modes, "fft")

    def compute_block(start: AnyArray | int) -> tuple[Array]:
        block_modes = slice_channels(modes, start, block)
        block_D = lax.dynamic_slice_in_dim(D, start, block)
        return (kernel_spectrum(block_modes, block_D, length),)

    spectrum = jnp.zeros((channels, count_frequencies(length)), jnp.complex64)
    (spectrum,) = _fill_blocks(compute_block, block, (spectrum, 0))
    return spectrum


def convolve_with_spectrum(
    u: Float[AnyArray, "batch length channels"],
    spectrum: Complex[AnyArray, "kernel_channels num_frequencies"],
) -> Float[Array, "batch length channels"]:
    """Computes ``ssm_convolution`` by FFT from the result of ``ssm_spectrum``.

    Args:
        u: inputs of any float type.
        spectrum: complex64 spectra for this length and these channels.

    Returns:
        The outputs in the type of ``u``.

    Raises:
        ValueError: the spectrum was computed for another length or other
            channels.
    """
    _, length, channels = u.shape
    if spectrum.shape != (channels, count_frequencies(length)):
        raise ValueError(
            f"the spectrum has shape {spectrum.shape}; it was made for inputs other than {u.shape}"
        )
    block = channels_per_block_of_spectra(u.shape)

    def convolve_block(start: AnyArray | int) -> tuple[Array]:
        block_u = lax.dynamic_slice_in_dim(u, start, block, 2).astype(
            jnp.float32
        )
        block_spectrum = lax.dynamic_slice_in_dim(spectrum, start, block)
        return (apply_spectrum(block_spectrum, block_u),)

    (y,) = _fill_blocks(convolve_block, block, (jnp.zeros_like(u), 2))
    return y


class _Floats(NamedTuple):
    """The differentiable inputs of a convolution: inputs, the floats of ``Modes``, and the skip."""

    u: Float[AnyArray, "batch length channels"]
    decay: Float[Array, "sets channels modes"]
    theta: Float[Array, "sets channels modes"]
    Ct: Complex[Array, "sets channels groups modes"]
    D: Float[AnyArray, " channels"]


_CHANNEL_AXES = (2, 1, 1, 1, 0)  # axis of channels in each array of _Floats


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(
    plan: ConvolutionPlan, floats: _Floats, high: Array, low: Array
) -> Array:
    """Convolves block by block."""

    def convolve_part(start: AnyArray | int) -> tuple[Array, ...]:
        part = _slice_inputs(plan.part, start, floats, high, low)

        def convolve_block(start: AnyArray | int) -> tuple[Array]:
            block = _slice_block(plan.block, start, *part)
            return (_convolve_block(plan, *block),)

        output = (jnp.zeros_like(part[0].u), 2)
        return _fill_blocks(convolve_block, plan.block, output)

    (y,) = _fill_blocks(convolve_part, plan.part, (jnp.zeros_like(floats.u), 2))
    return y


def _convolve_forward(
    plan: ConvolutionPlan, *inputs: Any
) -> tuple[Array, tuple[Any, Any]]:
    if not plan.saves_spectrum:
        return _convolve(plan, *inputs), (inputs, None)
    u = inputs[0].u
    _, length, channels = u.shape

    def convolve_block(start: AnyArray | int) -> tuple[Array, Array]:
        block_u, block_modes, block_D = _slice_block(plan.block, start, *inputs)
        block_spectrum = kernel_spectrum(block_modes, block_D, length)
        block_u = block_u.astype(jnp.float32)
        return apply_spectrum(block_spectrum, block_u), block_spectrum

    spectrum = jnp.zeros((channels, count_frequencies(length)), jnp.complex64)
    outputs = (jnp.zeros_like(u), 2), (spectrum, 0)
    y, spectrum = _fill_blocks(convolve_block, plan.block, *outputs)
    return y, (inputs, save_for_backward(spectrum))


def _convolve_backward(
    plan: ConvolutionPlan, residuals: tuple[Any, Any], dy: AnyArray
) -> tuple[_Floats, None, None]:
    inputs, spectrum = residuals

    def differentiate_block(start: AnyArray | int) -> tuple[Any, ...]:
        block = _slice_block(plan.gradient_block, start, *inputs)
        block_dy = lax.dynamic_slice_in_dim(dy, start, plan.gradient_block, 2)
        saved = None
        if spectrum is not None:
            saved = lax.dynamic_slice_in_dim(
                spectrum, start, plan.gradient_block
            )
        return _block_gradients(plan, *block, saved, block_dy)

    # Every block writes the gradients of its channels.
    zeros = map(jnp.zeros_like, inputs[0])
    outputs = zip(zeros, _CHANNEL_AXES, strict=True)
    gradients = _fill_blocks(differentiate_block, plan.gradient_block, *outputs)
    return _Floats(*gradients), None, None  # ``high`` and ``low`` are integers


def _block_gradients(
    plan: ConvolutionPlan,
    u: AnyArray,
    modes: Modes,
    D: AnyArray,
    spectrum: AnyArray | None,
    dy: AnyArray,
) -> _Floats:
    """Returns the gradients of a block."""
    if plan.backend == "fused":
        du, dmodes, dD = _fused_kernels().fused_gradients(u, modes, D, dy)
        return _Floats(du, dmodes.decay, dmodes.theta, dmodes.Ct, dD)
    u, dy = u.astype(jnp.float32), dy.astype(jnp.float32)
    if plan.backend == "matmul":
        _, pull_back = jax.vjp(partial(_convolve_block, plan), u, modes, D)
        du, dmodes, dD = pull_back(dy)
    else:
        make_spectrum = partial(kernel_spectrum, length=u.shape[1])
        # If the spectrum was saved, ``made`` is not used, and XLA removes its
        # computation.
        made, pull_back_parameters = jax.vjp(make_spectrum, modes, D)
        _, pull_back = jax.vjp(
            apply_spectrum, made if spectrum is None else spectrum, u
        )
        dspectrum, du = pull_back(dy)
        dmodes, dD = pull_back_parameters(dspectrum)
    return _Floats(du, dmodes.decay, dmodes.theta, dmodes.Ct, dD)


define_gradient(_convolve, _convolve_forward, _convolve_backward)


def _fused_kernels() -> ModuleType:
    """Returns the module of kernels for the target's devices."""
    if target_platform() == "tpu":
        from longsum_jax.ops.ssm import chunked

        return chunked
    from longsum_jax.ops.ssm import fused

    return fused


def _modes(floats: _Floats, high: Array, low: Array) -> Modes:
    return Modes(floats.decay, floats.theta, high, low, floats.Ct)


def _slice_inputs(
    width: int,
    start: AnyArray | int,
    floats: _Floats,
    high: Array,
    low: Array,
) -> tuple[_Floats, Array, Array]:
    """Returns the inputs of a convolution of ``width`` channels."""
    modes = slice_channels(_modes(floats, high, low), start, width)
    u = lax.dynamic_slice_in_dim(floats.u, start, width, 2)
    D = lax.dynamic_slice_in_dim(floats.D, start, width)
    part = _Floats(u, modes.decay, modes.theta, modes.Ct, D)
    return part, modes.high, modes.low


def _slice_block(
    width: int, start: AnyArray | int, *inputs: Any
) -> tuple[AnyArray, Modes, AnyArray]:
    """Returns inputs, modes and skip of ``width`` channels."""
    floats, high, low = _slice_inputs(width, start, *inputs)
    return floats.u, _modes(floats, high, low), floats.D


def _convolve_block(
    plan: ConvolutionPlan, u: AnyArray, modes: Modes, D: AnyArray
) -> Array:
    if plan.backend == "fused":
        return _fused_kernels().convolve_fused(u, modes, D)
    u = u.astype(jnp.float32)
    if plan.backend == "fft":
        return convolve_by_fft(u, modes, D)
    return convolve_by_matmul(
        u,
        modes,
        D,
        precision=plan.precision,
        dtype=plan.dtype,
        group=plan.group,
    )


def _fill_blocks(
    compute_block: Callable[[AnyArray | int], tuple[Array, ...]],
    block: int,
    *outputs: tuple[Array, int],
) -> tuple[Array, ...]:
    """Fills arrays of all channels with the results of a function for each block of channels.

    The last block is moved back to fit. Seven channels in blocks of three:

        block 0   0 1 2
        block 1         3 4 5
        block 2           4 5 6

    Channels 4 and 5 are computed twice, which is harmless: blocks overwrite and
    never add.

    Args:
        compute_block: function of the first channel of a block that returns its
            part of every output.
        block: number of channels of a block.
        *outputs: arrays to fill, each with the index of its axis of channels.
    """
    arrays = tuple(array for array, _ in outputs)
    axes = [axis for _, axis in outputs]
    channels = arrays[0].shape[axes[0]]
    count = -(-channels // block)

    def write_block(
        start: AnyArray | int, arrays: tuple[Array, ...]
    ) -> tuple[Array, ...]:
        parts = compute_block(start)
        triples = zip(arrays, parts, axes, strict=True)
        return tuple(
            _write(array, part, start, axis) for array, part, axis in triples
        )

    if count == 1:
        return write_block(0, arrays)

    def step(i: AnyArray, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
        start = jnp.minimum(i * block, channels - block)
        return write_block(start, arrays)

    return lax.fori_loop(0, count, step, arrays)


def _write(
    x: AnyArray, value: AnyArray, start: AnyArray | int, axis: int
) -> Array:
    return lax.dynamic_update_slice_in_dim(
        x, value.astype(x.dtype), start, axis
    )
