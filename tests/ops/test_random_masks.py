import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.random_masks import (
    drop_entries,
    head_words,
    keep_entries,
    keep_mask,
    keep_pairs,
    module_words,
    row_words,
)

KINDS = pytest.mark.parametrize(
    "rng",
    [jax.random.key(3), jax.random.key(3, impl="rbg"), jax.random.PRNGKey(3)],
    ids=["threefry", "rbg", "array"],
)


def _hash(x):
    """The finalizer of MurmurHash3 in Python's integers."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ x >> shift) * factor % 2**32
    return x ^ x >> 16


@KINDS
def test_rows_are_streams_of_hashes(rng):
    start, step = (int(word) for word in np.asarray(jax.random.key_data(rng))[:2])
    start ^= _hash(step ^ 0x9E3779B9)
    mask = np.asarray(keep_mask(rng, 0.7, (2, 3, 50)))
    for number, row in enumerate(mask.reshape(6, 50)):
        first, distance = _hash(number ^ start), _hash(number ^ step) | 1
        drawn = [_hash((first + i * distance) % 2**32) < 0.7 * 2**32 for i in range(50)]
        np.testing.assert_array_equal(row, drawn)


@KINDS
@pytest.mark.parametrize("share", [0.9, 0.5])
def test_entries_are_as_independent_draws(rng, share):
    shape = (8, 128, 768)
    draw = jax.jit(keep_mask, static_argnums=(1, 2))
    others = jax.random.fold_in(rng, 1)
    entries, other = (
        (np.asarray(draw(key, share, shape)) - share) / np.sqrt(share * (1 - share))
        for key in (rng, others)
    )
    # Standard scores of the mean, and of products of neighbors along each axis and of two keys.
    products = [entries, entries * other, entries[1:] * entries[:-1]]
    products += [entries[:, 1:] * entries[:, :-1], entries[..., 1:] * entries[..., :-1]]
    for x in products:
        assert abs(x.mean() * np.sqrt(x.size)) < 4.5
    # The largest correlation of two rows, and of two columns, of half a million products each.
    rows = entries.reshape(-1, shape[-1])
    for x in (rows, rows.T):
        correlations = x @ x.T / np.sqrt(x.shape[1])
        assert np.abs(np.triu(correlations, 1)).max() < 8
    # as many dropped entries of a row, and of a column, as of independent draws
    for axis in (0, 1):
        sums = rows.sum(axis) / np.sqrt(rows.shape[axis])
        assert abs(sums.std() - 1) < 0.15


def test_masks_of_seeds_have_no_entry_in_common():
    """The first word of their keys is the same."""
    masks = np.stack([keep_mask(jax.random.key(seed), 0.5, (64, 50)) for seed in range(32)])
    shares = masks.mean(0)
    assert 0.05 < shares.min() < shares.max() < 0.95
    assert np.abs(shares.mean(0) - 0.5).max() < 0.05  # of each column


def test_modules_that_share_words_draw_other_entries():
    words = row_words(jax.random.key(0), (64,))
    masks = [keep_entries(module_words(words, number), 500, 0.7) for number in (0, 1, 2**32 - 1)]
    for a, b in itertools.combinations([*masks, keep_entries(words, 500, 0.7)], 2):
        assert abs((a == b).mean() - (0.7**2 + 0.3**2)) < 0.02  # as of independent masks


def test_an_array_without_rows_is_one_row():
    rng = jax.random.key(0)
    np.testing.assert_array_equal(keep_mask(rng, 0.5, (9,)), keep_mask(rng, 0.5, (2, 9))[0])


@pytest.mark.parametrize("share", [0.95, 0.9, 0.8, 0.7])
def test_dropped_bfloat16_has_the_expected_mean(share):
    """The share itself in bfloat16 would be off by up to 2 in 1,000."""
    x = jax.random.uniform(jax.random.key(1), (100_000,), jnp.bfloat16, 1, 2)
    retained = drop_entries(x, jnp.ones(x.shape, bool), share)
    assert retained.dtype == jnp.bfloat16
    means = [np.asarray(values, np.float64).mean() for values in (x, retained)]
    assert means[1] * share == pytest.approx(means[0], rel=1e-4)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_masks_of_pairs_are_as_independent_draws(impl):
    share, n, rows, heads = 0.9, 512, 3, 4
    indices = np.arange(n)
    words = head_words(jax.random.key(3, impl=impl), rows, heads).reshape(-1, 2)
    draw = jax.jit(lambda x: keep_pairs((x[0], x[1]), indices[:, None], indices[None], share))
    masks = np.stack([draw(x) for x in words])
    # A block of pairs has the mask of its positions.
    block = keep_pairs(tuple(words[5]), indices[64:128, None], indices[None, 256:320], share)
    np.testing.assert_array_equal(block, masks[5, 64:128, 256:320])
    # Standard scores of means, and of products of neighbors: queries, keys, and heads.
    entries = (masks - share) / np.sqrt(share * (1 - share))
    flat = entries.reshape(len(words), -1)
    scores = [flat, (entries[:, 1:] * entries[:, :-1]).reshape(len(words), -1)]
    scores += [(entries[:, :, 1:] * entries[:, :, :-1]).reshape(len(words), -1)]
    scores += [flat[1:] * flat[:-1]]
    for x in scores:
        assert np.abs(x.mean(1) * np.sqrt(x.shape[1])).max() < 4.5
    # The largest correlation of two rows, and of two columns, of half a million products.
    for x in (entries[0], entries[0].T):
        correlations = x @ x.T / np.sqrt(n)
        assert np.abs(np.triu(correlations, 1)).max() < 8


def test_the_smallest_rate_keeps_all_pairs():
    words, indices = head_words(jax.random.key(3), 1, 1)[0, 0], np.arange(8)
    assert keep_pairs(tuple(words), indices[:, None], indices[None], 1 - 1e-12).all()


def test_words_do_not_depend_on_the_number_of_rows():
    rng = jax.random.key(0)
    few, many = head_words(rng, 1, 4), head_words(rng, 3, 4)
    np.testing.assert_array_equal(few, many[:1])
    assert len(np.unique(many.reshape(-1, 2), axis=0)) == 12
