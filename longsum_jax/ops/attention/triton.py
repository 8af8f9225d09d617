"""Attention to the keys that a pattern determines for each query, by Pallas kernels.

Triton compiles them for NVIDIA GPUs; other devices interpret them, for tests.

A block of queries loops over the blocks of keys from which it reads any key,
with a running softmax. The gradients of queries take the same loop again; for
the gradients of keys and values, a block of keys loops over blocks of queries
(FlashAttention-2, Dao 2023).

A position bias is a function of the distance with few steps. A block of queries
and of keys needs the steps between its least and its greatest distance, most
blocks only one. Gradients of a step are summed over the blocks of keys, and
outside of the kernel over the blocks of queries.

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
from jax.experimental.pallas import triton
from jaxtyping import Array, Bool, Float, Int, UInt32

from longsum_jax.ops.attention.dense import (
    Scale,
    product_factor,
    scaled_scores,
    score_cap,
)
from longsum_jax.ops.attention.kernel_blocks import (
    Steps,
    all_keys,
    block_pairs,
    block_table,
    no_later_keys,
    pairs_scope,
)
from longsum_jax.ops.attention.key_sets import MASK_VALUE, PartialSoftmax
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.packing import SegmentIds, same_segment
from longsum_jax.ops.padding import append_zeros
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient
from longsum_jax.ops.random_masks import keep_pairs
from longsum_jax.ops.remat import save_for_backward
from longsum_jax.typing import AnyArray

# queries and keys of a block; Triton needs powers of two, at least 16
_BLOCK = 64
_LEAST = 16
# A block of wider heads has fewer positions: the kernels of the gradients must
# fit the 99 KiB of shared memory of an L4.
_MAX_WIDTH = 128
_WIDE_BLOCK = 32
# Axes of a mask of keys by their number, see ``_Instances.part``.
_MASK_AXES = {2: "rl", 3: "rhl"}


class _Problem(NamedTuple):
    """Static arguments of the kernels.

    Attributes:
        pattern: keys that each query reads, see ``fused.Pattern``.
        scale: factor of the query-key products, possibly with a soft cap.
        rows, heads, num_queries, num_keys, width: sizes; lengths are multiples
            of ``block``, and ``width`` is the padded head dimension.
        block: number of queries and of keys of a block.
        biases: static arguments of the position biases.
        share: share of the weights that dropout keeps.
        interpret: True to interpret the kernels, without Triton.
    """

    pattern: Callable[..., Any]
    scale: Scale
    rows: int
    heads: int
    num_queries: int
    num_keys: int
    width: int
    block: int
    biases: tuple[Steps, ...]
    share: float
    interpret: bool


class _PairArrays(NamedTuple):
    """Arrays from which the kernels compute a bias and masks for each pair.

    A pair is a query and a key.

    Attributes:
        biases: values of every step, float32 [heads, steps], and positions of
            the queries or None, for each bias.
        words: words of dropout, uint32 [rows, heads, 2]; None without dropout.
        segment_ids: segments of queries and keys; None for one segment.
    """

    biases: Sequence[tuple[AnyArray, AnyArray | None]]
    words: AnyArray | None
    segment_ids: SegmentIds | None


def triton_attention(
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
    rows, length, heads, head_dim = q.shape
    if mask is None:
        mask = jnp.ones((rows, 1, k.shape[1]), bool)
    if mask.shape[1] == 1:
        mask = mask[:, 0]
    width = max(_LEAST, pl.next_power_of_2(head_dim))
    block = _BLOCK if width <= _MAX_WIDTH else _WIDE_BLOCK
    q, k, v = (_padded(x, block, width) for x in (q, k, v))
    missing = k.shape[1] - mask.shape[-1]
    mask = jnp.pad(mask, ((0, 0),) * (mask.ndim - 1) + ((0, missing),))
    if segment_ids is not None:
        segment_ids = SegmentIds(
            source=append_zeros(segment_ids.source, missing),
            target=append_zeros(segment_ids.target, q.shape[1] - length),
        )
    problem = _Problem(
        pattern or (no_later_keys if causal else all_keys),
        scale,
        rows,
        heads,
        q.shape[1],
        k.shape[1],
        width,
        block,
        Steps.of(biases, k.shape[1]),
        share,
        target_platform() != "gpu",
    )
    arrays = []
    for bias in biases:
        padding = _num_steps(problem) - bias.values.shape[1]
        values = jnp.pad(bias.values, ((0, 0), (0, padding)))
        positions = bias.queries
        if positions is not None:
            positions = append_zeros(positions, q.shape[1] - length)
        arrays.append((values.astype(jnp.float32), positions))
    pair_arrays = _PairArrays(arrays, words, segment_ids)
    lengths = problem.num_queries, problem.num_keys
    with pairs_scope(_block_pairs(problem), lengths, (block, block)):
        out, log_sums = _attend(
            problem, q, k, v, mask.astype(jnp.int32), pair_arrays
        )
    return PartialSoftmax(
        out[:, :length, :, :head_dim], log_sums.swapaxes(1, 2)[:, :length]
    )


def _padded(x: AnyArray, block: int, width: int) -> Array:
    """Pads [rows, positions, heads, head_dim] with zeros to whole blocks and to ``width``."""
    _, length, _, head_dim = x.shape
    return jnp.pad(
        x, ((0, 0), (0, -length % block), (0, 0), (0, width - head_dim))
    )


def _block_pairs(
    problem: _Problem,
) -> Bool[np.ndarray, "query_blocks key_blocks"] | None:
    """Returns ``block_pairs`` of the problem."""
    return block_pairs(
        problem.pattern,
        (problem.num_queries, problem.num_keys),
        (problem.block, problem.block),
    )


def _num_steps(problem: _Problem) -> int:
    """Returns the padded number of steps of all biases; Triton needs powers of two."""
    # At least one step more, which begins after all distances.
    largest = max(len(steps.starts) for steps in problem.biases)
    return int(pl.next_power_of_2(largest + 2))


def _first_distances(
    problem: _Problem, steps: Steps
) -> Int[np.ndarray, " steps"]:
    """Returns the first distance of every step; padding begins after all distances."""
    limits = np.iinfo(np.int32)
    firsts = np.full(_num_steps(problem), limits.max, np.int32)
    firsts[: len(steps.starts) + 1] = limits.min, *steps.starts
    return firsts


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(
    problem: _Problem,
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray,
    pair_arrays: _PairArrays,
) -> tuple[Array, Array]:
    """Computes attention over whole blocks, and the log-sum-exp of the scores of every query.

    Args:
        problem: static arguments of the kernels.
        q, k, v: queries, keys and values.
        mask: int32 [rows, num_keys] or [rows, heads, num_keys], 0 on keys that
            are not read.
        pair_arrays: biases, dropout and segments.
    """
    return _attend_forward(problem, q, k, v, mask, pair_arrays)[0]


def _attend_forward(
    problem: _Problem,
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray,
    pair_arrays: _PairArrays,
) -> tuple[tuple[Array, Array], tuple[Any, ...]]:
    keys = problem.num_keys
    instances = _Instances(problem, problem.num_queries, keys)
    part = instances.part
    sums = jax.ShapeDtypeStruct(
        (problem.rows, problem.heads, problem.num_queries), jnp.float32
    )
    out, log_sums = _call(
        "triton_attention_forward",
        _forward_kernel,
        instances,
        _block_pairs(problem),
        [
            part("rlhd"),
            part("rlhd", keys),
            part("rlhd", keys),
            part(_MASK_AXES[mask.ndim], keys),
        ],
        [part("rlhd"), part("rhl")],
        [q, sums],
        [q, k, v, mask],
        pair_arrays,
    )
    # With both saved, rematerialized layers do not run the kernel again.
    out, log_sums = save_for_backward(out), save_for_backward(log_sums)
    return (out, log_sums), (q, k, v, mask, pair_arrays, out, log_sums)


def _attend_backward(
    problem: _Problem,
    residuals: tuple[Any, ...],
    gradients: tuple[AnyArray, AnyArray],
) -> tuple[Any, ...]:
    q, k, v, mask, pair_arrays, out, log_sums = residuals
    gradient, of_log_sums = gradients
    # Sum over the keys of probability times gradient, for each query; equals
    # out . gradient. The gradient of a score is the probability times the
    # difference of its own gradient and this sum; the log-sum-exp adds the
    # probability times its gradient.
    sums = jnp.einsum(
        "rqhd,rqhd->rhq", out, gradient, preferred_element_type=jnp.float32
    )
    sums = sums - of_log_sums
    pairs = _block_pairs(problem)
    arrays = [q, k, v, mask, gradient, log_sums, sums]
    # Gradients of queries: an instance has a block of queries and loops over
    # keys.
    keys, queries = problem.num_keys, problem.num_queries
    instances = _Instances(problem, queries, keys)
    part = instances.part
    parts = [part("rlhd"), part("rlhd", keys), part("rlhd", keys)]
    parts += [part(_MASK_AXES[mask.ndim], keys), part("rlhd")]
    parts += [part("rhl"), part("rhl")]
    biases = pair_arrays.biases
    results = [part("rlhd"), *(part("rhbs") for _ in biases)]
    blocks = (problem.rows, problem.heads, instances.num_blocks)
    of_blocks = [
        jax.ShapeDtypeStruct((*blocks, values.shape[1]), jnp.float32)
        for values, _ in biases
    ]
    of_q, *of_steps = _call(
        "triton_attention_queries",
        _queries_kernel,
        instances,
        pairs,
        parts,
        results,
        [q, *of_blocks],
        arrays,
        pair_arrays,
    )
    # Gradients of keys and values: an instance has a block of keys and loops
    # over queries.
    instances = _Instances(problem, keys, queries)
    part = instances.part
    parts = [part("rlhd", queries), part("rlhd"), part("rlhd")]
    parts += [part(_MASK_AXES[mask.ndim]), part("rlhd", queries)]
    parts += [part("rhl", queries), part("rhl", queries)]
    results = [part("rlhd"), part("rlhd")]
    of_k, of_v = _call(
        "triton_attention_keys",
        _keys_kernel,
        instances,
        None if pairs is None else pairs.T,
        parts,
        results,
        [k, v],
        arrays,
        pair_arrays,
    )
    # Sums of each row and block of queries.
    of_biases = [(sums.sum((0, 2)), None) for sums in of_steps]
    return of_q, of_k, of_v, None, _PairArrays(of_biases, None, None)


define_gradient(_attend, _attend_forward, _attend_backward)


class _Instances(NamedTuple):
    """The program instances of a kernel: one for every block of ``length`` positions, head and row.

    They are numbered along one axis, blocks first: CUDA allows more than 65,535
    instances only along one axis, and instances that read the same keys run at
    about the same time.

    Attributes:
        problem: static arguments of the kernels.
        length: number of positions over which the instances are distributed.
        other_length: number of positions that an instance can loop over.
    """

    problem: _Problem
    length: int
    other_length: int

    @property
    def num_blocks(self) -> int:
        """Number of blocks of a row."""
        return self.length // self.problem.block

    @property
    def total(self) -> int:
        """Total number of instances."""
        return self.num_blocks * self.problem.heads * self.problem.rows

    def part(self, axes: str, whole: int = 0) -> pl.BlockSpec:
        """Returns the part of an array that an instance reads: its row and head, and its block.

        Args:
            axes: axes of the array: (r)ow, (h)ead, (l)ength, (d)imension of the
                head, (b)lock, (s)tep of a bias, (w)ord of dropout.
            whole: length of arrays of which an instance reads all positions, 0
                for its own block only.
        """
        sizes = {
            "r": None,
            "h": None,
            "l": whole or self.problem.block,
            "d": self.problem.width,
            "b": None,
            "w": 2,
        }
        if self.problem.biases:
            sizes["s"] = _num_steps(self.problem)

        # Decodes the instance number: block within the row first, then head,
        # then row.
        def index_map(instance: Any) -> tuple[Any, ...]:
            row_and_head = lax.div(instance, self.num_blocks)
            block = lax.rem(instance, self.num_blocks)
            indices: dict[str, Any] = {"d": 0, "s": 0, "w": 0}
            indices |= {"r": lax.div(row_and_head, self.problem.heads)}
            indices |= {"h": lax.rem(row_and_head, self.problem.heads)}
            indices |= {"l": 0 if whole else block, "b": block}
            return tuple(indices[axis] for axis in axes)

        return pl.BlockSpec(tuple(sizes[axis] for axis in axes), index_map)


def _call(
    name: str,
    kernel: Callable[..., None],
    instances: _Instances,
    pairs: Bool[np.ndarray, "own_blocks other_blocks"] | None,
    parts: Sequence[pl.BlockSpec],
    results: Sequence[pl.BlockSpec],
    shapes: Sequence[Any],
    arrays: Sequence[AnyArray],
    pair_arrays: _PairArrays,
) -> Sequence[Array]:
    """Runs a kernel for every instance.

    Args:
        name: name of the kernel.
        kernel: function of the problem, an instance's block, the blocks that it
            loops over, its terms of pairs, and its parts of the arrays and
            results.
        instances: program instances of the kernel.
        pairs: True for each pair of an instance's block and a block that it
            loops over; None for all pairs.
        parts, results: block specifications of the arrays and of the results.
        shapes: shapes and dtypes of the results.
        arrays: inputs of the kernel.
        pair_arrays: biases, dropout and segments.
    """
    problem = instances.problem
    tables = () if pairs is None else block_table(pairs)

    def run(*parts: Any) -> None:
        # The block of this instance in its row; see ``_Instances.part``.
        block_index = lax.rem(pl.program_id(0), instances.num_blocks)
        if pairs is None:
            num_others = instances.other_length // problem.block
            others = _Others(None, num_others, block_index)
        else:
            indices, counts = parts[:2]
            others = _Others(indices, counts[block_index], block_index)
        parts = parts[len(tables) :]
        first, last = len(arrays), len(arrays) + len(jax.tree.leaves(inputs))
        bias_refs, words, segment_ids = jax.tree.unflatten(
            jax.tree.structure(inputs), parts[first:last]
        )
        pair_terms = _PairTerms(
            [
                _Bias(problem, steps, *refs)
                for steps, refs in zip(problem.biases, bias_refs, strict=True)
            ],
            words,
            segment_ids,
        )
        kernel(
            problem,
            block_index,
            others,
            pair_terms,
            *parts[:first],
            *parts[last:],
        )

    run.__name__ = name  # name of the function on the device

    def whole(table: np.ndarray) -> pl.BlockSpec:
        return pl.BlockSpec(table.shape, lambda _: (0,) * table.ndim)

    bias_inputs, input_parts = [], []
    biases = zip(problem.biases, pair_arrays.biases, strict=True)
    for steps, (values, positions) in biases:
        firsts = _first_distances(problem, steps)
        bias_inputs.append((values, jnp.asarray(firsts), positions))
        input_parts += [instances.part("hs"), whole(firsts)]
        if positions is not None:
            input_parts.append(instances.part("rl", problem.num_queries))
    inputs = bias_inputs, pair_arrays.words, pair_arrays.segment_ids
    if pair_arrays.words is not None:
        input_parts.append(instances.part("rhw"))
    if pair_arrays.segment_ids is not None:
        for ids in pair_arrays.segment_ids:
            input_parts.append(instances.part("rl", ids.shape[1]))

    call = pl.pallas_call(
        run,
        grid=(instances.total,),
        in_specs=[*map(whole, tables), *parts, *input_parts],
        out_specs=list(results),
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in shapes],
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=problem.interpret,
        name=name,
    )
    # Under jit, so that rematerialized layers can skip the whole call if its
    # results were saved; a bare kernel would run again.
    return jax.jit(call)(
        *map(jnp.asarray, tables), *arrays, *jax.tree.leaves(inputs)
    )


class _Others(NamedTuple):
    """The blocks that an instance loops over.

    Attributes:
        indices: table of the blocks of every instance; None for the first
            ``count`` blocks.
        count: number of blocks.
        block_index: the instance's own block.
    """

    indices: Any
    count: Any
    block_index: Any

    def over(self, step: Callable[[Any, Any], Any], start: Any) -> Any:
        """Folds ``step``(block, value) over the blocks, from ``start``."""

        def body(n: Any, value: Any) -> Any:
            if self.indices is None:
                return step(n, value)
            return step(self.indices[self.block_index, n], value)

        return lax.fori_loop(0, self.count, body, start)


class _Bias(NamedTuple):
    """A position bias of a head.

    Attributes:
        problem: static arguments of the kernels.
        steps: static arguments of the bias.
        values: bias of every step.
        firsts: first distance of every step.
        positions: positions of all queries of the row, None for their indices.
    """

    problem: _Problem
    steps: Steps
    values: Any
    firsts: Any
    positions: Any

    def put(self, bias: Array, query_block: Any, key_block: Any) -> Array:
        """Returns ``bias`` of a block of pairs with this one at its keys."""
        distances, has_bias = self._pairs(query_block, key_block)
        first, last = self._numbers(query_block, key_block)

        def step(number: Any, bias: Array) -> Array:
            is_reached = has_bias & (distances >= self.firsts[number])
            return jnp.where(is_reached, self.values[number], bias)

        return lax.fori_loop(first, last + 1, step, bias)

    def add_sums(
        self, total: Array, of_scores: Array, query_block: Any, key_block: Any
    ) -> Array:
        """Adds the sums of score gradients over the pairs of each step to ``total`` [steps]."""
        distances, has_bias = self._pairs(query_block, key_block)
        first, last = self._numbers(query_block, key_block)
        numbers = jnp.arange(len(total))

        def step(number: Any, total: Array) -> Array:
            is_inside = has_bias & (distances >= self.firsts[number])
            is_inside &= distances < self.firsts[number + 1]
            part = jnp.where(is_inside, of_scores, 0.0).sum()
            return total + jnp.where(numbers == number, part, 0.0)

        return lax.fori_loop(first, last + 1, step, total)

    def _pairs(self, query_block: Any, key_block: Any) -> tuple[Array, Any]:
        """Returns the distances of a block of pairs, and a mask of the keys with this bias."""
        queries, keys = _positions(self.problem, query_block, key_block)
        if self.positions is not None:
            queries = self._queries(query_block)[:, None]
        has_bias: Any = True
        if not self.steps.cover(self.problem.num_keys):
            has_bias = keys >= self.steps.first_key
            has_bias &= keys < self.steps.end_key
        return keys - queries - self.steps.origin, has_bias

    def _queries(self, query_block: Any) -> Array:
        """Returns the positions of a block of queries."""
        block = self.problem.block
        return self.positions[pl.ds(query_block * block, block)]

    def _numbers(self, query_block: Any, key_block: Any) -> tuple[Any, Any]:
        """Returns the first and the last step of a block of pairs; none if it has no such key."""
        reach = self.problem.block - 1
        least, begin = (
            x * self.problem.block for x in (query_block, key_block)
        )
        greatest = least + reach
        if self.positions is not None:
            queries = self._queries(query_block)
            least, greatest = queries.min(), queries.max()
        limits = begin - greatest, begin + reach - least
        firsts = self.firsts[...]
        first, last = (
            (firsts <= limit - self.steps.origin).astype(jnp.int32).sum() - 1
            for limit in limits
        )
        if self.steps.cover(self.problem.num_keys):
            return first, last
        has_keys = begin < self.steps.end_key
        has_keys &= begin + reach >= self.steps.first_key
        return first, jnp.where(has_keys, last, first - 1)


class _PairTerms(NamedTuple):
    """The biases and masks of the pairs of a row and head, see ``_PairArrays``.

    Attributes:
        biases: position biases.
        words: words of dropout, None without dropout.
        segment_ids: segments of all queries and keys, None for one segment.
    """

    biases: Sequence[_Bias]
    words: Any
    segment_ids: Any

    def is_same_segment(
        self, problem: _Problem, query_block: Any, key_block: Any
    ) -> Array:
        """Returns True for the pairs of a block whose segments are the same."""
        ids, block = self.segment_ids, problem.block
        queries = ids.target[pl.ds(query_block * block, block)]
        keys = ids.source[pl.ds(key_block * block, block)]
        return same_segment(queries, keys)

    def dropped(
        self, problem: _Problem, x: Array, query_block: Any, key_block: Any
    ) -> Array:
        """Drops weights, or their gradients, of a block of pairs, if there is dropout."""
        if self.words is None:
            return x
        keep = keep_pairs(
            (self.words[0], self.words[1]),
            *_positions(problem, query_block, key_block),
            problem.share,
        )
        return jnp.where(keep, x / problem.share, 0.0)


def _positions(
    problem: _Problem, query_block: Any, key_block: Any
) -> tuple[Array, Array]:
    """Returns the positions of a block of queries [block, 1] and a block of keys [1, block]."""
    positions = jnp.arange(problem.block)
    queries = (query_block * problem.block + positions)[:, None]
    keys = (key_block * problem.block + positions)[None]
    return queries, keys


class _Scores(NamedTuple):
    """The scores of a block of queries and a block of keys.

    Attributes:
        scores: scores with the bias, ``MASK_VALUE`` for keys that are not read.
        products: scaled products, without the bias.
        reads: mask of the keys that each query reads.
    """

    scores: Array
    products: Array
    reads: Array


def _scores(
    problem: _Problem,
    pair_terms: _PairTerms,
    q: AnyArray,
    k: AnyArray,
    mask: AnyArray,
    query_block: Any,
    key_block: Any,
) -> _Scores:
    """Returns the scores of a block of queries and a block of keys."""
    queries, keys = _positions(problem, query_block, key_block)
    reads = problem.pattern(queries, keys) & (mask != 0)[None]
    if pair_terms.segment_ids is not None:
        reads &= pair_terms.is_same_segment(problem, query_block, key_block)
    products = scaled_scores(_product(q, k, 1, 1), problem.scale)
    scores = products
    if pair_terms.biases:
        bias = jnp.zeros(products.shape, jnp.float32)
        for keys_bias in pair_terms.biases:
            bias = keys_bias.put(bias, query_block, key_block)
        scores = products + bias
    return _Scores(jnp.where(reads, scores, MASK_VALUE), products, reads)


def _product(a: AnyArray, b: AnyArray, a_axis: int, b_axis: int) -> Array:
    """Returns the product of two matrices, summed over one axis of each, in float32."""
    axes = ((a_axis,), (b_axis,)), ((), ())
    return lax.dot_general(a, b, axes, preferred_element_type=jnp.float32)


def _forward_kernel(
    problem: _Problem,
    block_index: Any,
    others: _Others,
    pair_terms: _PairTerms,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    out: Any,
    log_sums: Any,
) -> None:
    queries = q[...]

    def step(
        other: Any, state: tuple[Array, Array, Array]
    ) -> tuple[Array, Array, Array]:
        # Running softmax: rescale the previous sums to the new maximum, then
        # add this block.
        values, sums, largest = state
        entries = pl.ds(other * problem.block, problem.block)
        scores, _, reads = _scores(
            problem,
            pair_terms,
            queries,
            k[entries],
            mask[entries],
            block_index,
            other,
        )
        new = jnp.maximum(largest, scores.max(1))
        weights = jnp.where(reads, jnp.exp(scores - new[:, None]), 0.0)
        shrunk = jnp.exp(largest - new)
        # Dropout is after the softmax, whose sum has all weights.
        dropped = pair_terms.dropped(problem, weights, block_index, other)
        values = values * shrunk[:, None] + _product(
            dropped.astype(v.dtype), v[entries], 1, 0
        )
        return values, sums * shrunk + weights.sum(1), new

    start = (
        jnp.zeros((problem.block, problem.width), jnp.float32),
        jnp.zeros(problem.block, jnp.float32),
        jnp.full(problem.block, MASK_VALUE, jnp.float32),
    )
    values, sums, largest = others.over(step, start)
    sums = jnp.where(sums > 0, sums, 1.0)  # zeros for a query without a key
    out[...] = (values / sums[:, None]).astype(out.dtype)
    log_sums[...] = largest + jnp.log(sums)


class _Queries(NamedTuple):
    """A block of queries, with the values that their gradients need.

    Attributes:
        q: queries.
        of_out: gradients of the outputs.
        log_sums, sums: statistics of every query, see ``_attend_forward`` and
            ``_attend_backward``.
    """

    q: Any
    of_out: Any
    log_sums: Any
    sums: Any

    def at(self, entries: Any) -> "_Queries":
        """Reads the entries at some positions of whole rows."""
        return _Queries(*(x[entries] for x in self))


def _weights_and_gradients(
    problem: _Problem,
    pair_terms: _PairTerms,
    queries: _Queries,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray,
    query_block: Any,
    key_block: Any,
) -> tuple[Array, Array, Array]:
    """Returns dropped weights of a block of queries and of keys, and gradients of scores and of
    scaled products.
    """
    # weight = exp(score - log_sum); score gradient = weight * (weight gradient
    # - sum of products)
    scores, products, reads = _scores(
        problem, pair_terms, queries.q, k, mask, query_block, key_block
    )
    weights = jnp.where(reads, jnp.exp(scores - queries.log_sums[:, None]), 0.0)
    of_weights = pair_terms.dropped(
        problem, _product(queries.of_out, v, 1, 1), query_block, key_block
    )
    of_scores = weights * (of_weights - queries.sums[:, None])
    of_products = of_scores
    cap = score_cap(problem.scale)
    if cap is not None:
        # the derivative of cap tanh(x / cap) is 1 - tanh^2
        of_products = of_scores * (1 - (products / cap) ** 2)
    weights = pair_terms.dropped(problem, weights, query_block, key_block)
    return weights, of_scores, of_products


def _queries_kernel(
    problem: _Problem,
    block_index: Any,
    others: _Others,
    pair_terms: _PairTerms,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    gradient: Any,
    log_sums: Any,
    sums: Any,
    of_q: Any,
    *of_steps: Any,
) -> None:
    queries = _Queries(q, gradient, log_sums, sums).at(...)

    def step(other: Any, totals: tuple[Array, ...]) -> tuple[Array, ...]:
        total, *sums_of_steps = totals
        entries = pl.ds(other * problem.block, problem.block)
        keys = k[entries]
        _, of_scores, of_products = _weights_and_gradients(
            problem,
            pair_terms,
            queries,
            keys,
            v[entries],
            mask[entries],
            block_index,
            other,
        )
        sums_of_steps = [
            bias.add_sums(sums, of_scores, block_index, other)
            for bias, sums in zip(pair_terms.biases, sums_of_steps, strict=True)
        ]
        total += _product(of_products.astype(keys.dtype), keys, 1, 0)
        return total, *sums_of_steps

    start = jnp.zeros((problem.block, problem.width), jnp.float32)
    starts = [jnp.zeros(x.shape, jnp.float32) for x in of_steps]
    total, *sums_of_steps = others.over(step, (start, *starts))
    # The factor of the products, once for the whole sum.
    factor = product_factor(problem.scale)
    of_q[...] = (factor * total).astype(of_q.dtype)
    for result, value in zip(of_steps, sums_of_steps, strict=True):
        result[...] = value


def _keys_kernel(
    problem: _Problem,
    block_index: Any,
    others: _Others,
    pair_terms: _PairTerms,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    gradient: Any,
    log_sums: Any,
    sums: Any,
    of_k: Any,
    of_v: Any,
) -> None:
    keys, values, is_key = k[...], v[...], mask[...]
    rows = _Queries(q, gradient, log_sums, sums)

    def step(other: Any, totals: tuple[Array, Array]) -> tuple[Array, Array]:
        entries = pl.ds(other * problem.block, problem.block)
        queries = rows.at(entries)
        weights, _, of_products = _weights_and_gradients(
            problem,
            pair_terms,
            queries,
            keys,
            values,
            is_key,
            other,
            block_index,
        )
        return (
            totals[0]
            + _product(of_products.astype(keys.dtype), queries.q, 0, 0),
            totals[1]
            + _product(weights.astype(values.dtype), queries.of_out, 0, 0),
        )

    start = jnp.zeros((problem.block, problem.width), jnp.float32)
    for_keys, for_values = others.over(step, (start, start))
    factor = product_factor(problem.scale)
    of_k[...] = (factor * for_keys).astype(of_k.dtype)
    of_v[...] = for_values.astype(of_v.dtype)
