"""Computes gradients and states of a small LOCOST; writes them to the file that is its argument.

Traces also its training step and its searches, whose loops must keep the types of their state.

Run by test_x64.py in a process of its own, because the flag JAX_ENABLE_X64 is read when JAX starts.
"""

import sys

import flax.linen as nn
import jax
import numpy as np

from longsum_jax.inference.programs import Programs
from longsum_jax.layers.layer_groups import unstacked_layers
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import count_labels
from longsum_jax.summarization.model import Model
from longsum_jax.training.loss import LossOutput
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step


def make():
    """Family and config."""
    sizes = {"d_model": 8, "d_state": 4, "d_kv": 4, "d_ff": 8, "num_heads": 2}
    layers = {"num_layers": 1, "num_decoder_layers": 1, "vocab_size": 32}
    family = get_family("locost")
    return family, family.config(sizes | layers)


def compute():
    """Parameters, gradients and states, the last with and without jit, as a list of arrays."""
    family, config = make()
    init = family.init_params(config)
    shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: np.asarray(0.2 * rng.normal(size=x.shape), x.dtype), shapes)
    ids = rng.integers(1, 32, (2, 12)).astype(np.int32)
    mask = np.arange(12) < np.array([[12], [7]])

    def encode(params):
        module = family.module_class(config)
        return module.apply({"params": params}, ids, mask, method="encode")

    def loss(params):
        states = encode(params)
        return (states**2).sum(), states

    gradient, states = jax.jit(jax.grad(loss, has_aux=True))(params)
    eager = encode(params)
    return jax.tree.leaves((params, gradient, states, eager))


def trace(family, config):
    """Traces a training step, and searches of every kind, without compiling them."""
    ids = jax.ShapeDtypeStruct((2, 12), np.int32)
    mask = jax.ShapeDtypeStruct((2, 12), bool)
    params = nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    module = family.module_class(config)

    def loss(params, batch, rng):
        scores = module.apply({"params": params}, *batch, method="score_targets")
        return LossOutput(scores.losses.sum(), count_labels(batch[-1]))

    optimizer = make_optimizer(OptimizerOptions("adamw", 1e-3))
    state = jax.eval_shape(lambda params: init_state(params, optimizer), params)
    after, _ = jax.eval_shape(make_train_step(loss, optimizer), state, (ids, mask, ids))
    assert jax.tree.map(kind, after) == jax.tree.map(kind, state)

    programs = Programs(module)
    source = programs.read.eval_shape({"params": params}, ids, mask, {})
    layers = jax.eval_shape(unstacked_layers, params["decoder"])
    model = Model(family, config, None)
    for selected in ({}, {"num_beams": 2}, {"prompt_lookup_num_tokens": 2}):
        options = model.generation_options(max_new_tokens=4, **selected)
        sizes = {"batch_size": 2, "options": options}
        programs.search.program.eval_shape(params, layers, source, None, **sizes)


def kind(x):
    return x.shape, x.dtype


if __name__ == "__main__":
    trace(*make())
    np.savez(sys.argv[1], *compute())
