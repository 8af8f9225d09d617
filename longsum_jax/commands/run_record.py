"""What a training run writes to be watched: evaluations.jsonl, report.html and a model card."""

import contextlib
import importlib.metadata
import math
import platform
import time
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.analysis.model_card import (
    CARD,
    CardFacts,
    best_record,
    write_card,
)
from longsum_jax.analysis.records import RunReader
from longsum_jax.analysis.run_page import PAGE, RunSummary, write_page
from longsum_jax.commands import console
from longsum_jax.data.examples.base import ExampleStore
from longsum_jax.errors import InputError, first_line
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.evaluation_log import (
    EVALUATIONS,
    add_record,
    evaluation_record,
    read_records,
)
from longsum_jax.experiment.experiment import Evaluator, Experiment
from longsum_jax.inference.abstract import parameter_shapes
from longsum_jax.training.optimizers import schedule
from longsum_jax.training.workdir import has_checkpoint
from longsum_jax.training.writers import METRICS

_PACKAGES = ("longsum_jax", "jax", "jaxlib", "flax", "optax", "numpy")


class RunRecord:
    """A hook of ``training.loop.fit`` that writes the files after every evaluation.

    Only the first process writes. A file that cannot be written is reported,
    and the training goes on.

    Args:
        experiment: experiment of the run.
        run: config of the run with its number of steps.
        evaluator: evaluator of the run; None without evaluations.
        store: training examples.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunConfig,
        evaluator: Evaluator | None,
        store: ExampleStore,
    ) -> None:
        self._experiment = experiment
        self._run = run
        self._evaluator = evaluator
        self._examples = len(store) if isinstance(store, Sized) else None
        self._workdir = experiment.setup.workdir.absolute()
        self._metrics = RunReader(self._workdir)
        setup = experiment.setup
        # Here, because inside the mesh of a training shapes cannot be unboxed.
        shapes = parameter_shapes(setup.family, setup.config)
        self._num_parameters = sum(
            math.prod(shape.shape) for shape in jax.tree.leaves(shapes)
        )

    def begin(self) -> None:
        """Removes the evaluations of a run that never wrote a checkpoint."""
        if jax.process_index() == 0 and not has_checkpoint(self._workdir):
            (self._workdir / EVALUATIONS).unlink(missing_ok=True)

    def __call__(
        self,
        step: int,
        scores: Mapping[str, float],
        position: Mapping[str, Any],
    ) -> None:
        """Adds the last evaluation, and writes the page and the card again."""
        del scores
        assert self._evaluator is not None
        evaluation = self._evaluator.last
        if jax.process_index() or evaluation is None:
            return
        with _errors_reported(self._workdir / EVALUATIONS):
            record = evaluation_record(
                self._experiment.objective, evaluation, step, position
            )
            add_record(self._workdir, record)
        self.write_pages()

    def write_pages(self) -> None:
        """Writes report.html and README.md, if there are metrics."""
        if jax.process_index() or not (self._workdir / METRICS).exists():
            return
        page = self._workdir / PAGE
        with _errors_reported(page):
            records = read_records(self._workdir)
            metrics = self._metrics.read()
            updated = time.strftime("%Y-%m-%d %H:%M:%S")
            write_page(page, self._summary(), metrics, records, updated=updated)
            steps = [0, *(record["step"] for record in records)]
            if "loss" in metrics.training:
                steps.append(int(metrics.training["loss"].steps[-1]))
            write_card(self._workdir / CARD, self._card(records, max(steps)))

    def _summary(self) -> RunSummary:
        run, setup = self._run, self._experiment.setup
        learning_rate = schedule(run.optimizer)
        return RunSummary(
            title=self._workdir.name,
            steps=run.training.steps,
            examples=self._examples,
            schedule=lambda steps: np.asarray(
                learning_rate(jnp.asarray(steps))
            ),
            main_score=run.training.best_metric,
            facts={
                "model": f"{run.family.name}, {self._num_parameters:,} parameters",
                "started from": run.init_from or "scratch",
                "data": setup.task.source or setup.task.name,
                "devices": _hardware(),
            },
        )

    def _card(self, records: list[dict[str, Any]], last: int) -> CardFacts:
        run, task = self._run, self._experiment.setup.task
        # ``load`` takes the best checkpoint, if one is kept.
        metric = run.training.best_metric if run.training.keep_best else None
        record = best_record(records, metric)
        optimizer = run.optimizer
        return CardFacts(
            name=self._workdir.name,
            family=run.family.name,
            objective=task.objective,
            base=run.init_from,
            task=task.name,
            source=task.source or "",
            split=run.evaluation.split,
            steps=record["step"] if record else last,
            num_parameters=self._num_parameters,
            record=record,
            settings={
                "steps of the whole run": f"{run.training.steps:,}",
                "trained parameters": run.training.train,
                "batch size": str(run.data.batch_size),
                "source tokens": f"{task.max_source_length:,}",
                "target tokens": f"{task.max_target_length:,}",
                "optimizer": optimizer.name,
                "learning rate": f"{optimizer.learning_rate:g}",
                "schedule": f"{optimizer.schedule}, {optimizer.warmup_steps:,} warm-up steps",
                "weight decay": f"{optimizer.weight_decay:g}",
                "label smoothing": f"{run.loss.label_smoothing:g}",
                "computation": self._experiment.setup.config.dtype,
                "seed": str(run.training.seed),
            },
            hardware=_hardware(),
            versions=_versions(),
        )


@contextlib.contextmanager
def _errors_reported(path: Path) -> Iterator[None]:
    """Prints an error of a file that only informs: no error there may stop a training."""
    try:
        yield
    except Exception as error:
        reason = first_line(error)
        if not isinstance(error, OSError | InputError):
            reason = f"{type(error).__name__}: {reason}; please report it"
        console.print_stderr(
            f"{path}: not written ({reason}); the training goes on"
        )


def _hardware() -> str:
    devices = jax.devices()
    hosts = jax.process_count()
    on_hosts = f" on {hosts} hosts" if hosts > 1 else ""
    return f"{len(devices)} x {devices[0].device_kind}{on_hosts}"


def _versions() -> dict[str, str]:
    versions = {"Python": platform.python_version()}
    for name in _PACKAGES:
        # a checkout that is not installed has no metadata
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions
