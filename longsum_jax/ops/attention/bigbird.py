"""BigBird attention: a window of three blocks, the first and the last block, and random blocks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.blocks import (
    check_block_size,
    from_blocks,
    neighbors,
    to_blocks,
)
from longsum_jax.ops.attention.blockwise import (
    attend_key_sets,
    attend_shared_keys,
)
from longsum_jax.ops.attention.dense import Scale
from longsum_jax.ops.attention.fused import FusedAttention, fused_key_sets
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    WeightDropout,
    split_dropout,
)
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.padding import zero_padding
from longsum_jax.typing import AnyArray

# first, second, second last and last block have to be different blocks
MIN_BIGBIRD_BLOCKS = 4


def bigbird_attention(
    q: Float[AnyArray, "batch length heads head_dim"],
    k: Float[AnyArray, "batch length heads head_dim"],
    v: Float[AnyArray, "batch length heads head_dim"],
    mask: Bool[AnyArray, "batch length"],
    *,
    block_size: int,
    random_blocks: Int[AnyArray, "heads inner_blocks count"] | int,
    bias: Float[AnyArray, "heads block_size window"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> Float[Array, "batch length heads head_dim"]:
    """Attends from each block to the first, the last, three neighboring and some random blocks.

    The first and the last block attend to everything.

    Block-sparse attention of BigBird (Zaheer et al. 2020, section 2 and
    appendix D). The last block is the last block of the padded sequence, so
    that outputs depend on the length. A random block that is also attended to
    for another reason counts again.

    Args:
        q, k, v: queries, keys and values.
        mask: True on real tokens.
        block_size: number of tokens of a block.
        random_blocks: additional blocks that each block except the first and
            last attends to (``random_block_plan``); ``inner_blocks`` is
            ceil(length / block_size) - 2. A number R stands for R times the
            first block, which transformers uses in evaluation.
        bias: bias of the scores of the window of three blocks, one float per
            head and entry of ``local_distances(block_size, block_size)``.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        fused: kernel for this attention.
        steps: ``bias`` by distance, for ``fused``.

    Returns:
        The attended values in the type of ``v``; zeros for padding.

    Raises:
        InputError: there are fewer than 4 blocks.
    """
    check_block_size(block_size)
    q_blocks, k_blocks, v_blocks, mask_blocks = (
        to_blocks(x, block_size) for x in (q, k, v, mask)
    )
    _check_bigbird_blocks(q.shape[1], q_blocks.shape[1], block_size)
    copies = 1
    # In place of random blocks, the first block counts several times.
    if isinstance(random_blocks, int):
        copies += random_blocks
    key_sets = [
        _end_keys(k_blocks, v_blocks, mask_blocks, copies),
        _window_keys(k_blocks, v_blocks, mask_blocks, bias),
    ]
    if not isinstance(random_blocks, int):
        key_sets.append(
            _random_keys(k_blocks, v_blocks, mask_blocks, random_blocks)
        )
    middle_dropout, end_dropout = split_dropout(dropout)
    inner, end_q = q_blocks[:, 1:-1], _join_ends(q_blocks)
    of_middle: dict[str, Any] = {"scale": scale, "dropout": middle_dropout}
    of_ends: dict[str, Any] = {"scale": scale, "dropout": end_dropout}
    # The first and the last block attend to all tokens.
    if fused is None:
        middle = attend_key_sets(inner, key_sets, **of_middle)
        all_keys = KeySet(k, v, mask[:, None, None, None])
        ends = attend_shared_keys(end_q, [all_keys], **of_ends)
    else:
        biases = _step_biases(steps, copies, block_size, heads=q.shape[2])
        middle = fused_key_sets(
            inner, key_sets, fused, biases=biases, **of_middle
        )
        ends = fused(end_q, k, v, mask[:, None], **of_ends)
    ends = to_blocks(ends, block_size)
    out = jnp.concatenate([ends[:, :1], middle, ends[:, 1:]], axis=1)
    return zero_padding(from_blocks(out, q.shape[1]), mask)


def _join_ends(x: AnyArray) -> Array:
    """Joins the first and the last block, [batch, 2 block_size, ...]."""
    return jnp.concatenate([x[:, 0], x[:, -1]], axis=1)


def _end_keys(k: AnyArray, v: AnyArray, mask: AnyArray, copies: int) -> KeySet:
    """Returns the first block, which counts ``copies`` times, and the last one."""
    bias = None
    if copies != 1:
        block_size = k.shape[2]
        # A key that counts n times has log n added to its score.
        bias = jnp.log(jnp.repeat(jnp.array([copies, 1.0]), block_size))
    return KeySet(
        _join_ends(k),
        _join_ends(v),
        _join_ends(mask)[:, None, None, None],
        bias,
    )


def _step_biases(
    steps: Sequence[StepBias], copies: int, block_size: int, heads: int
) -> list[StepBias]:
    """Returns the biases of the end keys and of the window, which follow each other."""
    first, end = 2 * block_size, 5 * block_size
    # The window begins one block before the queries.
    origin = first + block_size
    biases = [
        replace(x, origin=origin, first_key=first, end_key=end) for x in steps
    ]
    if copies != 1:
        of_copies = jnp.full((heads, 1), np.log(copies), jnp.float32)
        biases.append(StepBias(of_copies, starts=(), end_key=block_size))
    return biases


def _window_keys(
    k: AnyArray, v: AnyArray, mask: AnyArray, bias: AnyArray | None
) -> KeySet:
    """Returns three neighboring blocks for all blocks except the ends, without the ends."""
    # Beyond the inner blocks ``neighbors`` has masked zeros in place of the end
    # blocks.
    k, v, mask = (neighbors(x[:, 1:-1], 1, 1) for x in (k, v, mask))
    if bias is not None:
        bias = bias[None, None]
    return KeySet(k, v, mask[:, :, None, None], bias)


def _random_keys(
    k: AnyArray, v: AnyArray, mask: AnyArray, random_blocks: AnyArray
) -> KeySet:
    """Gathers the keys of ``random_blocks``, which differ from head to head."""

    # Heads gather different blocks: [batch, inner_blocks, count, block_size,
    # heads, head_dim].
    take_blocks = jax.vmap(
        lambda x, blocks: x[:, blocks], in_axes=(3, 0), out_axes=4
    )

    def gather(x: AnyArray) -> Array:
        gathered = take_blocks(x, random_blocks)
        return gathered.reshape(
            gathered.shape[0], random_blocks.shape[1], -1, *gathered.shape[4:]
        )

    k, v = gather(k), gather(v)
    # [batch, inner_blocks, heads, count, block_size]
    mask = mask[:, random_blocks].swapaxes(1, 2)
    return KeySet(k, v, mask.reshape(*mask.shape[:3], 1, -1))


def random_block_plan(
    rng: np.random.Generator, num_blocks: int, heads: int, count: int
) -> Int[np.ndarray, "heads inner_blocks count"]:
    """Draws the random blocks of ``bigbird_attention`` for training, in int32.

    Every row has ``count`` different blocks outside the window and the first
    and last block.

    Args:
        rng: NumPy random generator.
        num_blocks: number of blocks of the sequence, two more than
            ``inner_blocks``.
        heads: number of attention heads.
        count: number of random blocks of every block.

    Raises:
        InputError: a row has fewer than ``count`` such blocks.
    """
    if count > max(0, num_blocks - 5):
        raise InputError(
            f"{count} random blocks do not fit into an input of {num_blocks} blocks, which needs "
            f"at least {count + 5}; use smaller blocks, fewer random blocks or full attention"
        )
    block = np.arange(num_blocks)
    is_window = np.abs(block - block[1:-1, None]) <= 1
    is_end = (block == 0) | (block == num_blocks - 1)
    order = rng.random((heads, num_blocks - 2, num_blocks))
    # Blocks that must not be drawn sort last: draws are below 1.
    order = np.where(is_window | is_end, 2.0, order)
    return np.argsort(order, axis=-1)[..., :count].astype(np.int32)


def _check_bigbird_blocks(
    length: int, num_blocks: int, block_size: int
) -> None:
    if num_blocks < MIN_BIGBIRD_BLOCKS:
        raise InputError(
            f"an input of {length} tokens has {num_blocks} blocks of {block_size}; block-sparse "
            f"attention needs at least {MIN_BIGBIRD_BLOCKS}: use full attention "
            "for short inputs, or smaller blocks"
        )
