"""From a document to segments with targets, and to batches of them."""

import dataclasses

import numpy as np
import pytest

from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.padding import SegmentShape, pad_batch
from longsum_jax.data.stores import ExampleList
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import Auxiliary
from longsum_jax.tokenizers.loading import load_tokenizer

SEGMENTS = {"min_tokens": 30, "max_tokens": 40, "segment_length": 96, "num_vectors": 60}
TEXT = (
    "Cats sleep all day long. They dream of mice. Rain falls on the hills. Rivers carry it to the "
    "sea."
)
SUMMARY = "Rain falls. Cats sleep. It goes to the sea."


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("bytes", vocab_size=300)


@pytest.fixture
def make(tokenizer):
    def make(summary=SUMMARY, query=None, **options):
        lengths = {"max_source_length": 96, "max_target_length": 64}
        names = {"max_target_length", "max_parts", "prefix"} & options.keys()
        lengths |= {name: options.pop(name) for name in names}
        task = get_task(
            "summaries", objective="summarize_segments", segments=SEGMENTS | options, **lengths
        )
        return list(make_examples(task, tokenizer, [DataRow("a", TEXT, summary, query)]))

    return make


def texts(tokenizer, ids, lengths):
    return [tokenizer.decode(part.tolist()) for part in np.split(ids, np.cumsum(lengths)[:-1])]


def test_every_sentence_of_the_summary_goes_to_the_segment_that_covers_it(make, tokenizer):
    (example,) = make()
    assert texts(tokenizer, example["input_ids"], example["segment_lengths"]) == [
        "Cats sleep all day long. They dream of mice.",
        " Rain falls on the hills. Rivers carry it to the sea.",
    ]
    assert texts(tokenizer, example["labels"], example["label_lengths"]) == [
        "Cats sleep.",
        "Rain falls. It goes to the sea.",
    ]
    assert "vectors" not in example
    assert example["source_tokens"] == len(example["input_ids"])
    assert example["target_tokens"] == len(example["labels"])


def test_segments_without_a_target(make, tokenizer):
    (example,) = make(summary="Rain falls.")
    assert example["label_lengths"].tolist() == [0, 12]
    (example,) = make(summary="Rain falls.", train_empty=True)
    assert example["label_lengths"].tolist() == [1, 12]
    assert example["labels"][0] == tokenizer.eos_id
    assert make(summary=" ") == []


def test_what_is_cut_off_is_counted(make, tokenizer):
    (example,) = make(max_target_length=8)
    assert example["label_lengths"].tolist() == [8, 8]
    assert example["labels"][[7, 15]].tolist() == [tokenizer.eos_id] * 2
    assert example["target_tokens"] == 12 + 32
    (example,) = make(train_tokens=50)
    assert example["segment_lengths"].tolist() == [45]
    assert example["source_tokens"] == len(TEXT) + 1
    (other,) = make(max_parts=1)
    np.testing.assert_array_equal(other["input_ids"], example["input_ids"])
    assert len(example["labels"]) == len(SUMMARY) + 1  # all of the summary belongs to what is read


def test_query_and_prefix_stand_before_every_segment(make, tokenizer):
    (example,) = make(query="cats?", prefix="say: ")
    result = texts(tokenizer, example["input_ids"], example["segment_lengths"])
    assert [text[:11] for text in result] == ["say: cats?\n"] * 2
    with pytest.raises(InputError, match=r"segments\.min_tokens=30; shorten it"):
        make(query="c" * 90)


def test_important_sentences_as_text_and_as_vectors(make, tokenizer):
    (example,) = make(salient="text", salient_source="oracle", segment_length=160, min_tokens=30)
    first, second = texts(tokenizer, example["input_ids"], example["segment_lengths"])
    assert first.startswith(" Current chunk:Cats sleep")
    assert first.endswith(
        "Next important sentences: Rain falls on the hills. Rivers carry it to the sea."
    )
    assert second.startswith(
        " Previous important sentences:Cats sleep all day long. Current chunk:"
    )
    (example,) = make(salient="vectors", salient_source="oracle")
    slots, reads = example["vectors"]
    assert (slots >= 0).sum(1).tolist() == [24, 53]
    assert reads.shape == (2, 60)
    np.testing.assert_array_equal(
        np.sort(reads[1][reads[1] >= 0]), np.sort(slots[0][slots[0] >= 0])
    )


def test_batches_of_documents(make):
    long, short = make(salient="vectors", salient_source="oracle") + make(
        salient="vectors", salient_source="oracle", max_parts=1
    )
    assert ExampleList([long, short]).lengths.tolist() == [[2, 32], [1, 44]]
    shape = SegmentShape(96, 44, 60)
    batch = pad_batch([short, long], rows=3, source_length=4, segments=shape)
    assert {name: array.shape for name, array in batch.items()} == {
        "input_ids": (3, 4, 96),
        "attention_mask": (3, 4, 96),
        "labels": (3, 4, 44),
        "slots": (3, 4, 96),
        "reads": (3, 4, 60),
    }
    assert batch["attention_mask"].sum(-1).tolist() == [[45, 0, 0, 0], [45, 54, 0, 0], [0] * 4]
    assert (batch["labels"] != -100).sum(-1).tolist() == [[44, 0, 0, 0], [12, 32, 0, 0], [0] * 4]
    np.testing.assert_array_equal(batch["slots"][1, :2], long["vectors"][0])
    assert (batch["slots"][2] == -1).all()


def test_gap_sentences_stand_in_for_a_summary(tokenizer, topics):
    task = get_task(
        "embedded", objective="summarize_segments", max_source_length=96, segments=SEGMENTS
    )
    (example,) = make_examples(task, tokenizer, [DataRow("a", topics[3], None, None)])
    assert example["label_lengths"].sum() > 0
    assert len(example["segment_lengths"]) > 5


def test_models_of_the_options_must_be_passed(make):
    problem = r"segments\.sentence_encoder is runs/e, but no such model was passed; give auxiliary"
    with pytest.raises(InputError, match=problem):
        make(sentence_encoder="runs/e")
    with pytest.raises(InputError, match=r"segments\.extractor is runs/x, but no such model"):
        make(salient="text", extractor="runs/x", segment_length=160)
    # The oracle takes the extractor's place.
    assert make(salient="text", extractor="runs/x", salient_source="oracle", segment_length=160)


def test_passed_functions_cut_documents_and_choose_sentences(tokenizer, make):
    calls = []

    def encode_sentences(sentences):
        calls.append(len(sentences))
        return np.eye(len(sentences))

    def extract(sentences, query):
        calls.append(query)
        return [0]

    lengths = {"max_source_length": 160, "max_target_length": 64}
    options = SEGMENTS | {"salient": "text", "segment_length": 160, "extractor": "runs/x"}
    task = get_task("summaries", objective="summarize_segments", segments=options, **lengths)
    auxiliary = Auxiliary(encode_sentences, extract)
    docs = [DataRow("a", TEXT, SUMMARY, "cats?")]
    (example,) = make_examples(task, tokenizer, docs, auxiliary=auxiliary)
    assert calls == [4, "cats?"]
    assert "important sentences:Cats sleep" in tokenizer.decode(example["input_ids"].tolist())


def test_options_that_do_not_fit():
    def make(**options):
        return get_task("summaries", objective="summarize_segments", segments=options)

    with pytest.raises(
        InputError, match=r'segments.extractor is runs/x, but segments.salient is "none"'
    ):
        make(extractor="runs/x")
    with pytest.raises(InputError, match=r'segments.salient: "words" is not allowed; did you mean'):
        make(salient="words")
    with pytest.raises(InputError, match=r"segments\.min_tokens=9 and max_tokens=8"):
        make(min_tokens=9, max_tokens=8)
    assert dataclasses.asdict(make(train_tokens=0).segments)["train_tokens"] == 0
