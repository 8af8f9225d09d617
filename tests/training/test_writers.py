import json
import os
import sys
import types
from pathlib import Path

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training import writers
from longsum_jax.training.reporter import Reporter
from longsum_jax.training.writers import MetricsFile, TensorBoard, Throughput, read_evaluations


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

    # What a cut short evaluation has written goes, the metrics of its step stay.
    written.clear()
    (tmp_path / "metrics.jsonl").write_text(
        '{"step": 3, "loss": 3}\n{"step": 4, "loss": 4, "x": null}\n{"step": 4, "eval": {"a": 1}}\n'
    )
    options = {"start": 4, "is_evaluated": False, "steps": 9, "log_every": 1, "max_bad_steps": 1}
    with Reporter(tmp_path, **options, tensorboard=True, progress=False) as reporter:
        reporter.write_evaluation(4, {"a": 2})
    directory = str(tmp_path / "tensorboard")
    assert written == [(directory, 4), ("loss", 4, 4), ("eval/a", 2, 4), "closed"]


def test_the_line_of_an_evaluation_that_was_cut_short_goes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    retained = '{"step": 2, "eval": {}}\n{"step": 4}\n'
    path.write_text(retained + '{"step": 4, "eval": {}}\n')
    MetricsFile(path, after_step=4, is_evaluated=False).close()
    assert path.read_text() == retained


def test_evaluations_of_a_run_so_far(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [{"step": step, "eval": {"a": step}} for step in (2, 4, 6)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert read_evaluations(path, 4, is_evaluated=True) == [{"a": 2}, {"a": 4}]
    assert read_evaluations(path, 4, is_evaluated=False) == [{"a": 2}]


@pytest.mark.parametrize("damage", [b"\x80\xff\n", b"{}\n", b"[" * 100_000 + b"\n", b'"step"\n'])
def test_a_damaged_file_is_named_with_its_line(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + damage + b'{"step": 2}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl, line 2: not a line of metrics"):
        MetricsFile(path, after_step=2)


def test_zeros_that_a_power_failure_left_at_the_end_go(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + bytes(100))
    MetricsFile(path, after_step=2).close()
    assert path.read_bytes() == b'{"step": 1}\n'


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_one_sentence(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", after_step=0)
    file.close()
    file._file = Path("/dev/full").open("ab", buffering=0)  # noqa: SIM115
    with pytest.raises(InputError, match=r"metrics\.jsonl: .*No space left on device.*continues"):
        file.write(1, {"loss": 0.5})
    file.close()


def test_a_file_that_cannot_be_opened_is_one_sentence(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    with pytest.raises(InputError, match="a directory, pipe or device"):
        MetricsFile(tmp_path / "metrics.jsonl", after_step=0)


@pytest.mark.parametrize("target", [None, "/dev/zero"])
def test_metrics_of_a_pipe_or_a_device_are_refused(tmp_path, target):
    path = tmp_path / "metrics.jsonl"
    os.mkfifo(path) if target is None else path.symlink_to(target)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        MetricsFile(path, after_step=1)
