"""longsum score and evaluate by a metric that reads with a model of the user's."""

import base64
import dataclasses
import gzip
import itertools
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from longsum_jax.commands import evaluate, score
from longsum_jax.errors import InputError
from longsum_jax.evaluation import predictions as predictions_module
from longsum_jax.inference.loading import load_shared
from longsum_jax.summarization import loading
from longsum_jax.summarization.summary import Summary

sys.path.insert(0, str(Path(__file__).parents[1] / "evaluation"))

from tiny_checkpoints import SENTENCES, write_bert

ROWS = [
    {"id": str(i), "document": f"{first} {second}", "summary": second}
    for i, (first, second) in enumerate(itertools.pairwise(SENTENCES[:4]))
]


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """The flags that ask for BERTScore over a tiny BERT."""
    directory = write_bert(tmp_path_factory.mktemp("tiny_bert") / "model")
    values = {"model": directory, "layer": 2}
    flags = [f"--metric_option=bertscore.{key}={value}" for key, value in values.items()]
    return ["--metrics=rouge,bertscore", *flags]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@dataclasses.dataclass
class Options:
    num_beams: int = 1


class FirstSentence:
    """Summarizes a document by its first sentence, and counts the documents."""

    fingerprint = "f"
    config_fingerprint = "c"
    trained_strategy = "direct"
    tokenizer = SimpleNamespace(fingerprint="pieces")
    count = 0

    def summary_options(self, **options):
        return Options(**options)

    def summaries(self, texts, options, **names):
        self.count += len(texts)
        return [Summary(text.partition(".")[0] + ".", 4, 4, 0, 2, "eos") for text in texts]


@pytest.fixture
def model(options, monkeypatch):
    """Stands in for the model that is evaluated; that of the metric is loaded before."""
    load_shared(options[1].rpartition("=")[2])
    model = FirstSentence()
    monkeypatch.setattr(loading, "load", lambda *_, **__: model)
    return model


@pytest.fixture
def evaluated(model, data, tmp_path):
    """Runs evaluate into a directory, which it returns."""

    def evaluated(*flags):
        evaluate.main(["--model=m", f"--data={data}", f"--out={tmp_path / 'out'}", *flags])
        return tmp_path / "out"

    return evaluated


def rows_of(directory):
    lines = (directory / "predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_score(options, data, tmp_path, capsys):
    path = tmp_path / "predictions.jsonl"
    rows = [{"id": row["id"], "prediction": row["summary"]} for row in ROWS]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "scores"
    score.main([str(path), f"--references={data}", *options, f"--out={out}", "--rounds=10"])
    result = json.loads((out / "scores.json").read_text())
    assert result["systems"]["predictions.jsonl"]["scores"]["bertscore_f1"] == pytest.approx(100)
    described = result["metrics"]["bertscore"]
    assert described["weights"] == load_shared(described["model"]).fingerprint
    assert described["signature"] in capsys.readouterr().out
    assert described["signature"].endswith("|layer:2|idf:no|rescaled:no|long:cut")


def test_evaluate_scores_when_all_summaries_are_there(evaluated, options, model, monkeypatch):
    out = evaluated(*options)
    rows = rows_of(out)
    assert [set(row["scores"]) >= {"rouge1", "bertscore_f1"} for row in rows] == [True] * 3
    metrics = json.loads((out / "metrics.json").read_text())
    mean = sum(row["scores"]["bertscore_f1"] for row in rows) / 3
    assert metrics["scores"]["bertscore_f1"] == pytest.approx(mean)
    assert metrics["baselines"]["lead"]["bertscore_f1"] > 0
    assert model.count == 3
    # Started again, it neither summarizes nor scores.
    monkeypatch.setattr(predictions_module, "baseline_scores", lambda *_: metrics["baselines"])
    monkeypatch.setattr(predictions_module, "example_scores", None)
    assert evaluated(*options) == out
    assert (rows_of(out), model.count) == (rows, 3)


def test_predictions_stay_where_a_metric_fails(evaluated, options, model, data, capsys):
    with pytest.raises(
        InputError,
        match=r"idf=true needs .*; the summaries are in .*predictions.jsonl, which longsum",
    ):
        evaluated(*options, "--metric_option=bertscore.idf=true", "--examples=1")
    path = data.parent / "out" / "predictions.jsonl"
    (row,) = rows_of(path.parent)
    assert row["prediction"] == SENTENCES[0]
    assert "rouge1" in row["scores"]
    score.main([str(path), *options, "--rounds=10"])
    assert "bertscore_f1" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["score", "evaluate"])
def test_pages_align_sentences_by_a_model(command, options, data, tmp_path, request):
    directory, report = options[1].rpartition("=")[2], tmp_path / "report.html"
    flags = [f"--report={report}", f"--align_model={directory}"]
    if command == "evaluate":
        request.getfixturevalue("evaluated")(*flags)
    else:
        path = tmp_path / "predictions.jsonl"
        path.write_text(
            "".join(json.dumps({"id": row["id"], "prediction": "A dam."}) + "\n" for row in ROWS)
        )
        score.main([str(path), f"--references={data}", "--rounds=10", *flags])
    packed = re.search(r'id="index">(.*?)</script>', report.read_text())[1]
    index = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert (index["alignment"]["by"], index["alignment"]["model"]) == ("vectors", directory)
    assert 0 < index["supported"] <= 1
    assert len(index["unsupported"]) == (3 if command == "evaluate" else 1)


def test_a_model_for_no_page_is_refused(options, data):
    with pytest.raises(InputError, match=r"--align_model=x is for the page of --report; give --re"):
        score.main(["no.jsonl", f"--references={data}", "--align_model=x"])


def test_a_metric_without_its_model_fails_before_anything_runs(evaluated, model):
    with pytest.raises(InputError, match=r"give an encoder, --metric_option=bertscore.model=DIR"):
        evaluated("--metrics=bertscore")
    assert model.count == 0
