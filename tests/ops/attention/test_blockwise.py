import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sets import (
    BLOCK_IDS,
    B,
    C,
    H,
    K,
    N,
    compiled,
    masks,
    tensors,
    two_sets,
    value_and_gradients,
)

from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.block_softmax import BlockInputs, attend_at_once, prepare
from longsum_jax.ops.attention.blockwise import (
    attend_key_sets,
    attend_partially,
    attend_shared_keys,
)
from longsum_jax.ops.attention.key_sets import (
    MASK_VALUE,
    KeySet,
    WeightDropout,
    merge_partial_softmaxes,
)
from longsum_jax.ops.remat import SAVE_MARKED_POLICY


def attend_by_loops(q, k, v, shared_k, shared_v, bias, table):
    """One query and one head at a time, in float64."""
    q, k, v, shared_k, shared_v, bias, table = (
        np.asarray(x, np.float64) for x in (q, k, v, shared_k, shared_v, bias, table)
    )
    own, shared = masks()
    out = np.zeros((B, N, C, H, K))
    for b, n, c, h in np.ndindex(B, N, C, H):
        keys = [
            (k[b, n, w, h], v[b, n, w, h], bias[h, c, w]) for w in range(6) if own[b, n, 0, c, w]
        ]
        rows = table[h, BLOCK_IDS[b, n, c]]
        keys += [
            (shared_k[b, w, h], shared_v[b, w, h], rows[w])
            for w in range(3)
            if shared[b, 0, 0, 0, w]
        ]
        weights = [math.exp(0.7 * (q[b, n, c, h] @ key) + offset) for key, _, offset in keys]
        for weight, (_, value, _) in zip(weights, keys, strict=True):
            out[b, n, c, h] += weight / sum(weights) * value
    return out


def test_two_sets_equal_loops(whole):
    np.testing.assert_allclose(whole[0], attend_by_loops(*tensors()), rtol=0, atol=2e-6)
    assert not whole[0][0, 1, 2].any()


def test_gradients_are_finite_and_those_of_blind_queries_zero(whole):
    for gradient in whole[1:]:
        assert np.isfinite(gradient).all()
        assert gradient.any()
    assert not whole[1][0, 1, 2].any()


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_gradients_from_saved_sums_are_those_of_the_forward_pass(rate):
    """Of the means and of the log sums, for all inputs, dropped weights included."""
    dropout = WeightDropout(jax.random.key(3), rate)

    def plain(q, sets):
        prepared = [prepare(x) for x in sets]
        return attend_at_once(BlockInputs(q, prepared, None, 0.7, dropout))

    def ours(q, sets):
        return attend_partially(q, sets, scale=0.7, dropout=dropout)

    def run(attend, q, *inputs):
        def loss(q, *inputs):
            out, log_sum_exp = attend(q, two_sets(*inputs))
            finite = jnp.where(log_sum_exp == MASK_VALUE, 0.0, log_sum_exp)
            weights = jnp.cos(jnp.arange(out.size)).reshape(out.shape)
            return (out * weights).sum() + jnp.sin(finite).sum()

        return jax.jit(jax.value_and_grad(loss, range(7)))(q, *inputs)

    for result, expected in zip(
        *(jax.tree.leaves(run(f, *tensors())) for f in (ours, plain)), strict=True
    ):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=3e-6)


@pytest.mark.parametrize("pieces", [1, 4])
def test_saved_results_spare_a_second_forward_pass(pieces, monkeypatch):
    """Products of the scores and with the values, which a layer that computes itself again would
    repeat."""
    q, k = jnp.ones((1, 4, 16, 2, 4)), jnp.ones((1, 32, 2, 4))
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: False)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 4 * q.size // 4 * 32 // pieces)

    def products(**checkpoint):
        loss = jax.checkpoint(
            lambda q, k: (attend_key_sets(q, [KeySet(k, k)]) ** 2).sum(), **checkpoint
        )
        return (
            jax.jit(jax.value_and_grad(loss, (0, 1)))
            .lower(q, k)
            .as_text()
            .count("stablehlo.dot_general")
        )

    saved, recomputed = products(policy=SAVE_MARKED_POLICY), products()
    assert (saved, recomputed) == (saved, saved + 2)


def test_a_key_in_two_sets_counts_twice():
    q, k, v, *_ = tensors()
    twice = compiled(attend_key_sets, q, [KeySet(k, v), KeySet(k[:, :, :2], v[:, :, :2])])
    bias = np.log(np.float32([2, 2, 1, 1, 1, 1]))
    weighted = compiled(attend_key_sets, q, [KeySet(k, v, None, bias)])
    np.testing.assert_allclose(twice, weighted, rtol=1e-5, atol=1e-6)


def test_without_masks_and_with_some():
    q, k, v, shared_k, shared_v, *_ = map(jnp.asarray, tensors())
    free = attend_key_sets(q, [KeySet(k, v), KeySet(shared_k, shared_v)])
    masked = attend_key_sets(q, [KeySet(k, v), KeySet(shared_k, shared_v, jnp.ones((1,), bool))])
    np.testing.assert_array_equal(free, masked)
    alone = attend_key_sets(q, [KeySet(k, v), KeySet(shared_k, shared_v, jnp.zeros((1,), bool))])
    np.testing.assert_allclose(alone, attend_key_sets(q, [KeySet(k, v)]), rtol=1e-5, atol=1e-6)


def test_bfloat16_has_float32_scores():
    q, k, v, *_ = (x.astype(jnp.bfloat16) for x in tensors())
    narrow = [4 * q, 4 * k, v]
    attend_one = jax.jit(lambda q, k, v: attend_key_sets(q, [KeySet(k, v)]))
    out = attend_one(*narrow)
    assert out.dtype == jnp.bfloat16
    exact = attend_one(*(x.astype(np.float32) for x in narrow))
    np.testing.assert_allclose(np.asarray(out, np.float32), exact, rtol=0, atol=2e-2)


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize("maximum", [2**28, 1])
def test_gradients_in_bfloat16(maximum, on_cpu, whole, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: on_cpu)
    result = value_and_gradients([x.astype(jnp.bfloat16) for x in tensors()])
    for value, expected in zip(result, whole, strict=True):
        assert value.dtype == jnp.bfloat16
        np.testing.assert_allclose(
            np.asarray(value, np.float32), expected, rtol=0, atol=2e-2 * np.abs(expected).max()
        )


@pytest.mark.parametrize("maximum", [2**28, 400])
def test_queries_attend_to_shared_keys(maximum, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    q, _, _, k, v, *_ = tensors()
    out = compiled(attend_shared_keys, q[:, 0], [KeySet(k, v, np.array([True, True, False]))])
    expected = compiled(attend_key_sets, q, [KeySet(k[:, :2], v[:, :2])])
    np.testing.assert_allclose(out, np.asarray(expected)[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("maximum", [2**28, 2**14])
def test_dropout_keeps_the_mean_and_follows_its_key(maximum, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    q, k = np.zeros((1, 64, 16, 2, 1), np.float32), np.zeros((1, 128, 2, 1), np.float32)
    v = np.ones_like(k)
    run = jax.jit(lambda key: attend_key_sets(q, [KeySet(k, v)], dropout=WeightDropout(key, 0.25)))
    out, again, other = (np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(out, again)
    assert np.mean(out == other) < 0.2
    assert abs(out.mean() - 1) < 3e-3  # 2048 rows of 128 weights: standard deviation 1e-3
    assert abs(out.std() - (0.25 / 0.75 / 128) ** 0.5) < 3e-3
    # No two blocks are alike, also when they come in different pieces.
    assert len({row.tobytes() for row in out[0]}) == 64


# Sets of keys one by one, merged afterwards


def test_merged_softmaxes_are_one_softmax_with_its_gradients(whole):
    def merged(*inputs):
        return merge_partial_softmaxes(
            [attend_partially(inputs[0], [x], scale=0.7) for x in two_sets(*inputs[1:])]
        )

    def run(*inputs):
        out, pull_back = jax.vjp(merged, *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    for result, expected in zip(jax.jit(run)(*tensors()), whole, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=5e-6)


@pytest.mark.parametrize("maximum", [2**28, 400])
def test_partial_softmaxes_in_pieces_and_at_once(maximum, monkeypatch):
    """The logarithm is that of the sum of exponentials of all keys that are seen."""
    q, *rest = tensors()

    def attend_two(q, *arrays):
        return attend_partially(q, two_sets(*arrays), scale=0.7)

    expected = compiled(attend_two, q, *rest)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    part = compiled(attend_two, q, *rest)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6), part, expected
    )
    nothing = np.asarray(part.log_sum_exp) == MASK_VALUE
    assert nothing[0, 1, 2].all()
    assert nothing.sum() == H
    k, v = q[:, :, :2] * 0, q[:, :, :2]
    equal = compiled(attend_partially, q, [KeySet(k, v)])
    np.testing.assert_allclose(equal.log_sum_exp, math.log(2), atol=1e-6)


def test_softmaxes_without_keys_do_not_count():
    q, k, v, *_ = tensors()
    attend_masked = jax.jit(lambda mask: attend_partially(q, [KeySet(k, v, mask)]))
    nothing, part = map(attend_masked, (np.zeros((1,), bool), None))
    assert (np.asarray(nothing.log_sum_exp) == MASK_VALUE).all()
    merge = jax.jit(merge_partial_softmaxes)
    np.testing.assert_array_equal(merge([nothing, nothing]), np.zeros(q.shape))
    np.testing.assert_allclose(merge([nothing, part]), part.out, atol=1e-6)
    np.testing.assert_allclose(part.out, attend_key_sets(q, [KeySet(k, v)]), rtol=1e-5, atol=1e-6)
