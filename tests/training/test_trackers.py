import json
import sys
import types

import pytest

from longsum_jax.errors import InputError
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.reporter import Reporter
from longsum_jax.training.trackers import require_packages

RUN = {
    "optimizer": {"name": "adamw", "total_steps": None},
    "data": {f"k{i}": i for i in range(150)},
}
OPTIONS = {"is_evaluated": True, "steps": 9, "log_every": 1, "max_bad_steps": 1, "run": RUN}


@pytest.fixture
def calls(monkeypatch):
    """Puts fakes of wandb and mlflow in place of the packages; returns the calls they get."""
    calls = []

    def record(name, result=None):
        def call(*args, **options):
            calls.append((name, *args, options))
            return result(options) if callable(result) else result

        return call

    def wandb_run(options):
        methods = {name: record(f"wandb.{name}") for name in ("log", "finish", "define_metric")}
        return types.SimpleNamespace(id=options["id"], **methods)

    wandb = types.SimpleNamespace(init=record("wandb.init", wandb_run))
    run = types.SimpleNamespace(info=types.SimpleNamespace(run_id="m1"))
    names = ("set_experiment", "log_params", "log_metrics", "end_run")
    mlflow = types.SimpleNamespace(**{name: record(f"mlflow.{name}") for name in names})
    mlflow.start_run = record("mlflow.start_run", run)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    return calls


def reporter(workdir, start=0, **options):
    return Reporter(workdir, start=start, tensorboard=False, progress=False, **OPTIONS, **options)


def test_wandb_gets_flat_numbers_and_continues_its_run(calls, tmp_path):
    with reporter(tmp_path, wandb="reports") as report:
        report.write_evaluation(4, {"rouge1": 0.5})
    with reporter(tmp_path, start=4, wandb="reports"):
        pass
    made = [call for call in calls if call[0] != "wandb.define_metric"]
    begin, log, end, begin_again, end_again = made
    assert (begin[1]["project"], begin[1]["name"]) == ("reports", tmp_path.name)
    assert begin[1]["config"] == RUN
    assert log == ("wandb.log", {"step": 4, "eval/rouge1": 0.5}, {})
    assert begin_again[1]["id"] == begin[1]["id"]
    assert end[0] == end_again[0] == "wandb.finish"
    with reporter(tmp_path, wandb="reports"):  # from the start: a new run
        assert calls[-2][1]["id"] != begin[1]["id"]


def test_mlflow_gets_parameters_once_and_metrics_by_step(calls, tmp_path):
    with reporter(tmp_path, mlflow="reports") as report:
        report.write_evaluation(4, {"rouge1": 0.5})
    params = [call[1] for call in calls if call[0] == "mlflow.log_params"]
    assert [len(some) for some in params] == [100, 51]  # not the value None
    assert params[0]["optimizer.name"] == "adamw"
    assert ("mlflow.log_metrics", {"eval/rouge1": 0.5}, {"step": 4}) in calls
    calls.clear()
    with reporter(tmp_path, start=4, mlflow="reports"):
        pass
    names = [call[0] for call in calls]
    assert names == ["mlflow.set_experiment", "mlflow.start_run", "mlflow.end_run"]
    assert calls[1][1] == {"run_id": "m1", "run_name": None}


def test_a_service_that_fails_does_not_stop_the_training(calls, tmp_path, capsys):
    def fail(*_, **__):
        calls.append("failed")
        raise ConnectionError("no route\x1b[2J\nto host")

    sys.modules["mlflow"].log_metrics = fail
    with reporter(tmp_path, mlflow="reports") as report:
        for step in (1, 2):
            report.write_evaluation(step, {"rouge1": 0.5})
    assert calls.count("failed") == 1
    [message] = capsys.readouterr().err.splitlines()
    assert message.startswith("training.mlflow: gets no more metrics (no route")
    assert "\x1b" not in message
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


def test_a_service_that_does_not_start_is_one_sentence(calls, tmp_path):
    def fail(**_):
        raise RuntimeError("api_key not configured\nsecond line")

    sys.modules["wandb"].init = fail
    with pytest.raises(
        InputError, match=r"training\.wandb: cannot start \(api_key not configured\); log in"
    ):
        reporter(tmp_path, wandb="reports")


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_a_missing_package_is_named_at_the_start(monkeypatch, name):
    package = {"tensorboard": "tensorboardX"}.get(name, name)
    monkeypatch.setitem(sys.modules, package, None)
    require_packages(LoopOptions(steps=1))
    value = True if name == "tensorboard" else "reports"
    match = rf'training\.{name}: needs the package {package}; pip install "longsum_jax\[{name}\]"'
    with pytest.raises(InputError, match=match):
        require_packages(LoopOptions(steps=1, **{name: value}))
