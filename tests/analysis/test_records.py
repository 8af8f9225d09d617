"""What runs and studies leave, read again."""

import os

import numpy as np
import pytest

from longsum_jax.analysis import records
from longsum_jax.errors import InputError


def test_curves_of_a_run(write_run):
    run = records.read_run(write_run("run", end='{"step": 40, "lo'))
    np.testing.assert_array_equal(run.training["loss"].steps, [10, 20, 30])
    np.testing.assert_array_equal(run.training["loss"].values, [4.0, np.nan, 2.0])
    np.testing.assert_array_equal(run.training["learning_rate"].values, [0.1, 0.2, 0.05])
    assert run.evaluation["mean_rouge"] == (np.array([20]), np.array([12.5]))
    assert run.name.endswith("run")


def test_metrics_of_a_pipe_or_of_no_text_are_refused(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(InputError, match=r"metrics\.jsonl:1"):
        records.read_run(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        records.read_run(tmp_path)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        records.read_study(path)
