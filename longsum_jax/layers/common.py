"""Small parts that every stack uses: initialisers, dense maps, RMSNorm, feed-forward, work in pieces of the length."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from longsum_jax.ops.gradients import keep
from longsum_jax.ops.parts import Cut
from longsum_jax.typing import Array

Initializer = Callable[..., Array]
CPU_ROWS = 512  # rows of a dense map at a time, see ``map_over_length``


def normal(scale: float) -> Initializer:
    return nn.initializers.normal(stddev=scale)


def torch_uniform(fan_in: int) -> Initializer:
    """PyTorch's default for linear maps: uniform in +- 1/sqrt(fan_in), for weights and biases."""
    bound = 1 / math.sqrt(fan_in)
    return lambda key, shape, dtype=jnp.float32: jax.random.uniform(key, shape, dtype, -bound, bound)


def logical(initializer: Initializer, *names: str) -> Initializer:
    """Attaches the logical axis names that ``training.partition`` maps to mesh axes."""
    return nn.with_logical_partitioning(initializer, names)


def mesh_spec(shape: Sequence[int], names: Sequence[str | None]) -> PartitionSpec | None:
    """Where an activation of ``shape`` goes on the mesh in use, or None without a mesh.

    A dimension that its mesh axes do not divide is kept whole.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return None
    spec = []
    for size, axes in zip(shape, nn.logical_to_mesh_axes(tuple(names)), strict=True):
        axes = (axes,) if isinstance(axes, str) else axes or ()
        devices = math.prod(mesh.shape[axis] for axis in axes)
        spec.append(axes if axes and size % devices == 0 else None)
    return PartitionSpec(*spec)


def text_cut(rows: int) -> Cut | None:
    """How the mesh in use cuts texts, in batches of ``rows``; None if each is whole on one device."""
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty or not mesh.auto_axes:
        return None
    found = [(axes,) if isinstance(axes, str) else axes or () for axes in nn.logical_to_mesh_axes(("batch", "length"))]
    batch, length = (tuple(axis for axis in axes if mesh.shape[axis] > 1) for axes in found)
    if not length:
        return None
    if rows % math.prod(mesh.shape[axis] for axis in batch):
        batch = ()
    return Cut(batch, length, math.prod(mesh.shape[axis] for axis in length))


def constrain(x: Array, *names: str | None) -> Array:
    """Keeps an activation laid out by its logical axis names; nothing happens without a mesh."""
    spec = mesh_spec(x.shape, names)
    return x if spec is None else jax.lax.with_sharding_constraint(x, spec)


def _is_on_one_cpu() -> bool:
    return jax.default_backend() == "cpu" and jax.sharding.get_abstract_mesh().size <= 1


class Linear(nn.Module):
    """x W + b over the last ``inputs`` axes of x.

    Attributes:
        shape: of W, inputs first.   names: logical axis names of W.   inputs: how many axes of W are summed over.
    """

    shape: Sequence[int]
    names: Sequence[str]
    kernel_init: Initializer
    bias_init: Initializer | None = None
    inputs: int = 1
    dtype: Any = jnp.float32

    def setup(self) -> None:
        self.kernel = self.param("kernel", logical(self.kernel_init, *self.names), tuple(self.shape))
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
        if _is_on_one_cpu():
            # One axis for all rows: with more, XLA on CPUs transposes x and y for the gradient of the kernel. Gradients
            # of ``map_over_length`` keep x in both shapes for it.
            width = math.prod(self.shape[: self.inputs])
            y = jnp.dot(x.reshape(-1, width), kernel.reshape(width, -1))
            y = y.reshape(*x.shape[: x.ndim - self.inputs], *self.shape[self.inputs :])
        else:
            axes = tuple(range(x.ndim - self.inputs, x.ndim))
            y = jax.lax.dot_general(x, kernel, ((axes, tuple(range(self.inputs))), ((), ())))
        return keep(y if bias is None else y + bias.astype(self.dtype))


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

    Broadcasting by rank leaves a sum over one axis, which takes XLA on CPUs 100 times as long for a single document.
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
# feed_forward_proj of T5 configs, or an activation -> (activation, gated); "gated-gelu" has always meant gelu_new.
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
        hidden = ACTIVATIONS[activation](self._linear("wi_0" if gated else "wi", d_model, self.d_ff)(x))
        if gated:
            hidden = hidden * self._linear("wi_1", d_model, self.d_ff)(x)
        hidden = nn.Dropout(self.dropout_rate)(hidden, deterministic=deterministic)
        return self._linear("wo", self.d_ff, d_model)(hidden)

    def _linear(self, name: str, inputs: int, outputs: int) -> Linear:
        names = ("mlp", "embed") if name == "wo" else ("embed", "mlp")
        init = normal(inputs**-0.5 if self.init_std is None else self.init_std)
        bias = nn.initializers.zeros if self.use_bias else None
        return Linear((inputs, outputs), names, init, bias, dtype=self.dtype, name=name)


def map_over_length(module: nn.Module, fn: Callable[..., Array], chunk: int, *arrays: Array) -> Array:
    """``fn(module, *arrays)`` for a ``fn`` that treats positions alike, one piece of ``chunk`` positions at a time.

    Where a mesh cuts the positions, every device goes through its own, ``chunk`` at a time.

    Args:
        module: whose parameters ``fn`` uses.
        fn: (module, *arrays [B, C, ...]) -> [B, C, D]; it must reach parameters and dropout through its argument.
        chunk: most positions of a piece; 0 or at least L does all of them at once. On a CPU pieces have CPU_ROWS rows
            at most, so that what is between two maps stays in its caches.
        arrays: [B, L, ...].

    Returns:
        [B, L, D].
    """
    rows, length = arrays[0].shape[:2]
    cut = text_cut(rows)
    parts = cut.parts if cut and length % cut.parts == 0 else 1
    chunk = _piece_length(chunk, rows, length // parts)
    if length <= chunk * parts or module.is_initializing():
        return fn(module, *arrays)
    pieces = [_split(x, chunk, parts) for x in arrays]
    scan = nn.scan(
        lambda module, carry, xs: (carry, fn(module, *xs)),
        variable_broadcast="params",
        split_rngs={"params": False, "dropout": True},
    )
    _, out = scan(module, (), tuple(pieces))
    out = out.reshape(*out.shape[:2], parts, chunk, *out.shape[3:])
    out = jnp.moveaxis(out, 0, 2).reshape(rows, parts, -1, *out.shape[4:])
    return out[:, :, : length // parts].reshape(rows, length, *out.shape[3:])


def _piece_length(chunk: int, rows: int, length: int) -> int:
    """Positions per piece, such that pieces are about equal."""
    if _is_on_one_cpu():
        chunk = min(chunk or length, max(1, CPU_ROWS // rows))
    count = -(-length // chunk) if chunk else 1
    return -(-length // count)


def _split(x: Array, chunk: int, parts: int) -> Array:
    """[B, P L, ...] -> [N, B, P C, ...]: C of every one of P parts at a time, padded with zeros."""
    x = x.reshape(x.shape[0], parts, -1, *x.shape[2:])
    x = jnp.pad(x, ((0, 0), (0, 0), (0, -x.shape[2] % chunk)) + ((0, 0),) * (x.ndim - 3))
    x = jnp.moveaxis(x.reshape(*x.shape[:2], -1, chunk, *x.shape[3:]), 2, 0)
    return x.reshape(*x.shape[:2], parts * chunk, *x.shape[4:])
