"""longsum evaluate on tasks without summaries: a tiny BERT of random parameters for each."""

import dataclasses
import json

import numpy as np
import pytest

from longsum_jax.commands import evaluate
from longsum_jax.errors import InputError
from longsum_jax.experiment.objectives.question_answering import QuestionAnswering
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer

TEXTS = ["Rain and wind.", "Sun.", "Snow fell on the hills all day.", "Fog, then sun."]
TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY |= {"intermediate_size": 16, "vocab_size": 300, "max_position_embeddings": 40}


@pytest.fixture
def saved(tmp_path, draw_params):
    """Writes a model with the head and further keys of its config; returns it."""

    def saved(head, **keys):
        family = get_family("bert")
        config = dataclasses.replace(family.presets["tiny"], **TINY, head=head, **keys)
        params = draw_params(family.init_params(config))
        tokenizer = load_tokenizer("bytes", vocab_size=300)
        model = Model(family, config, params, tokenizer, summarization={"prefix": "A: "})
        model.save(tmp_path / "model")
        return model

    return saved


@pytest.fixture
def evaluated(tmp_path):
    """Runs evaluate with the flags; returns predictions and metrics."""

    def evaluated(*flags):
        out = tmp_path / "out"
        evaluate.main([f"--model={tmp_path / 'model'}", f"--out={out}", *flags])
        lines = (out / "predictions.jsonl").read_text().splitlines()
        metrics = json.loads((out / "metrics.json").read_text(), parse_constant=pytest.fail)
        return [json.loads(line) for line in lines], metrics

    return evaluated


def write_parquet(path, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    write_table(pyarrow.table(columns), path)


def logits_of(model, text, length=40):
    """Logits of a text alone, without padding: prefix, bytes, end."""
    ids = [*model.tokenizer.encode("A: " + text)[: length - 1], model.tokenizer.eos_id]
    return np.asarray(model.logits(np.array([ids])))[0]


def test_labels_of_a_named_task_of_the_hub(saved, evaluated, tmp_path, capsys):
    """Every document, read as far as there are positions; the model's labels, not the split's."""
    model = saved("classification", num_labels=3, id2label=("dry", "wet", "white"))
    write_parquet(tmp_path / "test-0.parquet", text=TEXTS, label=[1, 0, 0, 1])
    source = f"--source=parquet:{tmp_path}/{{split}}-*.parquet"
    rows, metrics = evaluated("--task=scotus", source)
    result = [int(logits_of(model, text).argmax()) for text in TEXTS]
    names = model.config.id2label
    assert [row["prediction"] for row in rows] == [names[number] for number in result]
    assert [row["label"] for row in rows] == ["wet", "dry", "dry", "wet"]
    accuracy = 100 * np.mean(np.array(result) == [1, 0, 0, 1])
    assert metrics["scores"]["accuracy"] == pytest.approx(accuracy)
    assert (metrics["documents"], metrics["split"], metrics["task"]) == (4, "test", "scotus")
    out, _ = capsys.readouterr()
    assert "accuracy" in out
    assert f"details in {tmp_path / 'out'}" in out
    # In other batches, of other lengths, it is the same; what another setting wrote is refused.
    again, _ = evaluated("--task=scotus", source, "--batch_size=3")
    assert [row["prediction"] for row in again] == [row["prediction"] for row in rows]
    with pytest.raises(InputError, match="holds predictions made with another examples; give"):
        evaluated("--task=scotus", source, "--examples=2")


def test_labels_of_another_field(saved, evaluated, tmp_path):
    saved("classification", num_labels=3, id2label=("dry", "wet", "white"))
    rows = [{"body": text, "weather": "wet"} for text in TEXTS]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ("--task=labels", f"--source=json:{path}", "--document_key=body")
    rows, metrics = evaluated(*flags, "--label_key=weather")
    assert [row["label"] for row in rows] == ["wet"] * 4
    assert metrics["label_key"] == "weather"
    with pytest.raises(InputError, match="--label_key has no effect on summaries"):
        evaluated("--task=summaries", f"--source=json:{path}", "--label_key=weather")


def test_documents_with_several_labels_or_none(saved, evaluated, tmp_path):
    """ "none" is a class, as in LexGLUE."""
    problem = "multi_label_classification"
    model = saved("classification", num_labels=3, problem_type=problem)
    labels = [[0, 2], [], [1], []]
    write_parquet(tmp_path / "test.parquet", text=[[text] for text in TEXTS], labels=labels)
    flags = ("--task=ecthr_a", f"--source=parquet:{tmp_path / 'test.parquet'}")
    rows, metrics = evaluated(*flags, "--max_source_length=8")
    result = np.array([logits_of(model, text, 8) >= 0 for text in TEXTS])
    expected = np.array([[number in numbers for number in range(3)] for numbers in labels])
    assert [row["label"] for row in rows] == [["0", "2"], [], ["1"], []]
    columns = [np.c_[x, ~x.any(1)] for x in (result, expected)]
    hits = (columns[0] & columns[1]).sum(0)
    f1 = 2 * hits / np.maximum(columns[0].sum(0) + columns[1].sum(0), 1)
    assert metrics["scores"]["macro_f1"] == pytest.approx(100 * f1.mean())


ROWS = [
    {"context": "It rains.", "question": "What?", "answer": "rains"},
    {"context": "Ann sings.", "question": "Who?", "answer": "Ann"},
]


@pytest.mark.parametrize(
    ("task", "head", "rows", "score"),
    [
        ("answers", "question_answering", ROWS, "exact_match"),
        (
            "choices",
            "multiple_choice",
            [row | {"label": 0, "choices": ["rains", "Ann"]} for row in ROWS],
            "accuracy",
        ),
        ("tags", "token_classification", [{"text": "Ann sings", "label": ["B-PER", "O"]}], "f1"),
        ("masked_tokens", "masked_lm", [{"text": text * 4} for text in TEXTS], "bits_per_token"),
        ("labels", "classification", [{"text": "Sun.", "label": "O"}] * 3, "macro_f1"),
        (
            "extracts",
            "extraction",
            [{"document": "One is. Two is. Three is.", "summary": "Two is."}],
            "best_k_f1",
        ),
    ],
)
def test_every_head_is_scored_by_its_task(task, head, rows, score, saved, evaluated, tmp_path):
    labels = {"num_labels": 2, "id2label": ("B-PER", "O")}
    saved(head, **(labels if task in ("tags", "labels") else {}))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result, metrics = evaluated(f"--task={task}", f"--source=json:{tmp_path / 'rows.jsonl'}")
    assert metrics["documents"] == len(result) == len(rows)
    assert np.isfinite(metrics["scores"][score])


def test_a_score_that_could_not_be_measured_is_null(saved, evaluated, tmp_path, monkeypatch):
    """The loss of answers none of which can be read; JSON has no NaN."""
    logits = staticmethod(lambda params, batch: np.zeros((1, 2, 40)))
    monkeypatch.setattr(QuestionAnswering, "logits", logits)
    saved("question_answering")
    row = {"context": f"{'x' * 40} Ann", "question": "Who?", "answer": "Ann"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    _, metrics = evaluated("--task=answers", f"--source=json:{tmp_path / 'rows.jsonl'}")
    assert metrics["scores"] == {"exact_match": 0, "answer_f1": 0, "negative_loss": None}


@pytest.mark.parametrize(
    ("head", "keys", "flags", "problem"),
    [
        ("masked_lm", {}, (), 'task "labels" is for the head "classification", but the model has'),
        (
            "classification",
            {"id2label": ("x", "y")},
            (),
            "label 'a' is not a label of the task; .*known: x, y",
        ),
        (
            "classification",
            {"id2label": ("a", "b"), "problem_type": "multi_label_classification"},
            (),
            'task "labels" has problem_type single_label_classification, the model multi_label',
        ),
        (
            "classification",
            {"id2label": ("a", "b")},
            ("--max_source_length=41",),
            "max_source_length=41, but the model has positions for 40; lower it",
        ),
        ("classification", {"id2label": ("a", "b")}, ("--split=dev",), 'has no split "dev"'),
    ],
)
def test_models_and_tasks_that_do_not_fit(head, keys, flags, problem, saved, evaluated, tmp_path):
    saved(head, **keys)
    (tmp_path / "rows.jsonl").write_text('{"text": "Sun.", "label": "a"}\n')
    source = f"--source=json:{tmp_path / 'rows.jsonl'}"
    with pytest.raises(InputError, match=problem):
        evaluated("--task=labels", source, *flags)
    assert not (tmp_path / "out" / "predictions.jsonl").exists()
