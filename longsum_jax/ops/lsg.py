"""LSG attention: global tokens, a window of three blocks, and sparse keys beyond it (Condevaux and Harispe 2022).

For each block of queries the keys are [globals | S sparse keys to the left | S to the right | three blocks], all in one
softmax, in memory linear in the length. ``ops.lsg_selection`` makes the sparse keys.

Where the published code goes wrong, this one does what its text says: every query sees the S sparse keys nearest to its
local window on either side, each once, for every factor that divides the block (there, wrong if the factor is the block
size or if S is below 3/4 of C / f, an error if C / f is odd); causal attention also for short inputs (there an
error); no padding is seen (there, by ``bos_pooling``). ``reference_quirks`` brings back what was published of it.
"""

from collections.abc import Sequence

import jax.numpy as jnp

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.ops.blocks import from_blocks, neighbours, to_blocks
from longsum_jax.ops.key_sets import Dropout, KeySet, attend_all, attend_key_sets
from longsum_jax.ops.lsg_selection import SELECTIONS, Selection, SparseKeys, SparsityType, chunk_size, sparse_keys
from longsum_jax.typing import Array


def lsg_selection(
    sparsity_type: SparsityType,
    *,
    block_size: int,
    sparse_block_size: int,
    sparsity_factor: int,
    reference_quirks: bool = False,
) -> Selection | None:
    """How sparse keys are selected; None without sparse keys (type "none", or S or the factor 0).

    Raises:
        InputError: an unknown type, negative sizes, or a factor that does not divide the block.
    """
    if sparsity_type not in SELECTIONS:
        raise InputError(f'sparsity_type "{sparsity_type}" is unknown; {did_you_mean(sparsity_type, SELECTIONS)}')
    if block_size < 1:
        raise InputError(f"block_size is {block_size}; it must be 1 or more tokens")
    for name, value in (("sparse_block_size", sparse_block_size), ("sparsity_factor", sparsity_factor)):
        if value < 0:
            raise InputError(f"{name} is {value}; it must be 0 (no sparse keys) or more")
    if sparsity_type == "none" or not sparse_block_size or not sparsity_factor:
        return None
    if block_size % sparsity_factor:
        raise InputError(
            f"sparsity_factor {sparsity_factor} does not divide block_size {block_size}; "
            f"the nearest that does is {_nearest_divisor(block_size, sparsity_factor)}"
        )
    chunk = chunk_size(block_size, sparse_block_size, sparsity_factor)
    return Selection(sparsity_type, sparsity_factor, block_size, chunk, reference_quirks)


def _nearest_divisor(number: int, wanted: int) -> int:
    return min((d for d in range(1, number + 1) if number % d == 0), key=lambda d: abs(d - wanted))


def lsg_attention(
    q: Array,
    k: Array,
    v: Array,
    global_q: Array,
    global_k: Array,
    global_v: Array,
    mask: Array,
    *,
    block_size: int,
    sparse_block_size: int = 128,
    sparsity_factor: int = 2,
    sparsity_type: SparsityType = "norm",
    key_mask: Array | None = None,
    projections: Sequence[Array] = (),
    bias: Array | None = None,
    causal: bool = False,
    reference_quirks: bool = False,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> tuple[Array, Array]:
    """Tokens see the globals, three blocks and sparse keys; globals see all (Condevaux and Harispe 2022, section 3).

    Up to two blocks of text everything sees everything. Causal attention has the block before instead of three, and
    sparse keys to the left; its global tokens are seen but, as published, see nothing: their output is their query.

    Args:
        q, k, v: [B, L, H, K] of tokens.   global_q, global_k, global_v: [B, G, H, K].
        mask: bool [B, L], True on real tokens.
        block_size: C.   sparse_block_size: S; 0 for no sparse keys.   sparsity_factor: f, a divisor of C.
        sparsity_type: the selection, see ``ops.lsg_selection``.
        key_mask: bool [B, L], True on tokens that may be seen; ``mask`` when not given.
        projections: of ``lsh_projections``, for the selection "lsh".
        bias: float [H, C, 3 C], per entry of ``local_distances(C, C)``, or [H, L, L] where L <= 2 C; only the window
            has one, globals and sparse keys do not.
        reference_quirks: the published behaviour where it is wrong: with f = C the right sparse keys begin two blocks
            too early, ``bos_pooling`` sees padding, and outputs of padding are not zeros.

    Returns:
        tokens [B, L, H, K] and globals [B, G, H, K], in the type of ``v``.

    Raises:
        InputError: see ``lsg_selection``.
    """
    sizes = {"block_size": block_size, "sparse_block_size": sparse_block_size, "sparsity_factor": sparsity_factor}
    selection = lsg_selection(sparsity_type, **sizes, reference_quirks=reference_quirks)
    seen = mask if key_mask is None else key_mask
    token_dropout, global_dropout = (dropout.fold(0), dropout.fold(1)) if dropout else (None, None)
    globals_ = KeySet(global_k, global_v)
    if q.shape[1] <= 2 * block_size:
        key_sets, size = [globals_, _everything(k, v, seen, bias, causal)], q.shape[1]
    else:
        key_sets, size = [globals_, _window(k, v, seen, block_size, bias, causal)], block_size
        if selection:
            first = {"first_query": q[:, 0], "scale": scale, "projections": projections}
            padded = [from_blocks(x, x.shape[1] * size) for x in (to_blocks(x, size) for x in (k, v, seen))]
            sparse = sparse_keys(*padded, selection, **first)
            key_sets += _beside(sparse, selection, sparse_block_size, causal)
    tokens = attend_key_sets(to_blocks(q, size), key_sets, scale=scale, dropout=token_dropout)
    tokens = from_blocks(tokens, q.shape[1])
    if not reference_quirks:
        tokens = jnp.where(mask[..., None, None], tokens, 0)
    if causal:
        return tokens, global_q.astype(tokens.dtype)
    everything = [globals_, KeySet(k, v, seen[:, None, None, None])]
    return tokens, attend_all(global_q, everything, scale=scale, dropout=global_dropout)


def _everything(k: Array, v: Array, seen: Array, bias: Array | None, causal: bool) -> KeySet:
    """All tokens, for queries in one block."""
    mask = seen[:, None, None, None]
    if causal:
        mask = mask & jnp.tri(k.shape[1], dtype=bool)
    return KeySet(k, v, mask, bias)


def _window(k: Array, v: Array, seen: Array, size: int, bias: Array | None, causal: bool) -> KeySet:
    """The block of each query, the one before and, unless ``causal``, the one after it."""
    k, v, seen = (neighbours(to_blocks(x, size), 1, 0 if causal else 1) for x in (k, v, seen))
    mask = seen[:, :, None, None]
    if causal:
        mask = mask & jnp.tri(size, 2 * size, size, dtype=bool)
    return KeySet(k, v, mask, None if bias is None else bias[None, None, :, :, : k.shape[2]])


def _beside(sparse: SparseKeys, selection: Selection, count: int, causal: bool) -> list[KeySet]:
    """The ``count`` sparse keys on either side of each local window."""
    step = selection.block_size // selection.factor
    k, v, seen = (to_blocks(x, step) for x in sparse)
    after = 0 if selection.reference_quirks and step == 1 else 2
    blocks = min(-(-count // step), k.shape[1] - after)  # more are beyond both ends for every block
    count = min(count, blocks * step)
    left = [_run(x, -1 - blocks, blocks)[:, :, -count:] for x in (k, v, seen)]
    right = [_run(x, after, blocks)[:, :, :count] for x in (k, v, seen)]
    sides = [left] if causal else [left, right]
    return [KeySet(k, v, jnp.moveaxis(seen, 3, 2)[:, :, :, None]) for k, v, seen in sides]


def _run(x: Array, first: int, count: int) -> Array:
    """For every block n the blocks n + first .. n + first + count - 1: [B, N, C, ...] -> [B, N, count C, ...]."""
    blocks, before, behind = x.shape[1], max(0, -first), max(0, first + count - 1)
    x = jnp.pad(x, ((0, 0), (before, behind)) + ((0, 0),) * (x.ndim - 2))
    starts = [before + first + i for i in range(count)]
    return jnp.concatenate([x[:, start : start + blocks] for start in starts], axis=2)
