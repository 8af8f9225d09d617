"""What runs and studies leave, read again."""

import os
from pathlib import Path

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


def test_a_growing_run_is_read_once(write_run):
    workdir = write_run("run")
    reader, whole = records.RunReader(workdir), records.read_run(workdir)
    for kind in ("training", "evaluation"):
        read = getattr(reader.read(), kind)
        assert read.keys() == getattr(whole, kind).keys()
        for name, curve in getattr(whole, kind).items():
            np.testing.assert_array_equal(read[name], curve)
    path = Path(workdir) / "metrics.jsonl"
    size = path.stat().st_size
    # what was read before is not read again
    path.write_bytes(b"x" * size + b'{"step": 50, "loss": 0.5}\n{"step": 60, "lo')
    loss = reader.read().training["loss"]
    assert (loss.steps[-1], loss.values[-1]) == (50, 0.5)
    assert len(loss.steps) == len(whole.training["loss"].steps) + 1


def test_a_long_curve_keeps_its_means_and_its_end(monkeypatch):
    monkeypatch.setattr(records, "MAX_POINTS", 4)
    thinned = records.ThinnedCurve()
    for step in range(1, 18):
        thinned.add(step, float("nan") if step == 2 else 2.0 * step)
    curve = thinned.curve()
    # of four points each, and the beginning of a fifth
    np.testing.assert_array_equal(curve.steps, [2, 6, 10, 14, 17])
    np.testing.assert_allclose(curve.values, [16 / 3, 13, 21, 29, 34])
