"""The training loop.

It is independent of data sets and model families: it takes a loss function, an
initialization (or parameters) and an iterator of NumPy batches. If it is killed
at any time and started again with the same arguments, it continues from its
last checkpoint, including the position in the data; docs/guide/train.md states
how exact this is on which devices.

`fit` is the loop itself. `LoopOptions` defines the length of training and its
intervals, `_WatchedStep` takes a step, and `_Milestones` evaluates and saves.
"""

import contextlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import jax
import optax
from jax.sharding import Mesh

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.schema import Count, Positive, Rate, check_ranges
from longsum_jax.training.checkpoint_files import rank
from longsum_jax.training.checkpointing import TrainingCheckpoints
from longsum_jax.training.loss import LossFn, SegmentedLoss
from longsum_jax.training.mesh import (
    MeshOptions,
    activate,
    make_mesh,
    put_batch,
    sharding_table,
)
from longsum_jax.training.optimizers import swap_average, with_average
from longsum_jax.training.preemption import Interrupts
from longsum_jax.training.reporter import Reporter
from longsum_jax.training.state import (
    TrainState,
    create_state,
    plan_state,
    shardings_of,
)
from longsum_jax.training.step import (
    CheckProgram,
    CompilationWatch,
    CountSeconds,
    TrainStep,
    make_train_step,
)
from longsum_jax.training.workdir import (
    CHECKPOINTS,
    locked_workdir,
    open_workdir,
)
from longsum_jax.training.writers import METRICS, read_evaluations
from longsum_jax.typing import Array, BatchIterator, NumpyBatch

if TYPE_CHECKING:
    from longsum_jax.training.nonfinite import NonfiniteWatch

# Names of parts of a model -> pattern of their parameters' paths.
TRAINED = {
    "all": "",
    "lora": r"/lora_[ab]$",
    "globals": r"global_embeddings$|^head/",  # a new head, if there is one
    "decoder": r"^decoder/",
}
# folded into the seed's key for the initialization; no step reaches it
_INIT_FOLD = 2**32 - 1


@dataclass(frozen=True)
class LoopOptions:
    """The length of a run, and its intervals for logging, evaluation and saving (0: never).

    Attributes:
        steps: total number of steps, including the steps before a resume.
        log_every: number of steps between lines of metrics.jsonl; the last step
            always has one.
        eval_every: number of steps between evaluations, or "epoch" for one
            after every pass over the data; the last step is always evaluated. A
            checkpoint is saved before each evaluation.
        checkpoint_every: number of steps between checkpoints; the last step
            always has one.
        keep_latest, keep_best: numbers of the newest and of the best
            checkpoints to keep on disk.
        best_metric: name of the evaluation score that ranks checkpoints, higher
            is better.
        max_bad_steps: number of consecutive non-finite steps after which the
            run stops.
        seed: random seed of initialization and dropout.
        accumulation: number of micro-batches per step.
        tune: True to compile a new run's step with other numbers of
            micro-batches, rematerialization and meshes, and to train with the
            ones that fit and have the least roofline time.
        tensorboard: True to also write TensorBoard files.
        wandb: project of Weights & Biases that also receives the metrics;
            "" for none.
        mlflow: experiment of MLflow that also receives the metrics; "" for
            none.
        progress: True to show the progress line and the sharding table on
            standard error.
        train: parameters to train: a key of ``TRAINED``, or a regular
            expression that is searched for in their paths
            ("encoder/attention/global_embeddings"). The others do not change,
            and have neither gradients nor optimizer state.
        ema_decay: decay of exponential moving averages of the trained
            parameters, which are evaluated and saved as the parameters of
            checkpoints; 0 for none.
        early_stopping_patience: number of consecutive evaluations without a
            better ``best_metric`` after which training stops; 0 to never stop.
    """

    steps: Positive
    log_every: Count = 10
    eval_every: Count | Literal["epoch"] = 0
    checkpoint_every: Count = 1000
    keep_latest: Positive = 1
    keep_best: Count = 1
    best_metric: str = "mean_rouge"
    max_bad_steps: Positive = 20
    seed: Count = 0
    accumulation: Positive = 1
    tune: bool = False
    tensorboard: bool = False
    wandb: str = ""
    mlflow: str = ""
    progress: bool = True
    train: str = "all"
    ema_decay: Rate = 0.0
    early_stopping_patience: Count = 0

    def __post_init__(self) -> None:
        check_ranges(self, "training")
        try:
            re.compile(self.trained)
        except re.error as error:
            raise InputError(
                f'training.train: "{self.train}" must be one of '
                f"{', '.join(TRAINED)} or a regular expression ({error})"
            ) from None
        if isinstance(self.eval_every, str) and self.eval_every != "epoch":
            raise InputError(
                f'training.eval_every: "{self.eval_every}" is not allowed; give a number of steps '
                'or "epoch"'
            )

    @property
    def trained(self) -> str:
        """The pattern of the trained parameters; empty for all."""
        return TRAINED.get(self.train, self.train)


StopReason = Literal["steps", "data", "early_stopping", "SIGTERM", "SIGINT"]


class FitResult(NamedTuple):
    """The result of a training run.

    Attributes:
        state: final state, on the mesh, with averaged parameters if there are
            any.
        step: number of steps done.
        stopped_by: reason for stopping: "steps" (all done), "data" (no more
            batches), "early_stopping" or the signal's name ("SIGTERM",
            "SIGINT").
        compilations: number of compilations of the step, one per batch shape.
    """

    state: TrainState
    step: int
    stopped_by: StopReason
    compilations: int


# Function of (parameters, step) that returns named scores, the same on every
# host.
Evaluate = Callable[[Any, int], Mapping[str, float]]

# Called after every step with the number of steps done, the state and the
# metrics of the step. Both are still on the devices: reading them waits for the
# step, and the next step donates the state.
Hook = Callable[[int, TrainState, Mapping[str, Array]], None]

# Called after every evaluation with the number of steps done, the scores, and
# the position of the batches, on every host.
EvaluationHook = Callable[[int, Mapping[str, float], Mapping[str, Any]], None]


def fit(
    *,
    loss_fn: LossFn | SegmentedLoss,
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
    hooks: Sequence[Hook] = (),
    evaluation_hooks: Sequence[EvaluationHook] = (),
    check_program: CheckProgram | None = None,
    count_seconds: CountSeconds | None = None,
    debug_nans: bool = False,
    clip_norm: float | None = None,
) -> FitResult:
    """Trains a model, or resumes the training in ``workdir``.

    Args:
        loss_fn: loss function, see `loss.LossFn` and `loss.SegmentedLoss`.
        init: function from a PRNG key to a parameter tree, boxed with logical
            axis names or not.
        optimizer: optimizer, see `optimizers.make_optimizer`.
        batches: iterator of batches with this host's rows; every batch has the
            same number of rows on every host.
        options: loop options, see `LoopOptions`.
        workdir: directory for run.json, metrics.jsonl and checkpoints/; the
            same for every host.
        mesh_options: arrangement of the devices, see `mesh.MeshOptions`; it may
            change between restarts.
        run: JSON-able description of the run (its config); resuming with a
            different one is rejected.
        model_name: name of the model family, written into the checkpoints.
        evaluate: function of parameters and step that returns named scores, the
            same on every host.
        initial_params: host arrays to start from instead of ``init``; ignored
            when resuming.
        hooks: functions called after every step, see `Hook`.
        evaluation_hooks: functions called after every evaluation, when its
            scores are in metrics.jsonl, see `EvaluationHook`.
        check_program: check of compiled steps, see `step.CompilationWatch`.
        count_seconds: function from a compiled step to the seconds that its
            matrix products would take at the devices' peak FLOP rate, for the
            FLOP utilization "mfu" in metrics.jsonl; None to leave it out.
        debug_nans: True to stop at the first step that is not finite, and to
            repeat it to find the tensor that causes it. The loop then
            waits for every step and keeps a second copy of the state.
        clip_norm: gradient norm above which the optimizer clips, for the share
            of clipped steps in metrics.jsonl; None to leave the share out.

    Returns:
        The final state, the number of steps and the reason for stopping.

    Raises:
        InputError: the workdir is not writable, is in use or belongs to another
            run; the mesh does not fit the number of devices; the rows of a
            batch do not divide evenly over micro-batches and devices; a
            checkpoint does not match the model, is damaged or cannot be
            written; ``best_metric`` is not a score of the evaluation;
            ``eval_every="epoch"`` for batches without epochs.
        TrainingDiverged: ``options.max_bad_steps`` consecutive steps were not
            finite; with ``debug_nans``, the first such step.
    """
    mesh_options = mesh_options or MeshOptions()
    run = dict(run or {})
    eval_every = options.eval_every if evaluate else 0
    if options.ema_decay:
        optimizer = with_average(optimizer, options.ema_decay, options.trained)
    if eval_every == "epoch":
        # raises InputError unless the batches count epochs
        _epoch(batches.state())
    with contextlib.ExitStack() as stack:
        # The mesh, and the sharding of every array
        mesh = make_mesh(mesh_options)
        rng = initialization_key(options.seed)
        abstract, layout = plan_state(
            init, optimizer, mesh, mesh_options.rules, rng
        )
        if options.progress and jax.process_index() == 0:
            table = sharding_table(layout)
            print(
                table if mesh.size > 1 else table.splitlines()[-1],
                file=sys.stderr,
            )

        # The workdir, and the state: restored from the last checkpoint, or
        # created
        stack.enter_context(locked_workdir(workdir, run))
        workdir = open_workdir(workdir, run)
        checkpoints = _open_checkpoints(workdir, options, model_name, run)
        stack.callback(checkpoints.close)
        start = checkpoints.latest_step() or 0
        if start:
            if start < options.steps and jax.process_index() == 0:
                print(
                    f"resuming from step {start} of {options.steps}",
                    file=sys.stderr,
                )
            state = _restore(checkpoints, abstract, batches, workdir, start)
        else:
            state = create_state(abstract, init, optimizer, rng, initial_params)

        # The compiled step, and the objects that monitor it
        train_step = make_train_step(
            loss_fn,
            optimizer,
            accumulation=options.accumulation,
            seed=options.seed,
            shardings=shardings_of(abstract),
            donate=not debug_nans,
        )
        nonfinite = None
        if debug_nans:
            # Imported here, because it repeats steps only for this option.
            from longsum_jax.training.nonfinite import NonfiniteWatch

            nonfinite = NonfiniteWatch(
                loss_fn, options.accumulation, options.seed
            )
        watch = CompilationWatch(train_step, check_program, count_seconds)
        is_evaluated = start == 0 or checkpoints.scores(start) is not None
        history = read_evaluations(workdir / METRICS, start, is_evaluated)
        reporter = stack.enter_context(
            _make_reporter(
                workdir, options, start, is_evaluated, clip_norm, run
            )
        )
        milestones = _Milestones(
            evaluate,
            options,
            checkpoints,
            reporter,
            start,
            is_evaluated,
            history,
            evaluation_hooks,
        )
        take_step = _WatchedStep(
            train_step,
            mesh,
            options.accumulation,
            watch,
            nonfinite,
            reporter,
            hooks,
        )
        interrupts = stack.enter_context(Interrupts())
        stack.enter_context(activate(mesh, mesh_options.rules))

        # Training, beginning with an evaluation that the end of the last
        # process interrupted
        if start < options.steps and _is_due(start, eval_every):
            milestones.evaluate_and_save(start, state, batches.state())
        step = start
        stopped_by = "steps"
        while step < options.steps and not milestones.have_stalled:
            position = batches.state()
            try:
                batch = next(batches)
            except StopIteration:
                stopped_by = interrupts.wanted(step) or "data"
                break
            if eval_every == "epoch" and _epoch(batches.state()) > _epoch(
                position
            ):
                # The batch is the first of a new epoch; the state is still the
                # one at the end of the old epoch.
                milestones.evaluate_and_save(step, state, position)
                if milestones.have_stalled:
                    break
            step += 1
            state = take_step(step, state, batch)
            signal_name = interrupts.wanted(step)
            if signal_name:
                stopped_by = signal_name
                break
            if step == options.steps:
                break
            if _is_due(step, eval_every):
                milestones.evaluate_and_save(step, state, batches.state())
            elif _is_due(step, options.checkpoint_every):
                milestones.save(step, state, batches.state())

        # The end: a complete run is evaluated, a run stopped by a signal is
        # only saved
        if stopped_by == "steps" and step < options.steps:
            stopped_by = "early_stopping"
        is_complete = stopped_by in ("steps", "data", "early_stopping")
        if is_complete or step == options.steps:
            reporter.write_last_step()
        if is_complete:
            milestones.evaluate_and_save(step, state, batches.state())
        else:
            milestones.save(step, state, batches.state())
        reporter.flush()
        checkpoints.wait()
        state = _with_averages(state)
        return FitResult(
            state, step, cast(StopReason, stopped_by), watch.compilations
        )


def initialization_key(seed: int) -> Array:
    """Returns the PRNG key of a run's initialization."""
    return jax.random.fold_in(jax.random.key(seed), _INIT_FOLD)


class _WatchedStep(NamedTuple):
    """The compiled step on batches of the host, and the objects that monitor it."""

    train_step: TrainStep
    mesh: Mesh
    accumulation: int
    watch: CompilationWatch
    nonfinite: "NonfiniteWatch | None"
    reporter: Reporter
    hooks: Sequence[Hook]

    def __call__(
        self, step: int, state: TrainState, batch: NumpyBatch
    ) -> TrainState:
        """Runs ``step`` on the previous state; returns the next state."""
        placed = put_batch(batch, self.mesh, self.accumulation)
        shortest_seconds = self.watch.check_program(state, placed)
        new_state, metrics = self.train_step(state, placed)
        if self.nonfinite is not None:
            self.nonfinite.check(step, state, batch, new_state, metrics)
        self.reporter.push(step, metrics, shortest_seconds)
        self.watch.check(step, batch)
        for hook in self.hooks:
            hook(step, new_state, metrics)
        return new_state


class _Milestones:
    """The evaluations and checkpoints of a run, each at most once per step."""

    def __init__(
        self,
        evaluate: Evaluate | None,
        options: LoopOptions,
        checkpoints: TrainingCheckpoints,
        reporter: Reporter,
        start: int,
        is_evaluated: bool,
        history: Sequence[Mapping[str, float]] = (),
        hooks: Sequence[EvaluationHook] = (),
    ) -> None:
        self._evaluate = evaluate
        self._hooks = hooks
        self._history = list(history)
        self._options = options
        self._checkpoints = checkpoints
        self._reporter = reporter
        # Step 0 is neither evaluated nor saved.
        self._saved_step = start
        self._evaluated_step = start if is_evaluated else 0

    @property
    def have_stalled(self) -> bool:
        """True if the last evaluations, as many as the patience, were not better than before."""
        patience = self._options.early_stopping_patience
        metric = self._options.best_metric
        values = [rank(scores, metric) for scores in self._history]
        if not patience or len(values) <= patience:
            return False
        return max(values[-patience:]) <= max(values[:-patience])

    def evaluate_and_save(
        self, step: int, state: TrainState, position: dict[str, Any]
    ) -> None:
        """Saves the state of ``step``, then evaluates it and adds its scores."""
        self.save(step, state, position)
        if self._evaluate is None or step == self._evaluated_step:
            return
        self._reporter.flush()
        params, _ = swap_average(state.params, state.opt_state)
        scores = {
            name: float(x) for name, x in self._evaluate(params, step).items()
        }
        self._history.append(scores)
        self._check_best_metric(scores)
        self._reporter.write_evaluation(step, scores)
        self._evaluated_step = step
        for hook in self._hooks:
            hook(step, scores, position)
        # Last: a run that resumes from a checkpoint with scores does not
        # evaluate it again.
        if step:  # the start of a run has no checkpoint
            self._checkpoints.add_scores(step, scores)
        self._reporter.resume_clock()

    def save(
        self, step: int, state: TrainState, position: dict[str, Any]
    ) -> None:
        """Saves the state of ``step`` and the position in the data, unless already saved."""
        if step == self._saved_step:
            return
        # Metrics are written first: a resume removes lines that are later than
        # the checkpoint, but cannot restore lines that are missing before it.
        self._reporter.flush()
        state = _with_averages(state)
        self._checkpoints.save(
            step, state.params, state.without_params(), position
        )
        self._saved_step = step

    def _check_best_metric(self, scores: Mapping[str, float]) -> None:
        name = self._options.best_metric
        is_used = (
            self._options.keep_best or self._options.early_stopping_patience
        )
        if is_used and name not in scores:
            guess = did_you_mean(name, scores)
            raise InputError(
                f'training.best_metric: the evaluation gives no "{name}"; {guess}'
            )


def _restore(
    checkpoints: TrainingCheckpoints,
    abstract: TrainState,
    batches: BatchIterator,
    workdir: Path,
    step: int,
) -> TrainState:
    """Returns the state of the last checkpoint, of ``step``, and restores its data position."""
    restored = checkpoints.restore(abstract.params, abstract.without_params())
    state = _with_averages(
        TrainState.from_checkpoint(restored.params, restored.state)
    )
    _restore_position(batches, restored.data, workdir, step)
    return state


def _with_averages(state: TrainState) -> TrainState:
    """Returns the state with parameters and averages exchanged, see ``swap_average``."""
    params, opt_state = swap_average(state.params, state.opt_state)
    return replace(state, params=params, opt_state=opt_state)


def _restore_position(
    batches: BatchIterator, position: dict[str, Any], workdir: Path, step: int
) -> None:
    """Restores the position of a checkpoint in the data.

    Raises:
        InputError: the position is damaged, or belongs to other data.
    """
    try:
        batches.restore(position)
    except InputError:
        raise
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{workdir}: the position in the data of step {step} is damaged or of other data "
            f"({type(error).__name__}: {error}); copy the checkpoint again"
        ) from error


def _is_due(step: int, every: int | Literal["epoch"]) -> bool:
    """Returns True if ``step`` is a multiple of ``every``; ``fit`` detects the ends of epochs."""
    return every != "epoch" and every > 0 and step % every == 0


def _epoch(position: Mapping[str, Any]) -> int:
    """Returns the number of the pass over the data at a position of the batches."""
    if "epoch" not in position:
        raise InputError(
            'training.eval_every: "epoch", but these batches do not count epochs; give a number of '
            "steps"
        )
    return position["epoch"]


def _open_checkpoints(
    workdir: Path, options: LoopOptions, model_name: str, run: dict[str, Any]
) -> TrainingCheckpoints:
    return TrainingCheckpoints(
        workdir / CHECKPOINTS,
        model=model_name,
        config=run,
        keep_latest=options.keep_latest,
        keep_best=options.keep_best,
        best_metric=options.best_metric,
    )


def _make_reporter(
    workdir: Path,
    options: LoopOptions,
    start: int,
    is_evaluated: bool,
    clip_norm: float | None,
    run: Mapping[str, Any],
) -> Reporter:
    return Reporter(
        workdir,
        start=start,
        is_evaluated=is_evaluated,
        steps=options.steps,
        log_every=options.log_every,
        max_bad_steps=options.max_bad_steps,
        tensorboard=options.tensorboard,
        progress=options.progress,
        clip_norm=clip_norm,
        wandb=options.wandb,
        mlflow=options.mlflow,
        run=run,
    )
