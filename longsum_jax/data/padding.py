"""Pads examples to batches of arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.errors import InputError
from longsum_jax.typing import NumpyBatch


class ClassLabels(NamedTuple):
    """How the labels of a classifier lie in a batch.

    int32 [b], the number of each row's label; or with ``multi_label`` float32 [b, num_labels], ones
    and zeros. Rows without an example hold the padding that token labels have, too.
    """

    num_labels: int
    multi_label: bool


class PartShape(NamedTuple):
    """How examples with ``part_lengths`` lie in a batch of b rows, S parts each.

    Attributes:
        part_length: L, tokens of a part; ids and mask are [b, S, L].
        target_length: T, tokens of a part's target; labels are [b, S, T], or [b, S] where it is 0.
        num_vectors: P, vectors that a part sees: "slots" are [b, S, L] and "reads" [b, S, P], see
            ``text.segment_inputs.SegmentInputs.vectors``; 0 for none.
    """

    part_length: int
    target_length: int = 0
    num_vectors: int = 0


def pad_batch(
    examples: Sequence[Example],
    *,
    rows: int,
    source_length: int,
    target_length: int = 0,
    classes: ClassLabels | None = None,
    parts: PartShape | None = None,
    pad_id: int = 0,
    label_pad_id: int = -100,
) -> NumpyBatch:
    """Returns the examples as padded arrays of ``rows`` rows; rows without an example are all
    padding.

    The keys and types are those of ``Batches``. Every example must fit the two lengths.
    """
    if parts is not None:
        return pad_parts(examples, rows, source_length, parts, pad_id, label_pad_id)
    input_ids = np.full((rows, source_length), pad_id, np.int32)
    attention_mask = np.zeros((rows, source_length), bool)
    for row, example in enumerate(examples):
        source = example["input_ids"]
        input_ids[row, : len(source)] = source
        attention_mask[row, : len(source)] = True
    batch = {"input_ids": input_ids, "attention_mask": attention_mask}
    targets = [example["labels"] for example in examples]
    if classes is not None:
        return batch | {"labels": _class_labels(targets, rows, classes, label_pad_id)}
    return (
        batch | {"labels": _token_labels(targets, rows, target_length, label_pad_id)}
        if target_length
        else batch
    )


def _token_labels(targets: Sequence[np.ndarray], rows: int, length: int, pad_id: int) -> np.ndarray:
    labels = np.full((rows, length), pad_id, np.int32)
    for row, target in enumerate(targets):
        labels[row, : len(target)] = target
    return labels


def _class_labels(
    targets: Sequence[np.ndarray], rows: int, classes: ClassLabels, pad_id: int
) -> np.ndarray:
    if not classes.multi_label:
        return np.array(
            [*(target[0] for target in targets), *[pad_id] * (rows - len(targets))], np.int32
        )
    labels = np.full((rows, classes.num_labels), pad_id, np.float32)
    for row, target in enumerate(targets):
        labels[row] = np.isin(np.arange(classes.num_labels), target)
    return labels


def pad_parts(
    examples: Sequence[Example],
    rows: int,
    num_parts: int,
    shape: PartShape,
    pad_id: int,
    label_pad_id: int,
) -> NumpyBatch:
    """Returns the examples as padded arrays; rows and parts without an example are all padding.

    Raises:
        InputError: a part or a target of more tokens than the shape has.
    """
    input_ids = np.full((rows, num_parts, shape.part_length), pad_id, np.int32)
    mask = np.zeros(input_ids.shape, bool)
    labels = np.full(
        (rows, num_parts, shape.target_length)[: 3 if shape.target_length else 2],
        label_pad_id,
        np.int32,
    )
    for row, example in enumerate(examples):
        mask[row] = _fill(
            input_ids[row], example["input_ids"], example["part_lengths"], example["id"]
        )
        if shape.target_length:
            _fill(labels[row], example["labels"], example["label_lengths"], example["id"])
        else:
            labels[row, : len(example["labels"])] = example["labels"]
    batch = {"input_ids": input_ids, "attention_mask": mask, "labels": labels}
    return batch | _vectors(examples, rows, num_parts, shape) if shape.num_vectors else batch


def _vectors(
    examples: Sequence[Example], rows: int, num_parts: int, shape: PartShape
) -> NumpyBatch:
    arrays = {"slots": shape.part_length, "reads": shape.num_vectors}
    batch = {
        name: np.full((rows, num_parts, width), -1, np.int32) for name, width in arrays.items()
    }
    for row, example in enumerate(examples):
        for table, values in zip(batch.values(), example["vectors"], strict=True):
            table[row, : len(values)] = values
    return batch


def _fill(table: np.ndarray, values: np.ndarray, lengths: np.ndarray, name: str) -> np.ndarray:
    """Writes the parts of ``values`` into the rows of ``table`` [S, L]; returns where they stand,
    bool [S, L]."""
    if max(lengths, default=0) > table.shape[1]:
        raise InputError(
            f'example "{name}" has a part of {max(lengths)} tokens, more than the batch\'s {table.shape[1]}; make the '
            "examples anew with the task's lengths"
        )
    there = np.zeros(table.shape, bool)
    there[: len(lengths)] = np.arange(table.shape[1]) < np.asarray(lengths)[:, None]
    table[there] = values
    return there
