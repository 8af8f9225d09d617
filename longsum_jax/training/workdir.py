"""The directory of a run: may it be written, and does it belong to this run?"""

import json
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.training.checkpointing import SUBDIRECTORY

# Names (of values or whole sections) in the description of a run that may change between its
# restarts.
FREE_KEYS = frozenset(
    {
        "steps",
        "log_every",
        "eval_every",
        "checkpoint_every",
        "keep_latest",
        "keep_best",
        "best_metric",
    }
    | {"max_bad_steps", "tensorboard", "progress", "workdir", "mesh"}
)


def open_workdir(
    workdir: str | Path, run: Mapping[str, Any], free_keys: Collection[str] = FREE_KEYS
) -> Path:
    """Makes ``workdir`` if need be and writes the description of the run to its run.json.

    A workdir with checkpoints of another run is refused; one without any is taken over.

    Args:
        workdir: path, the same on every host.
        run: JSON-able description, sections nested.
        free_keys: names of values or sections that may differ from the run that is there.

    Raises:
        InputError: not writable, or the checkpoints there are of a run with another description.
    """
    check_workdir(workdir, run, free_keys)
    workdir = Path(workdir).absolute()
    workdir.mkdir(parents=True, exist_ok=True)
    if jax.process_index() == 0:
        atomic.write_text(workdir / "run.json", json.dumps(run, indent=2, sort_keys=True) + "\n")
    return workdir


def check_workdir(
    workdir: str | Path, run: Mapping[str, Any], free_keys: Collection[str] = FREE_KEYS
) -> None:
    """Raises what ``open_workdir`` would raise, and leaves the disk as it is."""
    if "://" in str(workdir):
        raise InputError(
            f"workdir {workdir} is no directory; mount the bucket (gcsfuse) and give its path"
        )
    workdir = Path(workdir).absolute()
    _check_writable(workdir)
    path = workdir / "run.json"
    if path.exists() and has_checkpoint(workdir):
        run = json.loads(json.dumps(run))  # tuples become the lists that the file holds
        _check_same_run(_read(path), run, workdir, free_keys)


def has_checkpoint(workdir: Path) -> bool:
    """Whether a run has come as far as its first checkpoint there."""
    directory = workdir / SUBDIRECTORY
    return directory.is_dir() and any(entry.name.isdigit() for entry in directory.iterdir())


def differing_keys(
    old: Mapping[str, Any], new: Mapping[str, Any], free_keys: Collection[str]
) -> list[str]:
    """Returns "model.d_model (32 there, 16 here)" for every value that differs and is not free."""
    old, new = _flat(old), _flat(new)
    differing = [
        key for key in sorted(old.keys() | new.keys()) if old.get(key, ...) != new.get(key, ...)
    ]
    return [
        f"{'.'.join(key)} ({_shown(old, key)} there, {_shown(new, key)} here)"
        for key in differing
        if not set(key) & set(free_keys)
    ]


def _check_writable(workdir: Path) -> None:
    there = next(path for path in (workdir, *workdir.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise InputError(
            f"{workdir}: cannot write there ({error.strerror}); give another workdir"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(
            f"{path}: not the description of a run ({error}); give another workdir"
        ) from error


def _check_same_run(
    old: dict[str, Any], new: dict[str, Any], workdir: Path, free: Collection[str]
) -> None:
    if differing := differing_keys(old, new, free):
        raise InputError(
            f"{workdir}: holds another run, differing in {', '.join(differing)}; "
            "give another workdir, or the values it was started with"
        )


def _flat(tree: Any, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(tree, Mapping):
        return {prefix: tree}
    return {
        key: leaf
        for name, node in tree.items()
        for key, leaf in _flat(node, (*prefix, name)).items()
    }


def _shown(flat: Mapping[tuple[str, ...], Any], key: tuple[str, ...]) -> str:
    return json.dumps(flat[key]) if key in flat else "absent"
