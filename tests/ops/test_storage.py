"""Products with arrays in bfloat16 or int8: NumPy, in float64, is the slow twin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.models.vocabulary import vocabulary_logits
from longsum_jax.ops.attention.dense import CappedScale, dot_product_attention
from longsum_jax.ops.attention.key_sets import KeySet, attend_jointly
from longsum_jax.ops.storage import (
    MAX_ROWS,
    PaddedTable,
    padded_table,
    store,
    stored_attention,
    stored_product,
)

TYPES = ["bfloat16", "int8"]
store_compiled = jax.jit(store, static_argnums=(1, 2))
MANY = MAX_ROWS + 1


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def read(stored):
    """The array that is stored."""
    values = np.asarray(stored.values.astype(jnp.float32))
    return values if stored.scales is None else values * np.asarray(stored.scales)


@pytest.mark.parametrize("storage", TYPES)
def test_errors_are_as_small_as_stated(storage):
    x = drawn(48, 20) * 10.0 ** np.arange(-10, 10)
    stored = store_compiled(x, storage, (0,))
    limit = np.abs(x) * 2**-8 if storage == "bfloat16" else np.abs(x).max(0) / 253.9
    error = np.abs(read(stored) - x)
    assert (error <= limit).all()
    assert error.max() > 0


def test_zeros_are_stored_as_zeros():
    np.testing.assert_array_equal(read(store_compiled(np.zeros((4, 3)), "int8", (0,))), 0)


@pytest.mark.parametrize(
    ("storage", "rows", "inputs"),
    [
        *(("int8", *sizes) for sizes in ((1, 48), (3, 48), (MANY, 48), (1, 40), (2, 9))),
        ("bfloat16", 3, 48),
        ("bfloat16", MANY, 48),
    ],
)
def test_products_are_those_of_rounded_weights(storage, rows, inputs):
    """Also with as many rows or inputs as no pass takes."""
    x, matrix = drawn(rows, inputs), store_compiled(drawn(inputs, 20, seed=1), storage, (0,))
    expected = x.astype(np.float64) @ read(matrix)
    np.testing.assert_allclose(jax.jit(stored_product)(x, matrix), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("storage", "queries", "num_keys", "mask_heads"),
    [
        *(("int8", *sizes) for sizes in ((1, 48, 1), (3, 128, 3), (MANY, 48, 1), (2, 9, 1))),
        ("bfloat16", 3, 128, 3),
        ("bfloat16", MANY, 48, 1),
    ],
)
def test_attention_is_that_of_rounded_keys(storage, queries, num_keys, mask_heads):
    q = drawn(2, queries, 3, 16)
    k = store_compiled(drawn(2, 3, 16, num_keys, seed=1), storage, (-2,))
    v = store_compiled(drawn(2, 3, num_keys, 16, seed=2), storage, (-1,))
    mask = np.random.default_rng(3).random((2, mask_heads, 1, num_keys)) > 0.3
    result = jax.jit(functools.partial(stored_attention, scale=0.3))(q, k, v, mask=mask)
    rounded = np.moveaxis(read(k), -1, 1), np.moveaxis(read(v), 2, 1)
    dense = jax.jit(functools.partial(dot_product_attention, scale=0.3))
    expected = dense(q, *rounded, mask=mask)
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("storage", TYPES)
def test_further_keys_are_under_the_same_softmax(storage):
    """Also for keys and values with fewer heads."""
    q = drawn(2, 3, 4, 16)
    k = store_compiled(drawn(2, 2, 16, 48, seed=1), storage, (-2,))
    v = store_compiled(drawn(2, 2, 48, 16, seed=2), storage, (-1,))
    mask = np.random.default_rng(3).random((2, 1, 1, 48)) > 0.3
    others = [
        KeySet(drawn(2, 5, 2, 16, seed=4), drawn(2, 5, 2, 16, seed=5), np.ones((2, 1, 3, 5)) > 0),
        KeySet(drawn(2, 1, 4, 16, seed=6), drawn(2, 1, 4, 16, seed=7)),
    ]
    attend = functools.partial(stored_attention, scale=CappedScale(0.3, 2.0))
    result = jax.jit(attend)(q, k, v, mask=mask, others=others)
    rounded = KeySet(np.moveaxis(read(k), -1, 1), np.moveaxis(read(v), 2, 1), mask)
    jointly = jax.jit(functools.partial(attend_jointly, scale=CappedScale(0.3, 2.0)))
    expected = jointly(q, [rounded, *others])
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_a_row_without_keys_is_zero():
    k, v = (store_compiled(drawn(1, 2, 16, 16), "int8", (axis,)) for axis in (-2, -1))
    mask = np.zeros((1, 1, 1, 16), bool)
    result = jax.jit(stored_attention)(drawn(1, 1, 2, 16), k, v, mask=mask)
    np.testing.assert_array_equal(result, 0)


@pytest.mark.parametrize(("rows", "padded"), [(13, 16), (16, 16)])
def test_padded_tables_have_the_same_logits(rows, padded):
    rng = np.random.default_rng(0)
    x, table = (jnp.asarray(rng.normal(size=(n, 4)), jnp.float32) for n in (3, rows))
    result = padded_table(table)
    assert isinstance(result, PaddedTable)
    assert result.rows.shape == (padded, 4)
    np.testing.assert_array_equal(vocabulary_logits(x, result), vocabulary_logits(x, table))
