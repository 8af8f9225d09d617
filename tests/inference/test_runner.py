"""Parameters and programs of a loaded model."""

import jax
import numpy as np

from longsum_jax import Model
from longsum_jax.models.registry import get_family


def test_parameters_that_are_set_later_go_to_host_memory():
    family = get_family("bert")
    model = Model(family, family.presets["tiny"], {"table": jax.numpy.zeros(2)})
    model.to_host()
    model.to_device()
    model.params = {"table": jax.numpy.ones(2)}
    model.to_host()
    assert isinstance(model.params["table"], np.ndarray)
    assert model.params["table"].tolist() == [1, 1]
    model.to_device()
    assert isinstance(model.params["table"], jax.Array)


def test_other_parameters_compile_nothing(draw_params):
    family = get_family("bert")
    sizes = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 32}
    config = family.config(sizes)
    params = draw_params(family.init_params(config))
    model = Model(family, config, params)
    states = model.encode([[5, 6, 7]])
    other = model.with_params(jax.tree.map(lambda x: 2 * x, params))
    assert np.abs(other.encode([[5, 6, 7]]) - states).max() > 0.1
    np.testing.assert_array_equal(model.encode([[5, 6, 7]]), states)
    assert other._runner.programs.encode._of({}).jitted._active()._cache_size() == 1
