"""Pads examples to batches of arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.data.examples.base import Example
from longsum_jax.errors import InputError
from longsum_jax.typing import IGNORED_LABEL, NumpyBatch


class ClassLabels(NamedTuple):
    """The layout of a classifier's labels in a batch.

    int32 [batch], the label index of each row; with ``multi_label`` float32
    [batch, num_labels], ones and zeros. Rows without an example contain the
    padding of token labels.
    """

    num_labels: int
    multi_label: bool


class SegmentShape(NamedTuple):
    """The layout of examples with segments in a batch.

    Attributes:
        length: tokens of a segment; ids and mask are [batch, segments, length].
        target_length: tokens of a segment's target; labels are [batch,
            segments, target_length], or [batch, segments] if it is 0.
        num_vectors: number of vectors that a segment reads: "slots" are [batch,
            segments, length] and "reads" [batch, segments, num_vectors], see
            ``text.segment_inputs.SegmentInputs.vectors``; 0 for none.
    """

    length: int
    target_length: int = 0
    num_vectors: int = 0


def pad_batch(
    examples: Sequence[Example],
    *,
    rows: int,
    source_length: int,
    target_length: int = 0,
    classes: ClassLabels | None = None,
    segments: SegmentShape | None = None,
    token_types: bool = False,
    pairs: bool = False,
    packed: bool = False,
    pad_id: int = 0,
    label_pad_id: int = IGNORED_LABEL,
) -> NumpyBatch:
    """Returns the examples as padded arrays; rows without an example contain only padding.

    Args:
        examples: at most ``rows`` examples, each of which fits the lengths.
        rows: number of rows of the batch.
        source_length: tokens of a row; with ``segments``, segments of a row.
        target_length: tokens of a row of labels; 0 for no labels.
        classes: layout of a classifier's labels, instead of ``target_length``.
        segments: layout of examples with segments, instead of
            ``target_length``.
        token_types: whether the batch has ``token_type_ids``, copied from the
            examples.
        pairs: whether the batch has ``rejected`` targets in addition to
            ``labels``, and ``reference``.
        packed: whether examples are packed rows (``buckets.pack_examples``), whose
            segment ids the batch contains.
        pad_id: padding of ``input_ids``.
        label_pad_id: padding of ``labels``; ignored by the loss.

    Returns:
        Arrays as described in ``batches.Batches``.

    Raises:
        InputError: a segment or its target has more tokens than ``segments``
            allows.
    """
    if segments is not None:
        batch = _pad_segments(
            examples, rows, source_length, segments, pad_id, label_pad_id
        )
        if token_types:
            batch["token_type_ids"] = _token_types(
                examples, batch["attention_mask"]
            )
        return batch
    input_ids = np.full((rows, source_length), pad_id, np.int32)
    attention_mask = np.zeros((rows, source_length), bool)
    for row, example in enumerate(examples):
        source = example["input_ids"]
        input_ids[row, : len(source)] = source
        attention_mask[row, : len(source)] = True
    batch = {"input_ids": input_ids, "attention_mask": attention_mask}
    if token_types:
        batch["token_type_ids"] = _token_types(examples, attention_mask)
    if classes is not None:
        batch["labels"] = _class_labels(examples, rows, classes, label_pad_id)
    elif target_length:
        targets = [example["labels"] for example in examples]
        batch["labels"] = _token_labels(
            targets, rows, target_length, label_pad_id
        )
    if pairs:
        targets = [example["rejected"] for example in examples]
        batch["rejected"] = _token_labels(
            targets, rows, target_length, label_pad_id
        )
        batch["reference"] = _references(examples, rows)
    if packed:
        batch |= _segment_ids(examples, rows, source_length, target_length)
    return batch


def _segment_ids(
    examples: Sequence[Example],
    rows: int,
    source_length: int,
    target_length: int,
) -> NumpyBatch:
    """Returns the segment ids of packed rows, 0 on padding."""
    source = np.zeros((rows, source_length), np.int32)
    target = np.zeros((rows, target_length), np.int32)
    for row, example in enumerate(examples):
        source_ids = example["source_segment_ids"]
        target_ids = example["target_segment_ids"]
        source[row, : len(source_ids)] = source_ids
        target[row, : len(target_ids)] = target_ids
    return {"source_segment_ids": source, "target_segment_ids": target}


def _references(examples: Sequence[Example], rows: int) -> np.ndarray:
    """Returns float32 [rows, 2]; NaN, which training rejects, if the reference is not computed."""
    references = np.zeros((rows, 2), np.float32)
    for row, example in enumerate(examples):
        references[row] = example.get("reference", np.nan)
    return references


def _token_types(
    examples: Sequence[Example], attention_mask: np.ndarray
) -> np.ndarray:
    types = np.zeros(attention_mask.shape, np.int32)
    for row, example in enumerate(examples):
        types[row][attention_mask[row]] = example["token_type_ids"]
    return types


def _token_labels(
    targets: Sequence[np.ndarray],
    rows: int,
    target_length: int,
    label_pad_id: int,
) -> np.ndarray:
    labels = np.full((rows, target_length), label_pad_id, np.int32)
    for row, target in enumerate(targets):
        labels[row, : len(target)] = target
    return labels


def _class_labels(
    examples: Sequence[Example],
    rows: int,
    classes: ClassLabels,
    label_pad_id: int,
) -> np.ndarray:
    if not classes.multi_label:
        labels = np.full(rows, label_pad_id, np.int32)
        labels[: len(examples)] = [example["labels"][0] for example in examples]
        return labels
    labels = np.full((rows, classes.num_labels), label_pad_id, np.float32)
    for row, example in enumerate(examples):
        labels[row] = np.isin(np.arange(classes.num_labels), example["labels"])
    return labels


def _pad_segments(
    examples: Sequence[Example],
    rows: int,
    num_segments: int,
    shape: SegmentShape,
    pad_id: int,
    label_pad_id: int,
) -> NumpyBatch:
    input_ids = np.full((rows, num_segments, shape.length), pad_id, np.int32)
    attention_mask = np.zeros(input_ids.shape, bool)
    labels_shape: tuple[int, ...] = (rows, num_segments)
    if shape.target_length:
        labels_shape = (*labels_shape, shape.target_length)
    labels = np.full(labels_shape, label_pad_id, np.int32)
    for row, example in enumerate(examples):
        mask = _segment_mask(
            example["segment_lengths"], input_ids[row].shape, example["id"]
        )
        attention_mask[row] = mask
        input_ids[row][mask] = example["input_ids"]
        if shape.target_length:
            mask = _segment_mask(
                example["label_lengths"], labels[row].shape, example["id"]
            )
            labels[row][mask] = example["labels"]
        else:
            labels[row, : len(example["labels"])] = example["labels"]
    batch = {
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "labels": labels,
    }
    if shape.num_vectors:
        batch |= _vectors(examples, rows, num_segments, shape)
    return batch


def _segment_mask(
    lengths: np.ndarray, shape: tuple[int, ...], name: str
) -> np.ndarray:
    """Returns bool [segments, length], True on the tokens of segments with these lengths."""
    if max(lengths, default=0) > shape[1]:
        raise InputError(
            f'example "{name}" has a segment of {max(lengths)} tokens, more than the batch\'s '
            f"{shape[1]}; make the examples again with the task's lengths"
        )
    mask = np.zeros(shape, bool)
    mask[: len(lengths)] = np.arange(shape[1]) < np.asarray(lengths)[:, None]
    return mask


def _vectors(
    examples: Sequence[Example],
    rows: int,
    num_segments: int,
    shape: SegmentShape,
) -> NumpyBatch:
    slots = np.full((rows, num_segments, shape.length), -1, np.int32)
    reads = np.full((rows, num_segments, shape.num_vectors), -1, np.int32)
    for row, example in enumerate(examples):
        example_slots, example_reads = example["vectors"]
        slots[row, : len(example_slots)] = example_slots
        reads[row, : len(example_reads)] = example_reads
    return {"slots": slots, "reads": reads}
