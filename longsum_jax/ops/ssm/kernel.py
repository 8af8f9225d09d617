"""The bidirectional diagonal state-space kernel (LOCOST, Le Bronnec et al. 2024, section 4.1 and
appendix E; S4D, Gu et al. 2022).

A channel has M complex modes. Per mode, with ``A = A_real + i A_imag`` and step
``dt = exp(log_dt)``:

    w = exp(dt A)          Ct = B C (w - 1) / A     (zero-order hold)
    k[l] = 2 Re sum_m Ct[m] w[m]**l                 l = 0 .. L-1

Modes represent conjugate pairs, hence the 2 Re. The two directions have
separate kernels and, in the published model, share everything except C;
``convolution.py`` adds both.

The two-level form of a kernel of L = 12 lags with S = 4 lags in a row, for one
mode:

    lag l = n S + s        s = 0     1     2     3
                    n = 0     0     1     2     3        k[n S + s] = 2 Re((Ct w**(n S)) (w**s))
                    n = 1     4     5     6     7                          `-- row n --' `column s'
                    n = 2     8     9    10    11

    rows     [L / S, M]:  2 Ct w**0,  2 Ct w**4,  2 Ct w**8
    columns  [M, S]:      w**0,  w**1,  w**2,  w**3

The product of rows and columns sums over the modes. Both tables together have
O(M sqrt(L)) entries; the table of all powers, which the direct form needs, has
M L.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Complex, Float, Int, UInt

from longsum_jax.ops.ssm.options import Discretization
from longsum_jax.ops.ssm.phases import cis, turns_per_step
from longsum_jax.typing import AnyArray

MAX_LENGTH = 2**24  # largest length for which the fixed-point phases are exact
SMALL_ANGLE = 2**-6  # radians


class DiagonalSSM(NamedTuple):
    """Parameters of diagonal state-space channels, all float32.

    ``sets`` is 1 if the directions share the parameters, else the number of
    directions, which is 1 for causal use and 2 for bidirectional use. The last
    axis of B and C has real and imaginary parts.

    Attributes:
        log_dt: log of the step size.
        A_real: real part of A, negative.
        A_imag: imaginary part of A, in radians per unit of time.
        B, C: input and output coefficients.
    """

    log_dt: Float[AnyArray, "sets channels"]
    A_real: Float[AnyArray, "sets channels modes"]
    A_imag: Float[AnyArray, "sets channels modes"]
    B: Float[AnyArray, "sets channels modes 2"]
    C: Float[AnyArray, "directions channels modes 2"]

    @property
    def directions(self) -> int:
        """Returns the number of directions, 1 or 2."""
        return self.C.shape[0]


def first_direction(ssm: DiagonalSSM) -> DiagonalSSM:
    """Returns the forward direction of ``ssm``, for causal use."""
    return DiagonalSSM(*(x[:1] for x in ssm))


class Modes(NamedTuple):
    """A discretized DiagonalSSM; ``groups`` is the number of directions that share a set.

    Attributes:
        decay: log-magnitude per step, dt A_real, float32.
        theta: radians per step, dt A_imag, float32; it carries the gradient.
        high, low: fixed-point turns per step, uint32; they carry the phase.
        Ct: discretized coefficient, complex64.
    """

    decay: Float[Array, "sets channels modes"]
    theta: Float[Array, "sets channels modes"]
    high: UInt[Array, "sets channels modes"]
    low: UInt[Array, "sets channels modes"]
    Ct: Complex[Array, "sets channels groups modes"]


def discretize(
    ssm: DiagonalSSM, discretization: Discretization = "zoh"
) -> Modes:
    """Returns the modes of ``ssm``.

    Args:
        ssm: parameters of the channels.
        discretization: "zoh" as in the published code, or "none" for the
            coefficient B C of the paper's equation 2.
    """
    dt = jnp.exp(ssm.log_dt)[..., None]
    decay, theta = dt * ssm.A_real, dt * ssm.A_imag
    high, low = turns_per_step(ssm.log_dt[..., None], ssm.A_imag)
    B, C = (lax.complex(x[..., 0], x[..., 1]) for x in (ssm.B, ssm.C))
    if discretization == "zoh":
        B = (
            B
            * _power_minus_one(decay, theta, high, low)
            / lax.complex(ssm.A_real, ssm.A_imag)
        )
    num_sets = ssm.log_dt.shape[0]
    # [sets, channels, 1, modes], for all directions of a set.
    B = B[:, :, None]
    # [sets, channels, groups, modes]
    C = C.reshape(num_sets, -1, *C.shape[1:]).swapaxes(1, 2)
    return Modes(decay, theta, high, low, Ct=B * C)


def ssm_kernel(
    ssm: DiagonalSSM, length: int, *, discretization: Discretization = "zoh"
) -> Float[Array, "directions channels length"]:
    """Computes the kernels of every direction and channel by the two-level Vandermonde product.

    With ``l = n S + s`` and S near the square root of L, ``k[n S + s] = Re((2
    Ct w**(n S)) (w**s))`` is a batched real matrix product of two tables that
    take O(H M sqrt(L)) memory; no array of size H M L is built (H channels, M
    modes, L lags). Phases are exact integers (``phases.py``).

    Args:
        ssm: parameters of the channels.
        length: number of lags L, 1 to ``MAX_LENGTH``.
        discretization: see ``discretize``.

    Returns:
        The kernels, float32. The first direction is for inputs at and before
        an output's position, the second for inputs at and after it.

    Raises:
        ValueError: the length is out of range.
    """
    modes = discretize(ssm, discretization)
    channels = modes.decay.shape[1]
    width = min(channels, 16)

    # A loop over channels keeps the tables in cache, and keeps XLA from
    # recomputing the modes inside them.
    def write_block(kernel: AnyArray, i: AnyArray) -> tuple[Array, None]:
        block = kernel_of_modes(slice_channels(modes, i * width, width), length)
        return lax.dynamic_update_slice_in_dim(
            kernel, block, i * width, 1
        ), None

    kernel = jnp.zeros((ssm.directions, channels, length), jnp.float32)
    num_blocks = -(-channels // width)
    kernel, _ = lax.scan(write_block, kernel, jnp.arange(num_blocks))
    return kernel


def slice_channels(
    modes: Modes, start: Int[AnyArray, ""] | int, width: int
) -> Modes:
    """Returns ``width`` channels, beginning at ``start``, which is clamped to fit."""
    return Modes(*(lax.dynamic_slice_in_dim(x, start, width, 1) for x in modes))


def kernel_of_modes(
    modes: Modes, length: int
) -> Float[Array, "directions channels length"]:
    """Computes the kernels of ``modes``, all channels at once; see ``ssm_kernel``.

    Args:
        modes: modes of the channels.
        length: number of lags, 1 to ``MAX_LENGTH``.

    Returns:
        float32.

    Raises:
        ValueError: the length is out of range.
    """
    if not 1 <= length <= MAX_LENGTH:
        raise ValueError(
            f"length is {length}; the kernel is exact for 1 to {MAX_LENGTH} steps"
        )
    return _kernel(length, *modes)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _kernel(
    length: int, decay: Array, theta: Array, high: Array, low: Array, Ct: Array
) -> Array:
    return _PowerTables.of(Modes(decay, theta, high, low, Ct), length).sums(
        Ct, length
    )


@_kernel.defjvp
def _kernel_jvp(
    length: int, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Array, Array]:
    """Computes the kernel and its tangent.

    Each step multiplies by w, so decay and phase change lag l by l times
    themselves. The kernel is linear in the coefficients: its tangent consists
    of two more kernels, whose gradients are sums over lags instead of gradients
    of every power.
    """
    modes = Modes(*primals)
    decay, theta, _, _, Ct = tangents
    tables = _PowerTables.of(modes, length)
    # The tangent of w**l is l (decay + i theta) w**l with the tangents of decay
    # and theta.
    turned = modes.Ct * lax.complex(decay, theta)[:, :, None]
    lags = jnp.arange(length, dtype=jnp.float32)
    tangent = tables.sums(Ct, length) + lags * tables.sums(turned, length)
    return tables.sums(modes.Ct, length), tangent


class _PowerTables(NamedTuple):
    """Powers of modes in two levels: w**(S n + s) is ``rows[n] * columns[s]``.

    The axis J joins sets and channels: with a leading axis of 1, sums of
    products on CPUs are ten times slower.
    """

    rows: Complex[Array, "J outer modes"]
    columns: Complex[Array, "J modes inner"]

    @classmethod
    def of(cls, modes: Modes, length: int) -> "_PowerTables":
        """Computes the powers for ``length`` lags."""
        inner = inner_steps(length)
        outer = -(-length // inner)
        # [sets, channels, ...] -> [J, ...]
        modes = Modes(*(x.reshape(-1, *x.shape[2:]) for x in modes))
        rows = mode_powers(
            modes, inner * jnp.arange(outer, dtype=jnp.int32), axis=-2
        )
        columns = mode_powers(
            modes, jnp.arange(inner, dtype=jnp.int32), axis=-1
        )
        return cls(rows, columns)

    def sums(
        self, Ct: Complex[AnyArray, "sets channels groups modes"], length: int
    ) -> Float[Array, "directions channels length"]:
        """Returns 2 Re sum_m Ct w**l for every lag l."""
        sets, channels, groups, _ = Ct.shape
        rows, columns = self.rows[:, None], self.columns
        # Real products: XLA on CPUs sums complex products, for gradients, eight
        # times slower.
        # [J, G, 1, M]
        scale = 2.0 * Ct.reshape(-1, groups, Ct.shape[-1])[:, :, None]
        real = scale.real * rows.real - scale.imag * rows.imag  # [J, G, N, M]
        imag = scale.real * rows.imag + scale.imag * rows.real
        kernel = _real_product(real, columns.real) - _real_product(
            imag, columns.imag
        )
        # [J, G, N, S] -> [sets, channels, groups, length]
        kernel = kernel.reshape(sets, channels, groups, -1)[..., :length]
        return kernel.swapaxes(1, 2).reshape(sets * groups, channels, length)


def _real_product(rows: AnyArray, columns: AnyArray) -> Array:
    return jnp.einsum(
        "jgnm,jms->jgns", rows, columns, precision=lax.Precision.HIGHEST
    )


def inner_steps(length: int) -> int:
    """Returns S of the two-level form: a power of two near the square root of ``length``."""
    return 2 ** round(math.log2(length) / 2)


def _power_minus_one(
    decay: AnyArray, theta: AnyArray, high: AnyArray, low: AnyArray
) -> Array:
    """Computes exp(dt A) - 1 without cancellation.

    With dt A = a + i b it is expm1(a) cos b - 2 sin(b/2)**2 + i exp(a) sin b.
    """
    turn = cis(theta, high, low, jnp.ones((), jnp.int32))
    # A small angle is more precise in float32 than in fixed point.
    sine = jnp.where(jnp.abs(theta) < SMALL_ANGLE, jnp.sin(theta), turn.imag)
    growth = jnp.expm1(decay)
    # 1 - cos b = sin(b)**2 / (1 + cos b), except near b = pi, where plain
    # subtraction is accurate.
    is_accurate = turn.real > 0
    divisor = jnp.where(is_accurate, 1 + turn.real, 1.0)
    versine = jnp.where(is_accurate, sine**2 / divisor, 1 - turn.real)
    return lax.complex(growth * turn.real - versine, (growth + 1) * sine)


def mode_powers(
    modes: Modes, steps: Int[AnyArray, " num_steps"], axis: int = -1
) -> Complex[Array, "..."]:
    """Computes w**steps, complex64, with the steps on a new ``axis``.

    Args:
        modes: modes of any number of channels.
        steps: int32 step numbers, 0 to ``MAX_LENGTH``.
        axis: position of the new axis: -1 after the axis of the modes, -2
            before it.
    """
    decay, theta, high, low = (jnp.expand_dims(x, axis) for x in modes[:4])
    steps = steps[:, None] if axis == -2 else steps
    size = jnp.exp(decay * steps.astype(jnp.float32))
    return size.astype(jnp.complex64) * cis(theta, high, low, steps)


def ssm_kernel_direct(
    ssm: DiagonalSSM, length: int, *, discretization: Discretization = "zoh"
) -> Float[Array, "directions channels length"]:
    """Computes ``ssm_kernel`` from all powers [sets, channels, modes, length].

    Slow; for tests and benchmarks only.
    """
    modes = discretize(ssm, discretization)
    powers = mode_powers(modes, jnp.arange(length, dtype=jnp.int32), axis=-1)
    kernel = jnp.einsum(
        "rhgm,rhml->rghl", modes.Ct, powers, precision=lax.Precision.HIGHEST
    )
    kernel = 2.0 * kernel.real
    return kernel.reshape(ssm.directions, -1, length)


class Recurrence(NamedTuple):
    """Complex64 coefficients of a recurrence: ``x = w x + u``, ``y = 2 Re sum_m Ct x``."""

    w: Complex[Array, "directions channels modes"]
    Ct: Complex[Array, "directions channels modes"]


def ssm_recurrence(
    ssm: DiagonalSSM, *, discretization: Discretization = "zoh"
) -> Recurrence:
    """Returns the coefficients of an SSM for ``ssm_step``.

    Args:
        ssm: parameters of the SSM.
        discretization: method as for ``ssm_kernel``.
    """
    modes = discretize(ssm, discretization)
    w = mode_powers(modes, jnp.ones((1,), jnp.int32), axis=-1)[..., 0]
    # [directions, channels, modes]; directions may share w.
    shape = ssm.C.shape[:-1]
    return Recurrence(
        jnp.broadcast_to(w, shape), modes.Ct.swapaxes(1, 2).reshape(shape)
    )


def ssm_step(
    recurrence: Recurrence,
    state: Complex[AnyArray, "batch channels modes"],
    u: Float[AnyArray, "batch channels"],
    direction: int = 0,
) -> tuple[
    Complex[Array, "batch channels modes"], Float[Array, "batch channels"]
]:
    """Advances the recurrence by one step.

    Args:
        recurrence: from ``ssm_recurrence``.
        state: complex64 state; zeros before the first step.
        u: input of this step, float32.
        direction: index of the kernel: 0 reads from the first step forward, 1
            from the last step back.

    Returns:
        (state, y): the new state, and the output without the skip ``D u``.
    """
    state = recurrence.w[direction] * state + u[..., None]
    return state, 2.0 * (recurrence.Ct[direction] * state).sum(-1).real
