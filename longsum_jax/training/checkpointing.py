"""Checkpoints of a training run, written asynchronously and atomically by orbax.

One checkpoint is a directory named by its step with four items: "params"; "state", the rest of the
training state; "data", the position in the data; and "meta", which says what the arrays are. An
interrupted save leaves a temporary directory that is never taken for a checkpoint.
"""

import contextlib
import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.experimental import multihost_utils
from orbax.checkpoint import args as ocp_args
from orbax.checkpoint import checkpoint_managers as policies

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.schema import compare_trees, first_names
from longsum_jax.training.workdir import CHECKPOINTS
from longsum_jax.typing import Params

FORMAT_VERSION = 1
_MOST_NAMES_SHOWN = 8


class Restored(NamedTuple):
    """The content of one checkpoint."""

    step: int
    params: Any
    state: Any
    data: dict[str, Any]
    meta: dict[str, Any]


@dataclass(frozen=True)
class _BestEvaluated(policies.PreservationPolicy):
    """Keeps the ``count`` best evaluated checkpoints; those never evaluated do not count."""

    metric: str
    count: int

    def rank(self, metrics: Mapping[str, float] | None) -> float:
        return _rank(metrics or {}, self.metric)

    def should_preserve(
        self,
        checkpoints: Sequence[policies.PolicyCheckpointInfo],
        *,
        context: policies.PreservationContext,
    ) -> Sequence[bool]:
        evaluated = [c for c in checkpoints if self.rank(c.metrics) > -math.inf]
        evaluated.sort(key=lambda c: (self.rank(c.metrics), c.step), reverse=True)
        steps = {c.step for c in evaluated[: self.count]}
        return [c.step in steps for c in checkpoints]


class TrainingCheckpoints:
    """The checkpoints of a run, for writing and for resuming.

    Args:
        directory: made when it does not exist.
        model: name of the model family, written into every checkpoint.
        config: JSON-able description of the model and the run, likewise.
        keep_latest: how many of the newest checkpoints to keep.
        keep_best: how many of the best evaluated ones to keep besides.
        best_metric: name of the metric that ranks them, higher is better.
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
        self._about = {"model": model, "config": dict(config or {}), "best_metric": best_metric}
        best = _BestEvaluated(best_metric, keep_best)
        options = ocp.CheckpointManagerOptions(
            # Not max_to_keep: with best_fn it deletes the newest checkpoint.
            preservation_policy=policies.AnyPreservationPolicy(
                [policies.LatestN(keep_latest), best]
            ),
            # Without it metrics are not stored, and a resume would forget the best.
            best_fn=best.rank,
            cleanup_tmp_directories=True,
        )
        logging.getLogger("absl").addFilter(_not_an_orbax_traceback)
        with self._explained("opened", "the checkpoints"):
            self._manager = ocp.CheckpointManager(self.directory, options=options)

    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, None when there is none."""
        return self._manager.latest_step()

    def save(
        self,
        step: int,
        params: Any,
        state: Any,
        data: Mapping[str, Any],
        metrics: Mapping[str, float] | None,
    ) -> None:
        """Starts writing a checkpoint; returns once the arrays are copied off the devices.

        Args:
            step: number of steps done.
            params: parameter tree.
            state: any tree of arrays, all that training needs besides the parameters.
            data: JSON-able position of the batch iterator.
            metrics: evaluation at this step, None when there was none.

        Raises:
            InputError: this or the previous checkpoint cannot be written; older ones are intact.
        """
        meta = {
            "format_version": FORMAT_VERSION,
            "library_version": library_version(),
            **self._about,
            "metrics": None if metrics is None else dict(metrics),
            "parameters": describe(params),
            "state": describe(state),
        }
        items = ocp_args.Composite(
            params=ocp_args.StandardSave(params),
            state=ocp_args.StandardSave(state),
            data=ocp_args.JsonSave(dict(data)),
            meta=ocp_args.JsonSave(meta),
        )
        with self._explained("written", f"the checkpoint of step {step}"):
            self._manager.save(step, args=items, metrics=dict(metrics or {}))

    def restore(self, params: Any, state: Any, step: int | None = None) -> Restored:
        """Reads the checkpoint of ``step`` (default: the newest) onto the shardings of the targets.

        Args:
            params, state: trees of jax.ShapeDtypeStruct with shardings, of any mesh.
            step: number of steps of the checkpoint to read.

        Raises:
            InputError: no checkpoint, another format version, or arrays that do not fit the
                targets.
        """
        step = self._manager.latest_step() if step is None else step
        if step is None:
            raise InputError(f"{self.directory}: there is no checkpoint to restore")
        meta = _read_meta(self._manager, self.directory, step)
        where = f"{self.directory}, step {step}"
        check_names(describe(params), meta["parameters"], where, "parameters")
        remedy = (
            "another optimizer or an older version of this library wrote it, start a new run from "
            f"its parameters with init_from={self.directory.parent}"
        )
        check_names(describe(state), meta["state"], where, "arrays of the training state", remedy)
        items = ocp_args.Composite(
            params=ocp_args.StandardRestore(params),
            state=ocp_args.StandardRestore(state),
            data=ocp_args.JsonRestore(),
        )
        with self._explained("read", f"the checkpoint of step {step}"):
            found = self._manager.restore(step, args=items)
        return Restored(step, found["params"], found["state"], found["data"], meta)

    def scores(self, step: int) -> dict[str, float] | None:
        """Returns the evaluation of the checkpoint of ``step``, None when there was none."""
        return _read_meta(self._manager, self.directory, step)["metrics"]

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds the evaluation of a checkpoint that was saved without one.

        Each of its two files is replaced as a whole, and the one that `scores` reads comes last: a
        crash in between leaves a readable checkpoint that still counts as not evaluated.

        Raises:
            InputError: the files cannot be written.
        """
        self.wait()
        if jax.process_index() == 0:
            directory = self.directory / str(step)
            meta_file = directory / "meta" / "metadata"
            with self._explained("written", f"the evaluation of step {step}"):
                meta = json.loads(meta_file.read_text(encoding="utf-8"))
                atomic.write_text(directory / "metrics" / "metrics", json.dumps(dict(scores)))
                atomic.write_text(meta_file, json.dumps(meta | {"metrics": dict(scores)}))
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"scores of step {step}")
        self._manager.reload()

    def wait(self) -> None:
        """Returns when the last save is on disk; raises InputError when it failed."""
        with self._explained("written", "the last checkpoint"):
            self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits, then frees the threads. Raises InputError when the last save failed."""
        with self._explained("written", "the last checkpoint"):
            self._manager.close()

    @contextlib.contextmanager
    def _explained(self, action: str, what: str) -> Iterator[None]:
        """Turns errors of the disk into an InputError of one sentence."""
        try:
            yield
        except InputError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(
                f"{self.directory}: {what} could not be {action} ({reason}); "
                "check the free space and permissions, earlier checkpoints are intact"
            ) from error


def restore_params(
    directory: str | Path,
    abstract_params: Any | None = None,
    which: Literal["best", "latest"] = "best",
) -> Params:
    """Reads only the parameters of a run, for inference.

    Args:
        directory: a training workdir or the checkpoint directory in it.
        abstract_params: tree of jax.ShapeDtypeStruct (with shardings) to restore onto; None gives
            numpy arrays in nested dictionaries, whatever machine wrote them.
        which: "best" by the run's metric, the latest when nothing was evaluated; or "latest".

    Raises:
        InputError: no checkpoint there, another format version, a damaged one, or parameters that
            do not fit the target.
    """
    with _opened(directory) as (manager, where):
        step, meta = _choose(manager, where, which)
        if abstract_params is None:
            target = _nested(
                {name: np.empty(s, jnp.dtype(d)) for name, (s, d) in meta["parameters"].items()}
            )
        else:
            check_names(
                describe(abstract_params), meta["parameters"], f"{where}, step {step}", "parameters"
            )
            target = abstract_params
        items = ocp_args.Composite(params=ocp_args.StandardRestore(target))
        hook = sys.unraisablehook
        sys.unraisablehook = partial(_unless_of_a_failed_read, hook)
        try:
            params = manager.restore(step, args=items)["params"]
        except (OSError, ValueError, KeyError) as error:
            # The rest of the line is the configuration of the reader.
            reason = (
                (str(error).strip() or type(error).__name__)
                .splitlines()[0]
                .split(" [tensorstore_spec")[0]
            )
            problem = f"the parameters of step {step} are missing or damaged ({reason})"
            raise InputError(f"{where}: {problem}; copy the checkpoint again") from error
        sys.unraisablehook = hook
        return params


def read_meta(directory: str | Path, which: Literal["best", "latest"] = "best") -> dict[str, Any]:
    """Returns the description of the checkpoint that `restore_params` would read.

    It has the keys "model", "config", "step", "metrics", "library_version" and others.

    Raises:
        InputError: no checkpoint there, or another format version.
    """
    with _opened(directory) as (manager, where):
        step, meta = _choose(manager, where, which)
        return {**meta, "step": step}


def describe(tree: Any) -> dict[str, list[Any]]:
    """Returns name to [shape, dtype name] of every array; names are paths joined by "/"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {name_of(path): [list(leaf.shape), jnp.dtype(leaf.dtype).name] for path, leaf in leaves}


def name_of(path: Any) -> str:
    """Returns a tree path as "encoder/block_0/kernel"."""
    return jax.tree_util.keystr(path, simple=True, separator="/")


def check_names(
    wanted: Mapping[str, Any],
    found: Mapping[str, Any],
    where: str,
    what: str,
    remedy: str = "",
) -> None:
    """Compares two `describe` results by names and shapes.

    Args:
        wanted, found: the results.
        where, what: the file and the arrays, for the error message.
        remedy: the end of the error message.

    Raises:
        InputError: lists the missing, the extra and the misshapen names.
    """
    wanted_shapes = {name: tuple(shape) for name, (shape, _) in wanted.items()}
    found_shapes = {name: tuple(shape) for name, (shape, _) in found.items()}
    missing, extra, misshapen = compare_trees(wanted_shapes, found_shapes)
    misshapen = [
        f"{name} (there {found_shapes[name]}, wanted {wanted_shapes[name]})" for name in misshapen
    ]
    lists = {"missing": missing, "extra": extra, "misshapen": misshapen}
    problems = [
        f"{problem} {first_names(names, _MOST_NAMES_SHOWN)}"
        for problem, names in lists.items()
        if names
    ]
    if problems:
        problems += [remedy] if remedy else []
        raise InputError(f"{where}: the {what} do not fit this model: {'; '.join(problems)}")


def library_version() -> str:
    """Returns the installed version of this package, "unknown" when it runs uninstalled."""
    try:
        return metadata.version("longsum_jax")
    except metadata.PackageNotFoundError:
        return "unknown"


def _not_an_orbax_traceback(record: logging.LogRecord) -> bool:
    """Returns whether to log a record.

    A failed save reaches the caller as InputError; the tracebacks of orbax's threads would bury it.
    """
    return not (record.levelno >= logging.ERROR and "orbax" in record.pathname)


def _unless_of_a_failed_read(hook: Callable[[Any], None], unraisable: Any) -> None:
    """Reports an exception that nobody could catch, unless it follows from a failed read.

    After a first error tensorstore's threads go on failing, and find nobody waiting.
    """
    if str(unraisable.exc_value) != "Event loop is closed":
        hook(unraisable)


def _rank(metrics: Mapping[str, float], name: str) -> float:
    """Returns the metric that ranks checkpoints; NaN ranks below all numbers."""
    value = float(metrics.get(name, -math.inf))
    return -math.inf if math.isnan(value) else value


def _read_meta(manager: ocp.CheckpointManager, where: Path, step: int) -> dict[str, Any]:
    try:
        meta = manager.restore(step, args=ocp_args.Composite(meta=ocp_args.JsonRestore()))["meta"]
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{where}: step {step} is not a checkpoint of this library ({error})"
        ) from error
    if meta.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{where}: step {step} has checkpoint format {meta.get('format_version')} of "
            f"longsum_jax {meta.get('library_version')}, this version reads format {FORMAT_VERSION}"
        )
    return meta


@contextlib.contextmanager
def _opened(directory: str | Path) -> Iterator[tuple[ocp.CheckpointManager, Path]]:
    """Opens the checkpoints of a workdir (or of a checkpoint directory) for reading."""
    where = Path(directory).absolute()
    if (where / CHECKPOINTS).is_dir():
        where = where / CHECKPOINTS
    if not where.is_dir():
        raise InputError(f"{where}: no such directory; give the workdir of a training run")
    manager = ocp.CheckpointManager(where, options=ocp.CheckpointManagerOptions(create=False))
    try:
        yield manager, where
    finally:
        manager.close()


def _choose(manager: ocp.CheckpointManager, where: Path, which: str) -> tuple[int, dict[str, Any]]:
    """Returns step and description of the best or the latest checkpoint."""
    steps = sorted(manager.all_steps())
    if not steps:
        raise InputError(
            f"{where}: there is no checkpoint in it; give the workdir of a training run"
        )
    if which == "latest":
        return steps[-1], _read_meta(manager, where, steps[-1])
    metas = {step: _read_meta(manager, where, step) for step in steps}

    def rank(step: int) -> tuple[float, int]:
        meta = metas[step]
        return _rank(meta["metrics"] or {}, meta["best_metric"]), step

    best = max(steps, key=rank)
    return best, metas[best]


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dictionaries of values by their paths joined by "/"."""
    tree: dict[str, Any] = {}
    for name, leaf in flat.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return tree
