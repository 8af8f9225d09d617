import dataclasses
import functools

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.extraction_head import mean_state
from longsum_jax.models.registry import get_family
from longsum_jax.ops.attention.fused import KernelChoice, noted_choices

SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16, "vocab_size": 60}
HEAD = {"head": "extraction", "extraction_heads": 4}


def config_of(family, **changes):
    return dataclasses.replace(get_family(family).presets["tiny"], **SIZES, **HEAD, **changes)


@pytest.fixture(scope="module")
def extractor(draw_params):
    """(config, random parameters)."""
    config = config_of("roberta", num_hidden_layers=1)
    return config, draw_params(get_family("roberta").init_params(config))


@pytest.fixture(scope="module")
def batch():
    """Two documents of five and three sentences of one to six tokens."""
    rng = np.random.default_rng(1)
    mask = np.arange(6) < rng.integers(1, 7, (2, 5, 1))
    mask[1, 3:] = False
    return np.where(mask, rng.integers(3, 60, mask.shape), 1), mask


@functools.partial(jax.jit, static_argnums=0, static_argnames="method")
def apply(config, params, *args, **options):
    return get_family("roberta").module_class(config).apply({"params": params}, *args, **options)


def slow_scores(config, params, ids, mask):
    """One sentence, one head and one query at a time, in numpy but for the encoder."""
    head = jax.tree.map(np.asarray, params["head"])
    vectors = []
    for row, real in zip(ids, mask, strict=True):
        if real.any():
            states = apply(config, params, row[None], real[None], method="encode")
            vectors.append(np.asarray(states)[0, real].mean(0))
    x = np.array(vectors, np.float64)
    if config.sentence_positions:
        angle = np.arange(len(x))[:, None] / 10000 ** (2 * np.arange(8) / 16)
        x = x + np.concatenate([np.sin(angle), np.cos(angle)], axis=1)
    attention = np.zeros_like(x)
    maps = head["attention"]
    for h in range(4):
        q, k, v = (x @ maps[name]["kernel"][:, h] + maps[name]["bias"][h] for name in "qkv")
        for i in range(len(x)):
            weights = np.exp(k @ q[i] / 2)  # 4 = 16 / 4 numbers a head
            attention[i] += weights @ v / weights.sum() @ maps["o"]["kernel"][h]
    y = x + attention + maps["o"]["bias"]
    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + config.layer_norm_eps)
    y = y * head["attention_norm"]["scale"] + head["attention_norm"]["bias"]
    hidden = np.maximum(y @ head["dense"]["kernel"] + head["dense"]["bias"], 0)
    return (hidden @ head["out"]["kernel"] + head["out"]["bias"])[:, 0]


@pytest.mark.slow
@pytest.mark.parametrize("positions", [False, True])
def test_scores_equal_the_slow_twin(extractor, batch, positions):
    config, params = extractor
    config = dataclasses.replace(config, sentence_positions=positions)
    scores = np.asarray(apply(config, params, *batch))
    assert scores.dtype == np.float32
    for result, ids, mask in zip(scores, *batch, strict=True):
        expected = slow_scores(config, params, ids, mask)
        np.testing.assert_allclose(result[: len(expected)], expected, atol=1e-5)
    assert scores.std() > 0.1


@pytest.mark.slow
def test_chunks_change_nothing(extractor, batch):
    config, params = extractor

    @jax.jit
    def gradients(params):
        chunked = dataclasses.replace(config, sentence_chunk=3)
        return [
            jax.grad(lambda p, c=c: apply(c, p, *batch).sum())(params) for c in (config, chunked)
        ]

    for a, b in zip(*map(jax.tree.leaves, gradients(params)), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
        assert np.isfinite(a).all()  # there are sentences without a token


def test_a_row_of_tokens_is_one_sentence(extractor, batch):
    config, params = extractor
    ids, mask = batch[0][:, 0], batch[1][:, 0]
    one = apply(config, params, ids, mask)
    np.testing.assert_allclose(one, apply(config, params, ids[:, None], mask[:, None]), atol=1e-6)
    assert one.shape == (2, 1)


def test_mean_state():
    states = np.random.default_rng(0).standard_normal((3, 4, 5)).astype("f4")
    mask = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
    result = np.asarray(mean_state(states, mask))
    np.testing.assert_allclose(result[:2], [states[0, :2].mean(0), states[1].mean(0)], atol=1e-6)
    assert not result[2].any()


def test_names_and_config():
    for name in ("bert", "roberta", "distilbert"):
        family = get_family(name)
        given = config_of(name, num_hidden_layers=1)
        raw = family.config_json(given)
        assert raw["model_type"] == f"longsum_jax/{name}"
        assert raw["architectures"][0].endswith("ForSentenceExtraction")
        assert family.config_of_json(raw, "config.json") == given
        plain = family.config_json(dataclasses.replace(given, head="none"))
        assert not {"extraction_heads", "sentence_positions", "max_sentence_length"} & plain.keys()
    keys = {row.path: row.key for row in family.weight_map(given).rows}
    assert keys["head/attention/q/kernel"] == "head.attention.q.kernel"
    assert keys["word_embeddings"] == "distilbert.embeddings.word_embeddings.weight"


def test_heads_that_do_not_divide_the_width():
    with pytest.raises(
        InputError, match="hidden_size 16 is not divisible by extraction_heads 3; change either"
    ):
        dataclasses.replace(config_of("bert"), extraction_heads=3)


def test_the_head_has_the_attention_backend_of_the_model(extractor):
    config, params = extractor
    config = dataclasses.replace(config, attention_backend="reference")
    vectors, mask = np.zeros((2, 5, 16), np.float32), np.ones((2, 5), bool)
    with noted_choices() as choices:
        apply.eval_shape(config, params, vectors, mask, method="score_sentences")
    assert list(choices.values()) == [KernelChoice(None, 'attention_backend is "reference"')]
