"""The directory of a run: checks that it is writable and belongs to this run."""

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.files import check_utf8_name, read_json
from longsum_jax.locks import locked

CHECKPOINTS = "checkpoints"  # subdirectory of a workdir

# Names (of values or sections) in the description of a run that may change
# between restarts.
_CHANGEABLE = frozenset(
    {
        "steps",
        "epochs",
        "tune",
        "log_every",
        "eval_every",
        "checkpoint_every",
        "keep_latest",
        "keep_best",
        "best_metric",
        "early_stopping_patience",
        "metrics",
        "max_bad_steps",
        "tensorboard",
        "wandb",
        "mlflow",
        "progress",
        "workdir",
        "mesh",
    }
)

# values that change nothing
_OFF: tuple[Any, ...] = (None, False, 0, "", [], {}, "all")


def open_workdir(workdir: str | Path, run: Mapping[str, Any]) -> Path:
    """Creates ``workdir`` if necessary and writes the description of the run to its run.json.

    A workdir with checkpoints of another run is rejected; one without
    checkpoints is reused.

    Args:
        workdir: path of the workdir, the same on every host.
        run: JSON-able description of the run, with nested sections.

    Raises:
        InputError: not writable, or its checkpoints are of a run with another
            description.
    """
    check_workdir(workdir, run)
    workdir = Path(workdir).absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        if jax.process_index() == 0:
            text = json.dumps(run, indent=2, sort_keys=True) + "\n"
            atomic.write_text(workdir / "run.json", text)
    except OSError as error:
        raise _unwritable(workdir, error) from error
    return workdir


@contextlib.contextmanager
def locked_workdir(
    workdir: str | Path, run: Mapping[str, Any]
) -> Iterator[None]:
    """Creates ``workdir`` if necessary, and locks it against other trainings inside the block.

    Args:
        workdir, run: path and description, see `open_workdir`.

    Raises:
        InputError: see `open_workdir`; or another process is training there.
    """
    check_workdir(workdir, run)
    if jax.process_index():
        yield
        return
    workdir = Path(workdir).absolute()
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(workdir, error) from error
    with locked(workdir, "trains", "give another workdir"):
        yield


def check_workdir(workdir: str | Path, run: Mapping[str, Any]) -> None:
    """Raises the errors of ``open_workdir``, without changing the disk."""
    if "://" in str(workdir):
        raise InputError(
            f"workdir {workdir} is not a directory; mount the bucket (gcsfuse) and give its path"
        )
    workdir = Path(workdir).absolute()
    check_utf8_name(workdir)
    _check_writable(workdir)
    path = workdir / "run.json"
    if path.exists() and has_checkpoint(workdir):
        run = json.loads(json.dumps(run))  # tuples become lists, as in the file
        _check_same_run(_read(path), run, workdir)


def has_checkpoint(workdir: Path) -> bool:
    """Returns True if the run of ``workdir`` has saved its first checkpoint."""
    return bool(checkpoint_steps(workdir / CHECKPOINTS))


def checkpoint_steps(directory: Path) -> list[int]:
    """Returns the sorted steps of the checkpoints in a directory, which need not exist."""
    if not directory.is_dir():
        return []
    names = [
        entry.name for entry in directory.iterdir() if entry.name.isdecimal()
    ]
    # without leading zeros
    return sorted(int(name) for name in names if name == str(int(name)))


def differing_keys(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns "model.d_model (32 there, 16 here)" for every difference not allowed on a restart.

    An option that is missing in one description may be newer or older than the
    other: it does not count as a difference if it is off (None, False, 0 or
    empty, or "all" for the parameters to train).

    Args:
        old: description of the existing run, with nested sections.
        new: description of the run to continue.
    """
    there, here = flatten(old), flatten(new)
    differing = []
    for key in sorted(there.keys() | here.keys()):
        is_same = there.get(key, ...) == here.get(key, ...)
        # A new option that is off describes the same run as its absence.
        is_off = here.get(key) in _OFF and there.get(key) in _OFF
        is_absent_and_off = is_off and not (key in here and key in there)
        if not (is_same or is_absent_and_off or _CHANGEABLE.intersection(key)):
            values = (
                f"{_describe(there, key)} there, {_describe(here, key)} here"
            )
            differing.append(f"{'.'.join(key)} ({values})")
    return differing


def _check_writable(workdir: Path) -> None:
    # Directories that do not exist yet are made in the nearest one that does.
    nearest = next(
        path for path in (workdir, *workdir.parents) if path.exists()
    )
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise _unwritable(workdir, error) from error


def _unwritable(workdir: Path, error: OSError) -> InputError:
    return InputError(
        f"{workdir}: cannot write there ({error.strerror}); give another workdir, or free up space"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except InputError as error:
        raise InputError(
            f"{path}: not the description of a run ({error}); give another workdir"
        ) from error


def _check_same_run(
    old: Mapping[str, Any], new: Mapping[str, Any], workdir: Path
) -> None:
    differing = differing_keys(old, new)
    if differing:
        raise InputError(
            f"{workdir}: holds another run, differing in {', '.join(differing)}; "
            "give another workdir, or the values it was started with"
        )


def flatten(
    tree: Any, prefix: tuple[str, ...] = ()
) -> dict[tuple[str, ...], Any]:
    """Returns path to value of every leaf of nested mappings.

    Args:
        tree: nested mappings, or a leaf.
        prefix: path of the tree.
    """
    if not isinstance(tree, Mapping):
        return {prefix: tree}
    flat: dict[tuple[str, ...], Any] = {}
    for name, node in tree.items():
        flat |= flatten(node, (*prefix, name))
    return flat


def _describe(flat: Mapping[tuple[str, ...], Any], key: tuple[str, ...]) -> str:
    if key in flat:
        return json.dumps(flat[key])
    return "absent"
