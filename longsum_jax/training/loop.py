"""The training loop: one page of named phases.

It knows no data set and no model family: it takes a loss function, an initialisation (or
parameters) and an iterator of numpy batches. Killed at any moment and started again with the same
arguments it goes on from its last checkpoint, data position included, as if it had never stopped.
"""

import contextlib
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import optax

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.training.checkpointing import SUBDIRECTORY, TrainingCheckpoints
from longsum_jax.training.mesh import MeshOptions, activate, make_mesh, put_batch, sharding_table
from longsum_jax.training.preemption import Interrupts
from longsum_jax.training.state import TrainState, create_state, plan_state, shardings_of
from longsum_jax.training.step import LossFn, make_train_step
from longsum_jax.training.workdir import FREE_KEYS, open_workdir
from longsum_jax.training.writers import MetricsFile, ProgressLine, TensorBoard, Throughput
from longsum_jax.typing import Array, BatchIterator, NumpyBatch

_INIT_FOLD = 2**32 - 1  # folded into the seed's key for the initialisation; no step reaches it


class TrainingDiverged(RuntimeError):  # noqa: N818 - the name says it
    """Too many steps in a row were not finite."""


@dataclass(frozen=True)
class LoopOptions:
    """How long to train, and what to do every so many steps (0: never).

    Attributes:
        steps: total number of steps, those before a resume included.
        log_every: steps between lines of metrics.jsonl; the last step has one in any case.
        eval_every: steps between evaluations; the last step is evaluated in any case. Each
            evaluation is followed by a checkpoint.
        checkpoint_every: steps between checkpoints; the last step has one in any case.
        keep_latest, keep_best: how many of the newest and of the best checkpoints stay on disk.
        best_metric: which of the evaluation's numbers ranks them, higher is better.
        max_bad_steps: non-finite steps in a row after which the run gives up.
        seed: of initialisation and dropout.
        accumulation: micro-batches per step.
        tensorboard: whether to write TensorBoard files, too.
        progress: whether to show the progress line and the sharding table on standard error.
    """

    steps: int
    log_every: int = 10
    eval_every: int = 0
    checkpoint_every: int = 1000
    keep_latest: int = 1
    keep_best: int = 1
    best_metric: str = "mean_rouge"
    max_bad_steps: int = 20
    seed: int = 0
    accumulation: int = 1
    tensorboard: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "keep_latest", "max_bad_steps", "accumulation"):
            if getattr(self, name) < 1:
                raise InputError(f"training.{name}: {getattr(self, name)} is below 1")
        for name in ("log_every", "eval_every", "checkpoint_every", "keep_best"):
            if getattr(self, name) < 0:
                raise InputError(f"training.{name}: {getattr(self, name)} is below 0")


class FitResult(NamedTuple):
    """How training ended.

    Attributes:
        state: the final state, on the mesh.
        step: steps done.
        stopped_by: "steps" (all done), "data" (no more batches) or the signal's name ("SIGTERM",
            "SIGINT").
        compilations: how often the step was compiled, once per batch shape.
    """

    state: TrainState
    step: int
    stopped_by: Literal["steps", "data", "SIGTERM", "SIGINT"]
    compilations: int


Evaluate = Callable[[Any, int], Mapping[str, float]]


def fit(
    *,
    loss_fn: LossFn,
    init: Callable[[Array], Any],
    optimizer: optax.GradientTransformation,
    batches: BatchIterator,
    options: LoopOptions,
    workdir: str | Path,
    mesh_options: MeshOptions | None = None,
    run: Mapping[str, Any] | None = None,
    model_name: str = "",
    evaluate: Evaluate | None = None,
    initial_params: Any | None = None,
    initial_carry: Any = (),
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
    free_keys: Collection[str] = FREE_KEYS,
) -> FitResult:
    """Trains, or goes on with the training that ``workdir`` holds.

    Args:
        loss_fn: see `step.LossFn`.
        init: PRNG key to parameter tree, boxed with logical axis names or not.
        optimizer: see `optimizers.make_optimizer`.
        batches: this host's rows; the same number in every batch.
        options: see `LoopOptions`.
        workdir: gets run.json, metrics.jsonl and checkpoints/; the same directory for every host.
        mesh_options: see `partition.MeshOptions`; it may change between restarts.
        run: JSON-able description of the run (its config); a resume with another one is refused.
        model_name: name of the model family, written into the checkpoints.
        evaluate: parameters and step to named numbers, the same on every host.
        initial_params: host arrays to start from instead of ``init``; not used by a resume.
        initial_carry: the loss function's first carry, arrays whose first dimension is the global
            batch.
        on_metrics: called with the step and the values of every line of metrics.jsonl.
        free_keys: names in ``run`` that may change between restarts.

    Raises:
        InputError: workdir not writable or of another run, mesh or batch that does not divide,
            checkpoint that does not fit or cannot be written, ``best_metric`` that the evaluation
            does not give.
        TrainingDiverged: ``options.max_bad_steps`` steps in a row were not finite.
    """
    mesh_options = mesh_options or MeshOptions()
    run = dict(run or {})
    with contextlib.ExitStack() as stack:
        # The mesh, and where everything goes on it
        mesh = make_mesh(mesh_options)
        rng = jax.random.fold_in(jax.random.key(options.seed), _INIT_FOLD)
        abstract, layout = plan_state(init, optimizer, mesh, mesh_options.rules, rng, initial_carry)
        if options.progress and jax.process_index() == 0:
            table = sharding_table(layout)
            print(table if mesh.size > 1 else table.splitlines()[-1], file=sys.stderr)

        # The workdir, and the state: restored or fresh
        workdir = open_workdir(workdir, run, free_keys)
        checkpoints = _open_checkpoints(workdir, options, model_name, run)
        stack.callback(checkpoints.close)
        start = checkpoints.latest_step() or 0
        if start:
            state = _restore(checkpoints, abstract, batches)
        else:
            state = create_state(abstract, init, optimizer, rng, initial_carry, initial_params)

        # The step, and what watches it
        train_step = make_train_step(
            loss_fn,
            optimizer,
            accumulation=options.accumulation,
            seed=options.seed,
            shardings=shardings_of(abstract),
        )
        compilations = _Compilations(train_step)
        reporter = stack.enter_context(_Reporter(workdir, options, start, on_metrics))
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(activate(mesh, mesh_options.rules))

        # Training
        step, stopped_by = start, "steps"
        while step < options.steps:
            try:
                batch = next(batches)
            except StopIteration:
                stopped_by = "data"
                break
            state, metrics = train_step(state, put_batch(batch, mesh, options.accumulation))
            step += 1
            reporter.push(step, metrics)
            compilations.check(step, batch)
            signal_name, scores = interrupts.wanted(step), None
            if evaluate and not signal_name and _due(step, options.eval_every, options.steps):
                scores = _evaluate(evaluate, state, step, options, reporter)
            if scores or signal_name or _due(step, options.checkpoint_every, options.steps):
                _save(checkpoints, state, step, batches, scores, reporter)
            if signal_name:
                stopped_by = signal_name
                break

        # The end
        if stopped_by == "data" and step > (checkpoints.latest_step() or 0):
            _save(checkpoints, state, step, batches, None, reporter)
        reporter.flush()
        checkpoints.wait()
        return FitResult(state, step, stopped_by, train_step._cache_size())


class _Compilations:
    """Says so when a step was compiled again for batches of a shape that it had been compiled for:
    once is enough."""

    def __init__(self, train_step: Any) -> None:
        self._step, self._shapes, self._unexpected = train_step, set(), 0

    def check(self, step: int, batch: NumpyBatch) -> None:
        """To be called after step ``step``, which took ``batch``."""
        self._shapes.add(tuple((name, x.shape, str(x.dtype)) for name, x in sorted(batch.items())))
        unexpected = self._step._cache_size() - len(self._shapes)
        if unexpected > self._unexpected and jax.process_index() == 0:
            print(
                f"step {step} was compiled again, although batches of its shape had been there; something of the "
                "state changed its type or its place, please report it",
                file=sys.stderr,
            )
        self._unexpected = max(self._unexpected, unexpected)


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)


def _open_checkpoints(
    workdir: Path, options: LoopOptions, model_name: str, run: dict[str, Any]
) -> TrainingCheckpoints:
    return TrainingCheckpoints(
        workdir / SUBDIRECTORY,
        model=model_name,
        config=run,
        keep_latest=options.keep_latest,
        keep_best=options.keep_best,
        best_metric=options.best_metric,
    )


def _restore(
    checkpoints: TrainingCheckpoints, abstract: TrainState, batches: BatchIterator
) -> TrainState:
    found = checkpoints.restore(abstract.params, abstract.rest())
    batches.restore(found.data)
    return TrainState(params=found.params, **found.state)


def _save(
    checkpoints: TrainingCheckpoints,
    state: TrainState,
    step: int,
    batches: BatchIterator,
    scores: Mapping[str, float] | None,
    reporter: "_Reporter",
) -> None:
    reporter.flush()  # what a resume would cut off must not be ahead of the checkpoint
    checkpoints.save(step, state.params, state.rest(), batches.state(), scores)


def _evaluate(
    evaluate: Evaluate, state: TrainState, step: int, options: LoopOptions, reporter: "_Reporter"
) -> dict[str, float]:
    reporter.flush()
    scores = {name: float(value) for name, value in evaluate(state.params, step).items()}
    if options.keep_best and options.best_metric not in scores:
        guess = did_you_mean(options.best_metric, scores)
        raise InputError(
            f'training.best_metric: the evaluation gives no "{options.best_metric}"; {guess}'
        )
    reporter.line(step, {"eval": scores})
    reporter.throughput.restart()
    return scores


class _Reporter:
    """Reads each step's metrics one step late, so that the devices never wait for the host.

    Logs them, shows them, and raises TrainingDiverged when too many in a row were not finite.
    """

    def __init__(
        self,
        workdir: Path,
        options: LoopOptions,
        start: int,
        on_metrics: Callable[..., None] | None,
    ) -> None:
        first = jax.process_index() == 0
        self.throughput = Throughput()
        self._options, self._on_metrics = options, on_metrics
        self._pending: tuple[int, dict[str, Array]] | None = None
        self._writers: list[Any] = []
        if first and options.tensorboard:
            self._writers.append(TensorBoard(workdir / "tensorboard", start))
        if first:
            self._writers.append(MetricsFile(workdir / "metrics.jsonl", start))
        self._progress = ProgressLine(options.steps, start, shown=first and options.progress)

    def __enter__(self) -> "_Reporter":
        return self

    def __exit__(self, *error: object) -> None:
        for each in (*self._writers, self._progress):
            each.close()

    def push(self, step: int, metrics: dict[str, Array]) -> None:
        """Takes the metrics of the step just started and reports those of the step before."""
        self.flush()
        self._pending = (step, metrics)

    def flush(self) -> None:
        """Reports what is pending, waiting for the devices."""
        if self._pending is None:
            return
        step, arrays = self._pending
        self._pending = None
        values = {name: value.item() for name, value in jax.device_get(arrays).items()}
        self._check(step, values["bad_streak"])
        rate = self.throughput.add(values.get("tokens", values["weight"]))
        self._progress.update(values["loss"], rate)
        if _due(step, self._options.log_every, self._options.steps):
            self.line(step, {**values, "tokens_per_second": round(rate, 1)})

    def line(self, step: int, values: dict[str, Any]) -> None:
        """Writes one line to every writer."""
        for writer in self._writers:
            writer.write(step, values)
        if self._on_metrics:
            self._on_metrics(step, values)

    def _check(self, step: int, bad_streak: int) -> None:
        if bad_streak < self._options.max_bad_steps:
            return
        raise TrainingDiverged(
            f"the loss or its gradient was not finite in steps {step - bad_streak + 1} to {step}, "
            f"{bad_streak} in a row (training.max_bad_steps); lower the learning rate or look at these "
            "batches; the last checkpoint is intact"
        )
