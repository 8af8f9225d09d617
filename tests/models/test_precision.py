"""The precision of every product of models, in gradients and steps of a search."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.inference.abstract import summary_programs
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.models.registry import FAMILIES, get_family
from longsum_jax.ops.attention.fused import fused_attention
from longsum_jax.ops.precision import define_gradient

LENGTH = 64
HIGHEST = (jax.lax.Precision.HIGHEST,) * 2
DEFAULT = (jax.lax.Precision.DEFAULT,) * 2


def products(jaxpr):
    """Yields the operands' type and the precision of every product of a program."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.invars[0].aval.dtype, equation.params["precision"]
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(inner):
                yield from products(getattr(inner, "jaxpr", inner))


def is_jaxpr(x):
    return hasattr(x, "eqns") or hasattr(getattr(x, "jaxpr", None), "eqns")


def precisions(function, *arguments):
    """Returns the precisions of all products of float32 arrays; there are some."""
    result = products(jax.make_jaxpr(function)(*arguments).jaxpr)
    of_floats = [precision for dtype, precision in result if dtype == jnp.float32]
    assert of_floats
    return set(of_floats)


def gradient_precisions(family, config):
    module = family.module_class(config)
    params = jax.eval_shape(family.init_params(config), jax.random.key(0))
    ids = jnp.ones((1, LENGTH), jnp.int32)

    def loss(params):
        variables = {"params": params}
        rngs = {"dropout": jax.random.key(0)}
        inputs = [ids, ids, ids[:, :8]] if family.is_encoder_decoder else [ids, ids]
        method = "score_targets" if family.is_encoder_decoder else None
        result = module.apply(variables, *inputs, False, rngs=rngs, method=method)
        return sum(x.astype(jnp.float32).sum() for x in jax.tree.leaves(result))

    return precisions(jax.grad(loss, allow_int=True), params)


def tiny(family, **changes):
    return family.presets["tiny"].replace(**changes)


# One family of every module; ALBERT and ELECTRA have a product of their own. Families of a module
# differ by their attentions, which follow.
MODULES = {FAMILIES[name].module_class: name for name in reversed(list(FAMILIES))}


@pytest.mark.parametrize("name", [*MODULES.values(), "albert", "electra"])
def test_gradients_of_every_module(name):
    family = get_family(name)
    assert gradient_precisions(family, tiny(family)) == {HIGHEST}


@pytest.mark.parametrize("attention", [name for name in ENCODER_ATTENTIONS if name != "full"])
def test_gradients_of_every_encoder_attention(attention):
    family = get_family("bart")
    config = tiny(family, encoder_attention=attention, block_size=16)
    assert gradient_precisions(family, config) == {HIGHEST}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_option_leaves_the_choice_to_the_device(dtype):
    """But for sums over the modes of state spaces, which always have all digits."""
    family = get_family("locost")
    config = tiny(family, dtype=dtype, matmul_precision="default")
    assert gradient_precisions(family, config) == {DEFAULT, HIGHEST}


@pytest.mark.parametrize("name", ["bart", "locost"])
def test_reading_and_every_step_of_a_search(name):
    family = get_family(name)
    config = tiny(family)
    params = jax.eval_shape(family.init_params(config), jax.random.key(0))
    params = jax.tree.map(lambda x: x.value, params, is_leaf=lambda x: hasattr(x, "names"))
    options = GenerationOptions(max_new_tokens=4, num_beams=2, decoder_start_token_id=0)
    module = family.module_class(config)
    made = summary_programs(module, params, batch_size=1, length=LENGTH, options=options)
    for program in made:
        products = [
            line for line in program.lower().as_text().splitlines() if "dot_general" in line
        ]
        assert products
        assert all("precision = [HIGHEST, HIGHEST]" in line for line in products)


@pytest.mark.parametrize("kernel", ["splash", "mosaic", "triton"])
def test_gradients_of_fused_kernels(kernel):
    """A gradient is traced after the pass forward, and outside what was around that."""
    x = jnp.ones((1, 128, 2, 64))

    def total(q, k, v):
        with jax.default_matmul_precision("highest"):
            return fused_attention(q, k, v, kernel=kernel, causal=True, scale=1.0).sum()

    assert precisions(jax.grad(total, argnums=(0, 1, 2)), x, x, x) == {HIGHEST}


def test_a_gradient_with_static_arguments():
    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def times(factor, x, y):
        return factor * (x @ y)

    def forward(factor, x, y):
        return times(factor, x, y), (x, y)

    def backward(factor, kept, gradient):
        x, y = kept
        return factor * gradient @ y.T, factor * x.T @ gradient

    define_gradient(times, forward, backward)

    def total(x, y):
        with jax.default_matmul_precision("highest"):
            return times(3.0, x, y).sum()

    x, y = jnp.arange(6.0).reshape(2, 3), jnp.arange(12.0).reshape(3, 4)
    result = jax.jit(jax.grad(total, argnums=(0, 1)))(x, y)
    expected = jax.grad(lambda x, y: 3.0 * (x @ y).sum(), argnums=(0, 1))(x, y)
    assert all(map(jnp.array_equal, result, expected))
    assert precisions(jax.grad(total, argnums=(0, 1)), x, y) == {HIGHEST}
