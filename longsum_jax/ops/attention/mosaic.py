"""Attention on TPUs by Pallas kernels, also with position biases, dropout and packed rows.

Mosaic compiles them; other devices interpret them, for tests. They compute what
the kernels of ``triton`` do, with the same masks of dropout.

Arrays are [rows, heads, head_dim, length], which is how XLA stores the results
of projections to heads of 64 dimensions: lengths fill the lanes, heads do not.
Lengths need no padding: what a block has after the last position is not used.
Scores are [keys, queries], so that the statistics of a query, such as the sum
of its exponentials, are rows of lanes.

The forward kernel adds up the values of a block of queries over the blocks of
keys, with a running softmax. The kernel of the gradients goes over the blocks
of queries for each block of keys, and keeps the gradients of all queries of a
row in on-chip memory: every score is computed twice, once in each kernel.

A position bias is a function of the distance. A block has a bias for each
diagonal, which is a row of distances, shifted by one for every key:

    distances     0 -1 -2  2  1        row 0, the first three of
    queries         0  1  2            five lanes are read
    key 0           0 -1 -2
    key 1           1  0 -1            row 0 shifted by one
    key 2           2  1  0            row 0 shifted by two

The gradient of the biases is the sum over each diagonal: the rows of score
gradients are shifted back and added. Blocks beyond the last step have a single
bias.

The module is imported on first use, because importing Pallas takes a third of a
second.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jaxtyping import Array, Bool, Float, UInt32

from longsum_jax.ops.attention.dense import (
    LEAST_SCORE,
    Scale,
    product_factor,
    scaled_scores,
    score_cap,
)
from longsum_jax.ops.attention.kernel_blocks import (
    TPU_BLOCKS,
    TPU_MEMORY,
    Steps,
    all_keys,
    block_pairs,
    block_table,
    equal_blocks,
    no_later_keys,
    pairs_scope,
    tpu_block,
)
from longsum_jax.ops.attention.key_sets import MASK_VALUE, PartialSoftmax
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.platform import LANES, target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.random_masks import keep_pairs
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.typing import AnyArray

# axes of [rows, length, heads, head_dim] as [rows, heads, head_dim, length], and
# the reverse
_BY_HEADS, _BY_LENGTH = (0, 2, 3, 1), (0, 3, 1, 2)


class _TpuProblem(NamedTuple):
    """Static arguments of the kernels.

    Attributes:
        pattern: keys that each query reads, see ``fused.Pattern``.
        scale: factor of the query-key products, possibly with a soft cap.
        num_queries, num_keys: lengths.
        query_block, key_block: numbers of queries and of keys of a block.
        biases: static arguments of the position biases.
        share: share of the weights that dropout keeps.
        interpret: True to interpret the kernels, without Mosaic.
    """

    pattern: Callable[..., Any]
    scale: Scale
    num_queries: int
    num_keys: int
    query_block: int
    key_block: int
    biases: tuple[Steps, ...]
    share: float
    interpret: bool

    @property
    def num_query_blocks(self) -> int:
        """Number of blocks of queries of a row."""
        return -(-self.num_queries // self.query_block)

    @property
    def num_key_blocks(self) -> int:
        """Number of blocks of keys of a row."""
        return -(-self.num_keys // self.key_block)

    @property
    def pairs(self) -> Bool[np.ndarray, "query_blocks key_blocks"] | None:
        """``block_pairs`` of the pattern."""
        blocks = self.query_block, self.key_block
        lengths = (
            self.num_query_blocks * self.query_block,
            self.num_key_blocks * self.key_block,
        )
        return block_pairs(self.pattern, lengths, blocks)


class _TpuPairArrays(NamedTuple):
    """Arrays that determine which keys are read, their biases, and which weights are dropped.

    Attributes:
        mask: int32 [rows, 1, num_keys] or [rows, heads, 1, num_keys], 0 on keys
            that are not read; None for all keys.
        biases: values of every step, float32 [heads, 1, steps], and positions of
            the queries, int32 [rows, 1, num_queries] or None, for each bias.
        words: words of dropout, uint32 [rows, heads, 1, 2]; None without dropout.
        segment_ids: segments of the keys [rows, 1, num_keys] and the queries
            [rows, 1, num_queries]; None for one segment.
    """

    mask: AnyArray | None
    biases: Sequence[tuple[AnyArray, AnyArray | None]]
    words: AnyArray | None
    segment_ids: SegmentIds | None


def mosaic_attention(
    q: Float[AnyArray, "rows query_length heads head_dim"],
    k: Float[AnyArray, "rows key_length heads head_dim"],
    v: Float[AnyArray, "rows key_length heads head_dim"],
    mask: Bool[AnyArray, "rows mask_heads key_length"] | None,
    *,
    causal: bool = False,
    pattern: Callable[..., Any] | None = None,
    biases: Sequence[StepBias] = (),
    share: float = 1.0,
    words: UInt32[AnyArray, "rows heads words"] | None = None,
    segment_ids: SegmentIds | None = None,
    scale: Scale = 1.0,
) -> PartialSoftmax:
    """Computes ``fused.fused_attention``, and the log-sum-exp of the scores.

    Args:
        q, k, v, mask, causal, pattern, biases, segment_ids, scale: see
            ``fused.fused_attention``.
        share: share of the weights that dropout keeps.
        words: result of ``random_masks.head_words``; None without dropout.
    """
    num_queries, num_keys = q.shape[1], k.shape[1]
    largest = tpu_block(num_queries, q.shape[3], q.dtype.itemsize)
    query_block, key_block = (
        equal_blocks(length, largest or TPU_BLOCKS[-1])[0]
        for length in (num_queries, num_keys)
    )
    problem = _TpuProblem(
        pattern or (no_later_keys if causal else all_keys),
        scale,
        num_queries,
        num_keys,
        query_block,
        key_block,
        Steps.of(biases, num_keys),
        share,
        target_platform() != "tpu",
    )
    arrays = []
    for bias in biases:
        positions = bias.queries
        if positions is not None:
            positions = positions[:, None].astype(jnp.int32)
        values = bias.values[:, None].astype(jnp.float32)
        arrays.append((values, positions))
    if mask is not None:
        mask = mask.astype(jnp.int32)
        if mask.shape[1] > 1:  # differs by head
            mask = mask[:, :, None]
    if words is not None:
        words = words[:, :, None]
    if segment_ids is not None:
        segment_ids = SegmentIds(*(ids[:, None] for ids in segment_ids))
    lengths, blocks = (num_queries, num_keys), (query_block, key_block)
    with pairs_scope(problem.pairs, lengths, blocks):
        out, log_sums = _attend(
            problem,
            *(x.transpose(_BY_HEADS) for x in (q, k, v)),
            _TpuPairArrays(mask, arrays, words, segment_ids),
        )
    return PartialSoftmax(
        out.transpose(_BY_LENGTH), log_sums[:, :, 0].swapaxes(1, 2)
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    problem: _TpuProblem,
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    pair_arrays: _TpuPairArrays,
) -> tuple[Array, Array]:
    """Computes attention, and the log-sum-exp of the scores of every query.

    Args:
        problem: static arguments of the kernels.
        q, k, v: queries, keys and values.
        pair_arrays: mask, biases, dropout and segments.
    """
    return _attend_forward(problem, q, k, v, pair_arrays)[0]


def _attend_forward(
    problem: _TpuProblem,
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    pair_arrays: _TpuPairArrays,
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    rows, heads, head_dim, num_queries = q.shape
    block = problem.query_block
    sums = jax.ShapeDtypeStruct((rows, heads, 1, num_queries), jnp.float32)
    out, log_sums = _call(
        "mosaic_attention_forward",
        _forward_kernel,
        problem,
        _Loop(over_keys=True),
        [(q, "rhdq"), (k, "rhdk"), (v, "rhdk")],
        pair_arrays,
        [(q, "rhdq"), (sums, "rh.q")],
        [(head_dim, block), (1, block), (1, block)],
    )
    # With both saved, rematerialized layers do not run the kernel again.
    out, log_sums = save_for_backward(out), save_for_backward(log_sums)
    return (out, log_sums), (q, k, v, pair_arrays, out, log_sums)


def _attend_backward(
    problem: _TpuProblem,
    residuals: tuple[Any, ...],
    gradients: tuple[AnyArray, AnyArray],
) -> tuple[Any, ...]:
    q, k, v, pair_arrays, out, log_sums = residuals
    gradient, of_log_sums = gradients
    rows, heads, head_dim, _ = q.shape
    # Sum over the keys of probability times gradient, for each query; equals
    # out . gradient. The gradient of a score is the probability times the
    # difference of its own gradient and this sum; the log-sum-exp adds the
    # probability times its gradient.
    sums = jnp.einsum(
        "rhdq,rhdq->rhq", out, gradient, preferred_element_type=jnp.float32
    )
    sums = sums[:, :, None] - of_log_sums
    step_sums = []
    for values, _ in pair_arrays.biases:
        shape = (rows, heads, values.shape[2], LANES)
        step_sums.append(jax.ShapeDtypeStruct(shape, jnp.float32))
    keys = (head_dim, problem.key_block)
    of_q, of_k, of_v, *of_steps = _call(
        "mosaic_attention_backward",
        _backward_kernel,
        problem,
        _Loop(over_keys=False),
        [
            (q, "rhdq"),
            (k, "rhdk"),
            (v, "rhdk"),
            (gradient, "rhdq"),
            (log_sums, "rh.q"),
            (sums, "rh.q"),
        ],
        pair_arrays,
        [
            (q, "rhdQ"),
            (k, "rhdk"),
            (v, "rhdk"),
            *((x, "rhsl") for x in step_sums),
        ],
        [
            (problem.num_query_blocks, head_dim, problem.query_block),
            keys,
            keys,
        ],
    )
    # Sums of each row, and parts of sums in lanes.
    of_biases = [(x.sum((0, 3))[:, None], None) for x in of_steps]
    return of_q, of_k, of_v, _TpuPairArrays(None, of_biases, None, None)


define_gradient(_attend, _attend_forward, _attend_backward)


class _Loop(NamedTuple):
    """The order in which a kernel goes over pairs of blocks.

    Attributes:
        over_keys: True to go over the blocks of keys for each block of queries;
            False for the reverse.
    """

    over_keys: bool

    def blocks(self, outer: Any, inner: Any) -> tuple[Any, Any]:
        """Returns the block of queries and of keys, from the indices of both loops."""
        if self.over_keys:
            return outer, inner
        return inner, outer


class _Block(NamedTuple):
    """A pair of blocks of queries and keys.

    Attributes:
        queries, keys: indices of the blocks.
        is_read: True if any query reads a key.
        is_first, is_last: True for the first and the last pair of a block of
            queries in the forward kernel, of keys in the backward kernel.
        is_first_of_head, is_last_of_head: True for the first and the last pair
            of a row and head.
    """

    queries: Any
    keys: Any
    is_read: Any
    is_first: Any
    is_last: Any
    is_first_of_head: Any
    is_last_of_head: Any


# axes of the arrays of scalars, see ``_call``
_VALUES, _WORDS = "h.s", "rh.w"


def _call(
    name: str,
    kernel: Callable[..., None],
    problem: _TpuProblem,
    loop: _Loop,
    arrays: Sequence[tuple[AnyArray, str]],
    pair_arrays: _TpuPairArrays,
    results: Sequence[tuple[Any, str]],
    scratch: Sequence[tuple[int, ...]],
) -> Sequence[Array]:
    """Runs a kernel for every row, head and pair of blocks.

    An instance gets its part of each array, which axes describe: its (r)ow, its
    (h)ead, its block of (q)ueries or (k)eys, all blocks of (Q)ueries, or whole
    axes.

    Args:
        name: name of the kernel.
        kernel: function of the problem, a ``_Block``, the pair terms, the parts
            of arrays and results, and the scratch arrays.
        problem: static arguments.
        loop: order of the pairs.
        arrays: inputs of the kernel with their axes.
        pair_arrays: mask, biases, dropout and segments.
        results: shapes and dtypes of the results with their axes.
        scratch: shapes of float32 arrays that all instances share.
    """
    pairs = problem.pairs
    # numbers of blocks of the outer and the inner loop
    outer, inner = loop.blocks(problem.num_query_blocks, problem.num_key_blocks)
    if not loop.over_keys and pairs is not None:
        pairs = pairs.T
    tables: tuple[np.ndarray, ...] = ()
    if pairs is not None:
        indices, counts = block_table(pairs)
        inner = indices.shape[1]
        tables = indices.ravel(), counts

    def inner_block(block: Any, n: Any, tables: Sequence[Any]) -> Any:
        if not tables:
            return n
        indices, counts = tables
        # An instance after the last pair reads what the last one did, so that
        # nothing is fetched for it.
        last = jnp.maximum(counts[block] - 1, 0)
        return indices[block * inner + jnp.minimum(n, last)]

    sizes = {
        "r": None,
        "h": None,
        "q": problem.query_block,
        "k": problem.key_block,
        "Q": problem.num_query_blocks * problem.query_block,
    }

    def part(x: Any, axes: str) -> pl.BlockSpec:
        def index_map(
            row: Any, head: Any, block: Any, n: Any, *tables: Any
        ) -> tuple[Any, ...]:
            queries, keys = loop.blocks(block, inner_block(block, n, tables))
            indices = {"r": row, "h": head, "q": queries, "k": keys}
            return tuple(indices.get(axis, 0) for axis in axes)

        shape = tuple(
            sizes.get(axis, size)
            for axis, size in zip(axes, x.shape, strict=True)
        )
        memory = pltpu.VMEM
        if axes in (_VALUES, _WORDS):
            memory = pltpu.SMEM
        return pl.BlockSpec(shape, index_map, memory_space=memory)

    pair_inputs, pair_axes = _pair_inputs(problem, pair_arrays)
    leaves, structure = jax.tree.flatten(pair_inputs)
    inputs = [*arrays, *zip(leaves, pair_axes, strict=True)]

    def run(*refs: Any) -> None:
        refs, tables = refs[num_tables:], refs[:num_tables]
        block, n = pl.program_id(2), pl.program_id(3)
        queries, keys = loop.blocks(block, inner_block(block, n, tables))
        is_first, is_last = n == 0, n == inner - 1
        pair = _Block(
            queries,
            keys,
            n < tables[1][block] if tables else True,
            is_first,
            is_last,
            is_first & (block == 0),
            is_last & (block == outer - 1),
        )
        first, last = len(arrays), len(inputs)
        pair_refs = jax.tree.unflatten(structure, refs[first:last])
        terms = _TpuPairTerms(problem, *pair_refs)
        kernel(problem, pair, terms, *refs[:first], *refs[last:])

    num_tables = len(tables)
    run.__name__ = name  # name of the function on the device
    call = pl.pallas_call(
        run,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=num_tables,
            grid=(*arrays[0][0].shape[:2], outer, inner),
            in_specs=[part(*x) for x in inputs],
            out_specs=[part(*x) for x in results],
            scratch_shapes=[pltpu.VMEM(x, jnp.float32) for x in scratch],
        ),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x, _ in results],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=(
                "parallel",
                "parallel",
                "arbitrary",
                "arbitrary",
            ),
            vmem_limit_bytes=TPU_MEMORY,
        ),
        interpret=problem.interpret,
        name=name,
    )
    # Under jit, so that rematerialized layers can skip the whole call if its
    # results were saved; a bare kernel would run again.
    return jax.jit(call)(*map(jnp.asarray, tables), *(x for x, _ in inputs))


def _pair_inputs(
    problem: _TpuProblem, pair_arrays: _TpuPairArrays
) -> tuple[tuple[Any, ...], list[str]]:
    """Returns the arguments of ``_TpuPairTerms`` after the problem, and their arrays' axes."""
    axes = []
    if pair_arrays.mask is not None:
        axes.append("r.k" if pair_arrays.mask.ndim == 3 else "rh.k")
    biases = []
    for steps, (values, positions) in zip(
        problem.biases, pair_arrays.biases, strict=True
    ):
        limits = np.iinfo(np.int32)
        borders = np.array([limits.min, *steps.starts, limits.max], np.int32)
        between = np.stack([borders[:-1], borders[1:]])[..., None]
        biases.append((values, jnp.asarray(between), positions))
        axes += [_VALUES, "2s."]
        if positions is not None:
            axes.append("r.q")
    if pair_arrays.words is not None:
        axes.append(_WORDS)
    if pair_arrays.segment_ids is not None:
        axes += ["r.k", "r.q"]
    return (pair_arrays.mask, biases, *pair_arrays[2:]), axes


class _TpuPairTerms(NamedTuple):
    """The masks, the biases and the dropout of a block of pairs.

    Attributes:
        problem: static arguments of the kernels.
        mask: int32 [1, key_block], 0 on keys that are not read; or None.
        biases: for each bias the values of its steps [1, steps], their borders,
            int32 [2, steps, 1], and the positions of the queries, int32 [1,
            query_block], or None.
        words: words of dropout [1, 2], or None.
        segment_ids: segments of the keys [1, key_block] and the queries [1,
            query_block], or None.
    """

    problem: _TpuProblem
    mask: Any
    biases: Sequence[tuple[Any, Any, Any]]
    words: Any
    segment_ids: Any

    def reads(self, block: _Block) -> Array:
        """Returns True if a query reads a key."""
        queries, keys = self.positions(block)
        reads = self.problem.pattern(queries, keys)
        if self.mask is not None:
            reads &= self.mask[...].reshape(-1, 1) != 0
        if self.segment_ids is not None:
            of_keys, of_queries = (x[...] for x in self.segment_ids)
            reads &= of_keys.reshape(-1, 1) == of_queries
        if self.problem.num_keys % self.problem.key_block:
            reads &= keys < self.problem.num_keys
        return reads

    def biased(self, scores: Array, block: _Block) -> Array:
        """Adds the biases to scores."""
        if not self.biases:
            return scores
        bias: Any = None
        for number in range(len(self.biases)):
            bias = self.bias(number).put(bias, block)
        return scores + bias

    def bias(self, number: int) -> "_TpuBias":
        """Returns a bias."""
        steps = self.problem.biases[number]
        return _TpuBias(self.problem, steps, *self.biases[number])

    def dropped(self, x: Array, block: _Block) -> Array:
        """Sets dropped weights, or their gradients, to 0; the others are not divided."""
        if self.words is None:
            return x
        words = self.words[0, 0], self.words[0, 1]
        keep = keep_pairs(words, *self.positions(block), self.problem.share)
        return jnp.where(keep, x, 0.0)

    def positions(self, block: _Block) -> tuple[Array, Array]:
        """Returns the positions of the queries [1, query_block] and the keys [key_block, 1]."""
        return _positions(self.problem, block)


def _positions(problem: _TpuProblem, block: _Block) -> tuple[Array, Array]:
    first_query = block.queries * problem.query_block
    first_key = block.keys * problem.key_block
    queries = lax.broadcasted_iota(jnp.int32, (1, problem.query_block), 1)
    keys = lax.broadcasted_iota(jnp.int32, (problem.key_block, 1), 0)
    return first_query + queries, first_key + keys


class _TpuBias(NamedTuple):
    """A position bias.

    Attributes:
        problem: static arguments of the kernels.
        steps: static arguments of the bias.
        values: bias of every step [1, steps].
        borders: first distance of every step, and of the next, [2, steps, 1].
        positions: positions of the queries, None for their indices.
    """

    problem: _TpuProblem
    steps: Steps
    values: Any
    borders: Any
    positions: Any

    def put(self, bias: Any, block: _Block) -> Any:
        """Returns ``bias`` of a block with this one at its keys; None for the first bias."""
        bias_of_block = self._of_block(block)
        if self.steps.cover(self.problem.num_keys):
            return bias_of_block
        before = 0.0 if bias is None else bias
        return jnp.where(self._has_bias(block), bias_of_block, before)

    def add_sums(self, total: Any, of_scores: Array, block: _Block) -> None:
        """Adds the sums of score gradients over the pairs of each step to ``total`` [steps,
        lanes].
        """
        if not self.steps.cover(self.problem.num_keys):
            of_scores = jnp.where(self._has_bias(block), of_scores, 0.0)
        if self.positions is not None:
            self._add_sums_of_pairs(total, of_scores, block)
            return
        is_constant, number = self._single_step(block)

        @pl.when(is_constant)
        def _() -> None:
            numbers = lax.broadcasted_iota(jnp.int32, total.shape, 0)
            part = _sum_to_lanes(of_scores.sum(0, keepdims=True))
            total[...] += jnp.where(numbers == number, part, 0.0)

        @pl.when(jnp.logical_not(is_constant))
        def _() -> None:
            width = self.problem.query_block + self.problem.key_block
            zeros = jnp.zeros((len(of_scores), self.problem.key_block))
            diagonals = _diagonal_sums(jnp.concatenate([of_scores, zeros], 1))
            distances = self._distances_of_row(block, width)
            is_inside = distances >= self.borders[0]
            is_inside &= distances < self.borders[1]
            total[...] += _sum_to_lanes(jnp.where(is_inside, diagonals, 0.0))

    def _add_sums_of_pairs(
        self, total: Any, of_scores: Array, block: _Block
    ) -> None:
        distances = self._distances(block)
        starts = self.steps.starts
        rows = []
        for n in range(len(starts) + 1):
            is_inside: Any = True
            if n > 0:
                is_inside &= distances >= starts[n - 1]
            if n < len(starts):
                is_inside &= distances < starts[n]
            part = jnp.where(is_inside, of_scores, 0.0).sum(0, keepdims=True)
            rows.append(_sum_to_lanes(part))
        total[...] += jnp.concatenate(rows, 0)

    def _of_block(self, block: _Block) -> Array:
        """Returns the bias of each pair."""
        shape = self.problem.key_block, self.problem.query_block
        if self.positions is not None:
            return self._values_at(self._distances(block))
        is_constant, number = self._single_step(block)

        def of_diagonals() -> Array:
            width = sum(shape)
            row = self._values_at(self._distances_of_row(block, width))
            rows = jnp.broadcast_to(row, (shape[0], width))
            rows = pltpu.roll(rows, 0, 1, stride=1, stride_axis=0)
            return rows[:, : shape[1]]

        return lax.cond(
            is_constant,
            lambda: jnp.full(shape, self.values[0, number]),
            of_diagonals,
        )

    def _values_at(self, distances: Array) -> Array:
        """Returns the bias at distances."""
        bias = jnp.full(distances.shape, self.values[0, 0])
        for n, start in enumerate(self.steps.starts):
            bias = jnp.where(distances >= start, self.values[0, n + 1], bias)
        return bias

    def _single_step(self, block: _Block) -> tuple[Any, Any]:
        """Returns True if a block is beyond the last step on either side, and the number of its
        step.
        """
        starts = self.steps.starts
        difference = self._first_distance(block)
        least = difference - (self.problem.query_block - 1)
        greatest = difference + self.problem.key_block - 1
        if not starts:
            return True, 0
        is_after = least >= starts[-1]
        number = jnp.where(is_after, len(starts), 0)
        return is_after | (greatest < starts[0]), number

    def _first_distance(self, block: _Block) -> Any:
        """Returns the distance of a block's first key from its first query."""
        first_query = block.queries * self.problem.query_block
        first_key = block.keys * self.problem.key_block
        return first_key - first_query - self.steps.origin

    def _distances_of_row(self, block: _Block, width: int) -> Array:
        """Returns the distance of each diagonal, [1, width]; those below the first come last."""
        lanes = lax.broadcasted_iota(jnp.int32, (1, width), 1)
        is_above = lanes < self.problem.query_block
        diagonals = jnp.where(is_above, lanes, lanes - width)
        return self._first_distance(block) - diagonals

    def _distances(self, block: _Block) -> Array:
        """Returns the distance of each pair from positions of the queries."""
        _, keys = _positions(self.problem, block)
        return keys - self.steps.origin - self.positions[...]

    def _has_bias(self, block: _Block) -> Array:
        _, keys = _positions(self.problem, block)
        return (keys >= self.steps.first_key) & (keys < self.steps.end_key)


def _diagonal_sums(
    x: Float[Array, "keys width"],
) -> Float[Array, "1 width"]:
    """Returns the sums of rows that are shifted to the left, each by one more than the last."""
    count, width = x.shape
    while count > 1:
        # Shifts the second half as far as its first row, and adds it to the
        # first.
        half = 1 << ((count - 1).bit_length() - 1)
        shifted = pltpu.roll(x[half:], width - half, 1)
        rest = half - len(shifted)
        first = x[: half - rest] + shifted
        if rest:
            x = jnp.concatenate([first, x[half - rest : half]], 0)
        else:
            x = first
        count = half
    return x


def _sum_to_lanes(x: Float[Array, "rows width"]) -> Float[Array, "rows lanes"]:
    """Returns sums of every 128th column."""
    parts = [x[:, n : n + LANES] for n in range(0, x.shape[1], LANES)]
    return functools.reduce(jnp.add, parts)


def _product(a: AnyArray, b: AnyArray, a_axis: int, b_axis: int) -> Array:
    """Returns the product of two matrices, summed over one axis of each, in float32."""
    axes = ((a_axis,), (b_axis,)), ((), ())
    # Mosaic rejects a higher precision of bfloat16 factors, whose products are
    # exact anyway.
    precision = lax.Precision.HIGHEST
    if a.dtype == jnp.bfloat16:
        precision = lax.Precision.DEFAULT
    return lax.dot_general(
        a, b, axes, precision=precision, preferred_element_type=jnp.float32
    )


def _part_inside(
    x: Any, block_index: Any, size: int, length: int, outside: float = 0.0
) -> Array:
    """Reads a block of ``x``; lanes after ``length``, which may be anything, become ``outside``."""
    values = x[...]
    if length % size == 0:
        return values
    positions = lax.broadcasted_iota(jnp.int32, values.shape, 1)
    is_inside = positions < length - block_index * size
    return jnp.where(is_inside, values, jnp.full_like(values, outside))


def _forward_kernel(
    problem: _TpuProblem,
    block: _Block,
    terms: _TpuPairTerms,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    log_sums: Any,
    values: Any,
    sums: Any,
    largest: Any,
) -> None:
    @pl.when(block.is_first)
    def _() -> None:
        values[...] = jnp.zeros(values.shape, jnp.float32)
        sums[...] = jnp.zeros(sums.shape, jnp.float32)
        # Above the scores of keys that are not read, so that their exponentials
        # are zeros.
        largest[...] = jnp.full(largest.shape, LEAST_SCORE)

    @pl.when(block.is_read)
    def _() -> None:
        scores, _ = _scores(problem, block, terms, q[...], k[...])
        # Running softmax: rescale the previous sums to the new maximum, then
        # add this block.
        before = largest[...]
        new = jnp.maximum(before, scores.max(0, keepdims=True))
        weights = jnp.exp(scores - new)
        shrunk = jnp.exp(before - new)
        largest[...] = new
        sums[...] = sums[...] * shrunk + weights.sum(0, keepdims=True)
        # Dropout is after the softmax, whose sum has all weights.
        weights = terms.dropped(weights, block).astype(v.dtype)
        keys = block.keys, problem.key_block, problem.num_keys
        part = _product(_part_inside(v, *keys), weights, 1, 0)
        values[...] = values[...] * shrunk + part

    @pl.when(block.is_last)
    def _() -> None:
        # zeros for a query without a key
        total = jnp.where(sums[...] > 0, sums[...], 1.0)
        log_sums[...] = largest[...] + jnp.log(total)
        out[...] = (values[...] / (problem.share * total)).astype(out.dtype)


def _scores(
    problem: _TpuProblem,
    block: _Block,
    terms: _TpuPairTerms,
    queries: Array,
    keys: Array,
) -> tuple[Array, Array]:
    """Returns the scores [keys, queries], and scaled products without bias and mask."""
    products = scaled_scores(_product(keys, queries, 0, 0), problem.scale)
    scores = terms.biased(products, block)
    return jnp.where(terms.reads(block), scores, MASK_VALUE), products


def _backward_kernel(
    problem: _TpuProblem,
    block: _Block,
    terms: _TpuPairTerms,
    q: Any,
    k: Any,
    v: Any,
    gradient: Any,
    log_sums: Any,
    sums: Any,
    of_q: Any,
    of_k: Any,
    of_v: Any,
    *rest: Any,
) -> None:
    *of_steps, for_queries, for_keys, for_values = rest

    @pl.when(block.is_first_of_head)
    def _() -> None:
        for x in (for_queries, *of_steps):
            x[...] = jnp.zeros(x.shape, jnp.float32)

    @pl.when(block.is_first)
    def _() -> None:
        for x in (for_keys, for_values):
            x[...] = jnp.zeros(x.shape, jnp.float32)

    @pl.when(block.is_read)
    def _() -> None:
        of_queries = block.queries, problem.query_block, problem.num_queries
        of_keys = block.keys, problem.key_block, problem.num_keys
        queries, of_out, products_of_out = (
            _part_inside(x, *of_queries) for x in (q, gradient, sums)
        )
        # The weights of queries after the last one are zeros, however large
        # their bias is.
        log_totals = _part_inside(log_sums, *of_queries, outside=-MASK_VALUE)
        keys, values = (_part_inside(x, *of_keys) for x in (k, v))
        # weight = exp(score - log_sum); score gradient = weight * (weight
        # gradient - sum of products)
        scores, products = _scores(problem, block, terms, queries, keys)
        weights = jnp.exp(scores - log_totals)
        of_weights = _product(values, of_out, 0, 0) / problem.share
        of_weights = terms.dropped(of_weights, block)
        of_scores = weights * (of_weights - products_of_out)
        dropped = terms.dropped(weights, block).astype(v.dtype)
        for_values[...] += _product(of_out, dropped, 1, 1)
        for number, total in enumerate(of_steps):
            terms.bias(number).add_sums(total, of_scores, block)
        cap = score_cap(problem.scale)
        if cap is not None:
            # the derivative of cap tanh(x / cap) is 1 - tanh^2
            of_scores *= 1 - (products / cap) ** 2
        of_products = of_scores.astype(q.dtype)
        for_keys[...] += _product(queries, of_products, 1, 1)
        for_queries[block.queries] += _product(keys, of_products, 1, 0)

    # The factor of the products, once for the whole sum.
    factor = product_factor(problem.scale)

    @pl.when(block.is_last)
    def _() -> None:
        of_k[...] = (factor * for_keys[...]).astype(of_k.dtype)
        of_v[...] = (for_values[...] / problem.share).astype(of_v.dtype)

    @pl.when(block.is_last_of_head)
    def _() -> None:
        size = problem.query_block
        for n in range(problem.num_query_blocks):
            total = factor * for_queries[n]
            of_q[:, n * size : (n + 1) * size] = total.astype(of_q.dtype)
