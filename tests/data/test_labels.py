import json

import numpy as np
import pytest

from longsum_jax.data.examples.classification import class_numbers, label_numbers
from longsum_jax.data.examples.registry import make_examples
from longsum_jax.data.labels import collect_labels
from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.stores import load_examples
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow


@pytest.fixture
def task_of(tmp_path):
    """Labels to a task whose documents have them, and are called a, b, c and so on."""

    def make(*labels, **options):
        path = tmp_path / "rows.jsonl"
        rows = (
            {"id": chr(97 + i), "text": f"Text {i}.", "label": label}
            for i, label in enumerate(labels)
        )
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return get_task("labels", source=f"json:{path}", max_source_length=16, **options)

    return make


def document(label, name="d"):
    return DataRow(name, "Text.", None, None, label)


@pytest.mark.parametrize(
    ("labels", "names", "multi_label"),
    [
        (["pos", "neg", "pos"], ("neg", "pos"), False),
        ([3, 0, 1], ("0", "1", "2", "3"), False),
        ([["b"], [], ["a", "b"]], ("a", "b"), True),
        ([[1], []], ("0", "1"), True),
    ],
)
def test_names_are_collected_in_sorted_order(task_of, labels, names, multi_label):
    task = collect_labels(task_of(*labels), "train")
    assert (task.labels, task.multi_label) == (names, multi_label)


def test_a_label_that_is_given_twice_counts_once(task_of):
    task = collect_labels(task_of(["b", "a", "b"], ["a"]), "train")
    assert class_numbers(task, document(("b", "a", "b"))).tolist() == [0, 1]


def test_names_that_a_model_or_the_task_has(task_of):
    assert collect_labels(task_of("a", "b"), "train", ("b", "c", "a")).labels == ("b", "c", "a")
    assert collect_labels(task_of("a", "b", labels=("b", "a")), "train", ("x", "y")).labels == (
        "b",
        "a",
    )
    assert collect_labels(task_of(1, 0), "train", ("NEGATIVE", "POSITIVE")).labels == (
        "NEGATIVE",
        "POSITIVE",
    )


def test_numbers_of_labels():
    assert label_numbers(document("b"), ("c", "b")).tolist() == [1]
    assert label_numbers(document(1), ("c", "b")).tolist() == [1]
    result = label_numbers(document(("a", "b")), ("b", "c", "a"))
    assert (result.tolist(), result.dtype) == ([2, 0], np.int32)
    assert label_numbers(document(()), ("a",)).shape == (0,)


@pytest.mark.parametrize(
    ("labels", "names", "problem"),
    [
        (["a", 1], (), r'document "b": its label 1 is of another kind than earlier labels'),
        (["a", ["a"]], (), r"document \"b\": its label \('a',\) is of another kind"),
        ([[], 1], (), 'document "b": its label 1 is of another kind'),
        (
            ["a", "c"],
            ("a", "b"),
            "label 'c' is not a label of the task; known: a, b; .* task.labels",
        ),
        ([2], ("a", "b"), 'document "a": label 2 is not a label of the task; known: a, b'),
        (
            [500],
            [f"{i}" for i in range(30)],
            'document "a": label 500 is not a label of the task; there are 30 labels',
        ),
        ([[], []], (), 'task "labels", split "train": no document has a label; check json:'),
        ([3, 10**9], (), "there is a label 1000000000, and labels are numbered from 0 to 65535"),
    ],
)
def test_labels_that_do_not_fit(task_of, labels, names, problem):
    with pytest.raises(InputError, match=problem):
        collect_labels(task_of(*labels), "train", names)


def test_examples_hold_text_and_numbers(task_of, tokenizer):
    task = collect_labels(task_of("x", "y"), "train")
    examples = load_examples(task, tokenizer, "train")
    assert [e["labels"].tolist() for e in examples] == [[0], [1]]
    assert examples[1]["input_ids"].tolist() == [*(byte + 3 for byte in b"Text 1."), 1]


def test_prepared_examples_keep_the_names(task_of, tokenizer, tmp_path):
    metadata = write_prepared(
        tmp_path / "prepared", task_of("x", "y"), tokenizer, "train", 1, progress=False
    )
    assert metadata["task"]["labels"] == ("x", "y")
    assert [e["labels"].tolist() for e in PreparedExamples(tmp_path / "prepared")] == [[0], [1]]


def test_claims_are_prepared_with_their_labels(tokenizer, tmp_path):
    path = tmp_path / "rows.jsonl"
    story = "Ann Lee met the council of Rome in 2019. It was told of 3 dams there by 2 of her men."
    path.write_text(json.dumps({"document": story}) + "\n")
    options = {"piece_words": 20, "noisy": 0.0}
    task = get_task("claims", source=f"json:{path}", max_source_length=64, claims=options)
    write_prepared(tmp_path / "prepared", task, tokenizer, "train", 1, progress=False)
    prepared = PreparedExamples(tmp_path / "prepared")
    assert prepared.metadata["task"]["labels"] == ["CORRECT", "INCORRECT"]
    assert {tuple(example["labels"]) for example in prepared} == {(0,), (1,)}


@pytest.mark.parametrize("label", [["x", "y"], []])
def test_one_label_each_where_training_has_one_each(task_of, tokenizer, label):
    task = collect_labels(task_of("x", "y"), "train")
    text = f'document "a" has {len(label)} labels, but the training documents have'
    with pytest.raises(InputError, match=text):
        load_examples(task_of(label, labels=task.labels), tokenizer, "train")


# Pieces for masked language models


def test_pieces_hold_every_token_between_prefix_and_end(tokenizer):
    task = get_task("masked_tokens", source="json:unused", max_source_length=6, prefix="> ")
    text = "abcdefghi"
    examples = list(make_examples(task, tokenizer, [DataRow("d", text, None, None)]))
    decoded = [tokenizer.decode(example["input_ids"].tolist()) for example in examples]
    assert decoded == ["> abc", "> def", "> ghi"]
    assert [e["id"] for e in examples] == ["d#0", "d#1", "d#2"]
    assert all(e["input_ids"][-1] == tokenizer.eos_id and len(e["labels"]) == 0 for e in examples)
    assert {len(e["input_ids"]) for e in examples} == {6}


def test_a_prefix_that_leaves_no_room(tokenizer):
    task = get_task("masked_tokens", source="json:unused", max_source_length=4, prefix="long")
    with pytest.raises(InputError, match="max_source_length=4 leaves no room for text; raise it"):
        list(make_examples(task, tokenizer, [DataRow("d", "text", None, None)]))


# Documents held out of a single file


def test_a_share_is_held_out_whatever_the_order(task_of, tokenizer):
    from longsum_jax.data.sources import documents

    task = task_of(*["x", "y"] * 10, held_out=0.3)
    splits = {split: [d.id for d in documents(task, split)] for split in ("train", "validation")}
    assert sorted(splits["train"] + splits["validation"]) == [chr(97 + i) for i in range(20)]
    assert 0 < len(splits["validation"]) < 14
    turned = task_of(*["x", "y"] * 5, held_out=0.3)
    assert [d.id for d in documents(turned, "validation")] == [
        n for n in splits["validation"] if n < "k"
    ]


def test_documents_that_are_all_held_out_are_no_training_data(task_of):
    from longsum_jax.data.sources import documents

    task = task_of("x", held_out=1 - 1e-9)
    assert len(list(documents(task, "validation"))) == 1
    with pytest.raises(InputError, match=r"every document is held out .*; give more documents"):
        list(documents(task, "train"))
