"""BigBird attention: a window of three blocks, the first and the last block, and random blocks."""

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.blocks import from_blocks, neighbors, to_blocks
from longsum_jax.ops.attention.blockwise import Dropout, KeySet, attend_all, attend_key_sets
from longsum_jax.ops.attention.local import check_sizes, split_dropout, zero_padding
from longsum_jax.typing import Array

MIN_BIGBIRD_BLOCKS = 4  # first, second, second last and last block have to be different ones


def bigbird_attention(
    q: Array,
    k: Array,
    v: Array,
    mask: Array,
    *,
    block_size: int,
    random_blocks: Array | np.ndarray | int,
    bias: Array | None = None,
    scale: float = 1.0,
    dropout: Dropout | None = None,
) -> Array:
    """Attends from each block to the first, the last, three neighboring and some random blocks.

    The first and the last block attend to everything.

    Block-sparse attention of BigBird (Zaheer et al. 2020, section 2 and appendix D). The last block
    is that of the padded sequence, so that outputs depend on L. A random block that is attended to
    for another reason, too, counts again.

    Args:
        q, k, v: [B, L, H, K].   mask: bool [B, L].
        block_size: C.
        random_blocks: int [H, N - 2, R], blocks that blocks 1 .. N - 2 see besides
            (``random_block_plan``), where N = ceil(L / C). A number R stands for R times the first
            block, which is what transformers evaluates with.
        bias: float [H, C, 3 C], per entry of ``local_distances(C, C)``, for the window of three
            blocks alone.

    Returns:
        [B, L, H, K] in the type of ``v``.

    Raises:
        InputError: there are fewer than 4 blocks.
    """
    check_sizes(0, block_size)
    qb, kb, vb, real = (to_blocks(x, block_size) for x in (q, k, v, mask))
    _check_bigbird_blocks(q.shape[1], qb.shape[1], block_size)
    ends = lambda x: jnp.concatenate([x[:, 0], x[:, -1]], axis=1)  # noqa: E731
    window = lambda x: neighbors(x[:, 1:-1], 1, 1)  # noqa: E731  (the ends are in `ends`)
    copies = 1 + random_blocks if isinstance(random_blocks, int) else 1
    count_bias = None if copies == 1 else jnp.log(jnp.repeat(jnp.array([copies, 1.0]), block_size))
    key_sets = [
        KeySet(ends(kb), ends(vb), ends(real)[:, None, None, None], count_bias),
        KeySet(
            window(kb),
            window(vb),
            window(real)[:, :, None, None],
            None if bias is None else bias[None, None],
        ),
    ]
    if not isinstance(random_blocks, int):
        key_sets.append(_random_keys(kb, vb, real, random_blocks))
    middle_dropout, ends_dropout = split_dropout(dropout)
    middle = attend_key_sets(qb[:, 1:-1], key_sets, scale=scale, dropout=middle_dropout)
    everything = [KeySet(k, v, mask[:, None, None, None])]
    outer = to_blocks(
        attend_all(ends(qb), everything, scale=scale, dropout=ends_dropout), block_size
    )
    out = jnp.concatenate([outer[:, :1], middle, outer[:, 1:]], axis=1)
    return zero_padding(from_blocks(out, q.shape[1]), mask)


def _random_keys(k: Array, v: Array, real: Array, random_blocks: Array | np.ndarray) -> KeySet:
    """Gathers the keys of ``random_blocks``, int [H, N - 2, R], which differ from head to head."""
    take = jax.vmap(lambda x, blocks: x[:, blocks], in_axes=(3, 0), out_axes=4)
    k, v = (
        take(x, random_blocks).reshape(x.shape[0], random_blocks.shape[1], -1, *x.shape[3:])
        for x in (k, v)
    )
    seen = real[:, random_blocks].swapaxes(1, 2)  # [B, N - 2, H, R, C]
    return KeySet(k, v, seen.reshape(*seen.shape[:3], 1, -1))


def random_block_plan(
    rng: np.random.Generator, num_blocks: int, heads: int, count: int
) -> np.ndarray:
    """Draws the random blocks of ``bigbird_attention``: int32 [H, N - 2, R], for training.

    Every row has ``count`` different blocks outside the window and the first and last block.

    Raises:
        InputError: a row has fewer than ``count`` such blocks.
    """
    if count > max(0, num_blocks - 5):
        raise InputError(
            f"{count} random blocks do not fit into an input of {num_blocks} blocks, which needs "
            f"at least {count + 5}; use smaller blocks, fewer random blocks or full attention"
        )
    block = np.arange(num_blocks)
    taken = (np.abs(block - block[1:-1, None]) <= 1) | (block == 0) | (block == num_blocks - 1)
    order = np.where(taken, 2.0, rng.random((heads, num_blocks - 2, num_blocks)))
    return np.argsort(order, axis=-1)[..., :count].astype(np.int32)


def _check_bigbird_blocks(length: int, blocks: int, block_size: int) -> None:
    if blocks < MIN_BIGBIRD_BLOCKS:
        raise InputError(
            f"an input of {length} tokens has {blocks} blocks of {block_size}; block-sparse "
            f"attention needs at least {MIN_BIGBIRD_BLOCKS}: use full attention "
            "for short inputs, or smaller blocks"
        )
