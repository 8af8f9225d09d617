import json

import jax
import jax.numpy as jnp
import pytest

from longsum_jax.training import writers
from longsum_jax.training.reporter import Reporter

METRICS = dict.fromkeys(("loss", "weight", "bad_streak", "param_norm"), jnp.zeros(()))


def make_reporter(workdir, **options):
    options = {"start": 0, "is_evaluated": False, "log_every": 1, "max_bad_steps": 1} | options
    return Reporter(workdir, **options, tensorboard=False, progress=False)


def logged(workdir):
    return [json.loads(line) for line in (workdir / "metrics.jsonl").read_text().splitlines()]


class Device:
    def __init__(self, stats):
        self.memory_stats = lambda: stats


def test_the_step_that_is_compiled_is_not_in_later_rates(tmp_path, monkeypatch):
    now = iter([0.0, 100.0, 100.0, 102.0])
    monkeypatch.setattr(writers.time, "perf_counter", lambda: next(now))
    with make_reporter(tmp_path, start=4, is_evaluated=True, steps=9) as reporter:
        for step in (5, 6):
            reporter.push(step, METRICS | {"tokens": jnp.full((), 50.0)})
        reporter.flush()
    assert [line["tokens_per_second"] for line in logged(tmp_path)] == [0.5, 25.0]


def test_the_noise_scale_is_a_ratio_of_means(tmp_path):
    with make_reporter(tmp_path, steps=4, log_every=2) as reporter:
        for step, signal, noise in ((1, 3.0, 1.0), (2, -1.0, 2.0), (3, -1.0, 1.0), (4, 0.0, 1.0)):
            values = {"gradient_signal": jnp.float32(signal), "gradient_noise": jnp.float32(noise)}
            reporter.push(step, METRICS | values)
        reporter.flush()
    assert [line.get("gradient_noise") for line in logged(tmp_path)] == [1.5, None]


@pytest.mark.parametrize("peak", [None, 3 * 2**29])
def test_the_memory_of_devices_is_written_where_they_tell_it(tmp_path, monkeypatch, peak):
    devices = [Device(None), Device({"peak_bytes_in_use": peak})] if peak else [Device(None)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    with make_reporter(tmp_path, steps=1) as reporter:
        reporter.push(1, METRICS)
        reporter.write_last_step()
    [line] = logged(tmp_path)
    assert line.get("peak_gib") == (peak and 1.5)


def test_time_left_and_utilization_count_steps_without_compilation(tmp_path, monkeypatch):
    now = iter([0.0, 100.0, 100.0, 102.0])
    monkeypatch.setattr(writers.time, "perf_counter", lambda: next(now))
    with make_reporter(tmp_path, start=4, is_evaluated=True, steps=9) as reporter:
        for step in (5, 6):
            reporter.push(step, METRICS, shortest_seconds=0.5)
        reporter.flush()
    first, second = logged(tmp_path)
    assert not {"seconds_left", "mfu"} & first.keys()
    assert (second["seconds_left"], second["mfu"]) == (6.0, 0.25)  # three steps of two seconds
