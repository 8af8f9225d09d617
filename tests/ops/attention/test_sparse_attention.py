"""Every attention against dense attention under a mask that loops make from the sentence that
defines it."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ops.attention import blockwise as key_sets
from longsum_jax.ops.attention.bigbird import bigbird_attention, random_block_plan
from longsum_jax.ops.attention.blockwise import Dropout
from longsum_jax.ops.attention.dense import dot_product_attention
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    local_block_size,
    local_distances,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.attention.longformer import (
    gather_positions,
    longformer_attention,
    scatter_positions,
)
from longsum_jax.ops.attention.staggered import block_staggered_attention

pytestmark = pytest.mark.usefixtures("fast_compilation")

B, H, K, G, SCALE = 3, 2, 4, 2, 0.7
LENGTHS = (16, 13, 3)  # whole blocks, a part of one, less than one


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def tokens(length, first=0, count=3):
    return [normal(first + i, B, length, H, K) for i in range(count)]


def rows(length):
    """A full row, a shorter one and one of padding alone."""
    return np.arange(length) < np.array([length, max(1, length - 5), 0])[:, None]


def make_mask(length, keys, sees):
    """bool [B, H, L, keys] of sees(b, h, i, j), a Python function."""
    mask = np.zeros((B, H, length, keys), bool)
    for index in np.ndindex(mask.shape):
        mask[index] = sees(*index)
    return jnp.asarray(mask)


def dense(q, k, v, mask, bias=None):
    return dot_product_attention(q, k, v, mask=mask, bias=bias, scale=SCALE)


def assert_equal(sparse, twin, arrays, atol=3e-6):
    """Values and gradients of two functions of ``arrays`` agree; each returns one array or a tuple
    of them."""

    def both(*arrays):
        results = []
        for function in (sparse, twin):
            out, pull_back = jax.vjp(function, *arrays)
            results.append(
                (
                    out,
                    pull_back(
                        jax.tree.map(lambda x: jnp.cos(jnp.arange(x.size)).reshape(x.shape), out)
                    ),
                )
            )
        return results

    ours, expected = jax.jit(both)(*arrays)
    for value, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=2e-5, atol=atol)


# A window


@pytest.mark.parametrize(
    ("length", "radius", "size"), [(16, 4, 4), (13, 9, 4), (13, 0, 1), (13, 5, None), (7, 9, 4)]
)
def test_local_attention(length, radius, size):
    mask = rows(length)
    bias = normal(9, H, *local_distances(size or 8, radius).shape)
    sees = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and mask[b, j] and abs(i - j) <= radius
    )
    distances = local_distances(size or 8, radius)
    column = np.zeros((length, length), int)
    for i, j in np.ndindex(length, length):
        column[i, j] = next(
            (w for w, d in enumerate(distances[i % len(distances)]) if d == j - i), 0
        )
    row = np.arange(length)[:, None] % len(distances)
    assert_equal(
        lambda q, k, v, bias: local_attention(
            q, k, v, jnp.asarray(mask), radius=radius, block_size=size, bias=bias, scale=SCALE
        ),
        lambda q, k, v, bias: dense(q, k, v, sees, bias[None, :, row, column]),
        [*tokens(length), bias],
    )


def test_local_attention_with_further_keys_and_fewer_in_the_window():
    length, radius = 13, 3
    mask, shown = rows(length), rows(length) & (np.arange(length) % 3 != 1)
    window = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and shown[b, j] and abs(i - j) <= radius
    )
    present = jnp.asarray(np.array([[True, True], [False, True], [True, True]]))
    everywhere = make_mask(length, G, lambda b, h, i, j: mask[b, i] and bool(present[b, j]))

    def sparse(q, k, v, global_k, global_v):
        extra = [key_sets.KeySet(global_k, global_v, present[:, None, None, None])]
        options = {"key_mask": jnp.asarray(shown), "extra": extra, "scale": SCALE}
        return local_attention(q, k, v, jnp.asarray(mask), radius=radius, **options)

    def twin(q, k, v, global_k, global_v):
        together = jnp.concatenate([window, everywhere], -1)
        return dense(
            q, jnp.concatenate([k, global_k], 1), jnp.concatenate([v, global_v], 1), together
        )

    assert_equal(sparse, twin, [*tokens(length), normal(5, B, G, H, K), normal(6, B, G, H, K)])


def test_a_traced_radius():
    q, k, v = tokens(13)
    mask = jnp.asarray(rows(13))
    run = jax.jit(
        lambda radius: local_attention(q, k, v, mask, radius=radius, max_radius=7, scale=SCALE)
    )
    for radius in (2, 7):
        expected = local_attention(q, k, v, mask, radius=radius, scale=SCALE)
        np.testing.assert_allclose(run(radius), expected, rtol=1e-5, atol=1e-6)


def test_padding_of_another_length_changes_nothing():
    q, k, v = tokens(13)
    longer = [jnp.pad(x, ((0, 0), (0, 9), (0, 0), (0, 0)), constant_values=50.0) for x in (q, k, v)]
    mask = jnp.asarray(rows(13))
    out = local_attention(q, k, v, mask, radius=3)
    padded = local_attention(*longer, jnp.pad(mask, ((0, 0), (0, 9))), radius=3)
    np.testing.assert_allclose(padded[:, :13], out, rtol=1e-5, atol=1e-6)
    assert not np.asarray(padded)[:, 13:].any()


def test_the_layout_of_a_window():
    assert [local_block_size(radius) for radius in (0, 5, 127, 256)] == [8, 8, 128, 256]
    np.testing.assert_array_equal(
        local_distances(2, 1), [[-2, -1, 0, 1, 2, 3], [-3, -2, -1, 0, 1, 2]]
    )
    assert local_distances(128, 127).shape == (128, 384)
    assert local_distances(4, 5).shape == (4, 20)


def test_outputs_have_the_type_of_the_values():
    q, k, v = (x.astype(jnp.bfloat16) for x in tokens(13))
    assert local_attention(q, k, v, jnp.asarray(rows(13)), radius=3).dtype == jnp.bfloat16


# LongT5


@pytest.mark.parametrize("length", [1, 3, 8, 13])
def test_blocks_of_transient_globals(length):
    size, lengths = 4, [length, max(1, length - 5), min(3, length), 0]
    mask = np.arange(length) < np.array(lengths)[:, None]
    ids, present = transient_blocks(jnp.asarray(mask), size)
    for b, real in enumerate(lengths):
        full = real // size
        expected = [min(i // size, full - 1) if i < real else -1 for i in range(length)]
        np.testing.assert_array_equal(ids[b], expected)
        np.testing.assert_array_equal(present[b], [g < full for g in range(length // size)])


def test_block_sums_equal_loops():
    x, ids = normal(0, 2, 7, 3), np.array([[0, 0, 1, 1, 1, -1, -1], [-1, 2, 0, 0, 5, 2, 2]])
    expected = np.zeros((2, 3, 3))
    for b, i in np.ndindex(ids.shape):
        if 0 <= ids[b, i] < 3:
            expected[b, ids[b, i]] += np.asarray(x)[b, i]
    np.testing.assert_allclose(block_sums(x, jnp.asarray(ids), 3), expected, rtol=1e-5, atol=1e-6)
    assert block_sums(x.astype(jnp.bfloat16), jnp.asarray(ids), 3).dtype == jnp.bfloat16


@pytest.mark.parametrize("length", LENGTHS)
def test_transient_global_attention(length):
    mask, size, radius = rows(length), 4, 3
    ids, present = (np.asarray(x) for x in transient_blocks(jnp.asarray(mask), size))
    count = length // size
    window = make_mask(
        length, length, lambda b, h, i, j: mask[b, i] and mask[b, j] and abs(i - j) <= radius
    )
    everywhere = make_mask(length, count, lambda b, h, i, g: mask[b, i] and present[b, g])
    sees = jnp.concatenate([window, everywhere], -1)
    entry = {distance: i for i, distance in enumerate(side_distances(count))}
    column = np.zeros((B, length, count), int)
    for b, i, g in np.ndindex(column.shape):
        column[b, i, g] = entry[g - ids[b, i]]

    def sparse(q, k, v, global_k, global_v, side):
        globals_ = (jnp.asarray(ids), jnp.asarray(present), global_k, global_v)
        options = {"radius": radius, "side_bias": side, "scale": SCALE}
        return transient_global_attention(q, k, v, jnp.asarray(mask), *globals_, **options)

    def twin(q, k, v, global_k, global_v, side):
        bias = jnp.pad(jnp.moveaxis(side[:, column], 0, 1), ((0, 0),) * 3 + ((length, 0),))
        return dense(
            q, jnp.concatenate([k, global_k], 1), jnp.concatenate([v, global_v], 1), sees, bias
        )

    arrays = [
        *tokens(length),
        normal(5, B, count, H, K),
        normal(6, B, count, H, K),
        normal(7, H, 2 * count),
    ]
    assert_equal(sparse, twin, arrays)


# PEGASUS-X


def staggered_twin(mask, size, stagger):
    """Dense attention where token i sees token j if both lie in one block, the borders half a block
    earlier or not."""
    length, shift = mask.shape[1], size // 2 if stagger else 0
    own = make_mask(
        length,
        length,
        lambda b, h, i, j: mask[b, i] and mask[b, j] and (i + shift) // size == (j + shift) // size,
    )
    sees = jnp.concatenate([make_mask(length, G, lambda b, h, i, g: mask[b, i]), own], -1)
    all_real = make_mask(G, G + length, lambda b, h, g, j: j < G or mask[b, j - G])

    def twin(q, k, v, global_q, global_k, global_v):
        k, v = jnp.concatenate([global_k, k], 1), jnp.concatenate([global_v, v], 1)
        return dense(q, k, v, sees), dense(global_q, k, v, all_real)

    return twin


@pytest.mark.parametrize(("length", "size"), [(16, 4), (13, 5), (3, 4)])
def test_block_staggered_attention(length, size):
    mask = rows(length)
    sparse = functools.partial(block_staggered_attention, block_size=size, scale=SCALE)
    arrays = [*tokens(length), *[normal(5 + i, B, G, H, K) for i in range(3)]]

    def with_both(function):
        return lambda *arrays: [function(*arrays, stagger=stagger) for stagger in (False, True)]

    assert_equal(
        with_both(lambda *arrays, stagger: sparse(*arrays, jnp.asarray(mask), stagger=stagger)),
        with_both(lambda *arrays, stagger: staggered_twin(mask, size, stagger)(*arrays)),
        arrays,
    )


def test_layers_that_alternate_in_a_scan():
    length = 13
    mask = jnp.asarray(rows(length))
    q, *token_arrays = tokens(length)
    global_q, *global_arrays = [normal(5 + i, B, G, H, K) for i in range(3)]

    def layer(x, stagger):
        out = block_staggered_attention(
            x[0],
            *token_arrays,
            x[1],
            *global_arrays,
            mask,
            block_size=4,
            stagger=stagger,
            scale=SCALE,
        )
        return out, None

    def loss(run):
        return lambda x: sum((y**2).sum() for y in jax.tree.leaves(run(x)))

    scanned = lambda x: jax.lax.scan(layer, x, jnp.array([False, True]))[0]  # noqa: E731
    unrolled = lambda x: layer(layer(x, False)[0], True)[0]  # noqa: E731
    results = [jax.jit(jax.value_and_grad(loss(run)))((q, global_q)) for run in (scanned, unrolled)]
    for value, expected in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


# LED


def test_gather_and_scatter_leave_out_absent_positions():
    x, indices = np.arange(1, 11).reshape(2, 5), jnp.array([[3, -1], [-1, 0]])
    np.testing.assert_array_equal(gather_positions(jnp.asarray(x), indices), [[4, 0], [0, 6]])
    out = scatter_positions(jnp.asarray(x), jnp.array([[40, 99], [99, 60]]), indices)
    np.testing.assert_array_equal(out, [[1, 2, 3, 40, 5], [60, 7, 8, 9, 10]])


@pytest.mark.parametrize(("length", "traced"), [(16, False), (13, True), (3, False)])
def test_longformer_attention(length, traced):
    mask, radius = rows(length), 3
    # Two global tokens, one and an index of padding, padding alone.
    indices = np.array([[length - 1, -1, 0], [0, length - 1, -1], [0, -1, -1]])
    is_global = np.array(
        [[j in indices[b] and mask[b, j] for j in range(length)] for b in range(B)]
    )

    def sees(b, h, i, j):
        return mask[b, i] and (is_global[b, j] or (mask[b, j] and abs(i - j) <= radius))

    local = make_mask(length, length, sees)
    everything = make_mask(length, length, lambda b, h, i, j: mask[b, i] and mask[b, j])
    sizes = {"radius": jnp.asarray(radius), "max_radius": 6} if traced else {"radius": radius}

    def sparse(q, k, v, global_q, global_k, global_v):
        global_q = gather_positions(global_q, jnp.asarray(indices))
        where = (jnp.asarray(mask), jnp.asarray(indices))
        return longformer_attention(
            q, k, v, global_q, global_k, global_v, *where, **sizes, scale=SCALE
        )

    def twin(q, k, v, global_q, global_k, global_v):
        by_globals = dense(global_q, global_k, global_v, everything)
        return jnp.where(is_global[..., None, None], by_globals, dense(q, k, v, local))

    assert_equal(sparse, twin, tokens(length, count=6))


def test_longformer_attention_without_global_tokens_is_local_attention():
    q, k, v = tokens(13)
    mask = jnp.asarray(rows(13))
    out = longformer_attention(q, k, v, q[:, :0], k, v, mask, jnp.zeros((B, 0), int), radius=3)
    np.testing.assert_allclose(out, local_attention(q, k, v, mask, radius=3), rtol=1e-5, atol=1e-6)


# BigBird


def bigbird_counts(length, size, plan):
    """How often query i of head h sees key j, [H, L, L], by the words of the docstring."""
    blocks = -(-length // size)
    counts = np.zeros((H, length, length))
    for h, i, j in np.ndindex(counts.shape):
        own, other = i // size, j // size
        if own in (0, blocks - 1):
            counts[h, i, j] = 1
            continue
        seen_anyway = {0, own - 1, own, own + 1, blocks - 1}
        counts[h, i, j] = (other in seen_anyway) + list(plan[h, own - 1]).count(other)
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


def distance_bias(table, where):
    """Entries [1, H, L, L] of ``table`` [H, 2 L] at j - i + L, zero where not ``where(i, j)``."""
    length = table.shape[1] // 2
    i, j = np.indices((length, length))
    inside = np.vectorize(where)(i, j)
    return jnp.where(jnp.asarray(inside), table[:, j - i + length], 0)[None]


def test_a_bias_acts_inside_windows_and_blocks_alone():
    length, size = 29, 4
    mask = jnp.ones((B, length), bool)
    last = (length - 1) // size
    q, k, v = tokens(length)
    nobody = jnp.full((B, 1), -1)
    absent = [normal(5, B, 1, H, K), *tokens(length, first=6, count=2)]

    def sparse(table):
        at = lambda distances: table[:, jnp.asarray(distances) + length]  # noqa: E731
        within = np.arange(size) - np.arange(size)[:, None]
        bigbird = bigbird_attention(
            q,
            k,
            v,
            mask,
            block_size=size,
            random_blocks=0,
            scale=SCALE,
            bias=at(local_distances(size, size)),
        )
        window = longformer_attention(
            q,
            k,
            v,
            *absent,
            mask,
            nobody,
            radius=5,
            block_size=8,
            scale=SCALE,
            bias=at(local_distances(8, 5)),
        )
        empty = [jnp.zeros((B, 0, H, K))] * 3
        own, _ = block_staggered_attention(
            q, k, v, *empty, mask, block_size=size, stagger=False, scale=SCALE, bias=at(within)
        )
        return bigbird, window, own

    def twin(table):
        ends = (0, last)
        in_window = lambda i, j: (  # noqa: E731
            i // size not in ends and j // size not in ends and abs(i // size - j // size) <= 1
        )
        is_end = lambda i, j: i // size in ends or j // size in ends  # noqa: E731
        near, same = lambda i, j: abs(i - j) <= 5, lambda i, j: i // size == j // size
        sees = lambda rule: make_mask(length, length, lambda b, h, i, j: rule(i, j))  # noqa: E731
        return (
            dense(
                q,
                k,
                v,
                sees(lambda i, j: in_window(i, j) or is_end(i, j)),
                distance_bias(table, in_window),
            ),
            dense(q, k, v, sees(near), distance_bias(table, near)),
            dense(q, k, v, sees(same), distance_bias(table, same)),
        )

    assert_equal(sparse, twin, [normal(9, H, 2 * length)])


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


# What holds for all


def attentions(length):
    """name -> function of (q, k, v, **options), all on tokens of one row of ``length``."""
    mask = jnp.ones((1, length), bool)
    first = jnp.zeros((1, 1), int)
    ids, present = transient_blocks(mask, 16)

    def transient(q, k, v, **options):
        k_global, v_global = (jnp.zeros((1, length // 16, *x.shape[2:])) for x in (k, v))
        side = jnp.zeros((q.shape[2], 2 * (length // 16)))
        return transient_global_attention(
            q,
            k,
            v,
            mask,
            ids,
            present,
            k_global + 1,
            v_global + 1,
            radius=63,
            side_bias=side,
            **options,
        )

    def staggered(q, k, v, stagger=True, **options):
        x = [q[:, :8], k[:, :8], v[:, :8]]
        return block_staggered_attention(
            q, k, v, *x, mask, block_size=64, stagger=stagger, **options
        )

    def longformer(q, k, v, **options):
        return longformer_attention(q, k, v, q[:, :1], k, v, mask, first, radius=64, **options)

    def bigbird(q, k, v, **options):
        plan = random_block_plan(np.random.default_rng(0), length // 32, q.shape[2], 2)
        return bigbird_attention(q, k, v, mask, block_size=32, random_blocks=plan, **options)

    return {
        "local": lambda q, k, v, **options: local_attention(q, k, v, mask, radius=64, **options),
        "transient_global": transient,
        "staggered": staggered,
        "longformer": longformer,
        "bigbird": bigbird,
    }


ALL = list(attentions(256))


@pytest.mark.parametrize("name", ALL)
def test_memory_grows_with_the_length_not_with_its_square(name, monkeypatch):
    monkeypatch.setattr(key_sets, "MAX_SCORE_BYTES", 2**20)

    def temporary(length):
        q = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)
        loss = lambda *x: sum((y**2).sum() for y in jax.tree.leaves(attentions(length)[name](*x)))  # noqa: E731
        program = jax.jit(jax.grad(loss, (0, 1, 2))).lower(q, q, q).compile()
        return program.memory_analysis().temp_size_in_bytes

    short, long = temporary(4096), temporary(8192)
    assert 0 < long < 2.3 * short
    assert long < 4 * 8192 * 8192 / 8  # an eighth of the scores of one head


@pytest.mark.parametrize("name", ALL)
def test_dropout_reaches_every_weight_and_follows_its_key(name):
    shape = (1, 256, 2, 1)
    attention, ones = attentions(256)[name], jnp.ones(shape)
    run = jax.jit(
        lambda seed: attention(0 * ones, ones, ones, dropout=Dropout(jax.random.key(seed), 0.5))
    )
    for out, again, other in zip(*map(jax.tree.leaves, (run(0), run(0), run(1))), strict=True):
        np.testing.assert_array_equal(out, again)
        assert np.mean(np.abs(out - other) < 1e-6) < 0.2
        assert np.mean(np.abs(out - 1) < 1e-6) < 0.2
        assert abs(out.mean() - 1) < 0.05


@pytest.mark.parametrize(
    ("attention", "options", "message"),
    [
        (
            local_attention,
            {"radius": -1},
            "the attention radius is -1; it must be 0 or more tokens",
        ),
        (
            local_attention,
            {"radius": 3, "block_size": 0},
            "the attention block size is 0; it must be 1 or more tokens",
        ),
        (
            bigbird_attention,
            {"block_size": 5, "random_blocks": 1},
            "an input of 13 tokens has 3 blocks of 5; block-sparse attention needs at least 4: use full attention",
        ),
    ],
)
def test_impossible_sizes(attention, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        attention(*tokens(13), jnp.asarray(rows(13)), **options)


def test_more_random_blocks_than_there_are():
    with pytest.raises(InputError, match="3 random blocks do not fit into an input of 7 blocks"):
        random_block_plan(np.random.default_rng(0), 7, 2, 3)
    assert random_block_plan(np.random.default_rng(0), 8, 2, 3).shape == (2, 6, 3)
