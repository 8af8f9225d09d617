import json
import sys
import types

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import writers
from longsum_jax.training.writers import MetricsFile, TensorBoard, Throughput


def test_file_is_cut_after_the_step_and_torn_lines_go(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text(
        '{"step": 1}\n{"step": 2}\n{"step": 2, "eval": {}}\n{"step": 3}\n{"step": 1, "lo'
    )
    file = MetricsFile(path, after_step=2)
    file.write(3, {"loss": 0.1, "eval": {"rouge": float("nan")}, "worst": float("inf")})
    file.close()
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": 1},
        {"step": 2},
        {"step": 2, "eval": {}},
        {"step": 3, "loss": 0.1, "eval": {"rouge": None}, "worst": None},
    ]


def test_throughput_is_that_of_the_last_steps(monkeypatch):
    now = iter([0.0, 10.0, 11.0, 12.0, 20.0, 22.0])
    monkeypatch.setattr(writers.time, "perf_counter", lambda: next(now))
    throughput = Throughput(steps=2)
    assert throughput.add(100) == 10.0
    assert throughput.add(100) == pytest.approx(200 / 11)
    assert throughput.add(100) == 100.0  # the slow first step is out of the window
    throughput.restart()
    assert throughput.add(100) == 50.0


def test_tensorboard_gets_scalars_under_flat_names(tmp_path, monkeypatch):
    written = []

    class SummaryWriter:
        def __init__(self, directory, purge_step):
            written.append((directory, purge_step))

        def add_scalar(self, name, value, step):
            written.append((name, value, step))

        def close(self):
            written.append("closed")

    monkeypatch.setitem(
        sys.modules, "tensorboardX", types.SimpleNamespace(SummaryWriter=SummaryWriter)
    )
    board = TensorBoard(tmp_path, after_step=4)
    board.write(5, {"loss": 0.5, "eval": {"rouge": 0.1}, "note": "no scalar"})
    board.close()
    assert written == [(str(tmp_path), 5), ("loss", 0.5, 5), ("eval/rouge", 0.1, 5), "closed"]


def test_a_file_of_metrics_that_is_no_text_loses_what_is_none(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\n[[[\n' + b"[" * 100_000 + b"\n")
    MetricsFile(path, after_step=2).close()
    assert path.read_text() == '{"step": 1}\n'


def test_a_file_of_metrics_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InputError, match=r"metrics\.jsonl: cannot be written \(Is a directory\)"):
        MetricsFile(tmp_path / "metrics.jsonl", after_step=0)
