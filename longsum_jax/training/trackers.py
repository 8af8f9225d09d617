"""Writers of a run's metrics for Weights & Biases and MLflow; a resumed run continues there.

Both receive numbers under flat names ("eval/mean_rouge") with the step of the
run. After a resume, steps since the last checkpoint are written again. If a
service fails during training, the failure is printed once, and training
continues.
"""

import contextlib
import importlib
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from longsum_jax import atomic
from longsum_jax.errors import InputError, first_line, terminal_text
from longsum_jax.files import json_text, read_json
from longsum_jax.training.workdir import flatten
from longsum_jax.training.writers import TensorBoard, flat_numbers

TRACKERS = "trackers.json"  # file in a workdir with the ids of its runs
# Option of "training" -> package that it needs.
PACKAGES = {
    "tensorboard": "tensorboardX",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
_MAX_PARAMS = 100  # maximum per request to MLflow


class MetricsWriter(Protocol):
    """A writer of a run's metrics."""

    def write(self, step: int, values: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


class WandbWriter:
    """Writes metrics to a project of Weights & Biases.

    Args:
        project: name of the project.
        workdir: directory of the run; its name becomes the run's name.
        run: description of the run.
        is_new: True for a new run, False for a resumed one.

    Raises:
        InputError: wandb is not installed, or cannot start.
    """

    def __init__(
        self, project: str, workdir: Path, run: Mapping[str, Any], is_new: bool
    ) -> None:
        wandb = _import("wandb")
        run_id = None if is_new else _read_id(workdir, "wandb")
        with _starting("wandb", "log in with `wandb login`"):
            self._run = wandb.init(
                project=project,
                name=workdir.name,
                id=run_id or secrets.token_hex(4),
                resume="allow",
                dir=str(workdir),
                config=dict(run),
            )
            # Steps may repeat after a resume, which wandb's own step forbids.
            self._run.define_metric("*", step_metric="step")
        _write_id(workdir, "wandb", self._run.id)
        self._guard = _Guard("wandb")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        self._guard(
            lambda: self._run.log({"step": step} | flat_numbers(values))
        )

    def close(self) -> None:
        self._guard(self._run.finish)


class MlflowWriter:
    """Writes metrics to an experiment of MLflow, on the server of MLFLOW_TRACKING_URI.

    Arguments and errors are as for ``WandbWriter``.
    """

    def __init__(
        self, project: str, workdir: Path, run: Mapping[str, Any], is_new: bool
    ) -> None:
        self._mlflow = mlflow = _import("mlflow")
        run_id = None if is_new else _read_id(workdir, "mlflow")
        with _starting("mlflow", "check MLFLOW_TRACKING_URI"):
            mlflow.set_experiment(project)
            name = None if run_id else workdir.name
            started = mlflow.start_run(run_id=run_id, run_name=name)
            if run_id is None:
                _log_params(mlflow, run)
        _write_id(workdir, "mlflow", started.info.run_id)
        self._guard = _Guard("mlflow")

    def write(self, step: int, values: Mapping[str, Any]) -> None:
        numbers = flat_numbers(values)
        self._guard(lambda: self._mlflow.log_metrics(numbers, step=step))

    def close(self) -> None:
        self._guard(self._mlflow.end_run)


def open_trackers(
    workdir: Path,
    run: Mapping[str, Any],
    *,
    after_step: int,
    is_evaluated: bool,
    tensorboard: bool,
    wandb: str,
    mlflow: str,
) -> Iterator[MetricsWriter]:
    """Yields a writer for each service that is switched on, in addition to metrics.jsonl.

    Args:
        workdir: directory of the run.
        run: description of the run.
        after_step: last step of the run so far; 0 for a new run.
        is_evaluated: True if the evaluation of that step is complete, see
            ``writers.TensorBoard``.
        tensorboard: True to write TensorBoard files.
        wandb: project of Weights & Biases; "" for none.
        mlflow: experiment of MLflow; "" for none.

    Raises:
        InputError: a package is not installed, or a service cannot start.
    """
    if tensorboard:
        yield TensorBoard(workdir / "tensorboard", after_step, is_evaluated)
    if wandb:
        yield WandbWriter(wandb, workdir, run, after_step == 0)
    if mlflow:
        yield MlflowWriter(mlflow, workdir, run, after_step == 0)


def require_packages(options: Any) -> None:
    """Raises InputError if a writer is switched on whose package is not installed.

    Args:
        options: object with the attributes of ``PACKAGES``.
    """
    for name, package in PACKAGES.items():
        if getattr(options, name):
            _import(package, name)


def _import(package: str, option: str = "") -> ModuleType:
    option = option or package
    try:
        return importlib.import_module(package)
    except ImportError:
        raise InputError(
            f"training.{option}: needs the package {package}; pip install "
            f'"longsum_jax[{option}]", or switch this off'
        ) from None


@contextlib.contextmanager
def _starting(name: str, remedy: str) -> Iterator[None]:
    try:
        yield
    except (
        Exception
    ) as error:  # each service has errors and transports of its own
        raise InputError(
            f"training.{name}: cannot start ({terminal_text(first_line(error))}); {remedy}, or "
            "switch this off"
        ) from error


class _Guard:
    """Calls functions of a service until one fails; prints this error and makes no more calls."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._has_failed = False

    def __call__(self, call: Callable[[], Any]) -> None:
        if self._has_failed:
            return
        try:
            call()
        except Exception as error:  # a service must not stop a training
            self._has_failed = True
            reason = terminal_text(first_line(error))
            print(
                f"training.{self._name}: gets no more metrics ({reason}); the same command tries "
                "again",
                file=sys.stderr,
            )


def _log_params(mlflow: ModuleType, run: Mapping[str, Any]) -> None:
    """Logs the values of a run's description under names such as "optimizer.name"."""
    params = {
        ".".join(path): value
        for path, value in flatten(run).items()
        if value not in (None, "")
    }
    names = list(params)
    for start in range(0, len(names), _MAX_PARAMS):
        some = names[start : start + _MAX_PARAMS]
        mlflow.log_params({name: params[name] for name in some})


def _read_id(workdir: Path, name: str) -> str | None:
    path = workdir / TRACKERS
    return read_json(path).get(name) if path.exists() else None


def _write_id(workdir: Path, name: str, run_id: str) -> None:
    path = workdir / TRACKERS
    ids = read_json(path) if path.exists() else {}
    atomic.write_text(path, json_text(ids | {name: run_id}) + "\n")
