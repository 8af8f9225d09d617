import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError

ROWS = [
    {"id": "a", "context": "It rains.", "question": "Wet?", "choices": ["yes", "nay"], "label": 0},
    {"id": "b", "context": "Bees.", "choices": ["dance", "stand", "climb"], "label": "stand"},
    {"id": "c", "context": "A much longer text.", "choices": ["this", "that"], "label": 1},
]
LENGTH = 24  # of the task; bytes, an end after each text


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda experiment: draw_params(experiment.family.init_params(experiment.config))


@pytest.fixture
def run(experiment, write_rows):
    sections = {"data": {"batch_size": 4, "shuffle": "none"}}
    sections["task"] = {"max_source_length": LENGTH, "max_parts": 3}
    return lambda rows, **task: experiment(
        "choices", write_rows(rows), **sections | {"task": sections["task"] | task}
    )


def test_every_choice_stands_beside_the_document(run):
    pieces = run(ROWS)
    first, second, third = pieces.store
    decode = pieces.tokenizer.decode
    starts = np.cumsum(first["segment_lengths"])[:-1]
    result = np.split(first["input_ids"], starts)
    types = np.split(first["token_type_ids"], starts)
    for choice, ids, kinds in zip(ROWS[0]["choices"], result, types, strict=True):
        pair = pieces.tokenizer.join_pair(
            pieces.tokenizer.encode("It rains."), pieces.tokenizer.encode(f"Wet? {choice}")
        )
        assert ids.tolist() == pair.ids
        assert kinds.tolist() == pair.token_type_ids
        assert decode(ids).endswith(choice)
    assert (first["labels"].tolist(), second["labels"].tolist()) == ([1, 0], [0, 1, 0])
    assert third["segment_lengths"].tolist() == [LENGTH, LENGTH]
    assert (third["source_tokens"], third["target_tokens"]) == (50, 2)


@pytest.mark.slow
def test_loss_and_accuracy(run, params_of):
    experiment = run(ROWS)
    assert experiment.config.head == "multiple_choice"
    params = params_of(experiment)
    module = experiment.family.module_class(experiment.config)
    apply = jax.jit(lambda ids, types: module.apply({"params": params}, ids, ids >= 0, True, types))

    losses, predictions = [], []
    for example in experiment.store:  # every choice by itself, without padding
        starts = np.cumsum(example["segment_lengths"])[:-1]
        parts = zip(
            np.split(example["input_ids"], starts),
            np.split(example["token_type_ids"], starts),
            strict=True,
        )
        logits = np.array([apply(ids[None, None], types[None, None])[0, 0] for ids, types in parts])
        logits = logits.astype(np.float64)
        right = example["labels"].argmax()
        losses.append(np.log(np.exp(logits).sum()) - logits[right])
        predictions.append(int(logits.argmax()))
    batch = next(experiment.batches())
    assert batch["input_ids"].shape == (4, 3, LENGTH)
    out = jax.jit(experiment.loss_fn())(params, batch, jax.random.key(0))
    np.testing.assert_allclose(out.loss_sum, sum(losses), rtol=1e-5)
    assert out.weight == 3
    expected = [0, 1, 1]
    right = np.equal(predictions, expected)
    assert out.metrics["right_documents"] == right.sum()

    scores, rows = experiment.objective.evaluate(params)
    assert [row["prediction"] for row in rows] == predictions
    assert [row["label"] for row in rows] == expected
    assert [len(row["scores"]) for row in rows] == [2, 3, 2]
    assert scores["accuracy"] == pytest.approx(100 * right.mean())
    assert scores["negative_loss"] == pytest.approx(-np.mean(losses), rel=1e-5)
    assert scores["chance_accuracy"] == pytest.approx(100 * (1 / 2 + 1 / 3 + 1 / 2) / 3)
    report = experiment.objective.report(experiment.evaluation_at(0, params))
    assert "3 documents; for the first (a) the right choice is number 0" in report


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"choices": ["one"]}, r'document "a" has 1 choices; give 2 to task.max_parts=3 texts'),
        ({"choices": list("abcd")}, 'document "a" has 4 choices; give 2 to task.max_parts=3'),
        ({"choices": "yes"}, r'rows.jsonl:1: "choices" is "yes"; give a list of texts'),
        ({"label": 2}, 'document "a": label 2 is not among its 2 choices; '),
        ({"label": "yess"}, "label 'yess' is not among its 2 choices; did you mean \"yes\""),
    ],
)
def test_rows_that_do_not_fit(run, change, problem):
    with pytest.raises(InputError, match=problem):
        list(run([ROWS[0] | change]).store)
