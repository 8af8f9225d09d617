"""The checkpoints of a training run, which Orbax writes asynchronously and atomically."""

import contextlib
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint import args as ocp_args
from orbax.checkpoint import checkpoint_managers as policies

from longsum_jax.errors import InputError, first_line
from longsum_jax.files import check_utf8_name
from longsum_jax.training import checkpoint_files, checkpoint_metadata
from longsum_jax.training.trees import check_names, describe, empty_tree
from longsum_jax.training.workarounds import (
    disable_write_metrics,
    hide_background_errors,
    release_memory,
)
from longsum_jax.typing import Params

# steps are renamed to it before deletion, so that none is partly deleted
_DELETED = ".deleted"


class Restored(NamedTuple):
    """The content of one checkpoint."""

    step: int
    params: Any
    state: Any
    data: dict[str, Any]
    meta: dict[str, Any]


class TrainingCheckpoints:
    """The checkpoints of a run, for writing and for resuming.

    A checkpoint is a directory named by its step with four items: "params";
    "state", the other arrays of the training state; "data", the position in the
    data; and "meta", its metadata. Its files have checksums
    (`longsum_jax.checksums`), written before it gets its name and compared
    before it is used. An interrupted save leaves a temporary directory, which
    is never used as a checkpoint.

    Args:
        directory: path of the checkpoints; created if it does not exist.
        model: name of the model family, written into every checkpoint.
        config: JSON-able description of the model and the run, written into
            every checkpoint.
        keep_latest: number of newest checkpoints to keep.
        keep_best: number of best evaluated checkpoints to keep in addition.
        best_metric: name of the metric that ranks checkpoints, higher is
            better.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        model: str = "",
        config: Mapping[str, Any] | None = None,
        keep_latest: int = 1,
        keep_best: int = 1,
        best_metric: str = "mean_rouge",
    ) -> None:
        self.directory = Path(directory).absolute()
        self._about = {
            "model": model,
            "config": dict(config or {}),
            "best_metric": best_metric,
        }
        self._show_background_errors = hide_background_errors()
        disable_write_metrics()
        # Before Orbax lists the steps, which would include damaged ones.
        checkpoint_files.set_aside_damaged(self.directory)
        self._policy = _LatestAndBest(keep_latest, keep_best, best_metric)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self._policy,
            todelete_subdir=_DELETED,
            # what a killed process left unfinished
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(
                post_finalization_callback=self._write_sums
            ),
        )
        with self._explain_errors("the checkpoints could not be opened"):
            self._manager = ocp.CheckpointManager(
                self.directory, options=options
            )
        self._remove_deleted()
        self._saving: int | None = None
        for step in self._manager.all_steps():
            self._policy.scores[step] = _read_scores(self.directory, step)

    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, None if there is none."""
        return self._manager.latest_step()

    def save(
        self,
        step: int,
        params: Any,
        state: Any,
        data: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Starts writing a checkpoint; returns once the arrays are copied off the devices.

        Args:
            step: number of steps done.
            params: parameter tree.
            state: any tree of arrays, with everything that training needs
                besides the parameters.
            data: JSON-able position of the batch iterator.
            metrics: scores of the evaluation at this step, None if there was
                none.

        Raises:
            InputError: this or the previous checkpoint cannot be written; older
                checkpoints are intact.
        """
        metadata = checkpoint_metadata.make(self._about, params, state, metrics)
        items = ocp_args.Composite(
            params=ocp_args.StandardSave(params),
            state=ocp_args.StandardSave(state),
            data=ocp_args.JsonSave(dict(data)),
            meta=ocp_args.JsonSave(metadata),
        )
        # Only one save at a time; this also reports errors of the previous one.
        self.wait()
        self._remove_deleted()
        self._saving = step
        # Known before the save, because Orbax asks the policy what to delete
        # while it saves.
        self._policy.scores[step] = dict(metrics or {})
        with self._explain_errors(
            f"the checkpoint of step {step} could not be written"
        ):
            self._manager.save(step, args=items)

    def restore(
        self, params: Any, state: Any, step: int | None = None
    ) -> Restored:
        """Reads the checkpoint of ``step`` (default: the newest) onto the shardings of the targets.

        Args:
            params, state: trees of jax.ShapeDtypeStruct with shardings, on any
                mesh.
            step: number of steps of the checkpoint to read.

        Raises:
            InputError: a missing or damaged checkpoint, another format version,
                or arrays that do not match the targets.
        """
        step = self.latest_step() if step is None else step
        if step is None:
            raise InputError(
                f"{self.directory}: there is no checkpoint to restore"
            )
        metadata = checkpoint_metadata.read(self.directory, step)
        where = f"{self.directory}, step {step}"
        check_names(
            describe(params), metadata["parameters"], where, "parameters"
        )
        # Names and shapes are compared before any array is read: Orbax would
        # report a mismatch only with its own names.
        remedy = (
            "another optimizer or an older version of this library wrote it, start a new run from "
            f"its parameters with init_from={self.directory.parent}"
        )
        arrays = "arrays of the training state"
        check_names(describe(state), metadata["state"], where, arrays, remedy)
        items = ocp_args.Composite(
            params=ocp_args.StandardRestore(params),
            state=ocp_args.StandardRestore(state),
            data=ocp_args.JsonRestore(),
        )
        with _explain_damage(where, "the arrays are missing or damaged"):
            content = self._manager.restore(step, args=items)
        if not isinstance(content["data"], dict):
            problem = "the position in the data is missing or damaged"
            raise checkpoint_metadata.damage_error(
                where, problem, "it is not a JSON object"
            )
        return Restored(
            step, content["params"], content["state"], content["data"], metadata
        )

    def scores(self, step: int) -> dict[str, float] | None:
        """Returns the evaluation of the checkpoint of ``step``, None if there was none."""
        return checkpoint_metadata.read(self.directory, step)["metrics"]

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds the evaluation of a checkpoint that was saved without one, and keeps the best.

        After a crash in between, the checkpoint is readable, with or without
        the evaluation.

        Raises:
            InputError: a file cannot be written.
        """
        self.wait()
        if jax.process_index() == 0:
            metadata = checkpoint_metadata.read(self.directory, step) | {
                "metrics": dict(scores)
            }
            with self._explain_errors(
                f"the evaluation of step {step} could not be written"
            ):
                checkpoint_metadata.replace(self.directory, step, metadata)
        if jax.process_count() > 1:
            # No host may delete checkpoints before the scores are written.
            multihost_utils.sync_global_devices(f"scores of step {step}")
        self._policy.scores[step] = dict(scores)
        self._delete_others()

    def wait(self) -> None:
        """Returns once the last save is on disk; raises InputError if it failed."""
        with self._explain_errors("the last checkpoint could not be written"):
            self._manager.wait_until_finished()
        release_memory()

    def close(self) -> None:
        """Waits, then frees the threads. Raises InputError if the last save failed."""
        with self._explain_errors("the last checkpoint could not be written"):
            self._manager.close()
        self._show_background_errors()
        self._remove_deleted()

    def _write_sums(self) -> None:
        """Writes the checksums of the checkpoint that Orbax has written and is about to rename."""
        [directory] = self.directory.glob(
            f"{self._saving}.orbax-checkpoint-tmp*"
        )
        checkpoint_files.write_sums(directory)

    @contextlib.contextmanager
    def _explain_errors(self, problem: str) -> Iterator[None]:
        """Converts disk errors to an InputError of one sentence that begins with ``problem``."""
        try:
            yield
        except InputError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            reason = first_line(error)
            advice = "check the free space and permissions"
            if jax.process_count() > 1:
                advice = f"check whether another process of the run has ended, otherwise {advice}"
            raise InputError(
                f"{self.directory}: {problem} ({reason}); {advice}, earlier checkpoints are intact"
            ) from error

    def _remove_deleted(self) -> None:
        """Removes the checkpoints that Orbax has renamed for deletion."""
        if jax.process_index() == 0:
            shutil.rmtree(self.directory / _DELETED, ignore_errors=True)

    def _delete_others(self) -> None:
        """Deletes the checkpoints that need not be kept."""
        steps = sorted(self._manager.all_steps())
        retained = self._policy.kept(steps)
        for step in steps:
            if step not in retained:
                self._manager.delete(step)
        self._remove_deleted()


def restore_params(
    directory: str | Path,
    abstract_params: Any | None = None,
    which: Literal["best", "latest"] = "best",
) -> Params:
    """Reads only the parameters of a run, for inference.

    Args:
        directory: path of a training workdir or of the checkpoint directory in
            it.
        abstract_params: tree of jax.ShapeDtypeStruct (with shardings) to
            restore onto; None returns NumPy arrays in nested dictionaries,
            whichever machine wrote them.
        which: "best" by the run's metric, or the latest if nothing was
            evaluated; or "latest".

    Raises:
        InputError: a missing or damaged checkpoint, another format version, or
            parameters that do not match the target.
    """
    directory = checkpoint_files.find_directory(directory)
    check_utf8_name(directory)
    # Only the files that are read are checked: a damaged optimizer state does
    # not matter for inference.
    step, metadata = checkpoint_files.choose_checkpoint(directory, which)
    folders = ("meta/", "params/")
    checkpoint_files.check_sums(
        directory / str(step), lambda name: name.startswith(folders)
    )
    where = f"{directory}, step {step}"
    if abstract_params is not None:
        check_names(
            describe(abstract_params),
            metadata["parameters"],
            where,
            "parameters",
        )
    show_background_errors = hide_background_errors()
    with (
        _explain_damage(where, "the parameters are missing or damaged"),
        ocp.StandardCheckpointer() as checkpointer,
    ):
        if abstract_params is None:
            target = empty_tree(metadata["parameters"])
        else:
            target = abstract_params
        params = checkpointer.restore(directory / str(step) / "params", target)
    show_background_errors()
    return params


def read_meta(
    directory: str | Path, which: Literal["best", "latest"] = "best"
) -> dict[str, Any]:
    """Returns the metadata of the checkpoint that `restore_params` would read.

    They contain the keys "model", "config", "step", "metrics",
    "library_version" and others.

    Raises:
        InputError: a missing or damaged checkpoint, or another format version.
    """
    step, metadata = checkpoint_files.choose_checkpoint(
        checkpoint_files.find_directory(directory), which
    )
    return {**metadata, "step": step}


@dataclass(frozen=True)
class _LatestAndBest(policies.PreservationPolicy):
    """Keeps the newest checkpoints and the best evaluated ones.

    Attributes:
        num_latest, num_best: numbers of checkpoints to keep.
        metric: name of the ranking metric, higher is better; unevaluated
            checkpoints do not count.
        scores: evaluations by step, updated by the owner of the policy.
    """

    num_latest: int
    num_best: int
    metric: str
    scores: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def kept(self, steps: Sequence[int]) -> set[int]:
        """Returns the steps to keep out of ``steps``, which are sorted."""
        ranks = {
            step: checkpoint_files.rank(self.scores.get(step, {}), self.metric)
            for step in steps
        }
        # Of equal scores, the newer checkpoint is kept.
        evaluated = [step for step in steps if ranks[step] > -math.inf]
        evaluated.sort(key=lambda step: (ranks[step], step), reverse=True)
        return {*steps[-self.num_latest :], *evaluated[: self.num_best]}

    def should_preserve(
        self,
        checkpoints: Sequence[policies.PolicyCheckpointInfo],
        *,
        context: policies.PreservationContext,
    ) -> Sequence[bool]:
        retained = self.kept([checkpoint.step for checkpoint in checkpoints])
        return [checkpoint.step in retained for checkpoint in checkpoints]


def _read_scores(directory: Path, step: int) -> dict[str, float]:
    """Returns the evaluation of a checkpoint, empty if it cannot be read."""
    try:
        return checkpoint_metadata.read(directory, step)["metrics"] or {}
    except InputError:
        return {}


@contextlib.contextmanager
def _explain_damage(where: str, problem: str) -> Iterator[None]:
    """Converts any error of Orbax and TensorStore on damaged files to an InputError."""
    try:
        yield
    except Exception as error:
        # The remainder of the line is the configuration of the reader.
        reason = first_line(error).split(" [tensorstore_spec")[0]
        raise checkpoint_metadata.damage_error(
            where, problem, reason
        ) from error
