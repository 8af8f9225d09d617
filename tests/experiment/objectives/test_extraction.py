import json

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.text.oracle import greedy_oracle
from longsum_jax.text.sentences import split_sentences

TEXT = "Cats sleep all day. It rained. A dog barked at night. Nobody came by. The end was near."
ROWS = [
    {"id": "a", "document": TEXT, "summary": "A dog barked at night."},
    {"id": "b", "document": "One sentence alone.", "summary": "One sentence."},
    {
        "id": "c",
        "document": f"It began. {TEXT}",
        "summary": "Cats sleep all day. The end was near.",
        "query": "Who?",
    },
    {"id": "d", "document": "Nothing in common.", "summary": "Words."},
]
WANTED = [[2], [0], [1, 5]]


@pytest.fixture
def run(experiment, write_rows):
    """The experiment over some rows."""

    def make(rows=ROWS, **sections):
        sections = {
            "task": {"max_parts": 8, "max_source_length": 16},
            "training": {"best_metric": "f1"},
        } | sections
        return experiment(
            "extracts",
            write_rows(rows),
            **{"data": {"batch_size": 4, "shuffle": "none"}, "model": {"hidden_dropout_prob": 0.0}}
            | sections,
        )

    return make


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda run: draw_params(run.family.init_params(run.config))


def slow_scores(run, params):
    """Every document by itself, one sentence at a time, without padded parts."""
    module, result = run.family.module_class(run.config), []
    encode = jax.jit(
        lambda ids, mask: module.apply({"params": params}, ids, mask, method="encode")[0]
    )
    score = jax.jit(
        lambda vectors, mask: module.apply(
            {"params": params}, vectors, mask, method="score_sentences"
        )
    )
    for example in run.store:
        parts = np.split(example["input_ids"], example["segment_lengths"].cumsum()[:-1])
        padded = [np.pad(part, (0, 16 - len(part)))[None] for part in parts]
        vectors = [
            encode(ids, np.arange(16)[None] < len(part))[: len(part)].mean(0)
            for ids, part in zip(padded, parts, strict=True)
        ]
        scores = score(np.array(vectors)[None], np.ones((1, len(parts)), bool))
        result.append(np.asarray(scores)[0, len(parts) - (example["labels"] != -100).sum() :])
    return result


def test_examples(run):
    experiment = run()
    store = experiment.store
    assert [example["id"] for example in store] == ["a", "b", "c"]
    for example, row, expected in zip(store, ROWS, WANTED, strict=False):
        sentences = split_sentences(row["document"])
        assert greedy_oracle(sentences, row["summary"]) == expected
        labels = [int(i in expected) for i in range(len(sentences))]
        read = [row["query"], *sentences] if "query" in row else sentences
        assert example["labels"].tolist() == ([-100, *labels] if "query" in row else labels)
        parts = np.split(example["input_ids"], example["segment_lengths"].cumsum()[:-1])
        assert [part.tolist() for part in parts] == [
            experiment.tokenizer.add_special_tokens(experiment.tokenizer.encode(text), 16)
            for text in read
        ]
        assert example["source_tokens"] == sum(len(text) + 1 for text in read)
    assert experiment.store.counts.too_short == 1
    assert experiment.config.head == "extraction"
    assert experiment.config.max_sentence_length == 16


def test_sentences_beyond_the_limit_are_left_out(run):
    store = run(task={"max_parts": 4, "max_source_length": 16}).store
    assert [example["labels"].tolist() for example in store] == [[0, 0, 1, 0], [1], [-100, 0, 1, 0]]
    assert store.counts.dropped_source_tokens > len("The end was near.")


@pytest.mark.slow
def test_loss_and_evaluation(run, params_of):
    experiment = run()
    batch = next(experiment.batches())
    assert batch["input_ids"].shape == (4, 8, 16)
    params = params_of(experiment)
    params["head"]["out"]["kernel"] *= 30  # so that scores differ
    scores, expected = (
        slow_scores(experiment, params),
        [[int(i in w) for i in range(n)] for w, n in zip(WANTED, (5, 1, 6), strict=True)],
    )
    p = 1 / (1 + np.exp(-np.concatenate(scores).astype(np.float64)))
    y = np.concatenate(expected)
    loss_sum = -np.where(y, np.log(p), np.log(1 - p)).sum()

    out = jax.jit(experiment.loss_fn())(params, batch, jax.random.key(0))
    np.testing.assert_allclose(out.loss_sum, loss_sum, rtol=1e-4)
    assert out.weight == 12
    assert out.metrics["right_sentences"] == ((p > 0.5) == y).sum()
    assert out.metrics["tokens"] == batch["attention_mask"].sum()

    measured, rows = experiment.objective.evaluate(params)
    assert measured["negative_loss"] == pytest.approx(-loss_sum / 12, rel=1e-4)
    taken = [np.flatnonzero(s > 0).tolist() or np.argsort(-s)[:3].tolist() for s in scores]
    assert [row["prediction"] for row in rows] == [sorted(t) for t in taken]
    assert [row["label"] for row in rows] == WANTED
    np.testing.assert_allclose(np.concatenate([row["scores"] for row in rows]), p, atol=1e-5)
    assert measured["f1"] == pytest.approx(slow_f1(taken))
    assert measured["best_k_f1"] == pytest.approx(
        slow_f1([[int(s.argmax())] for s in scores])
    )  # 4 / 3, so 1
    assert measured["lead_f1"] == pytest.approx(slow_f1([[0]] * 3)) == pytest.approx(200 / 7)
    report = experiment.objective.report(experiment.evaluation_at(0, params))
    assert "best 1" in report
    assert "3 documents; in the first (a) the oracle selects the sentences [2], the model" in report


def slow_f1(chosen):
    hits = sum(len(set(a) & set(b)) for a, b in zip(chosen, WANTED, strict=True))
    return 200 * hits / (sum(map(len, chosen)) + sum(map(len, WANTED)))


def test_documents_without_summaries_teach_their_gap_sentences(run):
    experiment = run(
        task={"source": "embedded", "max_parts": 6, "max_source_length": 16},
        data={"split": "validation"},
    )
    store = experiment.store
    assert len(store) > 3
    assert all(
        1 <= (example["labels"] == 1).sum() <= len(example["labels"]) <= 6 for example in store
    )


@pytest.mark.parametrize(
    ("sections", "rows", "problem"),
    [
        ({}, [{"id": "a", "document": "Some text."}], 'rows.jsonl:1: no key "summary"'),
        ({"task": {"max_parts": 0}}, ROWS, 'task "extracts": max_parts=0 must be at least 1'),
        (
            {"data": {"source_lengths": (2, 4)}},
            ROWS,
            'example "c" has 7 segments and a target of 0 tokens, more than the',
        ),
        (
            {"model": {"extraction_heads": 3}},
            ROWS,
            "hidden_size 16 is not divisible by extraction_heads 3; change",
        ),
        (
            {"training": {"best_metric": "rouge1"}},
            ROWS,
            'best_metric: evaluation gives no "rouge1"; ',
        ),
    ],
)
def test_bad_input(run, sections, rows, problem):
    with pytest.raises(InputError, match=problem):
        json.dumps(run(rows, **sections).batches().state())


def test_a_document_to_evaluate_on_has_a_bucket(run):
    experiment = run(task={"max_parts": 8, "max_source_length": 16}, data={"source_lengths": (4,)})
    said = 'document "a" of the split "train" has 5 parts, more than the last bucket \\(4\\); raise'
    with pytest.raises(InputError, match=said):
        experiment.objective.read_evaluation()
