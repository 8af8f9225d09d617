"""Converts records with named fields, from TensorFlow Datasets or parquet, to documents."""

import dataclasses
from collections.abc import Collection, Container, Iterable, Mapping
from typing import Any

import numpy as np

from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.documents import DataRow, Label
from longsum_jax.text.rows import DOCUMENT_NAMES, SUMMARY_NAMES, choose_keys


def to_document(task: Task, record: Mapping[str, Any]) -> DataRow:
    """Returns the document of a record; its id is "" if the record has none.

    Args:
        task: task whose keys name the fields.
        record: texts as str or bytes, numbers, and lists or arrays of these.

    Raises:
        InputError: fields joined by "+" that have different lengths, or an
            invalid label.
    """
    return DataRow(
        id=_text(record, task.id_key),
        document=_text(
            record,
            _first_present(task.document_key, record),
            task.document_separator or "\n",
        ),
        summary=_text(record, task.summary_key) if task.needs_summary else None,
        query=_text(record, task.query_key) or None,
        label=_label(record, task.label_key) if task.needs_label else None,
        choices=tuple(_lines(record[task.choices_key]))
        if task.base_objective == "choose"
        else None,
        rejected=_text(record, task.rejected_key) or None
        if task.base_objective == "prefer"
        else None,
    )


def with_usual_fields(task: Task, fields: Collection[str], where: str) -> Task:
    """Returns the task with fields of usual names, see ``rows.choose_keys``.

    Args:
        task: task whose keys name the fields.
        fields: names of all fields of the data.
        where: name of the data, for the log.
    """
    document_key = choose_keys(fields, task.document_key, DOCUMENT_NAMES, where)
    summary_key = task.summary_key
    if task.needs_summary:
        summary_key = choose_keys(fields, summary_key, SUMMARY_NAMES, where)
    return dataclasses.replace(
        task, document_key=document_key, summary_key=summary_key
    )


def check_fields(task: Task, fields: Iterable[str]) -> None:
    """Raises InputError unless ``fields`` contain all fields of the task."""
    names = set(fields)
    document_key = _first_present(task.document_key, names)
    keys = [task.id_key, task.query_key, *document_key.split("+")]
    if task.needs_summary:
        keys.append(task.summary_key)
    if task.needs_label:
        keys.append(task.label_key)
    if task.base_objective == "choose":
        keys.append(task.choices_key)
    for key in keys:
        if key and key not in names:
            raise InputError(
                f'task "{task.name}": {task.source} has no field "{key}"; '
                f"{did_you_mean(key, sorted(names))}"
            )


def _first_present(keys: str, fields: Container[str]) -> str:
    """Returns the first of the keys "a|b" that is among the fields; all keys if there is none."""
    return next((key for key in keys.split("|") if key in fields), keys)


def _text(
    record: Mapping[str, Any], key: str | None, separator: str = "\n"
) -> str:
    """Returns a field as text: list items with ``separator``; "a+b" joins two lists ("a: b").

    A missing or null field is empty: ``check_fields`` reports missing required
    fields.
    """
    if not key or not all(name in record for name in key.split("+")):
        return ""
    columns = [_lines(record[name]) for name in key.split("+")]
    lengths = [len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise InputError(
            f'the lists of the fields "{key}" have {lengths} items; name one of them'
        )
    lines = [": ".join(items) for items in zip(*columns, strict=True)]
    return separator.join(lines)


def _lines(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list | np.ndarray):
        return [line for item in value for line in _lines(item)]
    return [value.decode("utf-8") if isinstance(value, bytes) else str(value)]


def _label(record: Mapping[str, Any], key: str) -> Label:
    """Returns a field as a label: a name or a number from 0, or a tuple of these for a list."""
    value = record[key]
    if isinstance(value, list | np.ndarray) and np.ndim(value):
        return tuple(_single_label(item, key) for item in value)
    return _single_label(value, key)


def _single_label(value: Any, key: str) -> int | str:
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if isinstance(value, str) and value.strip():
        return value
    if (
        isinstance(value, int | np.integer)
        and not isinstance(value, bool)
        and value >= 0
    ):
        return int(value)
    raise InputError(
        f'the field "{key}" holds {value!r}, which is not a label; give names or numbers from 0 '
        "(the test splits of some data sets have no labels)"
    )
