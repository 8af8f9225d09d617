"""The checkpoints in a directory: listing, selection and damage."""

import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from longsum_jax import checksums
from longsum_jax.errors import InputError, in_one_line
from longsum_jax.training import checkpoint_metadata
from longsum_jax.training.workdir import CHECKPOINTS, checkpoint_steps

# Orbax writes these files of a step last, and they are never read.
_WITHOUT_SUMS = ("_CHECKPOINT_METADATA", "commit_success.txt")


def find_directory(path: str | Path) -> Path:
    """Returns the directory of the checkpoints of a workdir (or ``path`` itself if it is one).

    Raises:
        InputError: the directory does not exist.
    """
    directory = Path(path).absolute()
    if (directory / CHECKPOINTS).is_dir():
        directory = directory / CHECKPOINTS
    if not directory.is_dir():
        raise InputError(
            f"{directory}: no such directory; give the workdir of a training run"
        )
    return directory


def choose_checkpoint(
    directory: Path, which: str
) -> tuple[int, dict[str, Any]]:
    """Returns the step and metadata of the best or the latest checkpoint.

    Steps without metadata are ignored: they remain if an older version was
    killed while deleting.

    Args:
        directory: directory of the checkpoints.
        which: selection, "best" or "latest".

    Raises:
        InputError: no checkpoint, or no undamaged one.
    """
    steps = [
        step
        for step in checkpoint_steps(directory)
        if (directory / str(step) / checkpoint_metadata.FILE).exists()
    ]
    if not steps:
        raise InputError(
            f"{directory}: there is no checkpoint in it; give the workdir of a training run"
        )
    if which == "latest":
        return steps[-1], checkpoint_metadata.read(directory, steps[-1])
    metadata = _read_undamaged(directory, steps)
    # a resumed run may have changed it
    best_metric = metadata[max(metadata)]["best_metric"]
    best = max(
        metadata,
        key=lambda step: (
            rank(metadata[step]["metrics"] or {}, best_metric),
            step,
        ),
    )
    return best, metadata[best]


def rank(scores: Mapping[str, float | None], metric: str) -> float:
    """Returns the score that ranks a checkpoint; minus infinity for a missing score or NaN.

    Files have None (null) in place of NaN.
    """
    score = scores.get(metric)
    if score is None or math.isnan(score):
        return -math.inf
    return float(score)


def set_aside_damaged(directory: Path) -> None:
    """Renames checkpoints that are newer than the newest undamaged one, and reports them.

    Raises:
        InputError: all checkpoints are damaged; none is renamed.
    """
    reasons: dict[int, str] = {}
    step = 0
    if jax.process_index() == 0:
        reasons, step = _find_damaged(directory)
    if jax.process_count() > 1:
        step = int(multihost_utils.broadcast_one_to_all(np.int32(step)))
    if step < 0:
        raise InputError(
            next(iter(reasons.values()), f"{directory}: all steps are damaged")
        )
    for damaged, reason in reasons.items():
        target = directory / f"{damaged}.damaged"
        shutil.rmtree(target, ignore_errors=True)
        os.replace(directory / str(damaged), target)
        message = f"{reason}; it is now {target}, and training continues from step {step}"
        print(in_one_line(message), file=sys.stderr)


def write_sums(directory: Path) -> None:
    """Writes the checksums of the files of a step.

    Raises:
        OSError: a file cannot be read, or the checksums cannot be written.
    """
    checksums.write(directory, lambda name: name not in _WITHOUT_SUMS)


def check_sums(directory: Path, selects: Callable[[str], bool] = bool) -> None:
    """Compares the files of a step with their checksums, and rejects special files: the libraries
    that read them would block on a pipe, and read a device endlessly.

    Args:
        directory: directory of the step.
        selects: filter of file names, see ``checksums.check``.

    Raises:
        InputError: a file differs from what was written, or is not a regular
            file.
    """
    for folder, _, names in os.walk(directory):
        for path in (Path(folder, name) for name in names):
            if path.exists() and not path.is_file():
                raise InputError(
                    f"{path}: not a regular file; copy the checkpoint again"
                )
    checksums.check(directory, selects)


def _read_undamaged(
    directory: Path, steps: Sequence[int]
) -> dict[int, dict[str, Any]]:
    """Returns the metadata of checkpoints, and reports the ones that are skipped because of damage.

    Raises:
        InputError: all checkpoints are damaged.
    """
    metadata: dict[int, dict[str, Any]] = {}
    problems: list[InputError] = []
    for step in steps:
        try:
            metadata[step] = checkpoint_metadata.read(directory, step)
        except InputError as error:
            problems.append(error)
    if not metadata:
        raise problems[-1]
    for problem in problems:
        print(
            f"{problem}; the best of the other checkpoints is used",
            file=sys.stderr,
        )
    return metadata


def _find_damaged(directory: Path) -> tuple[dict[int, str], int]:
    """Returns why the newest checkpoints cannot be used, newest first, and the newest usable step.

    The step is 0 without any checkpoint, and -1 if all are damaged.
    """
    reasons: dict[int, str] = {}
    for step in reversed(checkpoint_steps(directory)):
        try:
            checkpoint_metadata.read(directory, step)
            check_sums(directory / str(step))
            return reasons, step
        except InputError as error:
            reasons[step] = str(error)
    return reasons, -1 if reasons else 0
