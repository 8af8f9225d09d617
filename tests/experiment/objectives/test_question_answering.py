import jax
import numpy as np
import pytest

from longsum_jax.data.examples.answers import answer_examples, find_answer
from longsum_jax.data.preparation import write_prepared
from longsum_jax.errors import InputError
from longsum_jax.evaluation.answers import Answers
from longsum_jax.summarization.model import Model
from longsum_jax.text.documents import DataRow
from longsum_jax.tokenizers.bytes import ByteTokenizer

ROWS = [
    {"id": "a", "context": "It is in Paris now.", "question": "Where?", "answer": "Paris"},
    {"id": "b", "context": "Bees dance.", "question": "Who?", "answer": ["Wasps", "Bees"]},
    {"id": "c", "context": "Much text before, then it.", "question": "?", "answer": "it"},
]
RANKED = {"best_metric": "answer_f1"}
LENGTH = 30  # of the task; bytes, an end after each text


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda experiment: draw_params(experiment.family.init_params(experiment.config))


@pytest.fixture
def run(experiment, write_rows):
    sections = {
        "data": {"batch_size": 4, "shuffle": "none"},
        "training": RANKED,
    }
    sections["task"] = {"max_source_length": LENGTH}
    return lambda rows: experiment("answers", write_rows(rows), **sections)


def test_places_of_answers(run):
    """Behind the question; ignored where no answer stands in what is read."""
    first, second, third = run(ROWS).store
    text = b"Where?|It is in Paris now.|"
    assert len(first["input_ids"]) == len(text)
    assert first["labels"].tolist() == [text.find(b"Paris"), text.find(b"Paris") + 4]
    assert second["labels"].tolist() == [5, 8]
    assert (third["source_tokens"], len(third["input_ids"])) == (29, 29)
    assert third["labels"].tolist() == [2 + 23, 2 + 24]
    beyond = ROWS[0] | {"context": "x" * 30 + " Paris"}
    store = run([*ROWS, beyond]).store
    cut = store[3]
    assert (len(cut["input_ids"]), cut["labels"].tolist()) == (LENGTH, [-100, -100])
    assert store.counts.unlabelled == 1
    with pytest.raises(
        InputError, match="none of 1 examples has its answer in the text that is read"
    ):
        _ = run([beyond]).store


def test_prepared_questions_without_an_answer_are_refused(run, experiment, write_rows, tmp_path):
    """Every step would be skipped for want of a label."""
    rows = [ROWS[0] | {"context": "x" * 30 + " Paris"}]
    setup = run(rows).experiment.setup
    write_prepared(tmp_path / "ids", setup.task, setup.tokenizer, "train", 1, progress=False)
    data = {"reader": "prepared", "prepared": str(tmp_path / "ids")}
    task = {"max_source_length": LENGTH}
    with pytest.raises(
        InputError, match="none of 1 examples has its answer in the text that is read"
    ):
        _ = experiment("answers", write_rows(rows), task=task, data=data, training=RANKED).store


def test_what_reads_no_answer_has_no_loss(run):
    """It must not be the best checkpoint."""
    objective = run([ROWS[0] | {"context": "x" * 30 + " Paris"}]).objective
    objective.logits = lambda params, batch: np.zeros((*batch["labels"].shape, LENGTH))
    assert np.isnan(objective.evaluate(None).scores["negative_loss"])


def test_a_document_without_tokens_gives_no_example(run, monkeypatch):
    """As one of characters that the tokenizer leaves out; no span of it could be an answer."""
    result = run(ROWS)
    encode = ByteTokenizer.encode
    monkeypatch.setattr(
        ByteTokenizer, "encode", lambda self, text: encode(self, text.strip("\u200b"))
    )
    blank = DataRow("b", "\u200b", None, "Where?", "Paris")
    assert answer_examples(result.experiment.setup.task, result.tokenizer, blank) == []


@pytest.mark.slow
def test_loss_and_answers(run, params_of):
    experiment = run(ROWS)
    assert (experiment.config.head, experiment.config.num_labels) == ("question_answering", 2)
    params = params_of(experiment)
    module = experiment.family.module_class(experiment.config)
    apply = jax.jit(lambda ids: module.apply({"params": params}, ids, ids >= 0))

    losses, predictions, right = [], [], 0
    for row, example in zip(ROWS, experiment.store, strict=True):
        logits = np.asarray(apply(example["input_ids"][None])[0], np.float64)
        assert len(logits) == len(example["input_ids"])  # no padding
        log_probs = logits - np.log(np.exp(logits).sum(0))
        start, end = example["labels"]
        losses += [-log_probs[start, 0], -log_probs[end, 1]]
        right += (logits.argmax(0) == [start, end]).all()
        behind = len(row["question"]) + 1
        count = len(row["context"])
        spans = [(i, j) for i in range(count) for j in range(i, min(i + 30, count))]
        best = max(spans, key=lambda s: logits[behind + s[0], 0] + logits[behind + s[1], 1])
        predictions.append(row["context"][best[0] : best[1] + 1].strip())

    out = jax.jit(experiment.loss_fn())(params, next(experiment.batches()), jax.random.key(0))
    np.testing.assert_allclose(out.loss_sum, sum(losses), rtol=1e-5)
    assert (out.weight, out.metrics["right_answers"]) == (6, right)

    scores, rows = experiment.objective.evaluate(params)
    assert [row["prediction"] for row in rows] == predictions
    # One right answer to a question, of two to the second the one that is there.
    right_answers = ["Paris", "Bees", "it"]
    expected = Answers().score(predictions, right_answers, [""] * 3)
    for name in ("exact_match", "answer_f1"):
        assert scores[name] == pytest.approx(np.mean([score[name] for score in expected]))
    assert scores["negative_loss"] == pytest.approx(-np.mean(losses), rel=1e-5)
    assert "3 questions, 3 of them with an answer" in experiment.objective.report(
        experiment.evaluation_at(0, params)
    )
    model = Model(experiment.family, experiment.config, params, experiment.tokenizer)
    questions, contexts = ([row[key] for row in ROWS] for key in ("question", "context"))
    assert [result.text for result in model.answer(questions, contexts)] == predictions


def test_an_answer_is_needed(run):
    with pytest.raises(InputError, match='document "b": its answer is 1; give a text, or a list'):
        list(run([ROWS[1] | {"answer": 1}]).store)


@pytest.mark.parametrize(
    ("text", "answer", "place"),
    [
        ("In 2015 there were 5 members.", "5", 19),
        ("Mayor May came.", "May", 6),
        ("It cost $5 (net).", "$5 (net)", 8),
        ("It was 5000.", "5", 7),
        ("Nobody.", "5", -1),
    ],
)
def test_answers_stand_as_words_before_they_stand_inside_of_one(text, answer, place):
    assert find_answer(text, answer) == place
