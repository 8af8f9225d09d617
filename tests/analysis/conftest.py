"""Parameters of state-space layers."""

import numpy as np
import pytest


@pytest.fixture
def ssm_layers():
    """Returns a function that draws the parameters of ``layers.s4d.S4D``, by index of a layer."""

    def draw(shared, *, layers=(0, 1), channels=5, modes=3):
        rng = np.random.default_rng(0)
        sets = () if shared else (2,)

        def uniform(low, high, *shape):
            return rng.uniform(low, high, (*sets, channels, *shape)).astype(np.float32)

        return {
            layer: {
                "log_dt": uniform(-5, -2),
                "inv_A_real": uniform(-2, 0, modes),
                "A_imag": uniform(0, 9, modes),
                "B": rng.normal(size=(*sets, channels, modes, 2)).astype(np.float32),
                "C": rng.normal(size=(2, channels, modes, 2)).astype(np.float32),
            }
            for layer in layers
        }

    return draw
