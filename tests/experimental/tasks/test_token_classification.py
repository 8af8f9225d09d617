import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experimental.metrics.tags import tag_scores

ROWS = [
    {"id": "a", "text": "Ann sees  Rome", "label": ["B-PER", "O", "B-LOC"]},
    {"id": "b", "text": "He went to New York", "label": ["O", "O", "O", "B-LOC", "I-LOC"]},
]
NAMES = ("B-LOC", "B-PER", "I-LOC", "O")
LENGTH = 16  # of the task; bytes, and an end


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda experiment: draw_params(experiment.family.init_params(experiment.config))


@pytest.fixture
def run(experiment, write_rows):
    sections = {"data": {"batch_size": 2, "shuffle": "none"}}
    sections["task"] = {"max_source_length": LENGTH}
    return lambda rows: experiment("tags", write_rows(rows), **sections)


def places(text, numbers, length):
    labels = np.full(length, -100)
    labels[[i for i, x in enumerate(text) if x != " " and (i == 0 or text[i - 1] == " ")]] = numbers
    return labels.tolist()


def test_first_tokens_of_words_have_labels(run):
    first, second = run(ROWS).store
    assert first["labels"].tolist() == places(ROWS[0]["text"], [1, 3, 0], 15)
    assert second["labels"].tolist() == [*places("He went to New ", [3, 3, 3, 0], 15), -100]
    assert (second["source_tokens"], len(second["input_ids"])) == (20, LENGTH)


def test_what_reads_no_word_has_no_loss(run):
    """It must not be the best checkpoint."""
    objective = run([{"id": "a", "text": f"{' ' * LENGTH}Ann", "label": ["B-PER"]}]).objective
    objective.logits = lambda params, batch: np.zeros((*batch["input_ids"].shape, 1))
    assert np.isnan(objective.evaluate(None).scores["negative_loss"])


def test_buckets_may_be_longer_than_documents(experiment, write_rows):
    pieces = experiment(
        "tags",
        write_rows(ROWS),
        data={"batch_size": 2, "shuffle": "none", "source_lengths": (8, 32)},
        task={"max_source_length": LENGTH},
    )
    batch = next(pieces.batches())
    assert batch["input_ids"].shape == batch["labels"].shape == (2, 32)


def test_words_that_the_tokenizer_leaves_out_move_no_label(
    experiment, write_rows, tmp_path, monkeypatch
):
    """BERT drops zero-width spaces, which then are words without a token."""
    pieces = "[PAD] [UNK] [CLS] [SEP] [MASK] ann sees rome"
    (tmp_path / "vocab.txt").write_text(pieces.replace(" ", "\n") + "\n")
    rows = [
        {"text": "Ann \u200b sees Rome", "label": ["B-PER", "O", "O", "B-LOC"]},
        {"text": "Ann sees Rome \u200b \u200b", "label": ["B-PER", "O", "B-LOC", "O", "O"]},
        {"text": "\u200b Ann", "label": ["O", "B-PER"]},
    ]
    run = experiment("tags", write_rows(rows), tokenizer={"path": str(tmp_path)})
    loc, per, outside = range(3)  # [CLS] before, [SEP] behind
    assert run.config.id2label == ("B-LOC", "B-PER", "O")
    assert [example["labels"].tolist() for example in run.store] == [
        [-100, per, outside, loc, -100],
        [-100, per, outside, loc, -100],
        [-100, per, -100],
    ]
    right = [np.maximum(example["labels"], 0) for example in run.store]
    monkeypatch.setattr(run.objective, "_numbers_and_loss", lambda params: (right, 0.0))
    scores, result = run.objective.evaluate({})
    assert [row["prediction"] for row in result] == [
        ["B-PER", "", "O", "B-LOC"],
        ["B-PER", "O", "B-LOC", "", ""],
        ["", "B-PER"],
    ]
    assert scores["f1"] == 100


@pytest.mark.slow
def test_loss_and_scores(run, params_of):
    experiment = run(ROWS)
    config = experiment.config
    assert (config.head, config.id2label) == ("token_classification", NAMES)
    assert config.problem_type == "single_label_classification"
    params = params_of(experiment)
    module = experiment.family.module_class(config)
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, ids >= 0))

    losses, predictions = [], []
    for example in experiment.store:
        logits = np.asarray(apply(example["input_ids"][None])[0], np.float64)
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        places = np.flatnonzero(example["labels"] >= 0)
        losses += [-log_probs[i, example["labels"][i]] for i in places]
        predictions.append([NAMES[logits[i].argmax()] for i in places])
    out = jax.jit(experiment.loss_fn())(params, next(experiment.batches()), jax.random.key(0))
    np.testing.assert_allclose(out.loss_sum, sum(losses), rtol=1e-5)
    assert out.weight == len(losses) == 7

    scores, rows = experiment.objective.evaluate(params)
    predictions[1].append("")  # "York" is not read
    assert [row["prediction"] for row in rows] == predictions
    labels = [row["label"] for row in ROWS]
    expected = tag_scores(predictions, labels)
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    assert scores["majority_accuracy"] == pytest.approx(100 * 4 / 8)
    assert scores["negative_loss"] == pytest.approx(-np.mean(losses), rel=1e-5)
    report = experiment.objective.report(experiment.evaluation_at(0, params))
    assert "8 words of 2 documents, labels B-LOC, B-PER, I-LOC, O" in report


def test_every_word_needs_a_label(run):
    with pytest.raises(InputError, match='document "a" has 3 words and 1 label; give each word'):
        list(run([ROWS[0] | {"label": ["O"]}]).store)
