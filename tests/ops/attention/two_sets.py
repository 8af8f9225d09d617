"""Two sets of keys for blockwise attention: one of each block, one that all blocks share."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.key_sets import KeySet, LazyBias

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


def value_and_gradients(inputs, **options):
    def run(*inputs):
        out, pull_back = jax.vjp(functools.partial(attend, **options), *inputs)
        return out, *pull_back(jnp.cos(jnp.arange(out.size)).reshape(out.shape).astype(out.dtype))

    return [np.asarray(x) for x in compiled(run, *inputs)]
