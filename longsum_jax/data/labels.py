"""Labels of documents: their names, and the numbers that a classifier gives them."""

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.documents import Document, Label

_MOST_NAMES_SHOWN = 20


def labelled(task: Task, split: str, names: Sequence[str] = ()) -> Task:
    """The task with the names of its labels, and whether documents may have several.

    Args:
        task: its own ``labels``, where it has some, come before ``names``.
        split: is read to the end.
        names: of a model that knows its labels; empty to collect them from the split.

    Raises:
        InputError: a label that the names lack, or labels of several kinds (lists and single ones,
            numbers and names).
    """
    given = task.labels or tuple(names)
    kinds, seen = set(), set()
    for document in documents(task, split):
        several, found = isinstance(document.label, tuple), _as_tuple(document.label)
        kinds |= {(several, type(label)) for label in found} or {(several, None)}
        if len({kind for kind, _ in kinds}) > 1 or len({label for _, label in kinds} - {None}) > 1:
            raise InputError(
                f'document "{document.id}": its label {document.label!r} is of another kind than those before; give '
                "all documents lists or none, and numbers or names"
            )
        seen.update(found)
        if given:
            label_numbers(document, given)
    several = any(kind for kind, _ in kinds)
    if not seen:
        raise InputError(
            f'task "{task.name}", split "{split}": no document has a label; check {task.source}'
        )
    return dataclasses.replace(task, labels=given or _names(seen), multi_label=several)


def label_numbers(document: Document, names: Sequence[str]) -> np.ndarray:
    """Returns the numbers of a document's labels as int32 [k]; numbers in the data stay as they
    are."""
    return np.array(
        [_number(label, names, document.id) for label in _as_tuple(document.label)], np.int32
    )


def _names(labels: Iterable[int | str]) -> tuple[str, ...]:
    """Names in sorted order; numbers 0 to the largest under their decimal form."""
    labels = sorted(labels)
    return tuple(map(str, range(labels[-1] + 1))) if isinstance(labels[0], int) else tuple(labels)


def _number(label: int | str, names: Sequence[str], document: str) -> int:
    if isinstance(label, int) and label < len(names):
        return label
    if label in names:
        return list(names).index(label)
    known = (
        did_you_mean(str(label), names)
        if len(names) <= _MOST_NAMES_SHOWN
        else f"there are {len(names)} labels"
    )
    raise InputError(f'document "{document}": label {label!r} is none of the labels; {known}')


def _as_tuple(label: Label | None) -> tuple[int, ...] | tuple[str, ...]:
    return () if label is None else label if isinstance(label, tuple) else (label,)
