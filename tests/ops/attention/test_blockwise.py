import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.blockwise import (
    attend_all,
    attend_key_sets,
    attend_partially,
    full_attention,
)
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.key_sets import (
    MASK_VALUE,
    Dropout,
    KeySet,
    LazyBias,
    merge_partial_softmaxes,
)
from longsum_jax.ops.remat import SAVE_MARKED_POLICY

B, N, C, H, K = 2, 5, 3, 2, 4


def tensors():
    """Queries, keys and values of two sets (6 keys per block, 3 shared), a bias, and the table of a
    LazyBias."""
    rng = np.random.default_rng(0)
    own, shared = (B, N, 6, H, K), (B, 3, H, K)
    shapes = ((B, N, C, H, K), own, own, shared, shared, (H, C, 6), (H, 4, 3))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def masks():
    rng = np.random.default_rng(1)
    own, shared = rng.random((B, N, 1, C, 6)) < 0.6, rng.random((B, 1, 1, 1, 3)) < 0.7
    own[0, 1, 0, 2], shared[0] = False, False  # one query that sees nothing
    return own, shared


BLOCK_IDS = np.random.default_rng(2).integers(0, 4, (B, N, C))


def two_sets(k, v, shared_k, shared_v, bias, table):
    own, shared = masks()
    lazy = LazyBias(
        lambda ids, table: jnp.moveaxis(table[:, ids[:, :, 0]], 0, 2),
        jnp.asarray(BLOCK_IDS)[:, :, None],
        (table,),
    )
    return [
        KeySet(k, v, jnp.asarray(own), bias),
        KeySet(shared_k, shared_v, jnp.asarray(shared), lazy),
    ]


def compiled(function, *arrays, **options):
    """The result of a function, freshly traced on every call, so that a patched maximum counts."""
    return jax.jit(lambda *arrays: function(*arrays, **options))(*arrays)


def attend(q, *arrays, **options):
    return attend_key_sets(q, two_sets(*arrays), scale=0.7, **options)


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


def value_and_gradients(inputs, **options):

    def run(*inputs):
        out, pull_back = jax.vjp(functools.partial(attend, **options), *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape).astype(out.dtype))

    return [np.asarray(x) for x in compiled(run, *inputs)]


@pytest.fixture(scope="module")
def whole():
    return value_and_gradients(tensors())


def test_two_sets_equal_loops(whole):
    np.testing.assert_allclose(whole[0], attend_by_loops(*tensors()), rtol=0, atol=2e-6)
    assert not whole[0][0, 1, 2].any()


def test_gradients_are_finite_and_those_of_blind_queries_zero(whole):
    for gradient in whole[1:]:
        assert np.isfinite(gradient).all()
        assert gradient.any()
    assert not whole[1][0, 1, 2].any()


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_pieces_change_neither_values_nor_gradients(whole, pieces, monkeypatch):
    score_bytes = 4 * B * N * H * C * 9
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: False)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", -(-score_bytes // pieces))
    program = str(jax.make_jaxpr(lambda *x: attend(*x))(*tensors()))
    assert f"length={pieces}" in program
    for value, expected in zip(value_and_gradients(tensors()), whole, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
def test_head_by_head_is_the_same(whole, monkeypatch):
    """What CPUs do with long inputs."""
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 1)
    for value, expected in zip(value_and_gradients(tensors()), whole, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=2e-6)
    q, *rest = tensors()
    one = [q[:1], *(x[:1] for x in rest[:4])]
    sets = [KeySet(one[1], one[2]), KeySet(one[3], one[4])]
    alone = compiled(attend_key_sets, one[0], sets)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 2**28)
    expected = compiled(attend_key_sets, one[0], sets)
    np.testing.assert_allclose(alone, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_dropout_of_pieces(on_cpu, monkeypatch):
    """Entries are dropped at the rate, the rest is scaled up, and no two pieces or heads are
    dropped alike."""
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: on_cpu)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 1)
    q, k = np.zeros((2, 8, 16, 2, 4), np.float32), np.zeros((2, 64, 2, 4), np.float32)
    dropout = Dropout(jax.random.key(0), 0.25)
    out = np.asarray(compiled(attend_key_sets, q, [KeySet(k, np.ones_like(k))], dropout=dropout))
    assert abs(out.mean() - 1) < 0.02
    rows = out[..., 0].transpose(0, 1, 3, 2).reshape(-1, 16)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_pieces_are_not_saved_for_the_gradients(monkeypatch):
    q, k = jnp.zeros((1, 64, 16, 2, 4)), jnp.zeros((1, 256, 2, 4))
    score_bytes = 4 * q.size // 4 * 256

    def memory():
        def loss(q, k):
            return (attend_key_sets(q, [KeySet(k, k)]) ** 2).sum()

        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(q, k).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory() > score_bytes
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", score_bytes // 16)
    assert memory() < score_bytes / 2


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_gradients_from_saved_sums_are_those_of_the_forward_pass(rate):
    """Of the means and of the log sums, for all inputs, dropped weights included."""
    dropout = Dropout(jax.random.key(3), rate)

    def plain(q, sets):
        return blockwise._attend_at_once(
            q, [blockwise._prepare(s) for s in sets], None, 0.7, dropout
        )

    def ours(q, sets):
        return attend_partially(q, sets, scale=0.7, dropout=dropout)

    def run(attend, q, *inputs):
        def loss(q, *inputs):
            out, log_sum_exp = attend(q, two_sets(*inputs))
            finite = jnp.where(log_sum_exp == MASK_VALUE, 0.0, log_sum_exp)
            weights = jnp.cos(jnp.arange(out.size)).reshape(out.shape)
            return (out * weights).sum() + jnp.sin(finite).sum()

        return jax.jit(jax.value_and_grad(loss, range(7)))(q, *inputs)

    for found, wanted in zip(
        *(jax.tree.leaves(run(f, *tensors())) for f in (ours, plain)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-6)


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
    found = value_and_gradients([x.astype(jnp.bfloat16) for x in tensors()])
    for value, expected in zip(found, whole, strict=True):
        assert value.dtype == jnp.bfloat16
        np.testing.assert_allclose(
            np.asarray(value, np.float32), expected, rtol=0, atol=2e-2 * np.abs(expected).max()
        )


@pytest.mark.parametrize("maximum", [2**28, 400])
def test_all_queries_attend_to_the_same_keys(maximum, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    q, _, _, k, v, *_ = tensors()
    out = compiled(attend_all, q[:, 0], [KeySet(k, v, np.array([True, True, False]))])
    expected = compiled(attend_key_sets, q, [KeySet(k[:, :2], v[:, :2])])
    np.testing.assert_allclose(out, np.asarray(expected)[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("maximum", [2**28, 2**14])
def test_dropout_keeps_the_mean_and_follows_its_key(maximum, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", maximum)
    q, k = np.zeros((1, 64, 16, 2, 1), np.float32), np.zeros((1, 128, 2, 1), np.float32)
    v = np.ones_like(k)
    run = jax.jit(lambda key: attend_key_sets(q, [KeySet(k, v)], dropout=Dropout(key, 0.25)))
    out, again, other = (np.asarray(run(jax.random.key(seed))) for seed in (0, 0, 1))
    np.testing.assert_array_equal(out, again)
    assert np.mean(out == other) < 0.2
    assert abs(out.mean() - 1) < 3e-3  # 2048 rows of 128 weights: standard deviation 1e-3
    assert abs(out.std() - (0.25 / 0.75 / 128) ** 0.5) < 3e-3
    # No two blocks are alike, also when they come in different pieces.
    assert len({row.tobytes() for row in out[0]}) == 64


def test_dropout_of_weights():
    weights = jnp.ones((1000,))
    dropped = Dropout(jax.random.key(0), 0.5)(weights)
    assert set(np.unique(dropped)) == {0.0, 2.0}
    assert Dropout(jax.random.key(0), 0.0)(weights) is weights
    assert np.any(Dropout(jax.random.key(0), 0.5).fold(1)(weights) != dropped)


@pytest.mark.parametrize("most", [2**40, 1])
@pytest.mark.parametrize("with_bias", [False, True])
def test_full_attention_is_dense_attention(with_bias, most, monkeypatch):
    """Values and gradients, with a length that is no multiple of the block, in one piece and in
    many."""
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", most)
    monkeypatch.setattr(blockwise, "FULL_BLOCK", 4)
    length = 11
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(B, length, H, K)).astype(np.float32) for _ in range(3))
    table = rng.normal(size=(H, 2 * length - 1)).astype(np.float32)
    mask = np.arange(length) < np.array([length, 6])[:, None]
    distances = np.arange(length) - np.arange(length)[:, None]

    def ours(q, k, v, table):
        return full_attention(q, k, v, mask, distance_bias=table if with_bias else None, scale=0.7)

    def twin(q, k, v, table):
        bias = table[None, :, distances + length - 1] if with_bias else None
        return dot_product_attention(q, k, v, mask=mask[:, None, None], bias=bias, scale=0.7)

    def with_gradients(function, *inputs):
        out, pull_back = jax.vjp(function, *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    results = []
    for function in (ours, twin):
        run = jax.jit(functools.partial(with_gradients, function))
        results.append(run(q, k, v, table))
    for found, wanted in zip(*results, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=3e-6)


# Sets of keys one by one, merged afterwards


def test_merged_softmaxes_are_one_softmax_with_its_gradients(whole):
    def merged(*inputs):
        return merge_partial_softmaxes(
            [attend_partially(inputs[0], [x], scale=0.7) for x in two_sets(*inputs[1:])]
        )

    def run(*inputs):
        out, pull_back = jax.vjp(merged, *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    for found, wanted in zip(jax.jit(run)(*tensors()), whole, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=5e-6)


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
