import json

import jax
import jax.numpy as jnp
import pytest

from longsum_jax.training.reporter import Reporter


class Device:
    def __init__(self, stats):
        self.memory_stats = lambda: stats


@pytest.mark.parametrize("peak", [None, 3 * 2**29])
def test_the_memory_of_devices_is_written_where_they_tell_it(tmp_path, monkeypatch, peak):
    devices = [Device(None), Device({"peak_bytes_in_use": peak})] if peak else [Device(None)]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    names = ("loss", "weight", "bad_streak", "param_norm")
    options = {"start": 0, "is_evaluated": False, "steps": 1, "log_every": 1, "max_bad_steps": 1}
    with Reporter(tmp_path, **options, tensorboard=False, progress=False) as reporter:
        reporter.push(1, dict.fromkeys(names, jnp.zeros(())))
        reporter.write_last_step()
    [line] = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert line.get("peak_gib") == (peak and 1.5)
