"""Small parts that every stack uses: initialisers, dense maps, RMSNorm, feed-forward, work in
pieces of the length."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from longsum_jax.layers.partitioning import Initializer, is_on_one_cpu, logical
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.typing import Array


def normal(scale: float) -> Initializer:
    return nn.initializers.normal(stddev=scale)


def torch_uniform(fan_in: int) -> Initializer:
    """PyTorch's default for linear maps: uniform in +- 1/sqrt(fan_in), for weights and biases."""
    bound = 1 / math.sqrt(fan_in)
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(
        key, shape, dtype, -bound, bound
    )


class Linear(nn.Module):
    """x W + b over the last ``inputs`` axes of x.

    Attributes:
        shape: of W, inputs first.   names: logical axis names of W.   inputs: how many axes of W
            are summed over.
    """

    shape: Sequence[int]
    names: Sequence[str]
    kernel_init: Initializer
    bias_init: Initializer | None = None
    inputs: int = 1
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.kernel = self.param(
            "kernel", logical(self.kernel_init, *self.names), tuple(self.shape)
        )
        if self.bias_init is not None:
            names, shape = self.names[self.inputs :], tuple(self.shape[self.inputs :])
            self.bias = self.param("bias", logical(self.bias_init, *names), shape)

    def __call__(self, x: Array) -> Array:
        return self._apply(x, self.kernel, None if self.bias_init is None else self.bias)

    def without_gradients(self, x: Array) -> Array:
        """The same with gradients for ``x`` alone."""
        bias = None if self.bias_init is None else jax.lax.stop_gradient(self.bias)
        return self._apply(x, jax.lax.stop_gradient(self.kernel), bias)

    def _apply(self, x: Array, kernel: Array, bias: Array | None) -> Array:
        x, kernel = x.astype(self.dtype), kernel.astype(self.dtype)
        if is_on_one_cpu():
            # One axis for all rows: with more, XLA on CPUs transposes x and y for the gradient of
            # the kernel. Gradients of ``map_over_length`` keep x in both shapes for it.
            width = math.prod(self.shape[: self.inputs])
            y = jnp.dot(x.reshape(-1, width), kernel.reshape(width, -1))
            y = y.reshape(*x.shape[: x.ndim - self.inputs], *self.shape[self.inputs :])
        else:
            axes = tuple(range(x.ndim - self.inputs, x.ndim))
            y = jax.lax.dot_general(x, kernel, ((axes, tuple(range(self.inputs))), ((), ())))
        return save_for_backward(y if bias is None else y + bias.astype(self.dtype))


class RMSNorm(nn.Module):
    """x / rms(x) * scale, in float32 (T5's layer norm: no mean, no bias)."""

    epsilon: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", logical(nn.initializers.ones, "embed"), (x.shape[-1],))
        x = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        return (x * _for_every(x, scale)).astype(self.dtype)


class LayerNorm(nn.Module):
    """(x - mean) / std * scale + bias, in float32 (Ba et al. 2016)."""

    epsilon: float
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array) -> Array:
        scale = self.param("scale", logical(nn.initializers.ones, "embed"), (x.shape[-1],))
        bias = self.param("bias", logical(nn.initializers.zeros, "embed"), (x.shape[-1],))
        x = x.astype(jnp.float32)
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + self.epsilon)
        return (x * _for_every(x, scale) + _for_every(x, bias)).astype(self.dtype)


def _for_every(x: Array, scale: Array) -> Array:
    """``scale`` [D] in the shape of ``x``, so that its gradient is one sum over all rows.

    Broadcasting by rank leaves a sum over one axis, which takes XLA on CPUs 100 times as long for a
    single document.
    """
    return jnp.broadcast_to(scale, x.shape)


NORMS: dict[str, Callable[..., nn.Module]] = {"rms": RMSNorm, "layer": LayerNorm}

# Names as in Hugging Face configs.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nn.relu,
    "gelu": lambda x: nn.gelu(x, approximate=False),
    "gelu_new": lambda x: nn.gelu(x, approximate=True),
    "silu": nn.silu,
    "swish": nn.silu,
    "tanh": jnp.tanh,
}
# feed_forward_proj of T5 configs, or an activation -> (activation, gated); "gated-gelu" has always
# meant gelu_new.
FEED_FORWARD_KINDS = {name: (name, False) for name in ACTIVATIONS} | {
    "gated-gelu": ("gelu_new", True),
    "gated-gelu_new": ("gelu_new", True),
    "gated-relu": ("relu", True),
    "gated-silu": ("silu", True),
}


class FeedForward(nn.Module):
    """W_o(act(W_0 x) * (W_1 x)) when gated, W_o act(W_i x) otherwise.

    Attributes:
        kind: of FEED_FORWARD_KINDS.
        use_bias: adds a bias to every map (BART, BERT; not T5).
        init_std: of the kernels; None for T5's, one over the root of the inputs.
    """

    d_ff: int
    kind: str = "gated-gelu"
    dropout_rate: float = 0.0
    use_bias: bool = False
    init_std: float | None = None
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(self, x: Array, deterministic: bool = True) -> Array:
        activation, gated = FEED_FORWARD_KINDS[self.kind]
        d_model = x.shape[-1]
        hidden = ACTIVATIONS[activation](
            self._linear("wi_0" if gated else "wi", d_model, self.d_ff)(x)
        )
        if gated:
            hidden = hidden * self._linear("wi_1", d_model, self.d_ff)(x)
        hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic=deterministic)
        return self._linear("wo", self.d_ff, d_model)(hidden)

    def _linear(self, name: str, inputs: int, outputs: int) -> Linear:
        names = ("mlp", "embed") if name == "wo" else ("embed", "mlp")
        init = normal(inputs**-0.5 if self.init_std is None else self.init_std)
        bias = nn.initializers.zeros if self.use_bias else None
        return Linear((inputs, outputs), names, init, bias, dtype=self.dtype, name=name)
