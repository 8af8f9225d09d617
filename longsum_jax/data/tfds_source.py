"""Reads documents from TensorFlow Datasets. TFDS and TensorFlow are imported inside functions.

A data set prepared as array_record is read without TensorFlow
(``tfds.data_source``); other formats, such as TFDS's default tfrecord, are read
with ``tfds.load``, which needs TensorFlow.
"""

import contextlib
import dataclasses
import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, cast

from longsum_jax.data.records import (
    check_fields,
    to_document,
    with_usual_fields,
)
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, first_line
from longsum_jax.text.documents import DataRow

RANDOM_ACCESS = "array_record"


def documents(task: Task, split: str, start: int = 0) -> Iterator[DataRow]:
    """Yields the documents of a TFDS data set in TFDS's fixed order, unshuffled and uncut.

    Args:
        task: task whose source is "tfds:NAME".
        split: key of ``task.splits``.
        start: number of documents to leave out, at once with random access.

    Raises:
        InputError: TFDS is not installed, cannot load the data set, or the data
            set lacks a field; raised at the first document.
    """
    task, records = _open(task, split)
    for number, record in enumerate(_from(records, start), start):
        document = to_document(task, record)
        name = document.id or default_id(task, split, number, document.document)
        yield document._replace(id=name)


def _from(
    records: Iterable[Mapping[str, Any]], start: int
) -> Iterator[Mapping[str, Any]]:
    """Returns the records without the first ``start``; by index, if the data set has indices."""
    if not hasattr(records, "__getitem__"):
        return islice(records, start, None)
    indexed = cast(Sequence[Mapping[str, Any]], records)
    return (indexed[index] for index in range(start, len(indexed)))


def default_id(task: Task, split: str, number: int, text: str) -> str:
    """Returns the id of a document without one.

    Documents that are cut into pieces are identified by their content: Beam
    caches records in any order, so counting them would not result in the same
    ids everywhere.
    """
    if task.piece_words is None:
        return f"{task.name}/{split}:{number}"
    return f"{task.name}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def tfds_name(task: Task) -> str:
    """Returns the data set's name with a version: the newest if the task does not specify one."""
    name = task.source.removeprefix("tfds:")
    return name if ":" in name else f"{name}:*.*.*"


def not_installed(package: str | None) -> InputError:
    """Returns the error for a missing package of the extra "data"."""
    return InputError(
        f'TFDS data sets need {package}: pip install "longsum_jax[data]", or read JSON lines '
        "(source=json:...)"
    )


def cannot_open(task: Task, split: str, error: Exception) -> InputError:
    """Returns the error for a data set that TFDS cannot load, in one line."""
    directory = task.data_dir or "the default TFDS directory"
    return InputError(
        f'cannot open split "{split}" of {task.source} in {directory}: {first_line(error)}; '
        "prepare it with `tfds build` or read JSON lines (source=json:...)"
    )


def keep_tensorflow_off_accelerators() -> None:
    """Reserves the accelerators for JAX: TensorFlow would allocate all of their memory."""
    import tensorflow as tf

    # TensorFlow was already initialized by the caller
    with contextlib.suppress(RuntimeError):
        for device_type in ("GPU", "TPU"):
            tf.config.set_visible_devices([], device_type)


def _open(task: Task, split: str) -> tuple[Task, Iterable[Mapping[str, Any]]]:
    """Returns the task with the fields of the data set, and its records."""
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise not_installed(error.name) from error
    try:
        builder = tfds.builder(
            tfds_name(task), data_dir=task.data_dir, try_gcs=True
        )
        task = _with_fields(task, list(builder.info.features))
        source_split = task.source_split(split)
        formats = {
            str(format.value)
            for format in builder.info.available_file_formats()
        }
        if RANDOM_ACCESS in formats:
            return task, builder.as_data_source(split=source_split)
        logging.getLogger(__name__).info(
            "%s is prepared as %s, which needs TensorFlow; prepare it with file_format=%s to read "
            "it without",
            task.source,
            ", ".join(sorted(formats)),
            RANDOM_ACCESS,
        )
        return task, _load(task, builder, source_split)
    except InputError:
        raise
    except Exception as error:  # TFDS raises any exception of its downloaders
        if isinstance(error, ImportError) and error.name:
            raise _needs(task, error.name) from error
        raise cannot_open(task, split, error) from error


def _with_fields(task: Task, fields: list[str]) -> Task:
    """Returns the task with fields that the data set has; InputError if it lacks one.

    As in files, the fields "id" and "query" may be absent.
    """
    task = with_usual_fields(task, fields, task.source)
    if task.id_key == "id" and "id" not in fields:
        task = dataclasses.replace(task, id_key=None)
    if task.query_key == "query" and "query" not in fields:
        task = dataclasses.replace(task, query_key=None)
    check_fields(task, fields)
    return task


def _needs(task: Task, package: str) -> InputError:
    """Returns the error for a missing package that prepares a data set, such as Apache Beam."""
    return InputError(
        f"{task.source} is made with {package}, which is not installed: pip install {package}, or "
        "read JSON lines (source=json:...)"
    )


def _load(
    task: Task, builder: Any, source_split: str
) -> Iterable[Mapping[str, Any]]:
    """Returns the records of a data set in any format; downloads and prepares it if necessary."""
    import tensorflow_datasets as tfds

    by_hand = builder.MANUAL_DOWNLOAD_INSTRUCTIONS and not builder.is_prepared()
    if by_hand and not _holds_files(_manual_directory(builder)):
        raise _fetch_by_hand(task, builder, "which is empty")
    try:
        keep_tensorflow_off_accelerators()
    except ImportError as error:
        raise not_installed(error.name) from error
    try:
        builder.download_and_prepare()
    except Exception as error:  # TFDS raises any exception of its downloaders
        if not by_hand or isinstance(error, ImportError):
            raise
        raise _fetch_by_hand(
            task, builder, f"in which TFDS found {first_line(error)}"
        ) from error
    return tfds.as_numpy(
        builder.as_dataset(split=source_split, shuffle_files=False)
    )


def _manual_directory(builder: Any) -> Any:
    """Returns TFDS's directory for manually downloaded files, possibly in a cloud."""
    return builder.data_dir_root / "downloads" / "manual"


def _holds_files(directory: Any) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _fetch_by_hand(task: Task, builder: Any, problem: str) -> InputError:
    """Returns the error for files that require a manual download, with TFDS's instructions."""
    instructions = " ".join(builder.MANUAL_DOWNLOAD_INSTRUCTIONS.split())
    return InputError(
        f"{task.source} is made of files that TFDS does not download; put them into "
        f"{_manual_directory(builder)}, {problem}, or read JSON lines (source=json:...); TFDS's "
        f"instructions: {instructions}"
    )
