"""BigBird attention against dense attention under masks from loops."""

import functools
import re

import jax.numpy as jnp
import numpy as np
import pytest
from sparse_twins import (
    SCALE,
    H,
    assert_bias_acts_within,
    assert_equal,
    dense,
    make_mask,
    rows,
    tokens,
)

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.bigbird import bigbird_attention, random_block_plan
from longsum_jax.ops.attention.local import local_distances


def bigbird_counts(length, size, plan):
    """How often query i of head h sees key j, [H, L, L], by the words of the docstring."""
    blocks = -(-length // size)
    counts = np.zeros((H, length, length))
    for h, i, j in np.ndindex(counts.shape):
        block, key_block = i // size, j // size
        if block in (0, blocks - 1):
            counts[h, i, j] = 1
            continue
        always = {0, block - 1, block, block + 1, blocks - 1}
        draws = list(plan[h, block - 1]).count(key_block)
        counts[h, i, j] = (key_block in always) + draws
    return counts


@pytest.mark.parametrize(("length", "size"), [(32, 4), (29, 4), (13, 4)])
def test_bigbird_attention(length, size):
    mask, blocks = rows(length), -(-length // size)
    # Any block may come, also one that is seen for another reason, and the same one twice.
    plan = np.random.default_rng(0).integers(0, blocks, (H, blocks - 2, 3))
    counts = bigbird_counts(length, size, plan)
    sees = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and mask[b, j] and counts[h, i, j] > 0
    )
    bias = jnp.log(jnp.maximum(counts, 1))[None]
    options = {"block_size": size, "random_blocks": plan, "scale": SCALE}
    assert_equal(
        lambda q, k, v: bigbird_attention(q, k, v, jnp.asarray(mask), **options),
        lambda q, k, v: dense(q, k, v, sees, bias),
        tokens(length),
    )


def test_a_bias_acts_inside_the_window_alone():
    size = 4

    def sparse(q, k, v, mask, table):
        bias = table[:, jnp.asarray(local_distances(size, size)) + mask.shape[1]]
        options = {"block_size": size, "random_blocks": 0, "scale": SCALE, "bias": bias}
        return bigbird_attention(q, k, v, mask, **options)

    def is_end(i, j):
        return {i // size, j // size} & {0, 28 // size}

    def in_window(i, j):
        return not is_end(i, j) and abs(i // size - j // size) <= 1

    assert_bias_acts_within(sparse, in_window, lambda i, j: in_window(i, j) or is_end(i, j))


def test_zeros_as_random_blocks_equal_a_number():
    run = functools.partial(bigbird_attention, mask=jnp.asarray(rows(29)), block_size=4)
    zeros = np.zeros((H, 6, 2), int)
    assert_equal(
        functools.partial(run, random_blocks=2),
        functools.partial(run, random_blocks=zeros),
        tokens(29),
    )


def test_a_plan_has_different_blocks_outside_window_and_ends():
    plan = random_block_plan(np.random.default_rng(0), 9, 50, 4)
    assert plan.shape == (50, 7, 4)
    for head, row in np.ndindex(plan.shape[:2]):
        drawn = set(plan[head, row])
        assert len(drawn) == 4
        assert drawn <= set(range(1, 8)) - {row, row + 1, row + 2}
    # In many heads everything allowed is drawn.
    assert set(plan[:, 0].ravel()) == {3, 4, 5, 6, 7}
    np.testing.assert_array_equal(plan, random_block_plan(np.random.default_rng(0), 9, 50, 4))


def test_impossible_sizes():
    message = (
        "an input of 13 tokens has 3 blocks of 5; block-sparse attention needs at least 4: "
        "use full attention"
    )
    options = {"block_size": 5, "random_blocks": 1}
    with pytest.raises(InputError, match=re.escape(message)):
        bigbird_attention(*tokens(13), jnp.asarray(rows(13)), **options)


def test_more_random_blocks_than_there_are():
    with pytest.raises(InputError, match="3 random blocks do not fit into an input of 7 blocks"):
        random_block_plan(np.random.default_rng(0), 7, 2, 3)
    assert random_block_plan(np.random.default_rng(0), 8, 2, 3).shape == (2, 6, 3)
