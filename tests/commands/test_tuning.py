"""The choice of how a run computes its training step, and what a resumed run makes of it."""

import json

import jax
import pytest

from longsum_jax.commands import plan, train, tuning
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config, with_micro_batches
from longsum_jax.training.workdir import check_workdir
from longsum_plan import devices
from longsum_plan.plan import ProgramPlan

CONFIG = "configs/locost_c4.py:tiny"
START = {"model.remat": "True", "training.accumulation": "2", "training.tune": "True"}


def config_with(**overrides):
    return read_config(CONFIG, START | overrides)


@pytest.mark.parametrize(("rows", "expected"), [(256, 1), (1024, 4), (2048, 8), (300, 8)])
def test_a_device_has_a_row_in_every_micro_batch(monkeypatch, rows, expected):
    mesh = jax.sharding.AbstractMesh((2, 128, 1, 1), ("batch", "fsdp", "tensor", "sequence"))
    monkeypatch.setattr("longsum_jax.training.mesh.make_mesh", lambda options, devices: mesh)
    sizes = {"data.batch_size": str(rows), "training.accumulation": "8"}
    said = []
    run = with_micro_batches(run_config(config_with(**sizes)), said.append)
    assert run.training.accumulation == expected
    assert run.description["training"]["accumulation"] == expected
    if expected == 8:
        assert not said
    else:
        [line] = said
        assert line.startswith(f"training.accumulation={expected} instead of 8: 256 devices")


def choice(config):
    return config["model"]["remat"], config["training"]["accumulation"]


@pytest.fixture
def fake_plans(monkeypatch):
    """Plans without a compiler for a described H200: saving results is faster."""
    target = devices.find_target("cpu")
    known = target._replace(hardware=devices.GPUS["h200"], memory=100)
    monkeypatch.setattr(devices, "find_target", lambda name: known)
    planned = []

    def plan_program(program, target):
        planned.append(program.name)
        seconds = {"memory": 9.0 - len(planned)}
        return ProgramPlan(program.name, {"total": 40}, True, None, seconds)

    monkeypatch.setattr("longsum_plan.plan.plan_program", plan_program)
    return planned


def test_the_fastest_step_is_chosen_and_said(fake_plans, tmp_path):
    lines = []
    start = config_with()
    config = tuning.choose(start, str(tmp_path), lines.append)
    assert fake_plans == ["train"] * 5
    assert choice(config) == (False, 1)
    assert "at least 4,000 ms in place of 8,000, 50% less" in lines[-1]
    assert choice(start) == (True, 2)
    # Everything else is as it was.
    config["model"]["remat"], config["training"]["accumulation"] = True, 2
    assert config == start
    untuned = config_with(**{"training.tune": "False"})
    assert tuning.choose(untuned, str(tmp_path), lines.append) == untuned
    assert len(fake_plans) == 5


def test_nothing_is_chosen_on_cpus_whose_rates_are_unknown(tmp_path):
    lines = []
    config = config_with()
    assert tuning.choose(config, str(tmp_path), lines.append) == config
    assert lines == ["training.tune has no effect here: the peak rates of cpu are unknown"]


def test_a_resumed_run_keeps_the_choice_of_its_checkpoints(fake_plans, tmp_path):
    chosen = tuning.choose(config_with(), str(tmp_path), lambda line: None)
    (tmp_path / "run.json").write_text(json.dumps(chosen))
    # Without a checkpoint, nothing depends on the choice.
    assert tuning.keep_choice(config_with(), str(tmp_path)) == config_with()
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    resumed = tuning.keep_choice(config_with(), str(tmp_path))
    assert json.loads(json.dumps(resumed)) == json.loads(json.dumps(chosen))
    check_workdir(tmp_path, resumed)
    assert tuning.choose(resumed, str(tmp_path), print) == resumed
    assert len(fake_plans) == 5
    # Without tuning, the values must be given.
    values = {"training.tune": "False", "model.remat": "False", "training.accumulation": "1"}
    check_workdir(tmp_path, tuning.keep_choice(config_with(**values), str(tmp_path)))
    del values["training.accumulation"]
    with pytest.raises(InputError, match=r"training.accumulation \(1 there, 2 here\)"):
        check_workdir(tmp_path, tuning.keep_choice(config_with(**values), str(tmp_path)))


def test_a_choice_for_other_devices_is_refused_with_a_remedy(tmp_path):
    chosen = config_with(**{"mesh.preset": "fsdp", "mesh.batch": "3", "mesh.fsdp": "5"})
    # without the other sections
    (tmp_path / "run.json").write_text(json.dumps({"mesh": chosen["mesh"]}))
    (tmp_path / "checkpoints" / "7").mkdir(parents=True)
    resumed = tuning.keep_choice(config_with(), str(tmp_path))
    assert resumed["mesh"]["fsdp"] == 5
    with pytest.raises(InputError, match=r"needs 15 devices.* training.tune=False"):
        tuning.choose(resumed, str(tmp_path), print)


@pytest.mark.slow
def test_a_tuned_run_that_is_killed_ends_as_one_that_is_not(monkeypatch, tmp_path):
    known = devices.find_target(devices.HERE)._replace(hardware=devices.GPUS["h200"])
    monkeypatch.setattr(devices, "find_target", lambda name: known)
    monkeypatch.setattr(plan, "_ALL_TRIES", 1)
    flags = [f"--config.{key}={value}" for key, value in START.items()]
    flags += ["--config.evaluation.examples=0", "--config.training.log_every=1"]

    def losses(name, steps):
        more = [f"--workdir={tmp_path / name}", f"--config.training.steps={steps}"]
        assert train.main([f"--config={CONFIG}", *flags, *more]) == 0
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        return [row["loss"] for row in map(json.loads, lines) if "loss" in row]

    whole = losses("whole", 4)
    run = json.loads((tmp_path / "whole" / "run.json").read_text())
    assert choice(run) != (True, 2)
    losses("parts", 2)
    monkeypatch.setattr(plan, "plan_run", None)  # chosen once
    assert losses("parts", 4) == whole
    assert len(whole) == 4
