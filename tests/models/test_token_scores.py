"""Scores of targets in pieces: the logits of all positions are never there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.models import vocabulary
from longsum_jax.models.registry import get_family
from longsum_jax.ops.losses import token_cross_entropy
from longsum_jax.typing import IGNORED_LABEL

B, T, D, V = 2, 7, 4, 11
SIZES = {
    "t5": {"d_model": D, "d_kv": 2, "d_ff": 8, "num_layers": 1, "num_heads": 2},
    "pegasus": {"d_model": D, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8, "encoder_layers": 1},
}
SIZES["t5"] |= {"num_decoder_layers": 1, "vocab_size": V}
SIZES["pegasus"] |= {"decoder_layers": 1, "vocab_size": V}
SIZES["pegasus"] |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("bytes_at_once", [4 * B * V, 4 * B * V * 3])
def test_scores_in_pieces_equal_those_of_all_logits(monkeypatch, name, bytes_at_once):
    family = get_family(name)
    module = family.module_class(family.config(SIZES[name]))
    rng = np.random.default_rng(0)
    params = {"shared": rng.normal(size=(V, D)).astype(np.float32)}
    if name == "pegasus":
        params["final_logits_bias"] = rng.normal(size=V).astype(np.float32)
    x = rng.normal(size=(B, T, D)).astype(np.float32)
    labels = rng.integers(0, V, (B, T))
    labels[0, 4:] = IGNORED_LABEL

    def in_pieces(params, x):
        scores = module.apply(
            {"params": params}, x, labels, label_smoothing=0.1, method="token_scores"
        )
        return scores.losses.sum(), scores.is_right

    def at_once(params, x):
        logits = module.apply({"params": params}, x, method="output_logits")
        loss, _ = token_cross_entropy(logits, jnp.asarray(labels), label_smoothing=0.1)
        return loss, logits.argmax(-1) == labels

    monkeypatch.setattr(vocabulary, "MAX_LOGIT_BYTES", bytes_at_once)
    run = jax.value_and_grad(in_pieces, argnums=(0, 1), has_aux=True)
    expected = jax.jit(jax.value_and_grad(at_once, argnums=(0, 1), has_aux=True))(params, x)
    program = jax.jit(run).lower(params, x)
    assert f"{B}x{T}x{V}x" not in program.as_text()
    result = program.compile()(params, x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result, expected)


@pytest.mark.parametrize("name", SIZES)
def test_no_rows_have_no_scores(name):
    family = get_family(name)
    config = family.config(SIZES[name])
    module = family.module_class(config)
    params = jax.eval_shape(family.init_params(config), jax.random.key(0))
    ids, labels = np.zeros((0, 9), int), np.zeros((0, T), int)

    def score(params):
        return module.apply({"params": params}, ids, ids, labels, method="score_targets")

    assert jax.eval_shape(score, params).losses.shape == (0, T)


def test_an_encoder_scores_masked_tokens_in_pieces(monkeypatch, draw_params):
    sizes = {"hidden_size": D, "intermediate_size": 8, "num_hidden_layers": 1}
    sizes |= {"vocab_size": V, "num_attention_heads": 2, "head": "masked_lm"}
    family = get_family("bert")
    config = family.config(sizes)
    module = family.module_class(config)
    params = draw_params(family.init_params(config))
    rng = np.random.default_rng(0)
    ids, labels = rng.integers(0, V, (2, B, T))
    labels[0, 4:] = IGNORED_LABEL
    mask = np.ones((B, T), bool)

    def in_pieces(params):
        scores = module.apply({"params": params}, ids, mask, labels, method="score_targets")
        return scores.losses.sum(), scores.is_right

    def at_once(params):
        logits = module.apply({"params": params}, ids, mask)
        loss, _ = token_cross_entropy(logits, jnp.asarray(labels))
        return loss, logits.argmax(-1) == labels

    monkeypatch.setattr(vocabulary, "MAX_LOGIT_BYTES", 4 * B * V * 3)
    program = jax.jit(jax.value_and_grad(in_pieces, has_aux=True)).lower(params)
    assert f"{B}x{T}x{V}x" not in program.as_text()
    expected = jax.jit(jax.value_and_grad(at_once, has_aux=True))(params)
    result = program.compile()(params)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result, expected)
