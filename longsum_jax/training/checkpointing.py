"""Checkpoints of a training run, written asynchronously and atomically by orbax.

One checkpoint is a directory named by its step with four items: "params"; "state", the rest of the
training state; "data", the position in the data; and "meta", which says what the arrays are. Its
files have sums (`longsum_jax.checksums`), written before it gets its name and compared before it is
used. An interrupted save leaves a temporary directory that is never taken for a checkpoint.
"""

import contextlib
import ctypes
import json
import logging
import math
import os
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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

from longsum_jax import checksums
from longsum_jax.errors import InputError, first_line
from longsum_jax.files import parse_json, read_bytes
from longsum_jax.schema import compare_trees, first_names
from longsum_jax.training.workdir import CHECKPOINTS
from longsum_jax.typing import Params

FORMAT_VERSION = 1
_META = "meta/metadata"
_DELETED = ".deleted"  # steps on their way out: renamed first, so that none is ever half there
# Orbax writes these files of a step last, and nothing reads them.
_WITHOUT_SUMS = ("_CHECKPOINT_METADATA", "commit_success.txt")
_MOST_NAMES_SHOWN = 8
_CLOSED = "Event loop is closed"


class Restored(NamedTuple):
    """The content of one checkpoint."""

    step: int
    params: Any
    state: Any
    data: dict[str, Any]
    meta: dict[str, Any]


@dataclass(frozen=True)
class _LatestAndBest(policies.PreservationPolicy):
    """Keeps the newest checkpoints and the best evaluated ones.

    Attributes:
        num_latest, num_best: how many to keep of each.
        metric: ranks them, higher is better; those never evaluated do not count.
        scores: step to its evaluation, kept up to date by the owner of the policy.
    """

    num_latest: int
    num_best: int
    metric: str
    scores: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def kept(self, steps: Sequence[int]) -> set[int]:
        """Returns those of the steps, which are in order, that are kept."""
        ranks = {step: _rank(self.scores.get(step, {}), self.metric) for step in steps}
        evaluated = [step for step in steps if ranks[step] > -math.inf]
        evaluated.sort(key=lambda step: (ranks[step], step), reverse=True)
        return {*steps[-self.num_latest :], *evaluated[: self.num_best]}

    def should_preserve(
        self,
        checkpoints: Sequence[policies.PolicyCheckpointInfo],
        *,
        context: policies.PreservationContext,
    ) -> Sequence[bool]:
        kept = self.kept([checkpoint.step for checkpoint in checkpoints])
        return [checkpoint.step in kept for checkpoint in checkpoints]


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
        self._hooks = _hide_threads_of_failures()
        _leave_metrics_alone()
        _set_aside_damaged(self.directory)
        self._policy = _LatestAndBest(keep_latest, keep_best, best_metric)
        options = ocp.CheckpointManagerOptions(
            preservation_policy=self._policy,
            todelete_subdir=_DELETED,
            cleanup_tmp_directories=True,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._write_sums),
        )
        with self._explained("opened", "the checkpoints"):
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        self._remove_deleted()
        self._saving: int | None = None
        for step in self._manager.all_steps():
            self._policy.scores[step] = _scores_if_readable(self.directory, step)

    def latest_step(self) -> int | None:
        """Returns the step of the newest complete checkpoint, None when there is none."""
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
        self.wait()
        self._remove_deleted()
        self._saving = step
        self._policy.scores[step] = dict(metrics or {})
        with self._explained("written", f"the checkpoint of step {step}"):
            self._manager.save(step, args=items)

    def restore(self, params: Any, state: Any, step: int | None = None) -> Restored:
        """Reads the checkpoint of ``step`` (default: the newest) onto the shardings of the targets.

        Args:
            params, state: trees of jax.ShapeDtypeStruct with shardings, of any mesh.
            step: number of steps of the checkpoint to read.

        Raises:
            InputError: no checkpoint, a damaged one, another format version, or arrays that do not
                fit the targets.
        """
        step = self._manager.latest_step() if step is None else step
        if step is None:
            raise InputError(f"{self.directory}: there is no checkpoint to restore")
        meta = _read_meta(self.directory, step)
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
        with _readable(where, "arrays are"):
            found = self._manager.restore(step, args=items)
        if not isinstance(found["data"], dict):
            raise InputError(_unreadable(where, "position in the data is", "it is no JSON object"))
        return Restored(step, found["params"], found["state"], found["data"], meta)

    def scores(self, step: int) -> dict[str, float] | None:
        """Returns the evaluation of the checkpoint of ``step``, None when there was none."""
        return _read_meta(self.directory, step)["metrics"]

    def add_scores(self, step: int, scores: Mapping[str, float]) -> None:
        """Adds the evaluation of a checkpoint that was saved without one, and keeps the best.

        A crash on the way leaves a readable checkpoint, evaluated or not.

        Raises:
            InputError: a file cannot be written.
        """
        self.wait()
        if jax.process_index() == 0:
            meta = _read_meta(self.directory, step) | {"metrics": dict(scores)}
            with self._explained("written", f"the evaluation of step {step}"):
                checksums.replace_text(self.directory / str(step), _META, json.dumps(meta))
        if jax.process_count() > 1:
            multihost_utils.sync_global_devices(f"scores of step {step}")
        self._policy.scores[step] = dict(scores)
        self._delete_others()

    def wait(self) -> None:
        """Returns when the last save is on disk; raises InputError when it failed."""
        with self._explained("written", "the last checkpoint"):
            self._manager.wait_until_finished()
        _give_memory_back()

    def close(self) -> None:
        """Waits, then frees the threads. Raises InputError when the last save failed."""
        with self._explained("written", "the last checkpoint"):
            self._manager.close()
        _show_threads(self._hooks)
        self._remove_deleted()

    def _write_sums(self) -> None:
        """Writes the sums of the checkpoint that orbax has written and is about to rename."""
        [directory] = self.directory.glob(f"{self._saving}.orbax-checkpoint-tmp*")
        checksums.write(directory, lambda name: name not in _WITHOUT_SUMS)

    def _delete_others(self) -> None:
        """Deletes the checkpoints that need not be kept."""
        steps = sorted(self._manager.all_steps())
        kept = self._policy.kept(steps)
        for step in steps:
            if step not in kept:
                self._manager.delete(step)
        self._remove_deleted()

    def _remove_deleted(self) -> None:
        """Removes what orbax has put aside as deleted."""
        if jax.process_index() == 0:
            shutil.rmtree(self.directory / _DELETED, ignore_errors=True)

    @contextlib.contextmanager
    def _explained(self, action: str, what: str) -> Iterator[None]:
        """Turns errors of the disk into an InputError of one sentence."""
        try:
            yield
        except InputError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            reason = first_line(error)
            advice = "check the free space and permissions"
            if jax.process_count() > 1:
                advice = f"see whether another process of the run has ended, else {advice}"
            raise InputError(
                f"{self.directory}: {what} could not be {action} ({reason}); "
                f"{advice}, earlier checkpoints are intact"
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
    where = _checkpoints_of(directory)
    step, meta = _choose(where, which)
    wanted = ("meta/", "params/")
    _check_files(where / str(step), lambda name: name.startswith(wanted))
    place = f"{where}, step {step}"
    if abstract_params is not None:
        check_names(describe(abstract_params), meta["parameters"], place, "parameters")
    hooks = _hide_threads_of_failures()
    with _readable(place, "parameters are"), ocp.StandardCheckpointer() as checkpointer:
        target = _empty(meta["parameters"]) if abstract_params is None else abstract_params
        params = checkpointer.restore(where / str(step) / "params", target)
    _show_threads(hooks)
    return params


def read_meta(directory: str | Path, which: Literal["best", "latest"] = "best") -> dict[str, Any]:
    """Returns the description of the checkpoint that `restore_params` would read.

    It has the keys "model", "config", "step", "metrics", "library_version" and others.

    Raises:
        InputError: no checkpoint there, a damaged one, or another format version.
    """
    step, meta = _choose(_checkpoints_of(directory), which)
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

    A failed read or write reaches the caller as InputError; the tracebacks of orbax's threads and
    of its tasks that nobody waits for would bury it.
    """
    files = [record.pathname] if record.levelno >= logging.ERROR else []
    if record.exc_info:
        frames = traceback.walk_tb(record.exc_info[2])
        files += [frame.f_code.co_filename for frame, _ in frames]
    return not any("orbax" in file for file in files)


def _leave_metrics_alone() -> None:
    """Keeps orbax from asking TensorStore at every save how much it has written, for a line of its
    log: TensorStore (0.1.86) never frees its answers.
    """
    with contextlib.suppress(ImportError):  # of another version, which may ask elsewhere
        from orbax.checkpoint._src.serialization import tensorstore_utils

        tensorstore_utils.get_tensorstore_raw_bytes = lambda direction=None: 0


def _give_memory_back() -> None:
    """Gives the memory that a save has freed back to the system.

    Saves run in threads, for each of which glibc keeps what any of them once needed, so a process
    would grow with their number; other systems' allocators return it by themselves.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)


class _Hooks(NamedTuple):
    """Python's hooks for uncaught exceptions."""

    uncaught: Callable[..., Any]
    unraisable: Callable[[Any], Any]


def _hide_threads_of_failures() -> _Hooks:
    """Hides what follows from a failed read or write; returns the hooks for `_show_threads`.

    After a first error tensorstore's threads go on failing, and find nobody waiting. So the hooks
    stay where it has failed.
    """
    hooks = _Hooks(sys.excepthook, sys.unraisablehook)
    for name in ("absl", "asyncio"):
        logging.getLogger(name).addFilter(_not_an_orbax_traceback)

    def uncaught(kind: Any, value: Any, where: Any) -> None:
        if str(value) != _CLOSED:
            hooks.uncaught(kind, value, where)

    def unraisable(args: Any) -> None:
        if str(args.exc_value) != _CLOSED:
            hooks.unraisable(args)

    sys.excepthook, sys.unraisablehook = uncaught, unraisable
    return hooks


def _show_threads(hooks: _Hooks) -> None:
    """Undoes `_hide_threads_of_failures`, after all has gone well."""
    sys.excepthook, sys.unraisablehook = hooks


def _rank(metrics: Mapping[str, float], name: str) -> float:
    """Returns the metric that ranks checkpoints; NaN ranks below all numbers."""
    value = float(metrics.get(name, -math.inf))
    return -math.inf if math.isnan(value) else value


def _set_aside_damaged(directory: Path) -> None:
    """Renames checkpoints that are newer than the newest undamaged one, and says so.

    Raises:
        InputError: all are damaged; they stay where they are.
    """
    reasons: dict[int, str] = {}
    step = 0
    if jax.process_index() == 0:
        reasons, step = _damaged_steps(directory)
    if jax.process_count() > 1:
        step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
    if step < 0:
        raise InputError(next(iter(reasons.values()), f"{directory}: all steps are damaged"))
    for damaged, reason in reasons.items():
        target = directory / f"{damaged}.damaged"
        shutil.rmtree(target, ignore_errors=True)
        os.replace(directory / str(damaged), target)
        print(
            f"{reason}; it is now {target}, and training continues from step {step}",
            file=sys.stderr,
        )


def _damaged_steps(directory: Path) -> tuple[dict[int, str], int]:
    """Returns why the newest checkpoints cannot be used, newest first, and the first that can.

    The latter is 0 without any checkpoint, and -1 if all are damaged.
    """
    reasons: dict[int, str] = {}
    for step in reversed(_steps(directory)):
        try:
            _read_meta(directory, step)
            _check_files(directory / str(step))
            return reasons, step
        except InputError as error:
            reasons[step] = str(error)
    return reasons, -1 if reasons else 0


def _check_files(directory: Path, wanted: Callable[[str], bool] = bool) -> None:
    """Compares the files of a step with their sums, and looks for what is none: the libraries that
    read them would wait for a pipe, and read a device without end.

    Args:
        directory: of the step.
        wanted: see ``checksums.check``.

    Raises:
        InputError: names a file that is not what was written, or no file.
    """
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            if path.exists() and not path.is_file():
                raise InputError(f"{path}: no regular file; copy the checkpoint again")
    checksums.check(directory, wanted)


def _steps(directory: Path) -> list[int]:
    """Returns the steps of the checkpoints in a directory, which need not exist, in order."""
    if not directory.is_dir():
        return []
    names = [entry.name for entry in directory.iterdir() if entry.name.isdecimal()]
    return sorted(int(name) for name in names if name == str(int(name)))  # no 007


def _read_meta(where: Path, step: int) -> dict[str, Any]:
    """Returns the description of a checkpoint; see `_META`."""
    directory = where / str(step)
    checksums.check(directory, lambda name: name == _META)
    try:
        meta = parse_json(read_bytes(directory / _META))
        version, writer = meta.get("format_version"), meta.get("library_version")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{where}: step {step} is not a checkpoint of this library ({error})"
        ) from error
    if version != FORMAT_VERSION:
        raise InputError(
            f"{where}: step {step} has checkpoint format {version} of longsum_jax {writer}, this "
            f"version reads format {FORMAT_VERSION}"
        )
    _check_meta(f"{where}, step {step}", meta)
    return meta


def _check_meta(where: str, meta: Mapping[str, Any]) -> None:
    """Raises InputError unless a description has what every checkpoint's has."""
    for name in ("parameters", "state"):
        arrays = meta.get(name)
        if not (isinstance(arrays, dict) and all(map(_is_array, arrays.values()))):
            raise InputError(
                _unreadable(where, f"list of its {name} is", "not names, shapes, types")
            )
    scores = meta.get("metrics", "")
    if not (scores is None or (isinstance(scores, dict) and all(map(_is_number, scores.values())))):
        raise InputError(_unreadable(where, "evaluation is", f"{scores!r} is no object of numbers"))
    if not isinstance(meta.get("best_metric"), str):
        raise InputError(_unreadable(where, "name of its best metric is", "it is no text"))


def _is_number(value: Any) -> bool:
    """Returns True for a number of JSON, which true and false are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_array(value: Any) -> bool:
    """Returns True for the shape and the type of an array, as `describe` gives them."""
    try:
        shape, dtype = value
        jnp.dtype(dtype)
        return all(type(size) is int and size >= 0 for size in shape)
    except (TypeError, ValueError):
        return False


def _scores_if_readable(where: Path, step: int) -> dict[str, float]:
    """Returns the evaluation of a checkpoint, none for one that cannot be read."""
    try:
        return _read_meta(where, step)["metrics"] or {}
    except InputError:
        return {}


def _checkpoints_of(directory: str | Path) -> Path:
    """Returns the directory of the checkpoints of a workdir (or that directory itself)."""
    where = Path(directory).absolute()
    if (where / CHECKPOINTS).is_dir():
        where = where / CHECKPOINTS
    if not where.is_dir():
        raise InputError(f"{where}: no such directory; give the workdir of a training run")
    return where


def _choose(where: Path, which: str) -> tuple[int, dict[str, Any]]:
    """Returns step and description of the best or the latest checkpoint.

    Steps without a description are left out: older versions were killed while they deleted them.
    """
    steps = [step for step in _steps(where) if (where / str(step) / _META).exists()]
    if not steps:
        raise InputError(
            f"{where}: there is no checkpoint in it; give the workdir of a training run"
        )
    if which == "latest":
        return steps[-1], _read_meta(where, steps[-1])
    metas = _readable_metas(where, steps)
    best_metric = metas[max(metas)]["best_metric"]  # a resumed run may have changed it

    def rank(step: int) -> tuple[float, int]:
        return _rank(metas[step]["metrics"] or {}, best_metric), step

    best = max(metas, key=rank)
    return best, metas[best]


def _readable_metas(where: Path, steps: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Returns the descriptions of checkpoints, and says which are left out because of damage.

    Raises:
        InputError: all are damaged.
    """
    metas: dict[int, dict[str, Any]] = {}
    problems: list[InputError] = []
    for step in steps:
        try:
            metas[step] = _read_meta(where, step)
        except InputError as error:
            problems.append(error)
    if not metas:
        raise problems[-1]
    for error in problems:
        print(f"{error}; the best of the other checkpoints is taken", file=sys.stderr)
    return metas


@contextlib.contextmanager
def _readable(where: str, what: str) -> Iterator[None]:
    """Turns whatever orbax and tensorstore make of damaged files into an InputError."""
    try:
        yield
    except Exception as error:
        # The rest of the line is the configuration of the reader.
        reason = first_line(error)
        reason = reason.split(" [tensorstore_spec")[0]
        raise InputError(_unreadable(where, what, reason)) from error


def _unreadable(where: str, what: str, reason: str) -> str:
    return f"{where}: the {what} missing or damaged ({reason}); copy the checkpoint again"


def _empty(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Returns nested dictionaries of arrays to be filled, of the result of `describe`."""
    return _nested({name: np.empty(shape, jnp.dtype(d)) for name, (shape, d) in arrays.items()})


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
