import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.layers import decoder_cache
from longsum_jax.models.t5 import T5


@pytest.fixture(scope="module")
def states(config, overfitted):
    """(variables, encoder states, mask) of the overfitted model."""
    params, arrays = overfitted
    variables, mask = {"params": params}, jnp.asarray(arrays["attention_mask"])
    encode = jax.jit(functools.partial(T5(config).apply, method="encode"))
    return variables, encode(variables, jnp.asarray(arrays["input_ids"]), mask), mask


@pytest.fixture(scope="module")
def decode_step(config):
    return jax.jit(functools.partial(T5(config).apply, method="decode_step"))


@pytest.fixture(scope="module")
def decode(config):
    return jax.jit(functools.partial(T5(config).apply, method="decode"))


@pytest.fixture(scope="module")
def source(config, states):
    return read_source(config, *states)


def read_source(config, *states):
    return jax.jit(functools.partial(T5(config).apply, method="read_source"))(*states)


def empty_cache(config, variables, source, beams, length):
    return T5(config).apply(variables, source, beams, length, method="init_cache")


@pytest.mark.slow
def test_golden_greedy_ids(config, overfitted, states, source, decode_step):
    expected = overfitted[1]["greedy"]
    cache = empty_cache(config, states[0], source, 1, expected.shape[1])
    ids, ended = np.zeros((3, 1), np.int32), np.zeros(3, bool)
    for _ in range(expected.shape[1] - 1):
        logits, cache = decode_step(states[0], jnp.asarray(ids[:, -1:]), cache, source)
        newest = np.where(ended, config.pad_token_id, np.asarray(logits)[:, 0].argmax(-1))
        ended |= newest == config.eos_token_id
        ids = np.concatenate([ids, newest[:, None]], 1)
    assert len(np.unique(expected)) > 5
    np.testing.assert_array_equal(ids, expected)


@pytest.mark.parametrize("beams", [1, 3])
def test_steps_equal_teacher_forcing(config, states, source, decode_step, decode, beams):
    variables, encoder_states, mask = states
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 100, (3, beams, 9)))
    cache = empty_cache(config, states[0], source, beams, 12)  # room to spare must change nothing
    rows = [jnp.repeat(x, beams, axis=0) for x in (encoder_states, mask)]
    expected = decode(variables, ids.reshape(3 * beams, 9), *rows).reshape(3, beams, 9, -1)
    for t in range(9):
        logits, cache = decode_step(variables, ids[:, :, t], cache, source)
        np.testing.assert_allclose(logits, expected[:, :, t], rtol=0, atol=1e-5)
    assert (cache.positions == 9).all()


def test_rows_that_begin_again_read_nothing_from_before(
    config, states, source, decode_step, decode
):
    """Places of the cache are used again while other rows go on."""
    variables, encoder_states, mask = states
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 100, (3, 2, 9)))
    cache = empty_cache(config, states[0], source, 2, 5)
    begins = {0: [True] * 3, 3: [False, True, False], 5: [True, False, True]}
    firsts = np.zeros(3, int)
    for t in range(8):
        if t in begins:
            cache = cache.restarted(jnp.array(begins[t]))
            firsts = np.where(begins[t], t, firsts)
        logits, cache = decode_step(variables, ids[:, :, t], cache, source)
        if t not in (4, 7):
            continue
        for row, first in enumerate(firsts):
            rows = [jnp.repeat(x[row, None], 2, axis=0) for x in (encoder_states, mask)]
            expected = decode(variables, ids[row, :, first : t + 1], *rows)[:, -1]
            np.testing.assert_allclose(logits[row], expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_attending_to_the_states_themselves_changes_nothing(
    config, states, source, decode_step, monkeypatch
):
    """What very long inputs are decoded with: no keys and values of the encoder are kept."""
    variables = states[0]
    monkeypatch.setattr(decoder_cache, "MAX_CROSS_CACHE_BYTES", 0)
    lean_source = read_source(config, *states)
    assert all(layer.cross_kv is None for layer in lean_source.layers)
    assert lean_source.states.shape == states[1].shape
    retained = lean = empty_cache(config, states[0], source, 2, 5)
    for ids in np.random.default_rng(0).integers(0, 100, (5, 3, 2)):
        expected, retained = decode_step(variables, jnp.asarray(ids), retained, source)
        logits, lean = decode_step(variables, jnp.asarray(ids), lean, lean_source)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_keys_of_wide_heads_on_tpus_have_another_layout_and_equal_results(
    config, states, source, decode_step, monkeypatch
):
    monkeypatch.setattr(decoder_cache, "target_platform", lambda: "tpu")
    monkeypatch.setattr(decoder_cache, "LANES", config.d_kv)
    wide = read_source(config, *states)
    for layer, other in zip(wide.layers, source.layers, strict=True):
        for x, y in zip(layer.cross_kv, other.cross_kv, strict=True):
            assert x.shape[-1] == config.d_kv != y.shape[-1]
    jax.tree.map(np.testing.assert_array_equal, wide.stored("int8"), source.stored("int8"))
    cache = wide_cache = empty_cache(config, states[0], source, 2, 5)
    for ids in np.random.default_rng(0).integers(0, 100, (5, 3, 2)):
        expected, cache = decode_step(states[0], jnp.asarray(ids), cache, source)
        logits, wide_cache = decode_step(states[0], jnp.asarray(ids), wide_cache, wide)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_reordered_beams_continue_the_chosen_ones(config, states, source, decode_step, decode):
    variables, encoder_states, mask = states
    rng = np.random.default_rng(1)
    ids = rng.integers(0, 100, (3, 3, 4))
    cache = empty_cache(config, states[0], source, 3, 6)
    for t in range(4):
        _, cache = decode_step(variables, jnp.asarray(ids[:, :, t]), cache, source)
    selected = np.array([[2, 0, 0], [1, 2, 0], [1, 1, 1]])
    newest = rng.integers(0, 100, (3, 3, 1))
    ids = np.concatenate([np.take_along_axis(ids, selected[..., None], 1), newest], -1)
    cache = cache.reorder(jnp.asarray(selected))
    logits, cache = decode_step(variables, jnp.asarray(newest[..., 0]), cache, source)
    rows = [jnp.repeat(x, 3, axis=0) for x in (encoder_states, mask)]
    expected = decode(variables, jnp.asarray(ids.reshape(9, 5)), *rows)[:, -1]
    np.testing.assert_allclose(logits.reshape(9, -1), expected, rtol=0, atol=1e-5)


def test_later_tokens_do_not_change_earlier_logits(states, decode):
    variables, encoder_states, mask = states
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 100, (3, 9)))
    before = decode(variables, ids, encoder_states, mask)[:, :5]
    after = decode(variables, ids.at[:, 5:].set(3), encoder_states, mask)[:, :5]
    np.testing.assert_allclose(after, before, rtol=0, atol=1e-6)


def test_masked_encoder_states_are_not_read(states, decode):
    variables, encoder_states, mask = states
    ids = jnp.asarray(np.random.default_rng(0).integers(0, 100, (3, 9)))
    noisy = jnp.where(mask[..., None] == 1, encoder_states, 1e3)
    out = decode(variables, ids, noisy, mask)
    np.testing.assert_array_equal(out, decode(variables, ids, encoder_states, mask))


def test_a_document_of_padding_alone_gives_finite_logits(states, decode):
    variables, encoder_states, mask = states
    ids = jnp.ones((3, 4), jnp.int32)
    assert np.isfinite(decode(variables, ids, encoder_states, mask.at[0].set(0))).all()
