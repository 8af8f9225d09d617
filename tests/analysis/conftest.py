"""Workdirs with metrics, and parameters of state-space layers."""

import json

import numpy as np
import pytest

LINES = (
    {"step": 10, "loss": 4.0, "learning_rate": 0.1},
    {"step": 20, "loss": None, "learning_rate": 0.2},
    {"step": 20, "eval": {"mean_rouge": 12.5, "lead_mean_rouge": 30.0}},
    {"step": 30, "loss": 2.0, "learning_rate": 0.05},
)


@pytest.fixture
def write_run(tmp_path):
    """Returns a function that writes metrics.jsonl into a new workdir."""

    def write(name, lines=LINES, end=""):
        workdir = tmp_path / name
        workdir.mkdir()
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (workdir / "metrics.jsonl").write_text(text + end)
        return str(workdir)

    return write


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
