import math

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experiment.config import MaskingOptions
from longsum_jax.experiment.objectives.masked_lm import masked_lm_scores

ROWS = [{"id": f"d{i}", "text": "Once upon a time there was a tale. " * (i + 1)} for i in range(3)]
PREFIX = "<extra_id_1>"


@pytest.fixture(scope="module")
def params_of(draw_params):
    return lambda experiment: draw_params(experiment.family.init_params(experiment.config))


def run_of(experiment, rows, /, **sections):
    sections["task"] = {"prefix": PREFIX}
    return experiment("masked_tokens", rows, **sections)


@pytest.mark.slow
def test_loss_is_that_of_the_chosen_tokens(params_of, experiment, write_rows):
    run = run_of(
        experiment,
        write_rows(ROWS),
        data={"batch_size": 4, "shuffle": "none"},
        mlm={"probability": 0.5},
    )
    assert run.config.head == "masked_lm"
    batch = next(run.batches())
    assert batch.keys() == {"input_ids", "attention_mask"}
    params, rng = params_of(run), jax.random.key(3)
    out = jax.jit(run.loss_fn())(params, batch, rng)

    inputs, labels = map(np.asarray, run.objective.masks(jax.random.split(rng)[0], *batch.values()))
    special = [0, 1, *run.tokenizer.encode("<extra_id_0>" + PREFIX)]
    assert not np.isin(labels, special).any()
    assert (labels[~batch["attention_mask"]] == -100).all()
    module = run.family.module_class(run.config)
    apply = jax.jit(module.apply)
    logits = np.asarray(apply({"params": params}, inputs, batch["attention_mask"]), np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    places = np.argwhere(labels != -100)
    assert len(places) > 10
    np.testing.assert_allclose(
        out.loss_sum, -sum(log_probs[row, at, labels[row, at]] for row, at in places), rtol=1e-5
    )
    assert out.weight == len(places)
    assert out.metrics["right_tokens"] == (logits.argmax(-1) == labels).sum()
    assert out.metrics["tokens"] == batch["attention_mask"].sum()


@pytest.mark.slow
def test_evaluation_does_not_depend_on_the_batch_size(params_of, experiment, write_rows):
    data, result = write_rows(ROWS), []
    for batch_size in (2, 5):
        run = run_of(experiment, data, evaluation={"batch_size": batch_size})
        result.append(run.objective.evaluate(params_of(run)))
    (scores, rows), (other, _) = result
    assert scores == pytest.approx(other, rel=1e-5)
    assert [row["id"] for row in rows] == ["d0", "d1", "d2"]
    # Every byte is a token, in pieces of 22 between the prefix and the end.
    assert (
        [row["tokens"] for row in rows]
        == [row["characters"] for row in rows]
        == [len(r["text"]) for r in ROWS]
    )
    bits = sum(row["bits"] for row in rows) / sum(row["chosen"] for row in rows)
    assert scores["bits_per_token"] == scores["bits_per_character"] == pytest.approx(bits)
    assert bits == pytest.approx(math.log2(300), rel=0.1)  # an untrained model knows nothing
    assert [row["bits"] for row in rows] == [round(row["bits"], 4) for row in rows]
    assert "tokens guessed in 3 documents" in run.objective.report(
        run.evaluation_at(0, params_of(run))
    )


def test_scores_by_hand():
    rows = [
        {"characters": 40, "tokens": 10, "chosen": 2, "right": 1, "bits": 5.0},
        {"characters": 10, "tokens": 6, "chosen": 2, "right": 2, "bits": 1.0},
    ]
    scores = {"accuracy": 75, "bits_per_token": 1.5, "bits_per_character": 1.5 * 16 / 50}
    assert masked_lm_scores(rows) == pytest.approx(scores | {"negative_bits_per_token": -1.5})


def test_what_guesses_no_token_has_no_scores():
    row = dict.fromkeys(("chosen", "right", "bits"), 0) | {"characters": 3, "tokens": 3}
    assert all(np.isnan(score) for score in masked_lm_scores([row]).values())


def test_masks_of_a_step_are_new(experiment, write_rows):
    run = run_of(experiment, write_rows(ROWS), data={"batch_size": 4, "shuffle": "none"})
    batch = next(run.batches())
    first, again, other = (
        run.objective.masks(jax.random.key(k), *batch.values())[1] for k in (0, 0, 1)
    )
    assert (first == again).all()
    assert not (first == other).all()


def test_a_tokenizer_without_a_mask(experiment, write_rows, tiny_tokenizer, tmp_path):
    from longsum_jax.tokenizers.loading import SentencePieceTokenizer

    tiny_tokenizer.save(tmp_path / "tokenizer")
    model = (tmp_path / "tokenizer" / "spiece.model").read_bytes()
    SentencePieceTokenizer(model).save(tmp_path / "plain")
    run = experiment(
        "masked_tokens",
        write_rows(ROWS),
        tokenizer={"path": str(tmp_path / "plain")},
        model={"vocab_size": 1000},
    )
    with pytest.raises(
        InputError, match="no mask token for a masked language model; give one that has"
    ):
        run.loss_fn()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"probability": 0.0}, "mlm.probability=0.0 must be above 0"),
        ({"masked": 0.9, "random": 0.2}, "mlm.masked=0.9 and mlm.random=0.2 are shares"),
        ({"masked": -0.1}, "mlm.masked=-0.1 must be at least 0"),
    ],
)
def test_shares_that_do_not_fit(options, problem):
    with pytest.raises(InputError, match=problem):
        MaskingOptions(**options)
