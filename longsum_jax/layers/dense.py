"""Initializers, linear layers, norms and the feed-forward."""

import contextlib
import contextvars
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from longsum_jax.layers.partitioning import Initializer, is_on_one_cpu, logical
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.random_masks import (
    RowWords,
    drop_entries,
    drop_randomly,
    keep_entries,
    module_words,
    row_words,
)
from longsum_jax.ops.remat import HIDDEN, PROJECTION, save_for_backward
from longsum_jax.ops.storage import Stored, Unmerged, stored_product
from longsum_jax.typing import AnyArray


def normal(std: float) -> Initializer:
    """Returns the initializer of a normal distribution with mean 0."""
    return nn.initializers.normal(stddev=std)


def torch_uniform(fan_in: int) -> Initializer:
    """Returns PyTorch's default initializer of linear layers, uniform in +-1 / sqrt(fan_in)."""
    bound = 1 / math.sqrt(fan_in)

    def init(
        key: Array, shape: Sequence[int], dtype: Any = jnp.float32
    ) -> Array:
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return init


class LowRank(NamedTuple):
    """Options of low-rank updates of linear layers.

    Attributes:
        scale: factor of the product of both matrices.
        dropout_rate: dropout rate of the input of the first matrix, applied
            if there are random numbers for dropout.
    """

    scale: float
    dropout_rate: float = 0.0


_LOW_RANK: contextvars.ContextVar[LowRank] = contextvars.ContextVar("low_rank")


@contextlib.contextmanager
def low_rank_updates(options: LowRank) -> Iterator[None]:
    """Makes layers with parameters "lora_a" and "lora_b" add their product.

    It takes effect while a model is traced.
    """
    token = _LOW_RANK.set(options)
    try:
        yield
    finally:
        _LOW_RANK.reset(token)


class Linear(nn.Module):
    """A linear layer x W + b over the last ``inputs`` axes of x.

    With the parameters "lora_a" [*inputs, rank] and "lora_b" [rank, *outputs],
    and inside of ``low_rank_updates``, it is x W + b + scale * (x A) B. W is
    not changed, so that the gradients and the activations of an update only
    have the size of A, B and x A, and that x can have dropout of its own.

    Attributes:
        shape: shape of W, input axes first.
        names: logical axis names of W.
        kernel_init, bias_init: initializers; ``bias_init`` None for no bias.
        inputs: number of axes of W that are summed over.
        mark: mark of the result for rematerialization, see ``ops.remat``.
    """

    shape: Sequence[int]
    names: Sequence[str]
    kernel_init: Initializer
    bias_init: Initializer | None = None
    inputs: int = 1
    dtype: Any = jnp.float32
    mark: str = PROJECTION

    def setup(self) -> None:
        kernel_init = logical(self.kernel_init, *self.names)
        self.kernel = self.param("kernel", kernel_init, tuple(self.shape))
        if self.bias_init is not None:
            bias_init = logical(self.bias_init, *self.names[self.inputs :])
            self.bias = self.param(
                "bias", bias_init, tuple(self.shape[self.inputs :])
            )

    def __call__(
        self, x: Float[AnyArray, "*batch_and_inputs"]
    ) -> Float[Array, "*batch_and_outputs"]:
        """Applies the map."""
        y = self._apply(
            x, self.kernel, None if self.bias_init is None else self.bias
        )
        if (matrices := self._low_rank()) is not None:
            y = y + self._low_rank_update(x, *matrices)
        return y

    def without_gradients(
        self, x: Float[AnyArray, "*batch_and_inputs"]
    ) -> Float[Array, "*batch_and_outputs"]:
        """Applies the map, with gradients for ``x`` but none for its parameters."""
        if self.bias_init is None:
            bias = None
        else:
            bias = jax.lax.stop_gradient(self.bias)
        y = self._apply(x, jax.lax.stop_gradient(self.kernel), bias)
        if (matrices := self._low_rank()) is not None:
            y = y + self._low_rank_update(x, *jax.lax.stop_gradient(matrices))
        return y

    @property
    def updated_kernel(self) -> AnyArray:
        """The kernel with its low-rank update, without dropout."""
        kernel = self.kernel
        if isinstance(kernel, Unmerged):
            kernel = kernel.values
        if (matrices := self._low_rank()) is None:
            return kernel
        update = jnp.tensordot(*matrices, axes=1, precision="highest")
        return kernel + (_LOW_RANK.get().scale * update).astype(kernel.dtype)

    def _low_rank(self) -> tuple[AnyArray, AnyArray] | None:
        """Returns both matrices of the update; None without an update."""
        if not self.has_variable("params", "lora_a"):
            return None
        return (
            self.get_variable("params", "lora_a"),
            self.get_variable("params", "lora_b"),
        )

    def _low_rank_update(self, x: AnyArray, a: AnyArray, b: AnyArray) -> Array:
        scale, rate = _LOW_RANK.get()
        if rate and self.has_rng("dropout"):
            x = drop_randomly(x, self.make_rng("dropout"), rate)
        x, a, b = (array.astype(self.dtype) for array in (x, a, b))
        axes = tuple(range(x.ndim - self.inputs, x.ndim))
        # x A: [..., rank], by summing over all input axes at once.
        inner = jax.lax.dot_general(
            x, a, ((axes, tuple(range(self.inputs))), ((), ()))
        )
        # (x A) B: the matrix A B [*inputs, *outputs] is never formed.
        return jnp.tensordot(inner, b, axes=1) * scale

    def _apply(
        self,
        x: AnyArray,
        kernel: AnyArray | Stored | Unmerged,
        bias: AnyArray | None,
    ) -> Array:
        if isinstance(kernel, Stored):
            y = self._apply_stored(x, kernel)
            if bias is None:
                return y
            return y + bias.astype(self.dtype)
        if isinstance(kernel, Unmerged):
            x, values = jax.lax.optimization_barrier((x, kernel.values))
            return self._apply(x, values, bias)
        x, kernel = x.astype(self.dtype), kernel.astype(self.dtype)
        shape = (*x.shape[: x.ndim - self.inputs], *self.shape[self.inputs :])
        if bias is not None and bias.ndim > 1 and target_platform() == "gpu":
            # XLA for GPUs adds a bias of one axis in the product, and stores
            # others in the shape of y first.
            kernel = kernel.reshape(*kernel.shape[: self.inputs], -1)
            bias = bias.reshape(-1)
        if is_on_one_cpu():
            # A single axis for all rows: with more, XLA on CPUs transposes x
            # and y for the gradient of the kernel, and gradients of
            # ``map_over_length`` store x in both shapes for it.
            num_inputs = math.prod(self.shape[: self.inputs])
            y = jnp.dot(
                x.reshape(-1, num_inputs), kernel.reshape(num_inputs, -1)
            )
            y = y.reshape(shape)
        else:
            # Sums over the last axes of x and the first axes of the kernel.
            axes = tuple(range(x.ndim - self.inputs, x.ndim))
            y = jax.lax.dot_general(
                x, kernel, ((axes, tuple(range(self.inputs))), ((), ()))
            )
        if bias is not None:
            y = y + bias.astype(self.dtype)
        y = y.reshape(shape)
        # Policies may save the results of products with parameters.
        return save_for_backward(y, self.mark)

    def _apply_stored(self, x: AnyArray, kernel: Stored) -> Array:
        # As matrices [inputs, outputs] and [rows, inputs].
        num_inputs = math.prod(self.shape[: self.inputs])
        matrix = jax.tree.map(
            lambda y: y.reshape(-1, math.prod(self.shape[self.inputs :])),
            kernel,
        )
        y = stored_product(x.reshape(-1, num_inputs), matrix).astype(self.dtype)
        return y.reshape(
            *x.shape[: x.ndim - self.inputs], *self.shape[self.inputs :]
        )


class RMSNorm(nn.Module):
    """The norm x / rms(x) * scale, in float32 (T5's layer norm: no mean, no bias).

    Attributes:
        offset: number added to the parameter ``scale``; 1 in Gemma, whose
            parameter is then 0 in a new model.
        axis: logical name of the features.
    """

    epsilon: float
    dtype: Any = jnp.float32
    offset: float = 0.0
    axis: str = "embed"

    @nn.compact
    def __call__(
        self, x: Float[AnyArray, "*batch d_model"]
    ) -> Float[Array, "*batch d_model"]:
        init = logical(nn.initializers.constant(1.0 - self.offset), self.axis)
        scale = self.param("scale", init, (x.shape[-1],))
        if self.offset:
            scale = self.offset + scale.astype(jnp.float32)
        x = jnp.asarray(x, jnp.float32)
        x = x * jax.lax.rsqrt(
            jnp.square(x).mean(-1, keepdims=True) + self.epsilon
        )
        return (x * _broadcast_to_rows(scale, x)).astype(self.dtype)


class LayerNorm(nn.Module):
    """The norm (x - mean) / std * scale + bias, in float32 (Ba et al. 2016).

    Attributes:
        use_bias: False to leave out the bias.
    """

    epsilon: float
    dtype: Any = jnp.float32
    use_bias: bool = True

    @nn.compact
    def __call__(
        self, x: Float[AnyArray, "*batch d_model"]
    ) -> Float[Array, "*batch d_model"]:
        scale = self.param(
            "scale", logical(nn.initializers.ones, "embed"), (x.shape[-1],)
        )
        if self.use_bias:
            bias = self.param(
                "bias", logical(nn.initializers.zeros, "embed"), (x.shape[-1],)
            )
        x = jnp.asarray(x, jnp.float32)
        # Two passes: the mean of squares minus the square of the mean would
        # cancel digits.
        x = x - x.mean(-1, keepdims=True)
        x = x * jax.lax.rsqrt(
            jnp.square(x).mean(-1, keepdims=True) + self.epsilon
        )
        x = x * _broadcast_to_rows(scale, x)
        if self.use_bias:
            x = x + _broadcast_to_rows(bias, x)
        return x.astype(self.dtype)


def _broadcast_to_rows(scale: AnyArray, x: AnyArray) -> Array:
    """Broadcasts ``scale`` [d_model] to the shape of ``x``, so that its gradient is a single sum.

    Implicit broadcasting takes one sum per axis, which XLA on CPUs computes 100
    times slower for a single document.
    """
    return jnp.broadcast_to(scale, x.shape)


NORMS: dict[str, Callable[..., nn.Module]] = {
    "rms": RMSNorm,
    "gemma_rms": partial(RMSNorm, offset=1.0),
    "layer": LayerNorm,
    "layer_without_bias": partial(LayerNorm, use_bias=False),
}


class SandwichNorm(nn.Module):
    """A norm of the input of a sublayer, and another of its output (Gemma 2, section 2).

    Attributes:
        make: function that makes a norm.
    """

    make: Callable[[], nn.Module]

    def setup(self) -> None:
        self.before = self.make()
        self.after = self.make()

    def __call__(
        self, x: Float[AnyArray, "*batch d_model"]
    ) -> Float[Array, "*batch d_model"]:
        """Normalizes the input of the sublayer."""
        return self.before(x)

    def of_output(
        self, y: Float[AnyArray, "*batch d_model"]
    ) -> Float[Array, "*batch d_model"]:
        """Normalizes the output of the sublayer."""
        return self.after(y)


def _in_float32(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Returns an activation computed in float32, like PyTorch.

    In bfloat16 the constants of a GELU are off by 0.2 %, and its tail by more
    than its value.
    """
    return lambda x: function(x.astype(jnp.float32)).astype(x.dtype)


_exact_gelu = _in_float32(partial(nn.gelu, approximate=False))


@jax.custom_vjp
def _gelu(x: Array) -> Array:
    """Computes the exact GELU; gradients store only ``x``.

    XLA for GPUs would compute the error function once for value and gradient,
    and store it in float32 in between.
    """
    return _exact_gelu(x)


def _gelu_forward(x: Array) -> tuple[Array, Array]:
    return _exact_gelu(x), x


def _gelu_backward(x: Array, gradient: Array) -> tuple[Array]:
    # Behind the barrier, XLA does not recognize the same error function.
    _, backward = jax.vjp(_exact_gelu, jax.lax.optimization_barrier(x))
    return backward(gradient)


_gelu.defvjp(_gelu_forward, _gelu_backward)
_tanh_gelu = _in_float32(partial(nn.gelu, approximate=True))
# Names as in Hugging Face configs, several of which denote the same function.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": nn.relu,
    "gelu": _gelu,
    "gelu_python": _gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_accurate": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "silu": _in_float32(nn.silu),
    "swish": _in_float32(nn.silu),
    "tanh": _in_float32(jnp.tanh),
}
# feed_forward_proj of T5 configs, or an activation, to (activation, gated). In
# T5 "gated-gelu" means gelu_new.
FEED_FORWARD_KINDS = {name: (name, False) for name in ACTIVATIONS} | {
    "gated-gelu": ("gelu_new", True),
    "gated-gelu_new": ("gelu_new", True),
    "gated-gelu_python": ("gelu_python", True),
    "gated-relu": ("relu", True),
    "gated-silu": ("silu", True),
    "gated-gelu_pytorch_tanh": ("gelu_pytorch_tanh", True),
}


class Dropout(nn.Module):
    """Dropout like ``nn.Dropout``, with masks of ``ops.random_masks``.

    The dropped entries do not depend on the number of devices if XLA divides the
    arrays. With ``words``, they do not depend on how a sequence is divided into
    chunks either.

    Attributes:
        rate: fraction of the entries that become zero, below 1.
    """

    rate: float

    @nn.compact
    def __call__(
        self,
        x: Float[AnyArray, "*rows d_model"],
        deterministic: bool = True,
        words: RowWords | None = None,
    ) -> Float[AnyArray, "*rows d_model"]:
        """Drops entries of ``x``.

        Args:
            x: states.
            deterministic: False in training.
            words: result of ``row_words`` for these rows, which several modules
                may share; None to draw it.
        """
        if deterministic or self.rate == 0:
            return x
        if words is None:
            words = row_words(self.make_rng("dropout"), x.shape[:-1])
        else:
            # the path of the module, so that others with the same words differ
            path = zlib.crc32("/".join(self.path).encode())
            words = module_words(words, path)
        share = 1 - self.rate
        return drop_entries(x, keep_entries(words, x.shape[-1], share), share)


class FeedForward(nn.Module):
    """The feed-forward of a layer: wo(act(wi_0 x) * (wi_1 x)) if gated, wo(act(wi x)) otherwise.

    Attributes:
        d_ff: hidden size.
        kind: feed-forward type, a key of FEED_FORWARD_KINDS.
        dropout_rate: dropout rate before the last map.
        use_bias: True to add a bias to every map (BART, BERT; not T5).
        init_std: standard deviation of the kernels; None for T5's, one over the
            root of the inputs.
    """

    d_ff: int
    kind: str = "gated-gelu"
    dropout_rate: float = 0.0
    use_bias: bool = False
    init_std: float | None = None
    dtype: Any = jnp.float32

    @nn.compact
    def __call__(
        self,
        x: Float[AnyArray, "*batch d_model"],
        deterministic: bool = True,
        words: RowWords | None = None,
    ) -> Float[Array, "*batch d_model"]:
        """Applies the maps; ``deterministic`` is False in training; ``words``: see ``Dropout``."""
        activation, is_gated = FEED_FORWARD_KINDS[self.kind]
        d_model = x.shape[-1]
        hidden = self._linear("wi_0" if is_gated else "wi", d_model, self.d_ff)(
            x
        )
        hidden = ACTIVATIONS[activation](hidden)
        if is_gated:
            # [..., d_ff], elementwise: act(wi_0 x) gates wi_1 x.
            hidden = hidden * self._linear("wi_1", d_model, self.d_ff)(x)
        dropped = Dropout(self.dropout_rate)(hidden, deterministic, words)
        return self._linear("wo", self.d_ff, d_model)(dropped)

    def _linear(self, name: str, num_inputs: int, num_outputs: int) -> Linear:
        if name == "wo":
            names, mark = ("mlp", "embed"), PROJECTION
        else:
            names, mark = ("embed", "mlp"), HIDDEN
        if self.init_std is None:
            std = num_inputs**-0.5
        else:
            std = self.init_std
        bias_init = None
        if self.use_bias:
            bias_init = nn.initializers.zeros
        shape = (num_inputs, num_outputs)
        return Linear(
            shape,
            names,
            normal(std),
            bias_init,
            dtype=self.dtype,
            mark=mark,
            name=name,
        )
