import dataclasses

import numpy as np
import pytest

from longsum_jax.data.examples.base import Counts
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.examples.summarization import make_example, source_and_target
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleList, load_examples
from longsum_jax.data.tasks import get_task
from longsum_jax.text.documents import DataRow
from longsum_jax.tokenizers.loading import ByteTokenizer

SENTENCES = [
    f"The {word} report says that {word} numbers rise."
    for word in ("red", "blue", "green", "grey", "black")
]


def task_of(**overrides):
    return get_task("qmsum", source="json:unused", **overrides)


def document(text="A long text.", summary="Short.", query=None):
    return DataRow(id="d", document=text, summary=summary, query=query)


def byte_ids(text):
    """ByT5's ids written out: byte + 3, then 1 for the end."""
    return [byte + 3 for byte in text.encode()] + [1]


def test_ids_end_with_the_end_of_sequence(tokenizer):
    example = make_example(task_of(), tokenizer, document())
    assert example["input_ids"].tolist() == byte_ids("A long text.")
    assert example["labels"].tolist() == byte_ids("Short.")
    assert example["input_ids"].dtype == example["labels"].dtype == np.int32
    assert (example["id"], example["source_tokens"], example["target_tokens"]) == ("d", 13, 7)


@pytest.mark.parametrize(("length", "kept"), [(5, "abcd"), (6, "abcde"), (7, "abcde")])
def test_truncation_keeps_the_first_tokens_and_the_end(tokenizer, length, kept):
    example = make_example(
        task_of(max_source_length=length, max_target_length=length),
        tokenizer,
        document("abcde", "abcde"),
    )
    for key in ("input_ids", "labels"):
        assert example[key].tolist() == byte_ids(kept)
    assert example["source_tokens"] == example["target_tokens"] == 6


def test_query_and_prefix_come_before_the_document(tokenizer):
    texts = source_and_target(task_of(prefix="summarize: "), document("Text.", "S.", "Who?"))
    assert texts == ("summarize: Who?\nText.", "S.")


@pytest.mark.parametrize(
    ("text", "summary"), [("Text.", ""), ("Text.", " \n"), ("Text.", None), (" ", "S.")]
)
def test_nothing_to_learn_from(tokenizer, text, summary):
    assert make_example(task_of(), tokenizer, document(text, summary)) is None


def test_gap_sentences_leave_the_source_and_become_the_target():
    task = get_task("embedded")
    source, target = source_and_target(task, document(" ".join(SENTENCES), None))
    selected = [s for s in SENTENCES if s in target]
    assert len(selected) == 1  # floor(0.2 * 5)
    assert all((s in source) != (s in selected) for s in SENTENCES)


def test_documents_too_short_for_a_gap():
    assert source_and_target(get_task("embedded"), document("One. Two.", None)) is None
    one = get_task("embedded", gap_sentences={"short_documents": "one"})
    assert source_and_target(one, document("One thing. Two things.", None)) is not None


def test_random_gaps_depend_on_seed_and_text_alone():
    task = get_task("embedded", gap_sentences={"strategy": "random", "ratio": 0.4})
    text = " ".join(SENTENCES * 4)
    first = source_and_target(task, document(text, None), seed=1)
    other_place = DataRow(id="elsewhere", document=text, summary=None, query=None)
    assert source_and_target(task, other_place, seed=1) == first
    assert source_and_target(task, document(text, None), seed=2) != first


def test_a_selection_made_before_is_taken_as_it_is():
    assert source_and_target(get_task("c4"), document("rest", "selected")) == ("rest", "selected")


def test_counts_tell_what_was_dropped(tokenizer):
    counts = Counts()
    docs = [document("abcdef", "xy"), document("abc", ""), document("ab", "uvwxyz")]
    task = task_of(max_source_length=5, max_target_length=4)
    list(make_examples(task, tokenizer, docs, counts=counts))
    assert dataclasses.asdict(counts) == {
        "read": 3,
        "pieces": 3,
        "too_short": 1,
        "truncated_sources": 1,
        "truncated_targets": 1,
        "source_tokens": 7 + 3,
        "target_tokens": 3 + 7,
        "dropped_source_tokens": 2,
        "dropped_target_tokens": 3,
        "unlabelled": 0,
        "identical_pairs": 0,
    }


def test_counts_tell_documents_from_pieces(report_task, tokenizer):
    task = dataclasses.replace(report_task, piece_words=20)
    examples = load_examples(task, tokenizer, "train")
    pieces = [source_and_target(task, d) for d in documents(task, "train")]
    assert examples.counts.read == 29
    assert examples.counts.pieces == len(pieces) > 29
    assert examples.counts.too_short == pieces.count(None) > 0
    assert len(examples) == len(pieces) - pieces.count(None)


def test_list_of_a_split(report_task, tokenizer):
    examples = load_examples(report_task, tokenizer, "train")
    assert len(examples) == 25
    assert (examples.counts.read, examples.counts.too_short) == (29, 4)
    assert examples.lengths.dtype == np.int32
    assert examples.lengths.tolist() == [[len(e["input_ids"]), len(e["labels"])] for e in examples]
    assert [e["id"] for e in examples][5:8] == ["r5", "r7", "r8"]


def test_empty_list_has_lengths_of_the_right_shape():
    assert ExampleList([]).lengths.shape == (0, 2)


class BetweenTwoTokens(ByteTokenizer):
    """Bytes with a token before a text as well as after it, as in BART."""

    prefix_ids = (2,)


def test_examples_are_closed_as_the_tokenizer_says():
    example = make_example(
        task_of(max_source_length=4), BetweenTwoTokens(), document("abcde", "ab")
    )
    assert example["input_ids"].tolist() == [2, 100, 101, 1]
    assert example["labels"].tolist() == [2, 100, 101, 1]
    assert (example["source_tokens"], example["target_tokens"]) == (7, 4)
