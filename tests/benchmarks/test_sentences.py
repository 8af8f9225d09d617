"""The benchmark of sentence splitters: its counts on small texts, and a run without peers."""

import json
import lzma

import pytest

from longsum_jax.text.sentences import split_sentences


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("sentences")


def test_boundaries_count_characters_but_white_space(script):
    assert script.boundaries(["A b. ", "Cd!"]) == {3, 6}


def test_errors_are_missed_and_wrong_boundaries(script):
    text = script.Text("own", "en", "end", "seen", "Ab. Cd. Ef.", {3: True, 6: True}, True)
    assert script.errors(text, lambda _: ["Ab. Cd.", "Ef."]) == {"missed": 1, "wrong": 0}
    assert script.errors(text, lambda _: ["A", "b.", "Cd.", "Ef."]) == {"missed": 0, "wrong": 1}
    partly = text._replace(labels={3: False}, is_complete=False)
    assert script.errors(partly, lambda _: ["A", "b.", "Cd. Ef."]) == {"missed": 0, "wrong": 1}


def test_labels_are_read_with_their_texts(script, tmp_path, monkeypatch):
    document = {"id": "one", "document": "Title\n\nDr. No  left. He\nis gone."}
    (tmp_path / "small").mkdir()
    with lzma.open(tmp_path / "small" / "train.jsonl.xz", "wt") as lines:
        lines.write(json.dumps(document) + "\n")
    labels = tmp_path / "labels.tsv"
    labels.write_text("small/train\tone\t7\t27\t-3\t+10\n")
    monkeypatch.setattr(script, "LABELS", labels)
    (text,) = script.real_texts(tmp_path)
    assert text.text == "Dr. No left. He is gone."
    assert text.labels == {3: False, 10: True}
    assert script.errors(text, split_sentences) == {"missed": 0, "wrong": 0}


def test_a_run_without_real_texts(script, report, monkeypatch):
    texts = script.own_texts()[::40]
    monkeypatch.setattr(script, "own_texts", lambda: texts)
    monkeypatch.setattr(script, "splitters", lambda language, texts: {script.OURS: split_sentences})
    rows = report("sentences")["rows"]
    counted = [row for row in rows if row["group"] == "all"]
    assert sum(row["boundaries"] for row in counted) == sum(len(text.labels) for text in texts)
    assert all(row["errors"] == row["missed"] + row["wrong"] for row in rows)
