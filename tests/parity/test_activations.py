"""Activations by their names in config.json beside those of transformers."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.activations import ACT2FN

from longsum_jax.layers.dense import ACTIVATIONS

GELUS = {name for name in ACT2FN if name.startswith("gelu")} - {"gelu_10", "gelu_python_tanh"}


@pytest.mark.parametrize("name", sorted(GELUS | ACTIVATIONS.keys()))
def test_values(name):
    x = np.linspace(-8, 8, 501, dtype=np.float32)
    result = ACTIVATIONS[name](jnp.asarray(x))
    np.testing.assert_allclose(result, ACT2FN[name](torch.tensor(x)), atol=2e-6)
