import math

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.registry import preset

ROWS = [{"id": f"d{i}", "text": "Once upon a time there was a tale. " * (i + 1)} for i in range(3)]
PREFIX = "<extra_id_1>"
LSG = {"encoder_attention": "lsg", "block_size": 4, "sparse_block_size": 4}


@pytest.fixture
def run(experiment, write_rows):
    sections = {
        "task": {"prefix": PREFIX, "objective": "lm"},
        "data": {"batch_size": 4, "shuffle": "none"},
    }
    return lambda **more: experiment("masked_tokens", write_rows(ROWS), **sections | more)


@pytest.mark.parametrize(
    "model", [{}, pytest.param(LSG, marks=pytest.mark.slow)], ids=["full", "lsg"]
)
def test_loss_is_that_of_every_next_token(model, run, draw_params):
    pieces = run(model=model)
    config = pieces.config
    assert (config.head, config.is_decoder) == ("causal_lm", True)
    params = draw_params(pieces.family.init_params(config))
    batch = next(pieces.batches())
    out = jax.jit(pieces.loss_fn())(params, batch, jax.random.key(3))

    ids, mask = batch["input_ids"], batch["attention_mask"]
    module = pieces.family.module_class(config)
    logits = np.asarray(jax.jit(module.apply)({"params": params}, ids, mask), np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    total, count = 0.0, 0
    for row, places in enumerate(mask):
        text = range(1, places.sum() - 1)  # between the prefix and the end
        total -= sum(log_probs[row, i - 1, ids[row, i]] for i in text)
        count += len(text)
    assert out.weight == count > 50
    np.testing.assert_allclose(out.loss_sum, total, rtol=1e-5)


def test_words_of_a_prefix_count_where_they_are_text(run):
    pieces = run(task={"prefix": "time ", "objective": "lm"})
    batch = next(pieces.batches())
    ids, mask = batch["input_ids"], batch["attention_mask"]
    _, labels = pieces.objective.masks(jax.random.key(0), ids, mask)
    prefix = len(pieces.tokenizer.encode("time "))
    for row, places, result in zip(ids, mask, labels, strict=True):
        end = places.sum() - 1  # the end of the sequence
        expected = np.full(len(row), -100)
        expected[prefix - 1 : end - 1] = row[prefix:end]
        np.testing.assert_array_equal(result, expected)


@pytest.mark.slow
def test_every_token_is_paid_for_once(run, draw_params):
    pieces = run(evaluation={"batch_size": 2})
    scores, rows = pieces.objective.evaluate(draw_params(pieces.family.init_params(pieces.config)))
    lengths = [len(row["text"]) for row in ROWS]  # bytes, each a token
    assert [row["chosen"] for row in rows] == [row["tokens"] for row in rows] == lengths
    assert scores["bits_per_character"] == pytest.approx(
        sum(row["bits"] for row in rows) / sum(lengths)
    )
    assert scores["bits_per_token"] == pytest.approx(math.log2(300), rel=0.1)


@pytest.mark.parametrize(
    ("family", "problem"),
    [
        ("distilbert", 'trains the head "causal_lm", but config.model.family "distilbert" has'),
        ("bart", 'trains the head "causal_lm", but config.model.family "bart" has'),
    ],
)
def test_families_without_such_a_head(family, problem, run):
    with pytest.raises(InputError, match=problem):
        run(model=preset(family, "tiny", vocab_size=300))


def test_attention_to_later_tokens_is_refused(run):
    with pytest.raises(InputError, match="local attention sees later tokens; give full or lsg"):
        run(model={"encoder_attention": "local"})
