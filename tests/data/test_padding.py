import numpy as np
import pytest
from flax import serialization

from longsum_jax.data.batches import Batches
from longsum_jax.data.examples.base import Example, pack, unpack
from longsum_jax.data.padding import ClassLabels, SegmentShape, pad_batch
from longsum_jax.data.stores import ExampleList
from longsum_jax.errors import InputError
from longsum_jax.typing import RowShards


def example(index, lengths, targets=None, labels=()):
    """An example whose segment i has the ids 10 i + 1, 10 i + 2, ..."""
    made = Example(
        id=f"e{index}",
        input_ids=np.concatenate([10 * i + 1 + np.arange(n) for i, n in enumerate(lengths)]).astype(
            np.int32
        ),
        labels=np.array(labels, np.int32),
        source_tokens=sum(lengths),
        target_tokens=0,
        segment_lengths=np.array(lengths, np.int32),
    )
    if targets is not None:
        made["labels"] = np.concatenate(
            [100 * i + 1 + np.arange(n) for i, n in enumerate(targets)]
        ).astype(np.int32)
        made["label_lengths"] = np.array(targets, np.int32)
    return made


def test_every_segment_has_a_row():
    examples = [example(0, [2, 3], labels=[0, 1]), example(1, [1, 1, 4], labels=[1, -100, 0])]
    batch = pad_batch(examples, rows=3, source_length=4, segments=SegmentShape(5), pad_id=7)
    assert {name: (x.shape, x.dtype) for name, x in batch.items()} == {
        "input_ids": ((3, 4, 5), np.int32),
        "attention_mask": ((3, 4, 5), bool),
        "labels": ((3, 4), np.int32),
    }
    for row, made in enumerate([*examples, None]):
        expected = np.full((4, 5), 7)
        for segment, length in enumerate(made["segment_lengths"] if made else []):
            expected[segment, :length] = 10 * segment + 1 + np.arange(length)
        assert batch["input_ids"][row].tolist() == expected.tolist()
        assert (batch["attention_mask"][row] == (expected != 7)).all()
    assert batch["labels"].tolist() == [[0, 1, -100, -100], [1, -100, 0, -100], [-100] * 4]


def test_records_keep_the_names_of_their_format():
    made = example(0, [2, 3], [1, 4])
    record = serialization.msgpack_restore(pack(made))
    names = {"id", "input_ids", "labels", "source_tokens", "target_tokens"}
    assert record.keys() == names | {"part_lengths", "label_lengths"}
    again = unpack(pack(made))
    assert again.keys() == made.keys()
    assert all(np.array_equal(again[name], made[name]) for name in made)


def test_every_segment_has_a_target():
    examples = [example(0, [1, 1, 1], [2, 0, 3])]
    batch = pad_batch(examples, rows=2, source_length=4, segments=SegmentShape(1, 3))
    expected = np.full((2, 4, 3), -100)
    expected[0, 0, :2], expected[0, 2] = [1, 2], [201, 202, 203]
    assert batch["labels"].tolist() == expected.tolist()


def test_the_number_of_segments_chooses_the_bucket():
    examples = [
        example(i, [3] * count, [2] * count) for i, count in enumerate([1, 4, 2, 3, 4, 1, 2])
    ]
    shapes = []
    for store in (ExampleList(examples), ExampleList(unpack(pack(e)) for e in examples)):
        assert store.lengths.tolist() == [[len(e["segment_lengths"]), 2] for e in examples]
        batches = Batches(
            store,
            batch_size=2,
            source_lengths=(2, 4),
            segments=SegmentShape(3, 2),
            epochs=1,
            shuffle=None,
        )
        shapes.append(
            [(x["input_ids"].shape, int(x["attention_mask"].any(-1).sum())) for x in batches]
        )
        state = batches.state()
        batches.restore(state)
    expected = [((2, 2, 3), 3), ((2, 4, 3), 7), ((2, 2, 3), 3), ((2, 4, 3), 4)]
    assert shapes == [expected, expected]


def test_what_does_not_fit():
    options = {"batch_size": 1, "source_lengths": (2,)}
    with pytest.raises(
        InputError,
        match='example "e0" has 3 segments and a target of 0 tokens, more than the last bucket',
    ):
        Batches(ExampleList([example(0, [1, 1, 1])]), segments=SegmentShape(3), **options)
    with pytest.raises(InputError, match=r"or the segments' target length \(3\); raise these"):
        Batches(ExampleList([example(0, [1], [4])]), segments=SegmentShape(3, 3), **options)
    with pytest.raises(
        InputError,
        match='example "e0" has a segment of 4 tokens, more than the batch\'s 3; make the ex',
    ):
        next(Batches(ExampleList([example(0, [1, 4])]), segments=SegmentShape(3), **options))


def test_types_of_tokens_are_padded_with_zeros():
    made = example(0, [3], labels=[1, 2]) | {"token_type_ids": np.array([0, 1, 1], np.int32)}
    batch = pad_batch([made], rows=2, source_length=4, target_length=2, token_types=True)
    assert batch["token_type_ids"].tolist() == [[0, 1, 1, 0], [0, 0, 0, 0]]
    assert batch["labels"].tolist() == [[1, 2], [-100, -100]]


@pytest.mark.parametrize("segments", [None, SegmentShape(3)])
def test_a_host_without_rows_has_the_arrays_of_the_others(segments):
    """The last batch of an epoch has one example, and all hosts run one program."""
    made = example(0, [3]) | {"token_type_ids": np.array([0, 1, 1], np.int32)}
    if segments is None:
        made.pop("segment_lengths", None)
    options = {"batch_size": 2, "source_lengths": (4,), "segments": segments, "token_types": True}
    hosts = [
        next(Batches(ExampleList([made]), **options, host_rows=RowShards((i,), 2))) for i in (0, 1)
    ]
    shapes = [{name: x.shape for name, x in batch.items()} for batch in hosts]
    assert shapes[0] == shapes[1]
    assert [batch["token_type_ids"].sum() for batch in hosts] == [2, 0]


def test_without_targets_there_are_no_labels():
    batch = pad_batch([example(0, [2])], rows=2, source_length=3)
    assert batch.keys() == {"input_ids", "attention_mask"}
    assert batch["input_ids"].tolist() == [[1, 2, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    ("multi_label", "labels", "expected"),
    [(False, [2, 1], [2, -100]), (True, [0, 2], [[1, 0, 1], [-100] * 3])],
)
def test_labels_of_classes(multi_label, labels, expected):
    classes = ClassLabels(3, multi_label=multi_label)
    examples = [example(0, [2], labels=labels)]
    batch = pad_batch(examples, rows=2, source_length=3, classes=classes)
    assert batch["labels"].tolist() == expected


def test_references_that_were_not_computed_are_nan():
    first, second = (example(i, [2], labels=[1]) | {"rejected": np.array([2])} for i in range(2))
    first["reference"] = np.array([0.5, 0.25])
    batch = pad_batch([first, second], rows=3, source_length=3, target_length=2, pairs=True)
    assert batch["rejected"].tolist() == [[2, -100], [2, -100], [-100, -100]]
    np.testing.assert_array_equal(batch["reference"], [[0.5, 0.25], [np.nan, np.nan], [0, 0]])
