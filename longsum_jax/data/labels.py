"""Collects the label names of a classification task from its documents."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, cast

from longsum_jax.data.examples.classification import label_numbers, label_tuple
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError

MOST_LABELS = 2**16  # maximum number of labels of a model


def collect_labels(task: Task, split: str, names: Sequence[str] = ()) -> Task:
    """Returns the task with the names of its labels, and whether it is multi-label.

    Args:
        task: task, whose ``labels``, if any, override ``names``.
        split: split that is read to the end.
        names: names of a model's labels; empty to collect them from the split.

    Raises:
        InputError: a label that is not among the names, no label at all, or a
            mixture of lists and single labels or of numbers and names.
    """
    names = task.labels or tuple(names)
    labels: set[int | str] = set()
    shapes: set[bool] = set()  # whether documents have lists of labels
    types: set[type] = set()
    for document in documents(task, split):
        document_labels = label_tuple(document.label)
        shapes.add(isinstance(document.label, tuple))
        types |= {type(label) for label in document_labels}
        if len(shapes) > 1 or len(types) > 1:
            raise InputError(
                f'document "{document.id}": its label {document.label!r} is of another kind than '
                "earlier labels; give only lists or only single labels, and only names or only "
                "numbers"
            )
        labels.update(document_labels)
        if names:
            # raises for a label that is not among the names
            label_numbers(document, names)
    if not labels:
        raise InputError(
            f'task "{task.name}", split "{split}": no document has a label; check {task.source}'
        )
    largest = max(cast(set[int], labels)) if types == {int} else 0
    if not names and largest >= MOST_LABELS:
        raise InputError(
            f'task "{task.name}", split "{split}": there is a label {largest}, and labels are '
            f"numbered from 0 to {MOST_LABELS - 1} at most; name another field with "
            "task.label_key, or write them as texts"
        )
    return dataclasses.replace(
        task,
        labels=names or _sorted_names(labels),
        multi_label=shapes == {True},
    )


def _sorted_names(labels: Iterable[int | str]) -> tuple[str, ...]:
    """Returns names in sorted order; for numbers, 0 to the largest in decimal form."""
    ordered: list[Any] = sorted(labels)
    if isinstance(ordered[0], int):
        return tuple(map(str, range(ordered[-1] + 1)))
    return tuple(ordered)
