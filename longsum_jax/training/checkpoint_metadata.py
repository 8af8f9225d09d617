"""The metadata of a checkpoint: the run that wrote it, its arrays and its evaluation."""

import json
import sys
from collections.abc import Mapping
from importlib import metadata as packages
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from longsum_jax import checksums
from longsum_jax.errors import InputError
from longsum_jax.files import parse_json, read_bytes
from longsum_jax.training.trees import describe

FORMAT_VERSION = 1
# path in a step's directory at which Orbax stores JSON of the item "meta"
FILE = "meta/metadata"


def make(
    about: Mapping[str, Any],
    params: Any,
    state: Any,
    metrics: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Returns the metadata of a checkpoint to be written.

    Args:
        about: values "model", "config" and "best_metric" of the run.
        params, state: trees of arrays.
        metrics: scores of the evaluation, None if there was none.
    """
    return {
        "format_version": FORMAT_VERSION,
        "library_version": _library_version(),
        **checksums.MARK,
        **about,
        "metrics": None if metrics is None else dict(metrics),
        "parameters": describe(params),
        "state": describe(state),
    }


def read(directory: Path, step: int) -> dict[str, Any]:
    """Returns the metadata of the checkpoint of a step.

    Args:
        directory: directory of the checkpoints.
        step: number of steps of the checkpoint.

    Raises:
        InputError: a missing or damaged checkpoint, or another format version.
    """
    checksums.check(directory / str(step), lambda name: name == FILE)
    try:
        metadata = parse_json(read_bytes(directory / str(step) / FILE))
        version, writer = (
            metadata.get("format_version"),
            metadata.get("library_version"),
        )
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(
            f"{directory}: step {step} is not a checkpoint of this library ({error})"
        ) from error
    if type(version) is not int or version != FORMAT_VERSION:  # true equals 1
        raise InputError(
            f"{directory}: step {step} has checkpoint format {version} of longsum_jax {writer}, "
            f"this version reads format {FORMAT_VERSION}"
        )
    if checksums.is_marked(metadata):
        checksums.require(directory / str(step))
    _check(f"{directory}, step {step}", metadata)
    return metadata


def replace(directory: Path, step: int, metadata: Mapping[str, Any]) -> None:
    """Replaces the metadata of a checkpoint, which remains readable at any time.

    Raises:
        InputError: damaged checksums.
        OSError: a file cannot be written.
    """
    checksums.replace_text(directory / str(step), FILE, json.dumps(metadata))


def damage_error(where: str, problem: str, reason: str) -> InputError:
    """Returns the error for a part of a checkpoint that cannot be used.

    Args:
        where: path and step of the checkpoint.
        problem: clause that names the part.
        reason: reason in a few words.
    """
    return InputError(
        f"{where}: {problem} ({reason}); copy the checkpoint again"
    )


def _library_version() -> str:
    """Returns the installed version of this package, "unknown" if it is not installed."""
    try:
        return packages.version("longsum_jax")
    except packages.PackageNotFoundError:
        return "unknown"


def _check(where: str, metadata: Mapping[str, Any]) -> None:
    """Raises InputError unless the metadata contain the entries of every checkpoint."""
    for name in ("parameters", "state"):
        arrays = metadata.get(name)
        if not (
            isinstance(arrays, dict) and all(map(_is_array, arrays.values()))
        ):
            problem = f"the list of its {name} is missing or damaged"
            raise damage_error(where, problem, "not names, shapes, types")
    scores = metadata.get("metrics", "")
    if not (
        scores is None
        or (isinstance(scores, dict) and all(map(_is_number, scores.values())))
    ):
        problem = "the evaluation is missing or damaged"
        raise damage_error(
            where, problem, f"{scores!r} is not an object of numbers"
        )
    if not isinstance(metadata.get("best_metric"), str):
        problem = "the name of its best metric is missing or damaged"
        raise damage_error(where, problem, "it is not a string")


def _is_array(value: Any) -> bool:
    """Returns True for the shape and dtype of an array, as returned by `describe`."""
    try:
        shape, dtype = value
        jnp.dtype(dtype)
        return all(type(size) is int and size >= 0 for size in shape)
    except (
        TypeError,
        ValueError,
        SyntaxError,
    ):  # NumPy parses some types as Python
        return False


def _is_number(value: Any) -> bool:
    """Returns True for a JSON number in the range of a float; not for true and false."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, float) or abs(value) <= sys.float_info.max
