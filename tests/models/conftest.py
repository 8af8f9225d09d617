"""The golden LOCOST model: its config, arrays and parameters."""

import functools

import flax.traverse_util
import jax
import jax.numpy as jnp
import pytest
from flax.core import meta

from longsum_jax.checkpoints.state_dict import to_params
from longsum_jax.models.locost import LocostConfig, weight_map
from longsum_jax.models.t5 import T5


@pytest.fixture(scope="session")
def shapes_of():
    """shapes_of(config): parameter shapes by path, without creating any."""

    @functools.cache
    def shapes(config):
        ids = jnp.zeros((1, 2), jnp.int32)
        variables = jax.eval_shape(T5(config).init, jax.random.key(0), ids, ids, ids)
        flat = flax.traverse_util.flatten_dict(meta.unbox(variables)["params"], sep="/")
        return {path: leaf.shape for path, leaf in flat.items()}

    return shapes


@pytest.fixture(scope="session")
def config():
    return LocostConfig.of(
        vocab_size=100,
        d_model=32,
        d_state=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=4,
    )


@pytest.fixture(scope="session")
def load_params(config, shapes_of):
    """load_params(state): parameters of a golden state dict."""
    shapes = shapes_of(config)

    def load(state):
        return to_params(state, weight_map(config), shapes, "golden")

    return load


@pytest.fixture(scope="session")
def published(golden, load_params):
    """(parameters, inputs and outputs) of the golden model at its perturbed initial values."""
    return load_params(golden("c_full_state")), golden("c_full_io")


@pytest.fixture(scope="session")
def overfitted(golden, load_params):
    """(parameters, arrays) of the golden model that has learnt its batch by heart; its greedy ids
    are not trivial."""
    arrays = golden("e_greedy")
    others = ("input_ids", "attention_mask", "labels", "logits", "greedy")
    return load_params({k: v for k, v in arrays.items() if k not in others}), {
        k: arrays[k] for k in others
    }
