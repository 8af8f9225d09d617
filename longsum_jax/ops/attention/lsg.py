"""LSG attention: global tokens, a window of three blocks, and sparse keys beyond it (Condevaux and
Harispe 2022).

For each block of queries the keys are [globals | sparse keys to the left | sparse keys to the right
| three blocks], all in one softmax, in memory linear in the length. ``ops.attention.lsg_selection``
makes the sparse keys.

This module corrects three defects of the published code, following the text of
the paper:

- Every query attends to the ``sparse_block_size`` sparse keys nearest to its
  local window on either side, once each, for every factor that divides the
  block. The published code is wrong if the factor is the block size or if
  ``sparse_block_size`` is below 3/4 of block_size / factor, and raises an error
  if block_size / factor is odd.
- Causal attention also works for short inputs; the published code raises an
  error.
- No query attends to padding; in the published code ``bos_pooling`` does.

``reference_quirks`` reproduces the defects of the published code, for
comparison with it.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Shaped

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.ops.attention.blocks import (
    check_block_size,
    from_blocks,
    overlapping,
    to_blocks,
)
from longsum_jax.ops.attention.blockwise import (
    attend_key_sets,
    attend_shared_keys,
    max_score_bytes,
)
from longsum_jax.ops.attention.dense import QKV, Scale
from longsum_jax.ops.attention.fused import (
    FusedAttention,
    fused_key_sets,
    row_size,
)
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    WeightDropout,
    split_dropout,
)
from longsum_jax.ops.attention.lsg_selection import (
    SELECTIONS,
    Selection,
    SparseKeys,
    SparsityType,
    chunk_size,
    sparse_keys,
)
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.padding import zero_padding
from longsum_jax.ops.remat import SAVE_MARKED_POLICY
from longsum_jax.ops.sequence_sharding import Axes, count_shards, sum_over
from longsum_jax.typing import AnyArray

# With smaller pieces, the overlap of neighboring pieces would be larger than
# the pieces.
MIN_PIECE_BLOCKS = 8


class LsgSpec(NamedTuple):
    """The static options of LSG attention.

    Attributes:
        block_size: number of tokens of a block; the window is the block of the
            query and both neighbors.
        sparse_block_size: number of sparse keys on either side of the window; 0
            for none.
        sparsity_factor: number of tokens per sparse key, a divisor of
            ``block_size``; 0 for no sparse keys.
        sparsity_type: selection of the sparse keys, see
            ``ops.attention.lsg_selection``.
        causal: True if queries attend to no later token.
        reference_quirks: True to reproduce defects of the published code: with
            a factor equal to the block size the right sparse keys begin two
            blocks too early, ``bos_pooling`` attends to padding, and outputs of
            padding are not zeros.
    """

    block_size: int
    sparse_block_size: int = 128
    sparsity_factor: int = 2
    sparsity_type: SparsityType = "norm"
    causal: bool = False
    reference_quirks: bool = False

    @property
    def margin(self) -> int:
        """Number of tokens that the longest run has outside a row, see ``fused.row_size``."""
        num_blocks = 1 if self.causal else 2
        if self.selection() is not None:
            step = self.block_size // self.sparsity_factor
            of_sparse = -(-self.sparse_block_size // step) - 1
            num_blocks = max(num_blocks, of_sparse)
        return num_blocks * self.block_size

    def is_dense(self, length: int) -> bool:
        """Returns True for a text of at most two blocks: every window contains all of it."""
        return length <= 2 * self.block_size

    def selection(self) -> Selection | None:
        """Returns the selection of sparse keys; None for type "none" or a size or factor of 0.

        Raises:
            InputError: an unknown type, negative sizes, or a factor that does
                not divide the block.
        """
        if self.sparsity_type not in SELECTIONS:
            raise InputError(
                f'sparsity_type "{self.sparsity_type}" is unknown; '
                f"{did_you_mean(self.sparsity_type, SELECTIONS)}"
            )
        check_block_size(self.block_size)
        for name in ("sparse_block_size", "sparsity_factor"):
            value = getattr(self, name)
            if value < 0:
                raise InputError(
                    f"{name} is {value}; it must be 0 (no sparse keys) or more"
                )
        if (
            self.sparsity_type == "none"
            or not self.sparse_block_size
            or not self.sparsity_factor
        ):
            return None
        if self.block_size % self.sparsity_factor:
            raise InputError(
                f"sparsity_factor {self.sparsity_factor} does not divide block_size "
                f"{self.block_size}; the nearest that does is "
                f"{_nearest_divisor(self.block_size, self.sparsity_factor)}"
            )
        return Selection(
            self.sparsity_type,
            self.sparsity_factor,
            self.block_size,
            chunk_size(
                self.block_size, self.sparse_block_size, self.sparsity_factor
            ),
            self.reference_quirks,
        )


def _nearest_divisor(number: int, target: int) -> int:
    divisors = [n for n in range(1, number + 1) if number % n == 0]
    return min(divisors, key=lambda n: abs(n - target))


def lsg_attention(
    tokens: QKV,
    global_tokens: QKV,
    mask: Bool[AnyArray, "batch length"],
    spec: LsgSpec,
    *,
    key_mask: Bool[AnyArray, "batch length"] | None = None,
    projections: Sequence[Float[AnyArray, "heads head_dim _"]] = (),
    bias: Float[AnyArray, "heads query_length num_keys"] | None = None,
    scale: Scale = 1.0,
    dropout: WeightDropout | None = None,
    axes: Axes = (),
    fused: FusedAttention | None = None,
    steps: Sequence[StepBias] = (),
) -> tuple[
    Float[Array, "batch length heads head_dim"],
    Float[AnyArray, "batch num_globals heads head_dim"],
]:
    """Attends to global tokens, a window of three blocks, and sparse keys on both sides of it.

    Condevaux and Harispe 2022, section 3. Global tokens attend to all tokens. A
    text of at most two blocks gets dense attention. Causal attention has a
    window of two blocks, and sparse keys on the left only. Its global tokens
    are keys but, as published, attend to nothing: their output is their query.

    Args:
        tokens: arrays [batch, length, heads, head_dim].
        global_tokens: arrays [batch, num_globals, heads, head_dim].
        mask: True on real tokens.
        spec: sizes and selection of the keys.
        key_mask: True on tokens that may be attended to; default ``mask``.
        projections: result of ``lsh_projections``, for the selection "lsh".
        bias: bias of the window's scores; globals and sparse keys have none.
            Shape [heads, block_size, 3 * block_size], one number for each entry
            of ``local_distances(block_size, block_size)``; or [heads, length,
            length] for at most two blocks.
        scale: factor of the query-key products.
        dropout: dropout of the weights.
        axes: mesh axes that shard the sequence (``ops.sequence_sharding``), in
            shards of whole blocks; ``bias`` then has the first of its two
            shapes.
        fused: kernel for the attention of the tokens in texts of more than two
            blocks.
        steps: ``bias`` by distance, for ``fused``.

    Returns:
        Outputs of the tokens and of the global tokens, in the type of
        ``tokens.v``.

    Raises:
        InputError: see ``LsgSpec.selection``.
    """
    q, k, v = tokens
    block_size, causal = spec.block_size, spec.causal
    selection = spec.selection()
    if key_mask is None:
        key_mask = mask
    token_dropout, global_dropout = split_dropout(dropout)
    globals_ = KeySet(global_tokens.k, global_tokens.v)
    if spec.is_dense(q.shape[1]) and not axes:
        key_sets = [globals_, _all_keys(k, v, key_mask, bias, causal)]
        out = attend_key_sets(
            q[:, None], key_sets, scale=scale, dropout=token_dropout
        )[:, 0]
    else:
        runs = [_window(k, v, key_mask, block_size, bias, causal)]
        if selection:
            first_query = _first_row(q, axes)
            blocks = (to_blocks(x, block_size) for x in (k, v, key_mask))
            text_k, text_v, text_mask = (
                from_blocks(x, x.shape[1] * block_size) for x in blocks
            )
            sparse = sparse_keys(
                text_k,
                text_v,
                text_mask,
                selection,
                first_query=first_query,
                scale=scale,
                projections=projections,
            )
            runs += _side_runs(
                sparse, selection, spec.sparse_block_size, causal, axes
            )
        q_blocks = to_blocks(q, block_size)
        if fused is None:
            out = _attend_runs(
                q_blocks, globals_, runs, scale, token_dropout, axes
            )
        else:
            fused = functools.partial(fused, dropout=token_dropout, scale=scale)
            out = _attend_in_rows(
                q_blocks, globals_, runs, spec.margin, fused, steps, axes
            )
        out = from_blocks(out, q.shape[1])
    if not spec.reference_quirks:
        out = zero_padding(out, mask)
    if causal:
        return out, global_tokens.q.astype(out.dtype)
    text = [KeySet(k, v, key_mask[:, None, None, None])]
    global_out = attend_shared_keys(
        global_tokens.q,
        text,
        replicated=[globals_],
        scale=scale,
        dropout=global_dropout,
        axes=axes,
    )
    return out, global_out


def lsg_self_attention(
    tokens: QKV,
    mask: Bool[AnyArray, "batch length"],
    spec: LsgSpec,
    **options: Any,
) -> Float[Array, "batch length heads head_dim"]:
    """Attends as a standalone layer, for models without learned global tokens: the first token is
    the global one.

    This is the layer that the authors of LSG (Condevaux and Harispe 2022)
    published with their models: every token attends to the first one, once, and
    the first one to all. A text of at most two blocks gets dense attention. In
    causal attention the first token attends only to itself; in the published
    layer it sees all later tokens.

    Args:
        tokens: arrays [batch, length, heads, head_dim].
        mask: True on real tokens; the first token of each row must be real.
        spec: sizes and selection of the keys.
        **options: keyword arguments ``projections``, ``scale`` and ``dropout``
            of ``lsg_attention``.

    Returns:
        Outputs in the type of ``tokens.v``.

    Raises:
        InputError: see ``LsgSpec.selection``.
    """
    first = QKV(*(x[:, :1] for x in tokens))
    # The first token is a key through ``global_tokens``, so the window must not
    # count it again.
    behind = mask & (jnp.arange(mask.shape[1]) > 0)
    out, first_out = lsg_attention(
        tokens, first, mask, spec, key_mask=behind, **options
    )
    if spec.causal:
        return out
    return jnp.concatenate([first_out, out[:, 1:]], 1)


def _first_row(
    x: Float[AnyArray, "batch length heads head_dim"], axes: Axes
) -> Float[AnyArray, "batch heads head_dim"]:
    """Returns the vectors of the first token of the whole sequence."""
    if not axes:
        return x[:, 0]
    return sum_over(jnp.where(lax.axis_index(axes) == 0, x[:, 0], 0), axes)


def _all_keys(
    k: AnyArray,
    v: AnyArray,
    key_mask: AnyArray,
    bias: AnyArray | None,
    causal: bool,
) -> KeySet:
    """Returns all tokens as keys of queries in one block."""
    mask = key_mask[:, None, None, None]
    if causal:
        mask = mask & jnp.tri(k.shape[1], dtype=bool)
    return KeySet(k, v, mask, bias)


# Runs of keys. Blocks of 4 tokens, a factor of 2 (so 2 sparse keys stand for a
# block), and 3 sparse keys on either side. Query block n = 3 of a text of 8
# blocks:
#
#     tokens         |0...|1...|2...|3...|4...|5...|6...|7...|
#     window                   [2    3    4  ]                     first = -1, blocks = 3
#     sparse keys    |0 0'|1 1'|2 2'|3 3'|4 4'|5 5'|6 6'|7 7'|
#     left run       [0 0'  1 1']                                  first = -3, blocks = 2
#       of it used      0'  1 1'                                   the last 3
#     right run                               [5 5'  6 6']         first = +2, blocks = 2
#       of it used                             5 5'  6             the first 3
#
# Every run is a fixed number of neighboring blocks, so that it is built from
# shifted slices without a gather; blocks beyond the ends of the sequence are
# masked.


class _BlockRun(NamedTuple):
    """A run of neighboring blocks of keys for every block of queries.

    Block n of the queries attends to blocks n + first to n + first + blocks - 1
    of the keys. A block of keys has ``step`` entries, which are tokens or
    sparse keys.

    Attributes:
        k, v: keys and values of all blocks.
        key_mask: boolean mask [batch, num_blocks, step], or with a last axis of
            heads or 1.
        first, blocks: first block relative to the block of the queries, and
            number of blocks.
        used: slice of a run's keys that is used, if it is not a whole number of
            blocks.
        mask, bias: mask and bias for queries of a block and keys of a run,
            broadcastable to [batch, num_blocks, heads, block_size, num_keys].
    """

    k: Float[Array, "batch num_blocks step heads head_dim"]
    v: Float[Array, "batch num_blocks step heads head_dim"]
    key_mask: Bool[Array, "batch num_blocks step *mask_heads"]
    first: int
    blocks: int
    used: slice = slice(None)
    mask: Bool[AnyArray, "..."] | None = None
    bias: Float[AnyArray, "..."] | None = None

    def of_pieces(self, size: int, pieces: int, axes: Axes) -> list[Array]:
        """Splits k, v and key_mask into pieces for ``size`` blocks of queries each.

        Returns:
            Three arrays [pieces, batch, size + blocks - 1, step, ...].
        """
        arrays = (self.k, self.v, self.key_mask)
        extra = self.blocks - 1
        return [
            overlapping(x, self.first, size, extra, pieces, axes)
            for x in arrays
        ]

    def key_set(self, k: AnyArray, v: AnyArray, key_mask: AnyArray) -> KeySet:
        """Returns the keys of one piece from its arrays, see ``of_pieces``."""
        arrays = (k, v, key_mask)
        k, v, mask = (
            _join_neighbors(x, self.blocks)[:, :, self.used] for x in arrays
        )
        mask = _of_scores(mask)
        if self.mask is not None:
            mask = mask & self.mask
        return KeySet(k, v, mask, self.bias)


def _window(
    k: AnyArray,
    v: AnyArray,
    key_mask: AnyArray,
    size: int,
    bias: AnyArray | None,
    causal: bool,
) -> _BlockRun:
    """Returns the block of each query, the previous one and, unless ``causal``, the next one."""
    if causal:
        count, mask = (2, jnp.tri(size, 2 * size, size, dtype=bool))
    else:
        count, mask = (3, None)
    if bias is not None:
        bias = bias[None, None, :, :, : count * size]
    k, v, key_mask = (to_blocks(x, size) for x in (k, v, key_mask))
    return _BlockRun(k, v, key_mask, -1, count, mask=mask, bias=bias)


def _side_runs(
    sparse: SparseKeys,
    selection: Selection,
    count: int,
    causal: bool,
    axes: Axes,
) -> list[_BlockRun]:
    """Returns the ``count`` sparse keys on either side of each local window."""
    step = selection.block_size // selection.factor
    k, v, mask = (to_blocks(x, step) for x in sparse)
    if selection.reference_quirks and step == 1:
        after = 0
    else:
        after = 2
    total = k.shape[1] * count_shards(axes)
    # farther blocks are always out of range
    blocks = min(-(-count // step), total - after)
    if blocks < 1:
        return []
    count = min(count, blocks * step)
    left = _BlockRun(k, v, mask, -1 - blocks, blocks, slice(-count, None))
    if causal:
        return [left]
    return [left, _BlockRun(k, v, mask, after, blocks, slice(count))]


def _attend_runs(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    globals_: KeySet,
    runs: Sequence[_BlockRun],
    scale: Scale,
    dropout: WeightDropout | None,
    axes: Axes,
) -> Float[Array, "batch num_blocks block_size heads head_dim"]:
    """Attends from blocks of queries to their runs of keys, some blocks at a time.

    A run copies its keys ``blocks`` times; all runs at once would take that
    much more memory.
    """
    blocks, pieces = q.shape[1], _count_pieces(q, runs)
    size = -(-blocks // pieces)

    def attend(piece: Any) -> Array:
        number, q, *arrays = piece
        key_sets = [globals_]
        for i, run in enumerate(runs):
            key_sets.append(run.key_set(*arrays[3 * i : 3 * i + 3]))
        return attend_key_sets(
            q, key_sets, scale=scale, dropout=dropout and dropout.fold(number)
        )

    arrays = [overlapping(q, 0, size, 0, pieces, axes)]
    for run in runs:
        arrays += run.of_pieces(size, pieces, axes)
    if pieces == 1:
        return attend((0, *(x[0] for x in arrays)))
    # The loop itself keeps XLA from merging a piece with its recomputation.
    attend = jax.checkpoint(
        attend, prevent_cse=False, policy=SAVE_MARKED_POLICY
    )
    out = lax.map(attend, (jnp.arange(pieces), *arrays))
    return from_blocks(out.swapaxes(0, 1), blocks)


class _RunPattern(NamedTuple):
    """The pattern of rows of blocks (``fused.Pattern``): the keys of several runs, in sequence.

    Query block n of a row reads the entries n * step + first to n * step + end
    - 1 of a run, and all keys after the runs.

    Attributes:
        block_size: number of tokens of a block.
        runs: number of keys in a row, step, first and end of each run; the
            window comes first.
        causal: True if queries see no later keys of the window.
    """

    block_size: int
    runs: tuple[tuple[int, int, int, int], ...]
    causal: bool

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        # first token of the query's block
        block = queries - queries % self.block_size
        start = 0
        reads: AnyArray | bool = False
        for number, (num_keys, step, first, end) in enumerate(self.runs):
            # compared in tokens, which needs no division
            factor = self.block_size // step
            offsets = (keys - start) * factor - block
            in_run = (offsets >= first * factor) & (offsets < end * factor)
            if self.causal and number == 0:
                in_run = in_run & (keys <= queries + self.block_size)
            reads = reads | in_run
            start += num_keys
        return reads | (keys >= start)


def _attend_in_rows(
    q: Float[AnyArray, "batch num_blocks block_size heads head_dim"],
    globals_: KeySet,
    runs: Sequence[_BlockRun],
    margin: int,
    fused: FusedAttention,
    steps: Sequence[StepBias],
    axes: Axes,
) -> Float[Array, "batch num_blocks block_size heads head_dim"]:
    """Computes ``_attend_runs`` by a kernel, in rows of several blocks with all keys of
    their runs.
    """
    num_blocks, block_size = q.shape[1:3]
    size = (
        row_size(num_blocks * block_size, margin=margin, multiple=block_size)
        // block_size
    )
    num_rows = -(-num_blocks // size)

    # [num_rows, batch, row_blocks, step, ...] -> [batch, num_rows, row_blocks * step,
    # ...]
    def rows(x: Array) -> Array:
        return x.swapaxes(0, 1).reshape(x.shape[1], num_rows, -1, *x.shape[4:])

    key_sets, reads = [], []
    for run in runs:
        k, v, mask = (rows(x) for x in run.of_pieces(size, num_rows, axes))
        key_sets.append(KeySet(k, v, _of_scores(mask)))
        step = run.k.shape[2]
        first, end, _ = run.used.indices(run.blocks * step)
        reads.append((k.shape[2], step, first, end))
    pattern = _RunPattern(
        block_size, tuple(reads), causal=runs[0].mask is not None
    )
    # The window begins one block before the queries of a row.
    end = reads[0][0]
    biases = [replace(x, origin=block_size, end_key=end) for x in steps]
    q_rows = rows(overlapping(q, 0, size, 0, num_rows, ()))
    out = fused_key_sets(
        q_rows, [*key_sets, globals_], fused, pattern=pattern, biases=biases
    )
    return out.reshape(len(q), -1, *q.shape[2:])[:, :num_blocks]


def _of_scores(
    mask: Bool[Array, "batch num_runs num_keys *mask_heads"],
) -> Bool[Array, "batch num_runs mask_heads 1 num_keys"]:
    """Returns the mask of keys in the layout of scores."""
    if mask.ndim == 3:
        return mask[:, :, None, None]
    return mask.swapaxes(2, 3)[:, :, :, None]


def _count_pieces(q: AnyArray, runs: Sequence[_BlockRun]) -> int:
    """Returns the number of pieces: limited scores, and no piece shorter than its overlap."""
    batch, blocks, size, heads, _ = q.shape
    width = sum(run.k.shape[2] * run.blocks for run in runs)
    block_bytes = 4 * max(1, batch) * size * heads * width
    most = max(MIN_PIECE_BLOCKS, max_score_bytes() // block_bytes)
    shared = max(run.blocks - 1 for run in runs)
    return max(1, min(-(-blocks // most), blocks // shared))


def _join_neighbors(
    x: Shaped[AnyArray, "batch num_blocks step ..."], count: int
) -> Shaped[Array, "batch num_runs num_keys ..."]:
    """Joins every ``count`` neighboring blocks into a run: num_blocks - count + 1 runs."""
    num_runs = x.shape[1] - count + 1
    shifted = [x[:, i : i + num_runs] for i in range(count)]
    return jnp.concatenate(shifted, axis=2)
