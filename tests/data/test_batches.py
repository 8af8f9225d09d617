import itertools
import json

import numpy as np
import pytest

from longsum_jax.data.batches import Batches
from longsum_jax.data.examples.base import Example
from longsum_jax.data.padding import ClassLabels, pad_batch
from longsum_jax.data.stores import ExampleList
from longsum_jax.errors import InputError
from longsum_jax.typing import RowShards

OPTIONS = {"batch_size": 4, "source_lengths": (24, 48, 64), "target_length": 12, "seed": 3}
SHUFFLES = {"list": "all", "prepared": "all", "stream": 8}
KINDS = tuple(SHUFFLES)


def example(index, source, target=2):
    return Example(
        id=f"e{index}",
        input_ids=np.full(source, index + 1, np.int32),
        labels=np.full(target, index + 1, np.int32),
        source_tokens=source,
        target_tokens=target,
    )


def same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[k], right[k]) for k in left)


def assert_same(left, right):
    assert len(left) == len(right)
    assert all(itertools.starmap(same, zip(left, right, strict=True)))


def rows(batch):
    """The real rows of a batch, as comparable tuples of ids."""
    lengths = batch["attention_mask"].sum(1)
    return [
        tuple(ids[:n].tolist()) for ids, n in zip(batch["input_ids"], lengths, strict=True) if n
    ]


@pytest.mark.parametrize("shuffle", ["all", 8, 1, None])
def test_every_epoch_holds_every_example_once(stores, shuffle):
    store = stores["list"]()
    expected = sorted(tuple(store[i]["input_ids"].tolist()) for i in range(len(store)))
    batches = list(Batches(store, **OPTIONS, shuffle=shuffle, epochs=2))
    per_epoch = Batches(store, **OPTIONS).batches_per_epoch
    assert len(batches) == 2 * per_epoch
    for epoch in (batches[:per_epoch], batches[per_epoch:]):
        assert sorted(row for batch in epoch for row in rows(batch)) == expected


@pytest.mark.parametrize("kind", ["list", "stream"])
def test_batches_by_tokens_have_more_rows_in_short_buckets(stores, kind):
    options = {"batch_size": 2, "source_lengths": (24, 48, 64), "target_length": 12}
    options |= {"shuffle": 4, "epochs": 2, "batch_by_tokens": True}
    whole = Batches(stores[kind](), **options)
    batches = list(whole)
    shapes = {batch["input_ids"].shape for batch in batches}
    assert shapes == {(4, 24), (2, 48), (2, 64)}
    seen = sorted(row for batch in batches for row in rows(batch))
    assert seen[::2] == seen[1::2]
    assert len(set(seen)) == 25
    if kind == "list":
        assert whole.batches_per_epoch == len(batches) / 2
    hosts = [Batches(stores[kind](), **options, host_rows=RowShards((i,), 2)) for i in range(2)]
    for batch, *parts in zip(batches, *hosts, strict=True):
        together = np.concatenate([part["input_ids"] for part in parts])
        np.testing.assert_array_equal(together, batch["input_ids"])


PACKED = {"batch_size": 2, "source_lengths": (128,), "target_length": 60, "packed": True, "seed": 3}


def packed_sources(batch):
    """The sources in the rows of a packed batch, as tuples of ids."""
    ids, segments = batch["input_ids"], batch["source_segment_ids"]
    assert np.array_equal(segments > 0, batch["attention_mask"])
    assert np.array_equal(batch["target_segment_ids"] > 0, batch["labels"] >= 0)
    return [
        tuple(ids[row][segments[row] == number].tolist())
        for row in range(len(ids))
        for number in range(1, segments[row].max() + 1)
    ]


def test_packed_rows_contain_every_example_once_on_any_host_and_after_any_cut(stores):
    options = {**PACKED, "shuffle": 8, "epochs": 2}
    store = stores["list"]()
    whole = Batches(store, **options)
    states, batches = [whole.state()], []
    for batch in whole:
        batches.append(batch)
        states.append(json.loads(json.dumps(whole.state())))
    assert {(b["input_ids"].shape, b["labels"].shape) for b in batches} == {((2, 128), (2, 60))}
    seen = sorted(source for batch in batches for source in packed_sources(batch))
    assert seen == sorted(2 * [tuple(store[i]["input_ids"].tolist()) for i in range(len(store))])
    assert whole.batches_per_epoch is None
    plain = {**options, "packed": False, "target_length": 12}
    assert 2 * len(batches) < len(list(Batches(store, **plain)))
    for kind in ("prepared", "stream"):
        assert_same(list(Batches(stores[kind](), **options)), batches)
    hosts = [Batches(store, **options, host_rows=RowShards((i,), 2)) for i in range(2)]
    together = [
        {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        for parts in zip(*hosts, strict=True)
    ]
    assert_same(together, batches)
    for kind in ("list", "stream"):
        for done, state in enumerate(states):
            resumed = Batches(stores[kind](), **options)
            resumed.restore(state)
            assert_same(list(resumed), batches[done:])


def test_packed_rows_are_filled_by_first_fit():
    """Rows of 4 source tokens; the target of the third example fits only the second row."""
    store = ExampleList([example(i, n, t) for i, (n, t) in enumerate([(3, 2), (2, 1), (1, 2)])])
    options = PACKED | {"source_lengths": (4,), "target_length": 3, "shuffle": None}
    [batch] = Batches(store, **options, epochs=1)
    assert batch["input_ids"].tolist() == [[1, 1, 1, 0], [2, 2, 3, 0]]
    assert batch["source_segment_ids"].tolist() == [[1, 1, 1, 0], [1, 1, 2, 0]]
    assert batch["labels"].tolist() == [[1, 1, -100], [2, 3, 3]]
    assert batch["target_segment_ids"].tolist() == [[1, 1, 0], [1, 2, 2]]
    with pytest.raises(InputError, match=r"source_lengths=\(4, 8\).* one length"):
        Batches(store, **options | {"source_lengths": (4, 8)})


def test_rows_are_padded_to_the_smallest_bucket_that_fits(stores):
    store = stores["list"]()
    by_ids = {tuple(e["input_ids"].tolist()): e for e in store}
    for batch in Batches(store, **OPTIONS, epochs=1):
        width = batch["input_ids"].shape[1]
        smaller = max((b for b in OPTIONS["source_lengths"] if b < width), default=0)
        assert batch["labels"].shape == (4, 12)
        for ids, mask, labels in zip(*batch.values(), strict=True):
            length = mask.sum()
            assert mask[:length].all()
            assert not ids[length:].any()
            if length == 0:
                assert (labels == -100).all()
                continue
            assert smaller < length <= width
            expected = by_ids[tuple(ids[:length].tolist())]["labels"]
            np.testing.assert_array_equal(labels, [*expected, *[-100] * (12 - len(expected))])


def test_types_are_those_of_the_contract(stores):
    batch = next(Batches(stores["list"](), **OPTIONS))
    assert {name: value.dtype for name, value in batch.items()} == {
        "input_ids": np.int32,
        "attention_mask": np.bool_,
        "labels": np.int32,
    }


@pytest.mark.parametrize("shuffle", [8, 4, None])
def test_stream_prepared_and_list_give_the_same_batches(stores, shuffle):
    expected = list(Batches(stores["list"](), **OPTIONS, shuffle=shuffle, epochs=3))
    for kind in ("prepared", "stream"):
        assert_same(list(Batches(stores[kind](), **OPTIONS, shuffle=shuffle, epochs=3)), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cut_anywhere_in_three_epochs_continues_at_the_next_example(stores, kind):
    def fresh():
        return Batches(stores[kind](), **OPTIONS, shuffle=SHUFFLES[kind], epochs=3)

    whole = fresh()
    states, batches = [whole.state()], []
    for batch in whole:
        batches.append(batch)
        states.append(json.loads(json.dumps(whole.state())))
    assert {state["epoch"] for state in states} == {0, 1, 2}
    for done, state in enumerate(states):
        resumed = fresh()
        resumed.restore(state)
        assert_same(list(resumed), batches[done:])


@pytest.mark.parametrize("kind", KINDS)
def test_going_back_and_forth_with_one_iterator(stores, kind):
    batches = Batches(stores[kind](), **OPTIONS, shuffle=SHUFFLES[kind])
    next(batches)
    state = batches.state()
    first = [next(batches) for _ in range(12)]
    batches.restore(state)
    assert_same([next(batches) for _ in range(12)], first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host_count", [2, 4])
def test_hosts_together_have_the_batch_of_one_host(stores, kind, host_count):
    options = {**OPTIONS, "shuffle": SHUFFLES[kind], "epochs": 2}
    whole = list(Batches(stores[kind](), **options))
    parts = [
        list(Batches(stores[kind](), **options, host_rows=RowShards((host,), host_count)))
        for host in range(host_count)
    ]
    assert {len(part) for part in parts} == {len(whole)}
    for batch, *host_batches in zip(whole, *parts, strict=True):
        for name, value in batch.items():
            for host, host_batch in enumerate(host_batches):
                rows = len(value) // host_count
                own = value[host * rows : (host + 1) * rows]
                np.testing.assert_array_equal(host_batch[name], own)


def test_a_host_may_have_shards_that_are_not_adjacent(stores):
    """As on a 4x4 slice of TPUs."""
    shards = {0: RowShards((0, 3), 4), 1: RowShards((1, 2), 4)}
    options = {**OPTIONS, "batch_size": 8, "epochs": 1}
    whole = list(Batches(stores["list"](), **options))
    assert any(len(batch["input_ids"]) > batch["attention_mask"].any(1).sum() for batch in whole)
    for host, rows in shards.items():
        numbers = [2 * shard + row for shard in rows.numbers for row in (0, 1)]
        own = list(Batches(stores["list"](), **options, host_rows=rows))
        for part, batch in zip(own, whole, strict=True):
            for name, value in batch.items():
                np.testing.assert_array_equal(part[name], value[numbers], err_msg=f"{host} {name}")


def test_more_hosts_than_prepared_shards_are_refused(stores):
    with pytest.raises(InputError, match="prepared in 4 shards, fewer than the 5 hosts"):
        Batches(stores["prepared"](), **OPTIONS | {"batch_size": 5}, host_rows=RowShards((0,), 5))


def test_a_run_resumes_on_another_number_of_hosts_and_from_another_store(stores):
    options = {**OPTIONS, "shuffle": 8, "epochs": 2}
    two_hosts = Batches(stores["stream"](), **options, host_rows=RowShards((1,), 2))
    for _ in range(5):
        next(two_hosts)
    one_host = Batches(stores["prepared"](), **options)
    one_host.restore(two_hosts.state())
    assert_same(list(one_host), list(Batches(stores["list"](), **options))[5:])


def test_a_run_resumes_with_other_buckets_and_batch_size_without_losing_an_example(stores):
    store = stores["list"]()
    before = Batches(store, **OPTIONS, epochs=1)
    seen = [row for _ in range(3) for row in rows(next(before))]
    options = {**OPTIONS, "batch_size": 2, "source_lengths": (40, 64)}
    after = Batches(store, **options, epochs=1)
    after.restore(before.state())
    seen += [row for batch in after for row in rows(batch)]
    assert sorted(seen) == sorted(tuple(e["input_ids"].tolist()) for e in store)


def test_more_epochs_may_be_asked_for_after_the_end(stores):
    finished = Batches(stores["list"](), **OPTIONS, epochs=1)
    first = list(finished)
    assert next(finished, None) is None
    longer = Batches(stores["list"](), **OPTIONS, epochs=2)
    longer.restore(finished.state())
    assert_same(list(longer), list(Batches(stores["list"](), **OPTIONS, epochs=2))[len(first) :])


def test_order_changes_with_epoch_and_seed(stores):
    store = stores["list"]()
    one_bucket = {**OPTIONS, "source_lengths": (64,), "batch_size": 25}
    first, second = (rows(b) for b in Batches(store, **one_bucket, epochs=2))
    (other,) = (rows(b) for b in Batches(store, **{**one_bucket, "seed": 4}, epochs=1))
    assert sorted(first) == sorted(second) == sorted(other)
    assert first != second
    assert first != other


def test_rows_left_over_fill_up_with_empty_rows():
    store = ExampleList([example(0, 3), example(1, 5)])
    batch = next(Batches(store, batch_size=4, source_lengths=(6,), target_length=2, shuffle=None))
    np.testing.assert_array_equal(batch["attention_mask"].sum(1), [3, 5, 0, 0])
    np.testing.assert_array_equal(batch["labels"], [[1, 1], [2, 2], [-100, -100], [-100, -100]])


def test_pad_batch_uses_the_given_padding():
    batch = pad_batch(
        [example(6, 1, 1)], rows=1, source_length=3, target_length=2, pad_id=9, label_pad_id=-1
    )
    assert batch["input_ids"].tolist() == [[7, 9, 9]]
    assert batch["labels"].tolist() == [[7, -1]]


def labelled_example(index, labels):
    return example(index, 2) | {"labels": np.array(labels, np.int32), "target_tokens": len(labels)}


def test_labels_of_a_classifier():
    store = ExampleList([labelled_example(0, [2]), labelled_example(1, [0])])
    options = {"batch_size": 3, "source_lengths": (4,), "shuffle": None}
    labels = next(Batches(store, **options, classes=ClassLabels(3, multi_label=False)))["labels"]
    assert (labels.tolist(), labels.dtype) == ([2, 0, -100], np.int32)
    store = ExampleList([labelled_example(0, [2, 0]), labelled_example(1, [])])
    labels = next(Batches(store, **options, classes=ClassLabels(3, multi_label=True)))["labels"]
    assert (labels.tolist(), labels.dtype) == ([[1, 0, 1], [0, 0, 0], [-100] * 3], np.float32)


def test_examples_without_labels():
    store = ExampleList([labelled_example(0, [])])
    assert next(Batches(store, batch_size=1, source_lengths=(4,))).keys() == {
        "input_ids",
        "attention_mask",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"batch_size": 3, "host_rows": RowShards((0,), 2)},
            "batch_size=3 must be a positive multiple of 2, the number of parts",
        ),
        ({"batch_size": 0}, "batch_size=0"),
        ({"host_rows": RowShards((2,), 2)}, "must have numbers from 0 to 1"),
        ({"source_lengths": (48, 24)}, "must be positive and ascending"),
        ({"source_lengths": ()}, "must be positive and ascending"),
        ({"epochs": 0}, "epochs=0"),
        ({"seed": -1}, "seed=-1 does not fit"),
        ({"shuffle": "some"}, "shuffle='some' must be "),
        ({"shuffle": 0}, "shuffle=0 must be "),
        ({"source_lengths": (16, 32)}, r'example "r\d+" has 64 source .* last bucket \(32\)'),
        ({"target_length": 8}, r'example "r\d+" has .* target_length \(8\)'),
    ],
)
def test_options_that_do_not_fit(stores, options, message):
    with pytest.raises(InputError, match=message):
        Batches(stores["list"](), **{**OPTIONS, **options})


def test_an_empty_store_is_an_error():
    with pytest.raises(InputError, match="no usable example"):
        Batches(ExampleList([]), **OPTIONS)


def test_a_stream_has_no_order_over_everything(stores):
    with pytest.raises(InputError, match="store of known length"):
        Batches(stores["stream"](), **OPTIONS, shuffle="all")
    with pytest.raises(InputError, match="shuffle=5 does not divide the stream's window of 8"):
        Batches(stores["stream"](), **OPTIONS, shuffle=5)


def test_a_stream_says_which_example_is_too_long(stores):
    batches = Batches(stores["stream"](), **{**OPTIONS, "source_lengths": (30,)}, shuffle=8)
    with pytest.raises(InputError, match=r'example "r\d+" has \d+ source'):
        list(batches)


@pytest.mark.parametrize(("key", "value"), [("seed", 8), ("shuffle", 8), ("examples", 9)])
def test_a_state_of_another_order_is_refused(stores, key, value):
    batches = Batches(stores["list"](), **OPTIONS)
    with pytest.raises(InputError, match=f"was made with {key}={value}"):
        batches.restore(batches.state() | {key: value})


OTHER = [
    ("crc32_of_first_example", example(9, 20)),
    ("crc32_of_first_example", example(0, 20) | {"labels": np.full(2, 9, np.int32)}),
    ("crc32_of_lengths", example(0, 21)),
]


@pytest.mark.parametrize(("key", "first"), OTHER)
def test_a_state_of_as_many_other_examples_is_refused(key, first):
    rest = [example(1, 30), example(2, 40)]
    state = Batches(ExampleList([example(0, 20), *rest]), **OPTIONS).state()
    other = Batches(ExampleList([first, *rest]), **OPTIONS)
    with pytest.raises(InputError, match=f"was made with {key}=.*; use the same data"):
        other.restore(state)


def test_a_state_of_an_older_version_knows_the_number_of_examples_alone(stores):
    batches = Batches(stores["list"](), **OPTIONS)
    next(batches)
    state = batches.state()
    older = {key: value for key, value in state.items() if not key.startswith("crc32")}
    resumed = Batches(stores["list"](), **OPTIONS)
    resumed.restore(older)
    assert resumed.state() == state
