"""Packed rows: losses and gradients of unpacked ones; models that would mix the pairs of a row."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
from flax.core import meta

from longsum_jax.data.buckets import pack_examples
from longsum_jax.data.examples.base import Example
from longsum_jax.data.padding import pad_batch
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import LossOptions, default_sections, run_config
from longsum_jax.experiment.experiment import check_run
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.layers.attention import cross
from longsum_jax.models.registry import model_config, preset
from longsum_jax.ops.attention import blockwise

SOURCES, TARGETS = (7, 5, 3, 8), (3, 1, 4, 2)
ROWS = ((0, 1), (2, 3))  # the pairs of two packed rows
LENGTHS = {"source_length": 14, "target_length": 8}


def example(number):
    rng = np.random.default_rng(number)
    ids, labels = (rng.integers(3, 50, size) for size in (SOURCES[number], TARGETS[number]))
    return Example(
        id=str(number),
        input_ids=ids.astype(np.int32),
        labels=labels.astype(np.int32),
        source_tokens=len(ids),
        target_tokens=len(labels),
    )


def small_config(family):
    """A tiny model whose windows are shorter than a packed row."""
    description = preset(family, "tiny") | {"local_radius": 2}
    if "t5gemma" in family:
        description["decoder"] |= {"sliding_window": 3}
    return model_config(description)


@pytest.mark.parametrize(
    ("family", "in_pieces"),
    [
        ("t5", False),
        ("bart", True),
        pytest.param("t5gemma", False, marks=pytest.mark.weekly),
        ("t5gemma2", True),
    ],
)
@pytest.mark.slow
def test_losses_and_gradients_equal_those_of_unpacked_rows(family, in_pieces, monkeypatch):
    if in_pieces:
        monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES_CPU", 256)
        monkeypatch.setattr(cross, "MAX_QUERIES_AT_ONCE", 1)
    family, config = small_config(family)
    run = SimpleNamespace(loss=LossOptions(label_smoothing=0.1))
    objective = Summarization(SimpleNamespace(family=family, config=config, run=run))
    loss_fn = objective.loss_fn()
    examples = [example(number) for number in range(4)]
    unpacked = pad_batch(examples, rows=4, **LENGTHS)
    rows = [pack_examples([examples[number] for number in row]) for row in ROWS]
    packed = pad_batch(rows, rows=3, packed=True, **LENGTHS)  # the last row is empty
    params = meta.unbox(jax.jit(family.init_params(config))(jax.random.key(0)))

    @jax.jit
    @jax.value_and_grad
    def mean(params, batch):
        loss, weight, _ = loss_fn(params, batch, jax.random.key(1))
        return loss / weight

    loss, gradients = mean(params, packed)
    expected_loss, expected = mean(params, unpacked)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    largest = max(np.abs(x).max() for x in jax.tree.leaves(expected))
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * largest),
        gradients,
        expected,
    )


def refusal(model, data=(), **task):
    config = default_sections() | {"model": preset(*model) if isinstance(model, tuple) else model}
    config["task"] = {"name": "embedded"} | task
    config["training"] |= {"steps": 1}
    config["data"] |= {"pack": True} | dict(data)
    with pytest.raises(InputError) as error:
        check_run(run_config(config))
    return str(error.value)


def test_models_and_options_that_mix_the_pairs_of_a_row_are_refused():
    short = {"max_source_length": 64, "max_target_length": 64}
    assert 'encoder_attention "s4d"' in refusal(("locost", "tiny"))
    assert 'encoder_attention "longformer"' in refusal(("led", "tiny"), **short)
    t5 = preset("t5", "tiny")
    mixed = t5 | {"encoder_attention": "full,transient_global", "num_layers": 2}
    assert 'encoder_attention "transient_global"' in refusal(mixed)
    assert 'cross_attention "hepos"' in refusal(t5 | {"cross_attention": "hepos"})
    assert "page_length" in refusal(t5 | {"page_length": 64})
    assert "batch_by_tokens" in refusal(t5, {"batch_by_tokens": True})
    assert "source_lengths=(64, 128)" in refusal(t5, {"source_lengths": (64, 128)})
    assert 'objective "classify"' in refusal(("bert", "tiny"), name="labels")
