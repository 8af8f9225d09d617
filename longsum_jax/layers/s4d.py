"""The gated state-space layer of LOCOST (Le Bronnec et al. 2024, section 4.2).

"Paper" and "published code" mean LOCOST's; the defaults are as in the published
code.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from longsum_jax.errors import InputError
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import Linear, torch_uniform
from longsum_jax.layers.partitioning import Initializer, logical, mesh_spec
from longsum_jax.ops.padding import bool_mask, check_states
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.ops.ssm.backends import caches_kernels
from longsum_jax.ops.ssm.convolution import (
    convolve_with_spectrum,
    ssm_convolution,
    ssm_convolution_sharded,
    ssm_spectrum,
)
from longsum_jax.ops.ssm.kernel import DiagonalSSM
from longsum_jax.ops.ssm.options import (
    Backend,
    Discretization,
    InputInit,
    StepInit,
    check_state_size,
)
from longsum_jax.typing import AnyArray

KERNELS = "kernels"  # Flax collection of cached kernels, see ``S4D``


class S4D(nn.Module):
    """A gated state-space layer (Le Bronnec et al. 2024, section 4.2):

        out = output_linear(conv(mask * k_proj(u)) * q_proj(u))

    where u is the input, and k_proj, q_proj and output_linear are linear maps
    with biases. conv convolves each channel with a kernel as long as the input,
    in one or both directions, and adds D times its own input. The kernel of a
    channel is computed from a diagonal state-space model (SSM), with the
    parameters A, B, C and the step size dt. The mask is applied after
    ``k_proj``, whose bias would otherwise enter the convolution at padding
    positions. Outputs outside the mask are arbitrary.

    The kernels only depend on the parameters and the length. A layer that
    convolves by FFT (``ops.ssm.backends.caches_kernels``) can cache their
    spectra in the Flax collection "kernels" (``KERNELS``): if the collection is
    mutable, the layer stores the spectra for the length of its input; if it
    contains spectra, the layer uses them, and the input must have their length.

    Attributes:
        d_model: size of the input and output states, and number of channels.
        d_state: state size in real numbers, even: twice the number of complex
            modes.
        bidirectional: True to read both directions, False for a causal layer.
        gating: True to multiply by q_proj(u); False for a layer without q_proj.
        shared_dynamics: True if both directions share A, B and dt (published
            code); False if each has its own (paper, section 4.1).
        dt_min, dt_max, dt_init: range and distribution of the initial step
            sizes, in units of time per token (A is per unit of time).
        b_init: initial B: 1 ("one", published code), or random from a standard
            complex normal distribution ("normal", paper, appendix E). C is
            always initialized in the second way.
        discretization: "zoh" (published code) or "none" (paper, equation 2).
        backend: method of the convolution, see
            ``ops.ssm.convolution.ssm_convolution``.
        length_chunk: number of positions for which the linear maps are computed
            at a time; 0 for all at once.
        recompute: True to recompute the linear maps in the backward pass, chunk
            by chunk, instead of storing their results (``map_over_length``).
        dtype: dtype of the linear maps; the convolution is in float32.

    Raises:
        InputError: an odd ``d_state``.
    """

    d_model: int
    d_state: int
    bidirectional: bool = True
    gating: bool = True
    shared_dynamics: bool = True
    dt_min: float = 1e-3
    dt_max: float = 1e-1
    dt_init: StepInit = "log_uniform"
    b_init: InputInit = "one"
    discretization: Discretization = "zoh"
    backend: Backend | Literal["auto"] = "auto"
    length_chunk: int = 0
    recompute: bool = False
    dtype: Any = jnp.float32

    def setup(self) -> None:
        check_state_size(self.d_state)
        self.k_proj = self._linear("embed", "channels")
        if self.gating:
            self.q_proj = self._linear("embed", "channels")
        self.output_linear = self._linear("channels", "embed")
        # leading axes of the dynamics
        sets = () if self.shared_dynamics else ("directions",)
        # inv_A_real is log(-A_real); A_real begins at -0.5.
        half_decay = nn.initializers.constant(math.log(0.5))
        # Steps and decay rates are learned as logarithms, so that they remain
        # positive under any update.
        self.log_dt = self._ssm_param(
            "log_dt", self._init_log_dt, *sets, "channels"
        )
        self.inv_A_real = self._ssm_param(
            "inv_A_real", half_decay, *sets, "channels", "modes"
        )
        self.A_imag = self._ssm_param(
            "A_imag", _init_frequencies, *sets, "channels", "modes"
        )
        complex_normal = nn.initializers.normal(math.sqrt(0.5))
        init_b = complex_normal if self.b_init == "normal" else _init_one
        self.B = self._ssm_param(
            "B", init_b, *sets, "channels", "modes", "complex"
        )
        self.C = self._ssm_param(
            # C is separate for each direction even if the dynamics are shared:
            # the two kernels would be mirror images otherwise.
            "C",
            complex_normal,
            "directions",
            "channels",
            "modes",
            "complex",
        )
        # D is the skip connection, one factor per channel.
        self.D = self._ssm_param("D", nn.initializers.normal(1.0), "channels")

    def _linear(self, *names: str) -> Linear:
        init = torch_uniform(self.d_model)
        return Linear(
            (self.d_model, self.d_model), names, init, init, dtype=self.dtype
        )

    def _ssm_param(self, name: str, init: Initializer, *axes: str) -> Array:
        sizes = {
            "directions": 2 if self.bidirectional else 1,
            "channels": self.d_model,
            # Modes come in conjugate pairs, of which one is stored.
            "modes": self.d_state // 2,
            # real and imaginary part
            "complex": 2,
        }
        shape = tuple(sizes[axis] for axis in axes)
        return self.param(name, logical(init, *axes), shape)

    def _init_log_dt(
        self, key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
    ) -> Array:
        uniform = jax.random.uniform(key, shape, dtype)
        if self.dt_init == "uniform":
            return jnp.log(self.dt_min + uniform * (self.dt_max - self.dt_min))
        # Log-uniform step sizes: log_dt is uniform.
        return math.log(self.dt_min) + uniform * (
            math.log(self.dt_max) - math.log(self.dt_min)
        )

    def ssm(self) -> DiagonalSSM:
        """Returns the parameters of the SSM in the format of ``ops.ssm``."""

        # [channels, ...] -> [sets, channels, ...]
        def in_sets(x: Array) -> Array:
            return x[None] if self.shared_dynamics else x

        return DiagonalSSM(
            in_sets(self.log_dt),
            in_sets(-jnp.exp(self.inv_A_real)),
            in_sets(self.A_imag),
            in_sets(self.B),
            self.C,
        )

    def __call__(
        self,
        u: Float[AnyArray, "batch length d_model"],
        mask: Bool[AnyArray, "batch length"] | None = None,
    ) -> Float[Array, "batch length d_model"]:
        """Applies the layer.

        Args:
            u: input states.
            mask: True on real positions; None for all.

        Returns:
            Output states; without a residual connection or norm.

        Raises:
            InputError: states that are not [batch, length, d_model], or a mask
                of another length or number of rows.
            ValueError: the input is longer than ``ops.ssm.kernel.MAX_LENGTH``
                with a convolution by FFT, or cached spectra are for another
                length.
        """
        check_states("u", u)
        if u.shape[-1] != self.d_model:
            raise InputError(
                f"the input states have size {u.shape[-1]}, but d_model is {self.d_model}; change "
                "either"
            )
        mask = bool_mask(mask, u)

        def masked_keys(layer: S4D, u: AnyArray, mask: AnyArray) -> Array:
            k = layer.k_proj(u)
            return k * mask[..., None].astype(k.dtype)

        # Padding must be zero, because the convolution mixes all positions.
        k = self._map(masked_keys, u, mask)
        # A policy may save the result, so that only the maps are recomputed.
        y = save_for_backward(self._convolve(k))
        return self._map(S4D._gate, u, y)

    def _map(self, fn: Callable[..., Array], *arrays: AnyArray) -> Array:
        return map_over_length(
            self, fn, self.length_chunk, *arrays, recompute=self.recompute
        )

    def _gate(self, u: AnyArray, y: AnyArray) -> Array:
        return self.output_linear(y * self.q_proj(u) if self.gating else y)

    def _convolve(self, k: AnyArray) -> Array:
        """Convolves [batch, length, channels] along the length."""
        ssm = self.ssm()
        spec = mesh_spec(k.shape, ("batch", "length", "channels"))
        options: dict[str, Any] = {
            "discretization": self.discretization,
            "backend": self.backend,
        }
        # With a mesh, every device convolves its own rows and channels.
        if spec is not None:
            return ssm_convolution_sharded(k, ssm, self.D, spec, **options)
        # Without a mesh, the spectrum of the kernel may be cached.
        spectrum = self._stored_spectrum(k.shape[1])
        if spectrum is None:
            return ssm_convolution(k, ssm, self.D, **options)
        return convolve_with_spectrum(k, spectrum)

    def _stored_spectrum(self, length: int) -> Array | None:
        """Returns the kernel's spectrum from KERNELS; computes it if KERNELS is mutable."""
        if self.is_initializing() or not caches_kernels(
            target_platform(), self.backend
        ):
            return None
        if self.is_mutable_collection(KERNELS):
            spectrum = ssm_spectrum(
                self.ssm(), self.D, length, discretization=self.discretization
            )
            self.put_variable(KERNELS, "spectrum", spectrum)
        return self.get_variable(KERNELS, "spectrum")


def _init_frequencies(
    key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> Array:
    """Returns pi n for mode n (S4D-Lin, Gu et al. 2022, section 4.3)."""
    del key
    return jnp.broadcast_to(jnp.pi * jnp.arange(shape[-1], dtype=dtype), shape)


def _init_one(
    key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> Array:
    """Returns 1 + 0i."""
    del key
    return jnp.broadcast_to(jnp.array([1.0, 0.0], dtype), shape)
