"""BERTs whose tokens see no later ones: LSG attention beside a dense twin, and no look ahead."""

import dataclasses
import math

import flax.traverse_util
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.attention import full
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model

LAYERS, HEADS, SIZE, BLOCK, SPARSE, FACTOR, GLOBALS = 2, 2, 8, 4, 3, 2, 2
LENGTH = 23  # six blocks, the last one incomplete
CONFIG = {
    "head": "causal_lm",
    "is_decoder": True,
    "vocab_size": 40,
    "hidden_size": SIZE,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 8,
    "max_position_embeddings": 64,
}
LSG = {
    "encoder_attention": "lsg",
    "block_size": BLOCK,
    "sparse_block_size": SPARSE,
    "sparsity_factor": FACTOR,
    "sparsity_type": "stride",
    "num_global_tokens": GLOBALS,
}


def make(**values):
    """A model with random parameters, those of norms around 1."""
    family, rng = get_family("bert"), np.random.default_rng(0)
    config = family.config(CONFIG | values)
    flat = {
        path: (rng.normal(size=shape) * 0.5 + path.endswith("scale")).astype(np.float32)
        for path, shape in family.parameter_shapes(config).items()
    }
    return Model(family, config, flax.traverse_util.unflatten_dict(flat, sep="/"))


def draw_ids(length=LENGTH):
    return np.random.default_rng(1).integers(1, 40, (2, length))


def seen_by_hand():
    """bool [heads, tokens, globals + tokens]: by the rules of the paper, one key at a time.

    A token sees all global tokens, of its own block and the one before the tokens that are not
    later, and further to the left the nearest of every second token, which ones depends on the
    head.
    """
    seen = np.zeros((HEADS, LENGTH, GLOBALS + LENGTH), bool)
    seen[:, :, :GLOBALS] = True
    for head in range(HEADS):
        for token in range(LENGTH):
            first = (token // BLOCK - 1) * BLOCK
            for key in range(max(first, 0), token + 1):
                seen[head, token, GLOBALS + key] = True
            strided = [key for key in range(max(first, 0)) if key % FACTOR == head % FACTOR]
            for key in strided[-SPARSE:]:
                seen[head, token, GLOBALS + key] = True
    return seen


def norm(x, params):
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
    return x * params["scale"] + params["bias"]


def linear(x, params, layer, outputs=1):
    kernel, bias = params["kernel"][layer], params["bias"][layer]
    return np.tensordot(x, kernel, kernel.ndim - outputs) + bias


def slow_states(model, ids):
    """The encoder's states of one text, by dense attention under the mask made by hand."""
    p, layers = model.params, model.params["encoder"]["layers"]
    words = p["word_embeddings"][ids] + p["position_embeddings"][: len(ids)]
    tokens = p["encoder"]["attention"]["global_embeddings"][:GLOBALS]
    x = norm(np.concatenate([tokens, words + p["token_type_embeddings"][0]]), p["embedding_norm"])
    seen = seen_by_hand()
    for i in range(LAYERS):
        maps = layers["self_attention"]
        q, k, v = (linear(x, maps[name], i, outputs=2) for name in "qkv")
        scores = np.einsum("thk,lhk->htl", q[GLOBALS:], k) / math.sqrt(SIZE // HEADS)
        weights = np.where(seen, np.exp(scores), 0)
        weights /= weights.sum(-1, keepdims=True)
        text = np.einsum("htl,lhk->thk", weights, v)
        y = linear(np.concatenate([q[:GLOBALS], text]), maps["o"], i)  # as published
        x = norm(x + y, {name: value[i] for name, value in layers["self_norm"].items()})
        hidden = linear(x, layers["feed_forward"]["wi"], i)
        hidden = hidden / 2 * (1 + np.vectorize(math.erf)(hidden / math.sqrt(2)))
        y = linear(hidden, layers["feed_forward"]["wo"], i)
        x = norm(x + y, {name: value[i] for name, value in layers["ff_norm"].items()})
    return np.concatenate([x[:1], x[GLOBALS + 1 :]])  # the first global token stands for the first


def test_lsg_is_dense_attention_under_a_mask():
    model, ids = make(**LSG), draw_ids()
    states = np.asarray(model.encode(ids))
    for row, result in zip(ids, states, strict=True):
        np.testing.assert_allclose(result, slow_states(model, row), atol=2e-5)


@pytest.mark.parametrize(
    "values",
    [
        {},
        LSG,
        LSG | {"sparsity_type": "norm", "sparse_block_size": 4},
        LSG | {"sparsity_type": "lsh", "sparse_block_size": 4},
        LSG | {"sparsity_type": "bos_pooling"},
        LSG | {"block_size": 32},
    ],
    ids=["full", "stride", "norm", "lsh", "bos_pooling", "short"],
)
def test_later_tokens_change_nothing_earlier(values):
    model, ids = make(**values), draw_ids()
    changed = np.where(np.arange(LENGTH) > 14, ids[:, ::-1], ids)
    mask = np.ones_like(ids)
    before, after = model.logits(ids, mask), model.logits(changed, mask)
    np.testing.assert_allclose(before[:, :15], after[:, :15], atol=1e-5)
    assert np.abs(before - after)[:, 15:].max(-1).min() > 1e-2


def test_long_inputs_go_block_by_block(monkeypatch):
    """To the same states as at once."""
    model, ids = make(), draw_ids()
    at_once = model.encode(ids)
    monkeypatch.setattr(full, "max_score_bytes", lambda: 0)
    np.testing.assert_allclose(make().encode(ids), at_once, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "values", "problem"),
    [
        ("bert", {"encoder_attention": "local"}, "local attention sees later tokens; give full or"),
        ("bert", {"encoder_attention": "full*1,local*1"}, "attention sees later tokens"),
        ("distilbert", {}, "is_decoder is true, but distilbert reads in both directions"),
    ],
)
def test_what_cannot_be_causal(family, values, problem):
    with pytest.raises(InputError, match=problem):
        get_family(family).config({"is_decoder": True} | values)


def test_cross_attention_is_refused():
    raw = {"architectures": ["BertLMHeadModel"], "is_decoder": True, "add_cross_attention": True}
    with pytest.raises(InputError, match="add_cross_attention is True; only False is supported"):
        get_family("bert").config_of_json(raw, "config.json")


@pytest.mark.parametrize(
    ("family", "name"), [("bert", "LSGBertLMHeadModel"), ("roberta", "LSGRobertaForCausalLM")]
)
def test_converted_it_has_the_published_name(family, name):
    family = get_family(family)
    config = dataclasses.replace(family.presets["tiny"], head="causal_lm", is_decoder=True)
    config = config.replace(encoder_attention="lsg")
    raw = family.config_json(config)
    assert (raw["architectures"], raw["is_decoder"]) == ([name], True)
    assert raw["auto_map"]["AutoModelForCausalLM"].endswith(f".{name}")
    assert family.config_of_json(raw, "config.json") == config
