import dataclasses

import pytest

from longsum_jax.data import stores
from longsum_jax.data.stores import ExampleStream, load_examples
from longsum_jax.errors import InputError


@pytest.fixture
def expected(report_task, tokenizer):
    return [e["input_ids"].tolist() for e in load_examples(report_task, tokenizer, "train")]


@pytest.fixture
def starts(monkeypatch):
    """Collects the first document of each time that the source is read."""
    result = []
    read = stores.documents
    monkeypatch.setattr(stores, "documents", lambda *a: [result.append(a[2]), read(*a)][1])
    return result


@pytest.mark.parametrize("window", [1, 5, 25, 100])
def test_forwards_in_one_pass(report_task, tokenizer, expected, starts, window):
    stream = ExampleStream(report_task, tokenizer, "train", window)
    assert [stream[i]["input_ids"].tolist() for i in range(25)] == expected
    assert len(starts) == 1
    with pytest.raises(IndexError):
        stream[25]
    assert (stream.counts.read, stream.counts.too_short) == (29, 4)


def test_any_order_inside_a_window_and_leaps_ahead(report_task, tokenizer, expected, starts):
    stream = ExampleStream(report_task, tokenizer, "train", 6)
    for index in (5, 0, 3, 14, 12, 24):
        assert stream[index]["input_ids"].tolist() == expected[index]
    assert len(starts) == 1


def test_going_back_starts_again(report_task, tokenizer, expected, starts):
    stream = ExampleStream(report_task, tokenizer, "train", 4)
    for index in (20, 3, 24, 0):
        assert stream[index]["input_ids"].tolist() == expected[index]
    assert starts == [0, 0, 26, 0]  # document 26 has the example before 24


@pytest.mark.parametrize("piece_words", [None, 20])
def test_another_process_starts_at_a_mark(report_task, tokenizer, expected, starts, piece_words):
    task = dataclasses.replace(report_task, piece_words=piece_words)
    stream = ExampleStream(task, tokenizer, "train", 4)
    last = stream[23]["input_ids"].tolist()
    other = ExampleStream(task, tokenizer, "train", 4)
    other.add_marks(stream.marks([13, 23]))
    starts.clear()
    assert other[23]["input_ids"].tolist() == last
    assert other[13]["input_ids"].tolist() == stream[13]["input_ids"].tolist()
    assert len(starts) == 3
    assert min(starts[:2]) > 0


def test_past_the_end_and_back(report_task, tokenizer, expected):
    stream = ExampleStream(report_task, tokenizer, "train", 5)
    with pytest.raises(IndexError):
        stream[1000]
    assert stream[7]["input_ids"].tolist() == expected[7]
    with pytest.raises(IndexError):
        stream[-1]


@pytest.mark.parametrize(
    ("start", "limit", "found"), [(0, 4, 4), (24, 8, 1), (32, 8, 0), (16, 8, 8)]
)
def test_count_from(report_task, tokenizer, start, limit, found):
    assert ExampleStream(report_task, tokenizer, "train", 8).count_from(start, limit) == found


def test_bad_window_and_split(report_task, tokenizer):
    with pytest.raises(InputError, match="window=0"):
        ExampleStream(report_task, tokenizer, "train", 0)
    with pytest.raises(InputError, match='no split "trian"; did you mean "train"'):
        ExampleStream(report_task, tokenizer, "trian", 4)
