"""Convolution with the two-sided state-space kernel, exact for every length up to 2**24.

    y[j] = sum_{l<=j} kf[j-l] u[l] + sum_{l>=j} kb[l-j] u[l] + D u[j]

By FFT, both directions and the skip D form ONE circular kernel, so a forward pass costs one FFT of
the input, one of the kernel and one inverse; by matrix products (``matmul.py``) there is no kernel
of length L. Channels are processed in blocks inside a loop: the temporary memory is that of one
block. The backward pass computes blocks again; its residuals are inputs and parameters, and on CPUs
the spectra of kernels of moderate length.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, Complex, Float

from longsum_jax.ops.device_memory import target_memory
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.ssm.kernel import (
    DiagonalSSM,
    Discretization,
    Modes,
    discretize,
    first_direction,
    inner_steps,
    kernel_of_modes,
    slice_channels,
)
from longsum_jax.ops.ssm.matmul import chunk_length, convolve_by_matmul, count_chunks
from longsum_jax.typing import AnyArray

# Temporary memory that a block of channels may always take, and an eighth of the input where that
# is more: on CPUs what caches hold, on TPUs what XLA keeps on the chip (BUILD_NOTES.md), elsewhere
# a share of the device's memory.
MIN_BLOCK_BYTES: Mapping[str, int] = {"cpu": 2**25, "tpu": 2**27}
# Bytes of spectra, of all channels, that a CPU keeps for the gradient: little beside activations.
MOST_SPECTRUM_BYTES_ON_CPU = 2**28
MOST_CHANNELS_ON_CPU = 16  # of a block with its powers, so that these stay in caches
_MEMORY_SHARES: Mapping[str, int] = {"fft": 128, "matmul": 32}
Backend = Literal["fft", "matmul"]
# Platform to batch to the first length at which "matmul" is the faster one. CPUs: the FFT always
# was, see benchmarks/results/ssm_backends.json. TPUs are an expectation, not a measurement: XLA's
# FFT is slow there.
_MATMUL_FROM: Mapping[str, Mapping[int, int]] = {"tpu": {1: 1}}


def ssm_convolution(
    u: Float[AnyArray, "batch length channels"],
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    *,
    causal: bool = False,
    discretization: Discretization = "zoh",
    block: int | None = None,
    backend: Backend | Literal["auto"] = "auto",
    operands: str = "float32",
) -> Float[Array, "batch length channels"]:
    """Convolves every channel of ``u`` with its kernel.

    LOCOST, section 3, equation 3, and the published skip D.

    Args:
        u: inputs of any float type; computed in float32.
        ssm: parameters of the channels, float32.
        D: weight of the input itself, float32.
        causal: use the first direction alone, so that output j depends on inputs 0..j; implied by
            one direction.
        discretization: see ``kernel.discretize``.
        block: channels per step of the loop; chosen from the memory of one channel when not given.
        backend: "fft", "matmul" (``matmul.py``), or "auto" for the faster one, see
            ``choose_backend``.
        operands: of "matmul", the type that factors are rounded to; "bfloat16" costs three digits.

    Returns:
        The outputs in the type of ``u``.
    """
    if causal:
        ssm = first_direction(ssm)
    modes = discretize(ssm, discretization)
    if backend == "auto":
        backend = choose_backend(target_platform(), u.shape[1], u.shape[0])
    if block is None:
        block = _channels_per_block(u.shape, modes, backend)
    group = _chunks_per_group(u.shape, modes, block) if backend == "matmul" else 0
    plan = _Plan(backend, block, group, operands, _is_spectrum_kept(u.shape, backend))
    decay, theta, high, low, Ct = modes
    return _convolve(plan, u, decay, theta, Ct, D, high, low)


def ssm_convolution_sharded(
    u: Float[AnyArray, "batch length channels"],
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    spec: PartitionSpec,
    **options: Any,
) -> Float[Array, "batch length channels"]:
    """Computes ``ssm_convolution`` of ``u`` sharded as ``spec`` over the active mesh.

    GSPMD does not partition FFTs and would gather the batch on every device; inside ``shard_map``
    each device convolves its own rows and channels. Where ``spec`` shards the length, devices swap
    it for channels and back: two all-to-alls, exactly what one device computes.

    Args:
        u, ssm, D: see ``ssm_convolution``.
        spec: mesh axes of (batch, length, channels).
        **options: other arguments of ``ssm_convolution``.

    Raises:
        ValueError: the channels do not divide over the devices of the length axis.
    """
    batch, length, channels = (*spec, None, None, None)[:3]
    mesh = jax.sharding.get_abstract_mesh()
    axes = _axes(channels) + _axes(length)  # each device convolves its share of the channels
    shards = math.prod(mesh.shape[axis] for axis in axes)
    if u.shape[2] % shards:
        raise ValueError(f"{u.shape[2]} channels do not divide over the {shards} devices of {axes}")

    def convolve(u: AnyArray, ssm: DiagonalSSM, D: AnyArray) -> Array:
        swap = partial(lax.all_to_all, axis_name=_axes(length), tiled=True)
        if not length:
            return ssm_convolution(u, ssm, D, **options)
        u = swap(u, split_axis=2, concat_axis=1)
        y = ssm_convolution(u, ssm, D, **options)
        return swap(y, split_axis=1, concat_axis=2)

    layout = PartitionSpec(batch, length, channels)
    parameters = DiagonalSSM(*(PartitionSpec(None, axes or None) for _ in ssm))
    return jax.shard_map(
        convolve,
        in_specs=(layout, parameters, PartitionSpec(axes or None)),
        out_specs=layout,
        # A custom_vjp inside: the cotangents of replicated parameters are summed on the way out.
        check_vma=False,
    )(u, ssm, D)


def _axes(entry: str | tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the mesh axes of one entry of a PartitionSpec."""
    if entry is None:
        return ()
    return (entry,) if isinstance(entry, str) else tuple(entry)


def smooth_length(length: int) -> int:
    """Returns the smallest even FFT length that fits ``length`` inputs and two-sided lags.

    It is at least 2 length - 1, so that nothing wraps around, and has no prime factors above 7.
    """
    n = max(2, 2 * length - 1)
    n += n % 2
    while not _is_smooth(n):
        n += 2
    return n


def _is_smooth(n: int) -> bool:
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1


def choose_backend(platform: str, length: int, batch: int) -> Backend:
    """Returns the backend that was measured (on TPUs: is expected) to be the faster one."""
    measured = _MATMUL_FROM.get(platform, {})
    batches = [size for size in measured if size <= batch]
    return "matmul" if batches and length >= measured[max(batches)] else "fft"


def _channels_per_block(shape: tuple[int, ...], modes: Modes, backend: Backend) -> int:
    """Returns the number of channels whose tables and transforms fit the budget of a block."""
    batch, length, _ = shape
    sets, _, groups, size = modes.Ct.shape
    if backend == "fft":
        # Of a channel: tables of powers; texts and kernels, padded, and the spectra of these.
        inner = inner_steps(length)
        tables = 12 * sets * size * (inner + 2 * groups * -(-length // inner))
        per_channel = tables + 16 * smooth_length(length) * (batch + sets * groups)
        if target_platform() == "cpu":
            return min(MOST_CHANNELS_ON_CPU, _channels_within(per_channel, shape, backend))
    else:
        # Toeplitz matrices, and powers of one direction at a time; inputs and sums.
        chunk = chunk_length(batch, length)
        tables = 4 * (2 * chunk**2 + 8 * size * chunk)
        per_channel = tables + 16 * batch * length
    return _channels_within(per_channel, shape, backend)


def _channels_within(per_channel: int, shape: tuple[int, ...], backend: Backend) -> int:
    """Returns the channels of a block that take ``per_channel`` bytes each within the budget."""
    eighth_of_input = math.prod(shape) * 4 // 8  # in float32
    budget = max(_least_block_bytes(backend), eighth_of_input)
    channels = shape[2]
    most = max(1, min(channels, budget // per_channel))
    # Blocks of about equal size: the last one is moved back and would compute channels again.
    return -(-channels // -(-channels // most))


def _is_spectrum_kept(shape: tuple[int, ...], backend: Backend) -> bool:
    """Tells whether gradients use the spectra of the forward pass, instead of making them again."""
    _, length, channels = shape
    size = 4 * smooth_length(length) * channels
    is_small = size <= MOST_SPECTRUM_BYTES_ON_CPU
    return backend == "fft" and target_platform() == "cpu" and is_small


def _chunks_per_group(shape: tuple[int, ...], modes: Modes, block: int) -> int:
    """Returns the chunks of "matmul" whose states, in both planes and eight copies, fit."""
    batch, length, _ = shape
    chunk_bytes = 8 * 8 * batch * block * modes.Ct.shape[-1]
    count = _least_block_bytes("matmul") // chunk_bytes
    return max(1, min(count, count_chunks(batch, length)))


def _least_block_bytes(backend: Backend) -> int:
    known = MIN_BLOCK_BYTES.get(target_platform())
    return known or target_memory() // _MEMORY_SHARES[backend]


def circular_kernel(
    modes: Modes, D: Float[AnyArray, " channels"], length: int, fft_length: int
) -> Float[Array, "channels fft_length"]:
    """Returns circular kernels: forward lags from the left, backward lags from the right.

    Args:
        modes: modes of the channels.
        D: added at lag 0, float32.
        length: number of lags of either direction.
        fft_length: entries of a kernel, at least 2 length - 1.

    Returns:
        float32.
    """
    kernel = kernel_of_modes(modes, length)
    forward = kernel[0].at[:, 0].add(D)
    if kernel.shape[0] == 1:
        return jnp.pad(forward, ((0, 0), (0, fft_length - length)))
    forward = forward.at[:, 0].add(kernel[1, :, 0])
    gap = jnp.zeros((forward.shape[0], fft_length - 2 * length + 1), forward.dtype)
    return jnp.concatenate([forward, gap, kernel[1, :, :0:-1]], axis=1)


def _over_blocks(
    block: int, channels: int, body: Callable[[Array | int, Any], Any], carry: Any
) -> Any:
    """Runs carry = body(start, carry) over blocks of channels.

    The last block is moved back to fit, which changes nothing because every block writes (never
    adds) its channels.
    """
    count = -(-channels // block)
    if count == 1:
        return body(0, carry)

    def step(i: AnyArray, carry: Any) -> Any:
        start = jnp.minimum(i * block, channels - block)
        return body(start, carry)

    return lax.fori_loop(0, count, step, carry)


def _write(x: AnyArray, value: AnyArray, start: AnyArray | int, axis: int) -> Array:
    return lax.dynamic_update_slice_in_dim(x, value.astype(x.dtype), start, axis)


def _convolve_by_fft(u: AnyArray, modes: Modes, D: AnyArray) -> Array:
    """Convolves a block of channels in float32."""
    return _convolve_with(_spectrum_of(modes, D, u.shape[1]), u)


def _spectrum_of(
    modes: Modes, D: AnyArray, length: int
) -> Complex[Array, "channels num_frequencies"]:
    """Returns the spectrum of the circular kernel, complex64."""
    kernel = circular_kernel(modes, D, length, smooth_length(length))
    return jnp.fft.rfft(kernel)


def _convolve_with(spectrum: AnyArray, u: AnyArray) -> Array:
    length = u.shape[1]
    fft_length = smooth_length(length)
    product = jnp.fft.rfft(u.swapaxes(1, 2), n=fft_length) * spectrum
    y = jnp.fft.irfft(product, n=fft_length)[..., :length]
    return y.swapaxes(1, 2)


def _block(
    plan: "_Plan", start: AnyArray | int, u: AnyArray, modes: Modes, D: AnyArray
) -> tuple[Array, Modes, Array]:
    """Returns inputs (as float32), modes and skip of the channels of one block."""
    u = lax.dynamic_slice_in_dim(u, start, plan.block, 2).astype(jnp.float32)
    modes = slice_channels(modes, start, plan.block)
    return u, modes, lax.dynamic_slice_in_dim(D, start, plan.block)


class _Plan(NamedTuple):
    """The static options of a convolution."""

    backend: Backend
    block: int
    group: int
    operands: str
    keeps_spectrum: bool  # from the forward pass, for its gradient; of "fft"

    def convolve(self, u: AnyArray, modes: Modes, D: AnyArray) -> Array:
        if self.backend == "fft":
            return _convolve_by_fft(u, modes, D)
        return convolve_by_matmul(u, modes, D, operands=self.operands, group=self.group)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _convolve(plan, u, decay, theta, Ct, D, high, low):
    """Convolves block by block.

    Arguments that have gradients come first; ``high`` and ``low`` are integers and have none.
    """
    modes = Modes(decay, theta, high, low, Ct)

    def body(start, y):
        inputs = _block(plan, start, u, modes, D)
        return _write(y, plan.convolve(*inputs), start, 2)

    return _over_blocks(plan.block, u.shape[2], body, jnp.zeros_like(u))


def _convolve_forward(plan, *inputs):
    if not plan.keeps_spectrum:
        return _convolve(plan, *inputs), (inputs, None)
    u, decay, theta, Ct, D, high, low = inputs
    _, length, channels = u.shape

    def body(start, carry):
        y, spectrum = carry
        block_u, modes, block_D = _block(plan, start, u, Modes(decay, theta, high, low, Ct), D)
        block_spectrum = _spectrum_of(modes, block_D, length)
        y = _write(y, _convolve_with(block_spectrum, block_u), start, 2)
        return y, _write(spectrum, block_spectrum, start, 0)

    spectrum = jnp.zeros((channels, smooth_length(length) // 2 + 1), jnp.complex64)
    y, spectrum = _over_blocks(plan.block, channels, body, (jnp.zeros_like(u), spectrum))
    return y, (inputs, save_for_backward(spectrum))


def _convolve_backward(plan, residuals, dy):
    (u, decay, theta, Ct, D, high, low), spectrum = residuals
    channel_axes = (2, 1, 1, 1, 0)  # of u, decay, theta, Ct and D

    def body(start, grads):
        block = _block(plan, start, u, Modes(decay, theta, high, low, Ct), D)
        block_dy = lax.dynamic_slice_in_dim(dy, start, plan.block, 2).astype(jnp.float32)
        kept = None
        if spectrum is not None:
            kept = lax.dynamic_slice_in_dim(spectrum, start, plan.block)
        block_grads = _block_gradients(plan, *block, kept, block_dy)
        triples = zip(grads, block_grads, channel_axes, strict=True)
        return tuple(_write(grad, part, start, axis) for grad, part, axis in triples)

    zeros = tuple(map(jnp.zeros_like, (u, decay, theta, Ct, D)))
    grads = _over_blocks(plan.block, u.shape[2], body, zeros)
    return *grads, None, None  # integers have no gradients


def _block_gradients(
    plan: _Plan, u: AnyArray, modes: Modes, D: AnyArray, spectrum: AnyArray | None, dy: AnyArray
) -> tuple[Array, ...]:
    """Returns the gradients of a block: of u, decay, theta, Ct and D."""
    parameters = modes.decay, modes.theta, modes.Ct, D

    def with_modes(decay: AnyArray, theta: AnyArray, Ct: AnyArray) -> Modes:
        return modes._replace(decay=decay, theta=theta, Ct=Ct)

    if plan.backend == "matmul":

        def convolve(u: AnyArray, decay: AnyArray, theta: AnyArray, Ct: AnyArray, D: AnyArray):
            return plan.convolve(u, with_modes(decay, theta, Ct), D)

        _, pull_back = jax.vjp(convolve, u, *parameters)
        return pull_back(dy)

    def make_spectrum(decay: AnyArray, theta: AnyArray, Ct: AnyArray, D: AnyArray) -> Array:
        return _spectrum_of(with_modes(decay, theta, Ct), D, u.shape[1])

    # Where the spectrum was kept, ``made`` is not used, and XLA removes what computes it.
    made, pull_back_parameters = jax.vjp(make_spectrum, *parameters)
    _, pull_back = jax.vjp(_convolve_with, made if spectrum is None else spectrum, u)
    spectrum_grad, u_grad = pull_back(dy)
    return u_grad, *pull_back_parameters(spectrum_grad)


define_gradient(_convolve, _convolve_forward, _convolve_backward)


def ssm_spectrum(
    ssm: DiagonalSSM,
    D: Float[AnyArray, " channels"],
    length: int,
    *,
    discretization: Discretization = "zoh",
) -> Complex[Array, "channels num_frequencies"]:
    """Computes the spectra of the kernels, for ``convolve_with_spectrum``.

    They depend on the parameters and the length only, so that calls may share them.

    Args:
        ssm, D, discretization: as for ``ssm_convolution``.
        length: length of the inputs to convolve.

    Returns:
        complex64, the spectra of the circular kernels at ``smooth_length(length) / 2 + 1``
        frequencies: 8 bytes a channel and position.
    """
    modes = discretize(ssm, discretization)
    channels = ssm.log_dt.shape[1]
    block = _channels_per_block((1, length, channels), modes, "fft")

    def body(start: AnyArray | int, spectrum: AnyArray) -> Array:
        block_modes = slice_channels(modes, start, block)
        block_D = lax.dynamic_slice_in_dim(D, start, block)
        return _write(spectrum, _spectrum_of(block_modes, block_D, length), start, 0)

    zeros = jnp.zeros((channels, smooth_length(length) // 2 + 1), jnp.complex64)
    return _over_blocks(block, channels, body, zeros)


def convolve_with_spectrum(
    u: Float[AnyArray, "batch length channels"],
    spectrum: Complex[AnyArray, "kernel_channels num_frequencies"],
) -> Float[Array, "batch length channels"]:
    """Computes ``ssm_convolution`` by FFT from the result of ``ssm_spectrum``.

    Args:
        u: inputs of any float type.
        spectrum: complex64, made for this length and these channels.

    Returns:
        The outputs in the type of ``u``.

    Raises:
        ValueError: the spectrum was made for another length or other channels.
    """
    batch, length, channels = u.shape
    fft_length = smooth_length(length)
    if spectrum.shape != (channels, fft_length // 2 + 1):
        raise ValueError(
            f"the spectrum has shape {spectrum.shape}; it was made for inputs other than {u.shape}"
        )
    block = _channels_within(16 * fft_length * batch, u.shape, "fft")

    def body(start: AnyArray | int, y: AnyArray) -> Array:
        block_u = lax.dynamic_slice_in_dim(u, start, block, 2).astype(jnp.float32)
        block_spectrum = lax.dynamic_slice_in_dim(spectrum, start, block)
        return _write(y, _convolve_with(block_spectrum, block_u), start, 2)

    return _over_blocks(block, channels, body, jnp.zeros_like(u))


def keeps_spectrum(platform: str, backend: Backend | Literal["auto"]) -> bool:
    """Returns True if a layer of ``backend`` stores spectra.

    "auto" does, except on platforms where FFTs are the slower backend at any length.
    """
    return backend == "fft" or (backend == "auto" and choose_backend(platform, 1, 1) == "fft")
