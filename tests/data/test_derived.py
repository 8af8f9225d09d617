"""Claims and cloze questions as documents of a task, and the examples made of them."""

import json

import pytest

from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.experimental.tasks.claims import claims_of
from longsum_jax.experimental.tasks.cloze import MARK

STORY = (
    "Ann Lee met the council of Rome in 2019. It was told of 3 dams there by 2 of her engineers. "
    "Later Bob Ray of Paris paid $5 million for a dam that was never built near Rome."
)
ROWS = [
    {"id": "a", "document": STORY, "summary": "Bob Ray of Paris paid $5 million. Ed Fox slept."},
    {"id": "b", "document": "It rained. " + STORY, "summary": "It rained all day."},
]


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "rows.jsonl"

    def make(name, rows=ROWS, **options):
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return get_task(name, source=f"json:{path}", **options)

    return make


def test_claims_stand_behind_their_documents(task, tokenizer):
    claims = task("claims", claims={"per_text": 9, "piece_words": 20, "noisy": 0.0})
    result = list(documents(claims, "train"))
    assert [document.id for document in result[:2]] == ["a#0", "a#1"]
    pieces = dict.fromkeys(document.document for document in result if document.id[0] == "a")
    assert " ".join(pieces).replace("\n\n", " ") == STORY
    expected = [claim for piece in pieces for claim in claims_of(piece, claims.claims)]
    assert [(d.query, d.label) for d in result if d.id[0] == "a"] == [c[:2] for c in expected]
    labeled = collect_labels(claims, "train")
    assert labeled.labels == ("CORRECT", "INCORRECT")
    examples = list(make_examples(labeled, tokenizer, result))
    assert [example["labels"].tolist() for example in examples[:2]] == [[0], [1]]
    pair = tokenizer.join_pair(*map(tokenizer.encode, (result[0].document, result[0].query)))
    assert examples[0]["input_ids"].tolist() == pair.ids
    assert examples[0]["token_type_ids"].tolist() == pair.token_type_ids
    # Of a pair that is too long the document is cut, not the claim.
    short = get_task("claims", source=labeled.source, labels=labeled.labels, max_source_length=120)
    [example] = make_examples(short, tokenizer, result[:1])
    assert len(example["input_ids"]) == 120
    assert example["source_tokens"] == len(pair.ids)
    assert tokenizer.decode(example["input_ids"]).endswith(result[0].query[-40:])


@pytest.mark.parametrize("name", ["claims", "cloze"])
def test_documents_without_names_make_nothing(task, name):
    made = task(name, [{"id": "a", "document": "it rained all day.", "summary": "it rained."}])
    with pytest.raises(InputError, match=f'"{name}" find no names, dates or numbers'):
        list(documents(made, "train"))
    assert list(documents(made, "validation")) == []


def test_labeled_pairs(task, tokenizer):
    rows = [{"document": "It rained.", "claim": "Rain fell.", "label": "CORRECT"}]
    labeled = collect_labels(task("pairs", rows), "train")
    [example] = make_examples(labeled, tokenizer, documents(labeled, "train"))
    ids = tokenizer.join_pair(tokenizer.encode("It rained."), tokenizer.encode("Rain fell.")).ids
    assert example["input_ids"].tolist() == ids
    del rows[0]["claim"]
    without = task("pairs", rows, labels=["CORRECT"])
    with pytest.raises(InputError, match=r'document ".*" has no "claim"; give each document a'):
        list(make_examples(without, tokenizer, documents(without, "train")))


def test_cloze_questions_that_the_document_answers(task, tokenizer):
    cloze = task("cloze")
    result = list(documents(cloze, "train"))
    context = "Later Bob Ray of Paris paid $5 million for a dam that was never built near Rome."
    assert [document[1:5] for document in result] == [
        (context, None, f"{MARK} paid $5 million.", "Bob Ray of Paris"),
        (context, None, f"Bob Ray of Paris paid {MARK}.", "$5 million"),
    ]
    examples = list(make_examples(cloze, tokenizer, result))
    start, end = examples[0]["labels"]
    assert tokenizer.decode(examples[0]["input_ids"][start : end + 1]) == "Bob Ray of Paris"
    # A question that leaves no room gives no example.
    short = task("cloze", max_source_length=40)
    assert list(make_examples(short, tokenizer, result)) == []


def test_gap_sentences_are_summaries_where_there_are_none():
    task = get_task("cloze", source="embedded")
    result = list(documents(task, "validation"))
    assert len(result) > 20
    for document in result:
        assert MARK in document.query
        assert document.label in document.document
