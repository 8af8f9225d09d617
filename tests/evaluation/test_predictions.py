import errno
import json
import os

import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Metric
from longsum_jax.evaluation.predictions import (
    Pair,
    PredictionsFile,
    baseline_scores,
    example_scores,
    predict,
    read_pairs,
    score_last,
    summary_of,
)
from longsum_jax.evaluation.registry import make_metrics
from longsum_jax.evaluation.rouge import rouge
from longsum_jax.summarization.summary import Summary
from longsum_jax.summarization.summary_options import SummaryOptions


class Model:
    """Gives the first two words of a document."""

    def __init__(self):
        self.calls = []

    def summaries(self, texts, options, *, names, queries):
        self.calls.append((len(texts), names, options))
        return [
            Summary(" ".join(t.split()[:2]), 10, 8, 2, 3, "limit" if "long" in t else "eos")
            for t in texts
        ]


ROUGE = make_metrics()
PAIRS = [
    Pair("a", "red fish swims. blue fish sleeps.", "red fish"),
    Pair("b", "long green tree grows. a bird sings.", "a bird"),
    Pair("c", "old man walks. a dog barks.", "old dog"),
]


def test_rows_of_predictions():
    model, seen = Model(), []
    options = SummaryOptions(batch_size=2, generation={"num_beams": 2})
    rows = predict(model, PAIRS, ROUGE, options, on_row=seen.append)
    assert sorted(seen, key=lambda row: row["id"]) == rows
    names = ['document "b"', 'document "a"', 'document "c"']  # the longest first
    assert model.calls == [(3, names, options)]
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert [row["prediction"] for row in rows] == ["red fish", "long green", "old man"]
    assert [row["ended"] for row in rows] == ["eos", "limit", "eos"]
    for row, pair in zip(rows, PAIRS, strict=True):
        assert row["scores"] == rouge(row["prediction"], pair.reference)
        assert (row["document_tokens"], row["read_tokens"], row["dropped_tokens"]) == (10, 8, 2)


def test_several_documents_of_a_row_are_read_as_one(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "a", "document": "A b.|C.", "summary": "s"}\n')
    pairs = read_pairs(path, document_separator="|")
    assert pairs == {"a": Pair("a", "A b.\n\nC.", "s", borders=(6,))}

    class Reader(Model):
        def summaries(self, texts, options, **names):
            assert texts == [["A b.", "C."]]
            return super().summaries(texts[0][:1], options, **names)

    [row] = predict(Reader(), list(pairs.values()), ROUGE, SummaryOptions())
    assert row["prediction"] == "A b."


@pytest.mark.parametrize(
    ("batch_size", "calls"), [(1, [1] * 10), (2, [8, 2]), (4, [10]), ("auto", [10])]
)
def test_documents_of_some_batches_go_to_the_model_at_once(batch_size, calls):
    model = Model()
    pairs = [Pair(str(i), "a b c", "a") for i in range(10)]
    rows = predict(model, pairs, ROUGE, SummaryOptions(batch_size=batch_size))
    assert [row["id"] for row in rows] == [pair.id for pair in pairs]
    assert [call[0] for call in model.calls] == calls


def test_batches_hold_documents_of_about_the_same_length():
    model = Model()
    pairs = [Pair(str(i), "word " * length, "a") for i, length in enumerate([1, 9, 2, 8] * 4)]
    rows = predict(model, pairs, ROUGE, SummaryOptions(batch_size=2))
    assert [row["id"] for row in rows] == [pair.id for pair in pairs]
    longest = [int(name.split('"')[1]) % 4 for name in model.calls[0][1]]
    assert longest == [1] * 4 + [3] * 4


def test_summary_of_rows():
    rows = predict(Model(), PAIRS, ROUGE, SummaryOptions())
    rows[0] |= {"summary_tokens": 9, "seconds": 0.504}
    rows[1] |= {"seconds": 0.25}
    rows[2] |= {"seconds": 0.25}
    result = summary_of(rows, PAIRS, ROUGE)
    assert result["scores"]["rouge1"] == pytest.approx((100 + 0 + 50) / 3)
    assert result["summary_tokens"] == {"mean": 5.0, "min": 3, "max": 9}
    assert (result["examples"], result["ended_by_limit"]) == (3, 1)
    assert (result["document_tokens"], result["read_tokens"], result["dropped_tokens"]) == (
        30,
        24,
        6,
    )
    assert (result["seconds"], result["read_tokens_per_second"]) == (1.0, 23.9)
    assert result["documents_per_second"] == 2.988


def test_baselines_have_the_length_of_the_references():
    scores = baseline_scores(PAIRS[:1], ROUGE)
    assert scores["lead"] == rouge(
        "red fish swims.", "red fish"
    )  # two words, and the rest of their sentence
    assert scores == baseline_scores(PAIRS[:1], ROUGE)
    assert scores["random"].keys() == scores["lead"].keys()


class Compression(Metric):
    """Words of the source for one of the summary; its corpus value is a ratio of sums."""

    columns = ("compression",)

    def score(self, predictions, references, sources):
        assert len(predictions) == len(references) == len(sources)
        counts = zip(map(str.split, sources), map(str.split, predictions), strict=True)
        return [{"compression": len(source) / len(words)} for source, words in counts]

    def corpus_values(self, scores, predictions, references, sources):
        assert [tuple(score) for score in scores] == [self.columns] * len(scores)
        return {"compression": len(" ".join(sources).split()) / len(" ".join(predictions).split())}


def test_several_metrics_share_rows_and_give_their_own_corpus_values():
    metrics = ROUGE | {"compression": Compression()}
    rows = predict(Model(), PAIRS, metrics, SummaryOptions(batch_size=2))
    for row, plain, words in zip(
        rows, predict(Model(), PAIRS, ROUGE, SummaryOptions()), (6, 7, 6), strict=True
    ):
        assert row["scores"] == plain["scores"] | {"compression": words / 2}
    result = summary_of(rows, PAIRS, metrics)["scores"]
    assert result == summary_of(rows, PAIRS, ROUGE)["scores"] | {"compression": 19 / 6}
    baselines = baseline_scores(PAIRS, metrics)
    assert baselines["lead"].keys() == result.keys()


class ReferenceCount(Metric):
    """Number of all references: a score that depends on the other documents."""

    columns = ("count",)
    scored_last = True

    def score(self, predictions, references, sources):
        return [{"count": float(len(references))} for _ in references]


def test_scores_that_depend_on_all_documents_follow_them():
    metrics = {"count": ReferenceCount(), "other": ReferenceCount()}
    rows = predict(Model(), PAIRS, metrics, SummaryOptions())
    assert score_last(rows, PAIRS, metrics)
    assert not score_last(rows, PAIRS, metrics)
    assert score_last(rows[:2], PAIRS[:2], {"count": ReferenceCount()})
    assert [row["scores"]["count"] for row in rows] == [2, 2, 3]
    # The other metric has not scored these two documents together.
    assert score_last(rows[:2], PAIRS[:2], {"other": ReferenceCount()})
    for row in rows:
        del row["scored_documents"]  # as earlier versions wrote rows
    assert score_last(rows, PAIRS, metrics)
    assert [row["scores"]["count"] for row in rows] == [3, 3, 3]


def test_rows_get_the_scores_that_they_lack():
    rows = predict(Model(), PAIRS, ROUGE, SummaryOptions())
    rows[0]["scores"]["compression"] = 7.0
    metrics = ROUGE | {"compression": Compression()}
    assert score_last(rows, PAIRS, metrics)
    assert [row["scores"]["compression"] for row in rows] == [7, 7 / 2, 6 / 2]
    assert not score_last(rows, PAIRS, metrics)


def row(name, text="words"):
    return {"id": name, "prediction": text, "scores": {}}


def test_predictions_continue_after_a_line_cut_short(tmp_path):
    path = tmp_path / "predictions.jsonl"
    file = PredictionsFile(path)
    # Characters that str.splitlines takes for the end of a line, a newline, and more than ASCII
    rows = [row("a", "one\u2028two\x85three\x0cfour\nfive"), row("ü", "déjà vu")]
    for each in rows:
        file.append(each)
    content = path.read_bytes()
    path.write_bytes(
        content + json.dumps(row("cut", "ends in ü"), ensure_ascii=False).encode()[:-4]
    )
    again = PredictionsFile(path)
    assert again.rows == rows
    assert path.read_bytes() == content
    again.append(row("b"))
    assert PredictionsFile(path).rows == [*rows, row("b")]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"source": "another text"}),
        (0, {"query": "which?"}),
        (1, {"other_references": ("a fish",)}),
        (2, {"reference": "old fish"}),
    ],
)
def test_rows_of_texts_that_have_changed_are_refused(tmp_path, place, change):
    file = PredictionsFile(tmp_path / "predictions.jsonl")
    predict(Model(), PAIRS, ROUGE, SummaryOptions(), on_row=file.append)
    del file.rows[2]["content"]  # as earlier versions wrote rows
    file.check_content([*PAIRS, Pair("d", "not summarized yet", "new")])
    changed = [*PAIRS]
    changed[place] = PAIRS[place]._replace(**change)
    with pytest.raises(InputError, match=f'the document, .* of "{PAIRS[place].id}" has changed'):
        file.check_content(changed)


@pytest.mark.parametrize("line", [b"{", b"[]", b"3", b'{"id": 1}', b"\xff\xfe", b""])
def test_lines_that_are_no_predictions(tmp_path, line):
    path = tmp_path / "predictions.jsonl"
    path.write_bytes(json.dumps(row("a")).encode() + b"\n" + line + b"\n")
    with pytest.raises(
        InputError,
        match=r"predictions\.jsonl:2: not a line of predictions; remove the file or give",
    ):
        PredictionsFile(path)


def test_predictions_that_cannot_be_written_again(tmp_path, monkeypatch):
    file = PredictionsFile(tmp_path / "predictions.jsonl")
    file.append(row("a"))
    content = file.path.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("longsum_jax.evaluation.predictions.atomic.open_text", full)
    with pytest.raises(InputError, match=r"cannot be written again \(No space left on device\); f"):
        file.write_again()
    assert file.path.read_bytes() == content


def test_predictions_that_cannot_be_written(tmp_path):
    file = PredictionsFile(tmp_path / "predictions.jsonl")
    (tmp_path / "predictions.jsonl").symlink_to("/dev/full")
    with pytest.raises(
        InputError,
        match=r"predictions\.jsonl: cannot be written \(No space left on device\); free up space",
    ):
        file.append(row("a"))
    assert file.rows == []


def test_predictions_that_are_a_directory(tmp_path):
    (tmp_path / "predictions.jsonl").mkdir()
    with pytest.raises(
        InputError,
        match=r"predictions\.jsonl: is a directory, pipe or device",
    ):
        PredictionsFile(tmp_path / "predictions.jsonl")


def test_several_references_are_combined_by_the_metric():
    pairs = [PAIRS[0]._replace(other_references=("blue fish",)), PAIRS[1]]
    assert pairs[0].references == ("red fish", "blue fish")
    metrics = ROUGE | {"compression": Compression()}
    predictions = ["a blue fish", "a bird"]
    result = example_scores(metrics, predictions, pairs)
    assert result[0]["rouge2"] == rouge("a blue fish", "blue fish")["rouge2"]
    assert result[0]["compression"] == 6 / 3
    assert result[1] == example_scores(metrics, predictions, PAIRS[:2])[1]
    means = make_metrics(["rouge"], {"rouge": {"references": "mean"}})
    scores = [rouge("a blue fish", each)["rouge1"] for each in pairs[0].references]
    assert example_scores(means, predictions, pairs)[0]["rouge1"] == pytest.approx(sum(scores) / 2)


@pytest.mark.parametrize("target", [None, "/dev/zero"])
def test_predictions_of_a_pipe_or_a_device_are_refused(tmp_path, target):
    path = tmp_path / "predictions.jsonl"
    os.mkfifo(path) if target is None else path.symlink_to(target)
    with pytest.raises(InputError, match="a directory, pipe or device"):
        PredictionsFile(path)
