"""What every attention of a text to itself promises: a table of attentions, one test a promise."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import ClosedJaxpr, Jaxpr
from sparse_twins import B, H, K, normal, rows

from longsum_jax.experimental.ops.linear import efficient_attention, linear_attention
from longsum_jax.experimental.ops.lsh import draw_rotations, hash_buckets, lsh_attention
from longsum_jax.experimental.ops.patterns import KeyPattern, pattern_attention
from longsum_jax.experimental.ops.performer import draw_projection, performer_attention
from longsum_jax.experimental.ops.sinkhorn import sinkhorn_attention, soft_permutation
from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.bigbird import bigbird_attention
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.key_sets import KeySet, WeightDropout
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.attention.longformer import longformer_attention
from longsum_jax.ops.attention.lsg import LsgSpec, lsg_attention
from longsum_jax.ops.attention.staggered import block_staggered_attention


def local(q, k, v, mask, size, **options):
    return local_attention(q, k, v, mask, radius=size - 1, **options)


def transient_global(q, k, v, mask, size, **options):
    ids, is_full = transient_blocks(mask, size)
    count = q.shape[1] // size
    sums = [block_sums(x, mask, size, count) for x in (k, v)]
    keys = KeySet(sums[0], sums[1] / size, is_full[:, None, None, None])
    options |= {"radius": size - 1, "side_bias": jnp.zeros((q.shape[2], 2 * count))}
    return transient_global_attention(QKV(q, k, v), mask, ids, keys, **options)


def longformer(q, k, v, mask, size, **options):
    first = jnp.zeros((len(q), 1), int)
    arrays = QKV(q, k, v), QKV(q[:, :1], k, v), mask, first
    return longformer_attention(*arrays, radius=size - 1, **options)


def first_tokens(q, k, v, count):
    return QKV(q[:, :count], k[:, :count], v[:, :count])


def staggered(q, k, v, mask, size, **options):
    options |= {"block_size": size, "stagger": True}
    arrays = QKV(q, k, v), first_tokens(q, k, v, 8), mask
    return block_staggered_attention(*arrays, **options)


def bigbird(q, k, v, mask, size, **options):
    return bigbird_attention(q, k, v, mask, block_size=size, random_blocks=1, **options)


def lsg(q, k, v, mask, size, **options):
    spec = LsgSpec(size, sparse_block_size=size, sparsity_factor=2, sparsity_type="norm")
    return lsg_attention(QKV(q, k, v), first_tokens(q, k, v, 8), mask, spec, **options)


def pattern(q, k, v, mask, size, **options):
    keys = KeyPattern(radius=size - 1, num_global=2)
    return pattern_attention(q, k, v, mask, keys, **options)


def sinkhorn(q, k, v, mask, size):
    order = soft_permutation(q, k, mask, block_size=size)
    return sinkhorn_attention(q, k, v, mask, order, block_size=size)


def lsh(q, k, v, mask, size):
    rotations = draw_rotations(jax.random.key(0), q.shape[2], q.shape[3], 2, 4)
    buckets = hash_buckets(q, mask, rotations)
    return lsh_attention(q, v, mask, buckets, chunk_length=size)


def performer(q, k, v, mask, size):
    projection = draw_projection(jax.random.key(0), 6, q.shape[3])
    return performer_attention(q, k, v, mask, projection)


class Promises(NamedTuple):
    """An attention (q, k, v, mask, size, dropout) -> states, or states and those of its global
    tokens, and what it does not promise.

    Attributes:
        function: attention whose windows, blocks or chunks have about ``size`` tokens.
        has_dropout: False without weights that are dropped.
        ignores_length: False if what a query sees depends on the padded length.
        is_linear: False if memory grows with the square of the length.
    """

    function: Callable
    has_dropout: bool = True
    ignores_length: bool = True
    is_linear: bool = True


ATTENTIONS = {
    "local": Promises(local),
    "transient_global": Promises(transient_global),
    "longformer": Promises(longformer),
    "block_staggered": Promises(staggered),
    "bigbird": Promises(bigbird, ignores_length=False),  # its last block is seen by all
    "lsg": Promises(lsg),
    "pattern": Promises(pattern),
    "sinkhorn": Promises(sinkhorn, has_dropout=False, is_linear=False),
    "lsh": Promises(lsh, has_dropout=False),
    "linear": Promises(lambda *x: linear_attention(*x[:-1]), has_dropout=False),
    "efficient": Promises(lambda *x: efficient_attention(*x[:-1]), has_dropout=False),
    "performer": Promises(performer, has_dropout=False),
}


def that(promise):
    """The names of attentions that keep a promise."""
    return [name for name, attention in ATTENTIONS.items() if getattr(attention, promise)]


def arrays(length):
    return [normal(i, B, length, H, K) for i in range(3)]


def states_of(name, q, k, v, mask):
    """The states of the tokens, of windows of about four of them."""
    out = ATTENTIONS[name].function(q, k, v, mask, 4)
    return out[0] if isinstance(out, tuple) else out


@pytest.mark.parametrize("name", ATTENTIONS)
def test_padding_and_empty_rows(name):
    """What stands in padding changes nothing, nor does its length; padding gets zeros; large
    numbers and rows without a token have finite values and gradients."""
    attend = functools.partial(states_of, name)
    length, longer = 19, 27
    mask = rows(length)
    q, k, v = arrays(length)

    @jax.jit
    def call(q, k, v, mask):
        out, pull_back = jax.vjp(lambda *x: attend(*x, mask), q, k, v)
        return out, pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape))

    result, _ = call(q, k, v, mask)
    assert not np.asarray(result)[~mask].any()
    filled = [jnp.where(mask[..., None, None], x, 50.0) for x in (q, k, v)]
    np.testing.assert_allclose(call(*filled, mask)[0], result, rtol=1e-5, atol=1e-6)
    if ATTENTIONS[name].ignores_length:
        after = ((0, 0), (0, longer - length))
        padded = [jnp.pad(x, (*after, (0, 0), (0, 0)), constant_values=50.0) for x in filled]
        out = jax.jit(attend)(*padded, np.pad(mask, after))
        np.testing.assert_allclose(out[:, :length], result, rtol=1e-5, atol=1e-6)
    for leaf in jax.tree.leaves(call(200 * q, 200 * k, 200 * v, mask)):
        assert np.isfinite(leaf).all()


@pytest.mark.parametrize("name", ATTENTIONS)
def test_outputs_have_the_type_of_the_values(name):
    narrow = [x.astype(jnp.bfloat16) for x in arrays(19)]
    attend = functools.partial(states_of, name)
    assert jax.eval_shape(attend, *narrow, rows(19)).dtype == jnp.bfloat16


@pytest.mark.parametrize("name", that("has_dropout"))
def test_dropout_reaches_every_weight_and_follows_its_key(name):
    ones, mask = jnp.ones((1, 256, 2, 1)), jnp.ones((1, 256), bool)

    @jax.jit
    def run(seed):
        dropout = WeightDropout(jax.random.key(seed), 0.5)
        return ATTENTIONS[name].function(0 * ones, ones, ones, mask, 64, dropout=dropout)

    for out, again, other in zip(*map(jax.tree.leaves, (run(0), run(0), run(1))), strict=True):
        np.testing.assert_array_equal(out, again)
        assert np.mean(np.abs(out - other) < 1e-6) < 0.2
        assert np.mean(np.abs(out - 1) < 1e-6) < 0.2
        assert abs(out.mean() - 1) < 0.05


def sizes(program):
    """Yields the sizes of all arrays of a program, those inside of loops included."""
    for equation in program.eqns:
        yield from (variable.aval.size for variable in equation.outvars)
        for value in jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, ClosedJaxpr | Jaxpr)
        ):
            if isinstance(value, ClosedJaxpr | Jaxpr):
                yield from sizes(getattr(value, "jaxpr", value))


@pytest.mark.slow
@pytest.mark.parametrize("name", that("is_linear"))
def test_no_array_of_the_gradients_grows_faster_than_the_length(name, monkeypatch):
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 2**20)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES_CPU", 2**20)

    def largest(length):
        def loss(*x):
            out = ATTENTIONS[name].function(*x, np.ones((1, length), bool), 64)
            return sum((y**2).sum() for y in jax.tree.leaves(out))

        q = jax.ShapeDtypeStruct((1, length, 2, 8), jnp.float32)
        return max(sizes(jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(q, q, q).jaxpr))

    short, long = largest(4096), largest(8192)
    assert long < 2.3 * short
    assert long < 8192 * 8192 / 8  # an eighth of the scores of one head
