"""Sparse keys of LSG attention: the text, shorter by a factor, for every head on its own.

How a group of tokens becomes fewer keys is called a selection (Condevaux and Harispe 2022, section
3.2): some of the tokens (by ``norm``, ``stride``, ``block_stride``), means of neighbours
(``pooling``, ``bos_pooling``), or means of tokens that are alike (``lsh``). Selected keys stay in
the order of the text.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from longsum_jax.ops.attention.dense import masked_softmax
from longsum_jax.typing import Array

SparsityType = Literal["none", "norm", "lsh", "pooling", "stride", "block_stride", "bos_pooling"]
SELECTIONS: tuple[str, ...] = get_args(SparsityType)


class Selection(NamedTuple):
    """Static options of the selection of sparse keys.

    Attributes:
        kind: one of ``SELECTIONS``.
        factor: f, tokens per sparse key; it divides ``block_size``.
        block_size: C; lengths are multiples of it.
        chunk: tokens among which ``norm`` and ``lsh`` choose, see ``chunk_size``.
        reference_quirks: ``bos_pooling`` shows groups that are padding alone, as the published code
            does.
    """

    kind: SparsityType
    factor: int
    block_size: int
    chunk: int
    reference_quirks: bool = False

    @property
    def clusters(self) -> int:
        """Sparse keys per chunk."""
        return self.chunk // self.factor


class SparseKeys(NamedTuple):
    """Keys and values [B, L / f, H, K]; ``seen`` bool [B, L / f, H or 1], True where there is a
    real token in one."""

    k: Array
    v: Array
    seen: Array


def chunk_size(block_size: int, sparse_block_size: int, factor: int) -> int:
    """Returns the number of tokens among which ``norm`` and ``lsh`` choose.

    It is min(C, S), or the next smaller size that fits.

    It is a multiple of the factor and divides the block, so that no chunk reaches into a block in
    which it is not used.
    """
    step, wanted = block_size // factor, max(1, min(block_size, sparse_block_size) // factor)
    return factor * max(size for size in range(1, min(step, wanted) + 1) if step % size == 0)


def sparse_keys(
    k: Array,
    v: Array,
    seen: Array,
    selection: Selection,
    *,
    first_query: Array,
    scale: float = 1.0,
    projections: Sequence[Array] = (),
) -> SparseKeys:
    """Makes the sparse keys of a text (section 3.2; ``bos_pooling`` is in the published code only).

    Args:
        k, v: [B, L, H, K], L a multiple of the block size.
        seen: bool [B, L], False on padding.
        selection: type and sizes.
        first_query: [B, H, K], the query of the first token, by which ``bos_pooling`` weighs.
        scale: factor of its products.
        projections: random directions of ``lsh``, see ``lsh_projections``.

    Returns:
        SparseKeys; one without any real token is not seen.
    """
    if selection.factor == 1:
        return SparseKeys(k, v, seen[..., None])
    kind = selection.kind
    if kind == "lsh" and selection.clusters >= 2:
        return _clusters(k, v, seen, selection, projections)
    if kind in (
        "bos_pooling",
        "lsh",
    ):  # a single cluster has no directions to differ in; published as it is here
        return _bos_pooled(k, v, seen, selection, first_query, scale)
    if kind == "norm":
        return _largest(k, v, seen, selection)
    if kind == "pooling":
        return _pooled(k, v, seen, selection.factor)
    return _strided(k, v, seen, *_offsets(selection, k.shape[2]))


def _groups(x: Array, size: int) -> Array:
    """[B, L, ...] -> [B, L / size, size, ...]"""
    return x.reshape(x.shape[0], -1, size, *x.shape[2:])


def _in_line(x: Array) -> Array:
    """[B, N, C, ...] -> [B, N C, ...]"""
    return x.reshape(x.shape[0], -1, *x.shape[3:])


def _largest(k: Array, v: Array, seen: Array, selection: Selection) -> SparseKeys:
    """Selects the keys of largest norm in each chunk; padding comes last."""
    k, v, seen = (_groups(x, selection.chunk) for x in (k, v, seen[..., None]))
    squares = jnp.square(lax.stop_gradient(k).astype(jnp.float32)).sum(-1)
    _, index = lax.top_k(jnp.where(seen, squares, -1).swapaxes(2, 3), selection.clusters)
    index = jnp.sort(index, axis=-1).swapaxes(2, 3)  # [B, N, clusters, H]
    take = lambda x: _in_line(jnp.take_along_axis(x, index[..., None], axis=2))  # noqa: E731
    seen = jnp.broadcast_to(seen, (*seen.shape[:3], k.shape[3]))
    return SparseKeys(take(k), take(v), take(seen[..., None])[..., 0])


def _offsets(selection: Selection, heads: int) -> tuple[int, np.ndarray]:
    """Returns the size of a group, and the places that each head takes in it, int [n, H]."""
    head, factor, size = np.arange(heads), selection.factor, selection.block_size
    if selection.kind == "stride":
        return factor, (head % factor)[None]
    run = size // factor
    return size, (np.arange(run)[:, None] + head * run) % size


def _strided(k: Array, v: Array, seen: Array, size: int, offsets: np.ndarray) -> SparseKeys:
    head = np.arange(k.shape[2])
    k, v = (_in_line(_groups(x, size)[:, :, offsets, head]) for x in (k, v))
    return SparseKeys(k, v, _in_line(_groups(seen, size)[:, :, offsets]))


def _pooled(k: Array, v: Array, seen: Array, factor: int) -> SparseKeys:
    """Averages the real tokens of each group."""
    seen = _groups(seen, factor)
    weights = seen / jnp.maximum(seen.sum(-1, keepdims=True), 1)
    return SparseKeys(
        *(_weighted(x, weights[..., None], factor) for x in (k, v)), seen.any(-1)[..., None]
    )


def _bos_pooled(
    k: Array, v: Array, seen: Array, selection: Selection, first_query: Array, scale: float
) -> SparseKeys:
    """Averages each group by the attention weights of the first token."""
    seen = _groups(seen, selection.factor)[:, :, None]
    scores = jnp.einsum(
        "bhk,bnchk->bnhc",
        first_query,
        _groups(k, selection.factor),
        preferred_element_type=jnp.float32,
    )
    if (
        selection.reference_quirks
    ):  # there the masks of a group sum to minus infinity, which counts as no mask
        lowest = jnp.finfo(jnp.float32).min
        weights, real = (
            jax.nn.softmax(scores * scale + jnp.where(seen, 0, lowest)),
            jnp.ones_like(seen[..., 0]),
        )
    else:
        weights, real = masked_softmax(scores * scale, seen), seen.any(-1)
    weights = weights.swapaxes(2, 3)
    return SparseKeys(*(_weighted(x, weights, selection.factor) for x in (k, v)), real)


def _weighted(x: Array, weights: Array, factor: int) -> Array:
    """Sums over groups: [B, L, H, K], [B, N, C, H or 1] -> [B, N, H, K]."""
    groups = _groups(x, factor).astype(jnp.float32)
    weights = jnp.broadcast_to(weights, groups.shape[:-1])
    # As a product and a sum over an axis in the middle, this takes 20 times as long on CPUs.
    return jnp.einsum("bnchk,bnch->bnhk", groups, weights, precision=lax.Precision.HIGHEST).astype(
        x.dtype
    )


def lsh_projections(
    rng: Array, heads: int, head_size: int, *, chunk: int, factor: int, pre_rounds: int
) -> tuple[Array, ...]:
    """Draws the random directions of ``pre_rounds`` rounds of hashing and of a last one.

    Returns:
        An array [H, K, buckets / 2] for each round; the last one has f times fewer buckets. Empty
        if a chunk has fewer than two clusters.
    """
    if chunk // factor < 2:
        return ()
    buckets = (*[chunk] * pre_rounds, chunk // factor)
    keys = jax.random.split(rng, len(buckets))
    return tuple(
        jax.random.normal(key, (heads, head_size, n // 2))
        for key, n in zip(keys, buckets, strict=True)
    )


def _clusters(
    k: Array, v: Array, seen: Array, selection: Selection, projections: Sequence[Array]
) -> SparseKeys:
    """Averages tokens that share a bucket of a random projection, round after round."""
    size = k.shape[-1]
    counts = jnp.broadcast_to(seen[..., None, None], (*k.shape[:-1], 1)).astype(jnp.float32)
    x = jnp.concatenate([jnp.where(counts > 0, jnp.concatenate([k, v], -1), 0), counts], -1)
    x = _groups(x, selection.chunk).swapaxes(2, 3)  # [B, N, H, C, 2 K + 1]
    last = len(projections) - 1
    for number, directions in enumerate(projections):
        buckets = selection.clusters if number == last else selection.chunk
        x = _bucket_sums(x, _buckets(lax.stop_gradient(x[..., :size]), directions), buckets)
    sums, counts = jnp.split(x.swapaxes(2, 3), [2 * size], -1)
    means = _in_line(sums / jnp.maximum(counts, 1)).astype(k.dtype)
    return SparseKeys(means[..., :size], means[..., size:], _in_line(counts)[..., 0] > 0)


def _buckets(k: Array, directions: Array) -> Array:
    """Returns the index of the direction, or its opposite, nearest to each key.

    [B, N, H, C, K], [H, K, n] -> int [B, N, H, C].
    """
    k = k / jnp.maximum(jnp.linalg.norm(k, axis=-1, keepdims=True), 1e-12)
    products = jnp.einsum("bnhck,hkr->bnhcr", k, directions.astype(k.dtype))
    return jnp.argmax(jnp.concatenate([products, -products], -1), -1)


def _bucket_sums(x: Array, buckets: Array, count: int) -> Array:
    """Sums by bucket: [B, N, H, C, any], int [B, N, H, C] -> [B, N, H, count, any]."""

    def add(x: Array, buckets: Array) -> Array:
        return jax.ops.segment_sum(x, buckets, count)

    out = jax.vmap(add)(x.reshape(-1, *x.shape[-2:]), buckets.reshape(-1, buckets.shape[-1]))
    return out.reshape(*x.shape[:3], *out.shape[1:])
