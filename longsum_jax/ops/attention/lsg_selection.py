"""Sparse keys of LSG attention: fewer keys by a factor, selected separately for each head.

A selection (Condevaux and Harispe 2022, section 3.2) reduces groups of tokens
to fewer keys: some of the tokens (``norm``, ``stride``, ``block_stride``),
means of neighbors (``pooling``, ``bos_pooling``), or means of similar tokens
(``lsh``). Selected keys stay in the order of the text.
"""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

from longsum_jax.ops.attention.dense import Scale, masked_softmax, scaled_scores
from longsum_jax.ops.platform import target_platform
from longsum_jax.typing import AnyArray

SparsityType = Literal[
    "none", "norm", "lsh", "pooling", "stride", "block_stride", "bos_pooling"
]
SELECTIONS: tuple[str, ...] = get_args(SparsityType)


class Selection(NamedTuple):
    """Static options of the selection of sparse keys.

    Attributes:
        sparsity_type: selection method, one of ``SELECTIONS``.
        factor: number of tokens per sparse key; it divides ``block_size``.
        block_size: number of tokens of a block; lengths are multiples of it.
        chunk: number of tokens from which ``norm`` and ``lsh`` select, see
            ``chunk_size``.
        reference_quirks: True if ``bos_pooling`` makes keys for groups that are
            only padding, as in the published code.
    """

    sparsity_type: SparsityType
    factor: int
    block_size: int
    chunk: int
    reference_quirks: bool = False

    @property
    def clusters(self) -> int:
        """Number of sparse keys per chunk."""
        return self.chunk // self.factor


class SparseKeys(NamedTuple):
    """Sparse keys and values; the mask is True on keys with a real token.

    ``num_keys`` is length / factor; ``mask_heads`` is heads, or 1 for the same
    mask in all heads.
    """

    k: Float[Array, "batch num_keys heads head_dim"]
    v: Float[Array, "batch num_keys heads head_dim"]
    mask: Bool[Array, "batch num_keys mask_heads"]


def chunk_size(block_size: int, sparse_block_size: int, factor: int) -> int:
    """Returns the number of tokens from which ``norm`` and ``lsh`` select.

    It is min(block_size, sparse_block_size), or the next smaller size that
    fits: a multiple of the factor that divides the block, so that no chunk
    reaches into a block in which it is not used.
    """
    step = block_size // factor
    largest = max(1, min(block_size, sparse_block_size) // factor)
    return factor * max(
        size for size in range(1, min(step, largest) + 1) if step % size == 0
    )


def sparse_keys(
    k: Float[Array, "batch length heads head_dim"],
    v: Float[Array, "batch length heads head_dim"],
    mask: Bool[Array, "batch length"],
    selection: Selection,
    *,
    first_query: Float[AnyArray, "batch heads head_dim"],
    scale: Scale = 1.0,
    projections: Sequence[Float[AnyArray, "heads head_dim _"]] = (),
) -> SparseKeys:
    """Makes the sparse keys of a text (section 3.2; ``bos_pooling`` is in the published code only).

    Args:
        k, v: keys and values; the length is a multiple of the block size.
        mask: False on padding.
        selection: type and sizes of the selection.
        first_query: query of the first token, which determines the weights of
            ``bos_pooling``.
        scale: factor of the products with it.
        projections: random directions for ``lsh``, see ``lsh_projections``.
    """
    if selection.factor == 1:
        return SparseKeys(k, v, mask[..., None])
    sparsity_type = selection.sparsity_type
    if sparsity_type == "lsh" and selection.clusters >= 2:
        return _clusters(k, v, mask, selection, projections)
    # A single cluster of "lsh" has no directions to choose from; the published
    # code also pools here.
    if sparsity_type in ("bos_pooling", "lsh"):
        return _bos_pooled(k, v, mask, selection, first_query, scale)
    if sparsity_type == "norm":
        return _largest(k, v, mask, selection)
    if sparsity_type == "pooling":
        return _pooled(k, v, mask, selection.factor)
    return _strided(k, v, mask, *_runs(selection, k.shape[2]))


def _groups(
    x: Shaped[Array, "batch length ..."], size: int
) -> Shaped[Array, "batch num_groups group_size ..."]:
    """Splits a sequence into groups of ``size`` tokens."""
    return x.reshape(x.shape[0], x.shape[1] // size, size, *x.shape[2:])


def _join_groups(
    x: Shaped[Array, "batch num_groups group_size ..."],
) -> Shaped[Array, "batch length ..."]:
    """Joins groups into a sequence: the inverse of ``_groups``."""
    return lax.collapse(x, 1, 3)


def _largest(
    k: Array, v: Array, mask: Array, selection: Selection
) -> SparseKeys:
    """Selects the keys of largest norm in each chunk, and padding only if real keys are too few."""
    k, v, mask = (_groups(x, selection.chunk) for x in (k, v, mask[..., None]))
    squares = jnp.square(lax.stop_gradient(k).astype(jnp.float32)).sum(-1)
    # [batch, num_chunks, heads, chunk]
    squares = jnp.where(mask, squares, -1).swapaxes(2, 3)
    # Sorts and gathers are slow on accelerators, small products on CPUs.
    if target_platform() == "cpu":
        pick = _gathered_largest
    else:
        pick = _multiplied_largest
    take = pick(squares, selection.clusters)
    is_key = jnp.broadcast_to(mask, k.shape[:-1])[..., None].astype(k.dtype)
    k, v, is_key = (_join_groups(take(x)) for x in (k, v, is_key))
    return SparseKeys(k, v, is_key[..., 0] > 0)


# Selects, from an array [batch, num_chunks, chunk, heads, width], the tokens
# that represent a chunk.
_Take = Callable[[AnyArray], Array]


def _gathered_largest(
    x: Float[AnyArray, "batch num_chunks heads chunk"], count: int
) -> _Take:
    """Returns a function that gathers the ``count`` largest of each chunk, in their order."""
    _, indices = lax.top_k(x, count)
    # [batch, num_chunks, count, heads, 1], in the order of the text
    indices = jnp.sort(indices, axis=-1).swapaxes(2, 3)[..., None]
    return lambda x: jnp.take_along_axis(x, indices, axis=2)


def _multiplied_largest(
    x: Float[AnyArray, "batch num_chunks heads chunk"], count: int
) -> _Take:
    """Returns the function of ``_gathered_largest``, computed by comparisons and a product."""
    order = np.arange(x.shape[-1])
    is_first = order < order[:, None]  # ties are won by the earlier entry
    larger = x[..., None, :] > x[..., None]
    equal = x[..., None, :] == x[..., None]
    # Rank of each entry within its chunk; then the output index of each
    # selected entry.
    is_taken = (larger | (equal & is_first)).sum(-1) < count
    indices = jnp.where(is_taken, jnp.cumsum(is_taken, -1) - 1, count)
    # One-hot [batch, num_chunks, heads, count, chunk]: output index by
    # position.
    is_output = indices[..., None, :] == np.arange(count)[:, None]

    def take(x: AnyArray) -> Array:
        picked = is_output.astype(x.dtype)
        return jnp.einsum(
            "bnhsc,bnchk->bnshk", picked, x, precision=lax.Precision.HIGHEST
        )

    return take


def _runs(selection: Selection, heads: int) -> tuple[int, int, np.ndarray]:
    """Returns the sizes of a group and of a run in it, and the start of the run for each head."""
    head, factor, size = (
        np.arange(heads),
        selection.factor,
        selection.block_size,
    )
    if selection.sparsity_type == "stride":
        return factor, 1, head % factor
    run = size // factor
    return size, run, head * run % size


def _strided(
    k: Array, v: Array, mask: Array, size: int, run: int, starts: np.ndarray
) -> SparseKeys:
    """Selects a run of tokens in each group of ``size`` tokens, one for every head."""

    def take(x: Array) -> Array:
        groups = _groups(x, size)
        of_heads = [
            groups[:, :, start : start + run, head]
            for head, start in enumerate(starts)
        ]
        return _join_groups(jnp.stack(of_heads, 3))

    return SparseKeys(
        take(k), take(v), take(jnp.broadcast_to(mask[..., None], k.shape[:3]))
    )


def _pooled(k: Array, v: Array, mask: Array, factor: int) -> SparseKeys:
    """Averages the real tokens of each group."""
    mask = _groups(mask, factor)
    weights = mask / jnp.maximum(mask.sum(-1, keepdims=True), 1)
    k, v = (_weighted_sums(x, weights[..., None], factor) for x in (k, v))
    return SparseKeys(k, v, mask.any(-1)[..., None])


def _bos_pooled(
    k: Array,
    v: Array,
    mask: Array,
    selection: Selection,
    first_query: AnyArray,
    scale: Scale,
) -> SparseKeys:
    """Averages each group by the attention weights of the first token."""
    factor = selection.factor
    mask = _groups(mask, factor)[:, :, None]
    groups = _groups(k, factor)
    scores = jnp.einsum(
        "bhk,bnchk->bnhc",
        first_query,
        groups,
        preferred_element_type=jnp.float32,
    )
    if selection.reference_quirks:
        # The published masks of a group sum to minus infinity, which counts as
        # no mask.
        lowest = jnp.finfo(jnp.float32).min
        weights = jax.nn.softmax(
            scaled_scores(scores, scale) + jnp.where(mask, 0, lowest)
        )
        key_mask = jnp.ones_like(mask[..., 0])
    else:
        weights = masked_softmax(scaled_scores(scores, scale), mask)
        key_mask = mask.any(-1)
    weights = weights.swapaxes(2, 3)
    k, v = (_weighted_sums(x, weights, factor) for x in (k, v))
    return SparseKeys(k, v, key_mask)


def _weighted_sums(
    x: Float[Array, "batch length heads head_dim"],
    weights: Float[Array, "batch num_groups group_size #heads"],
    factor: int,
) -> Float[Array, "batch num_groups heads head_dim"]:
    """Returns the weighted sum of each group of ``factor`` tokens."""
    groups = _groups(x, factor).astype(jnp.float32)
    weights = jnp.broadcast_to(weights, groups.shape[:-1])
    # An elementwise product, summed over a middle axis, takes 20 times as long
    # on CPUs.
    sums = jnp.einsum(
        "bnchk,bnch->bnhk", groups, weights, precision=lax.Precision.HIGHEST
    )
    return sums.astype(x.dtype)


def lsh_projections(
    rng: PRNGKeyArray,
    heads: int,
    head_dim: int,
    *,
    chunk: int,
    factor: int,
    pre_rounds: int,
) -> tuple[Float[Array, "heads head_dim _"], ...]:
    """Draws the random directions of ``pre_rounds`` rounds of hashing and of a last one.

    Returns:
        An array [heads, head_dim, buckets / 2] for each round; the last one has
        ``factor`` times fewer buckets. Empty if a chunk has fewer than two
        clusters.
    """
    if chunk // factor < 2:
        return ()
    buckets = (*[chunk] * pre_rounds, chunk // factor)
    keys = jax.random.split(rng, len(buckets))
    shapes = [(heads, head_dim, count // 2) for count in buckets]
    return tuple(
        jax.random.normal(key, shape, jnp.float32)
        for key, shape in zip(keys, shapes, strict=True)
    )


def _clusters(
    k: Array,
    v: Array,
    mask: Array,
    selection: Selection,
    projections: Sequence[AnyArray],
) -> SparseKeys:
    """Averages tokens that share a bucket of a random projection, over several rounds."""
    size = k.shape[-1]
    counts = jnp.broadcast_to(mask[..., None, None], (*k.shape[:-1], 1)).astype(
        jnp.float32
    )
    x = jnp.where(counts > 0, jnp.concatenate([k, v], -1), 0)
    x = jnp.concatenate([x, counts], -1)
    # [batch, num_chunks, heads, chunk, 2 head_dim + 1]: sums of keys and of
    # values, and token counts.
    x = _groups(x, selection.chunk).swapaxes(2, 3)
    last = len(projections) - 1
    for number, directions in enumerate(projections):
        if number == last:
            num_buckets = selection.clusters
        else:
            num_buckets = selection.chunk
        buckets = _nearest_directions(
            lax.stop_gradient(x[..., :size]), directions
        )
        x = _bucket_sums(x, buckets, num_buckets)
    sums, counts = jnp.split(x.swapaxes(2, 3), [2 * size], -1)
    means = _join_groups(sums / jnp.maximum(counts, 1)).astype(k.dtype)
    return SparseKeys(
        means[..., :size], means[..., size:], _join_groups(counts)[..., 0] > 0
    )


def _nearest_directions(
    k: Float[AnyArray, "batch num_chunks heads chunk head_dim"],
    directions: Float[AnyArray, "heads head_dim num_directions"],
) -> Int[Array, "batch num_chunks heads chunk"]:
    """Returns the index of the direction, or its opposite, nearest to each key."""
    # Normalized, so that the product is the cosine; then the argmax over
    # directions and opposites.
    k = k / jnp.maximum(jnp.linalg.norm(k, axis=-1, keepdims=True), 1e-12)
    products = jnp.einsum("bnhck,hkr->bnhcr", k, directions.astype(k.dtype))
    return jnp.argmax(jnp.concatenate([products, -products], -1), -1)


def _bucket_sums(
    x: Float[AnyArray, "batch num_chunks heads chunk width"],
    buckets: Int[AnyArray, "batch num_chunks heads chunk"],
    count: int,
) -> Float[Array, "batch num_chunks heads buckets width"]:
    """Returns the sum of the entries of each of ``count`` buckets, computed as a matrix product."""
    is_inside = (buckets[..., None] == np.arange(count)).astype(x.dtype)
    return jnp.einsum(
        "bnhcw,bnhcs->bnhsw", x, is_inside, precision=lax.Precision.HIGHEST
    )
