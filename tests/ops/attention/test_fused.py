"""Fused kernels against the dense reference: those of Pallas interpreted, cuDNN's arguments with
XLA's own implementation."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, PartitionSpec, use_abstract_mesh

from longsum_jax.errors import InputError
from longsum_jax.experimental.ops.patterns import KeyPattern, pattern_attention
from longsum_jax.ops.attention import fused, kernel_blocks, splash, triton
from longsum_jax.ops.attention.bigbird import bigbird_attention, random_block_plan
from longsum_jax.ops.attention.dense import QKV, CappedScale, dot_product_attention
from longsum_jax.ops.attention.fused import (
    choose_kernel,
    fused_attention,
    fused_part,
    row_size,
)
from longsum_jax.ops.attention.kernel_blocks import equal_blocks, tpu_block
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    WeightDropout,
    merge_partial_softmaxes,
)
from longsum_jax.ops.attention.local import (
    local_attention,
    local_distances,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.attention.longformer import longformer_attention
from longsum_jax.ops.attention.lsg import LsgSpec, lsg_attention
from longsum_jax.ops.attention.relative_position import (
    StepBias,
    bucket_steps,
    relative_position_bucket,
)
from longsum_jax.ops.attention.staggered import block_staggered_attention
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.random_masks import head_words, keep_pairs
from longsum_jax.ops.remat import SAVE_MARKED_POLICY
from longsum_plan.devices import find_target

B, H, K = 2, 2, 8
SCALE = 0.3
SIZES = {"num_queries": 512, "num_keys": 512, "head_dim": 64}
WORKER = Path(__file__).with_name("fused_worker.py")


def small_blocks(monkeypatch):
    """Several blocks in short texts."""
    monkeypatch.setattr(splash, "_MAX_BLOCK", 128)
    monkeypatch.setattr(kernel_blocks, "TPU_BLOCKS", (128,))
    monkeypatch.setattr(triton, "_BLOCK", 32)


def draw(num_queries, num_keys, mask_heads, causal=False):
    """Queries, keys, values, a gradient, and a mask: one row reads nothing, or no first keys."""
    rng = np.random.default_rng(num_queries)
    lengths = num_queries, num_keys, num_keys, num_queries
    arrays = [rng.normal(size=(B, n, H, K)).astype(np.float32) for n in lengths]
    if not mask_heads:
        return *arrays, None
    mask = rng.random((B, mask_heads, num_keys)) < 0.7
    mask[0] = False
    if causal:
        mask[1, :, :5] = False
    return *arrays, mask


def reference(q, k, v, mask, causal, scale=SCALE, seen=None):
    if seen is None:
        seen = np.ones((1, 1, 1, 1), bool) if mask is None else mask[:, :, None]
    if causal:
        seen = seen & np.tri(len(q[0]), dtype=bool)
    return dot_product_attention(q, k, v, mask=seen, scale=scale)


def assert_equal_with_gradients(function, twin, arrays, gradient):
    def with_gradients(attend):
        out, pull_back = jax.vjp(attend, *arrays)
        return out, *pull_back(gradient)

    result, expected = (jax.jit(lambda f=f: with_gradients(f))() for f in (function, twin))
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5)
    assert all(np.asarray(x[1]).any() for x in result)
    return result


def assert_same_values_and_gradients(
    function, q, k, v, gradient, mask, causal=False, scale=SCALE, seen=None
):
    options = {"scale": scale, "seen": seen}
    twin = functools.partial(reference, mask=mask, causal=causal, **options)
    result = assert_equal_with_gradients(function, twin, (q, k, v), gradient)
    if mask is not None:
        assert not np.asarray(result[0][0]).any()


def compute_cudnn_on_cpu(monkeypatch, *, writes_anything):
    """Replaces cuDNN by XLA, with gradients of even lengths alone, and of anything for keys that
    are not read."""
    kernel = jax.nn.dot_product_attention

    def on_cpu(q, k, v, *, implementation, **options):
        assert implementation == "cudnn"
        assert q.shape[1] % 2 == k.shape[1] % 2 == v.shape[1] % 2 == 0
        if writes_anything:
            k, v = (spoiled(x, options["key_value_seq_lengths"]) for x in (k, v))
        return kernel(q, k, v, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", on_cpu)


@jax.custom_vjp
def spoiled(x, counts):
    return x


def spoil(counts, gradient):
    is_read = jnp.arange(gradient.shape[1]) < counts[:, None]
    return jnp.where(is_read[..., None, None], gradient, jnp.nan), None


spoiled.defvjp(lambda x, counts: (x, counts), spoil)


@pytest.mark.parametrize("kernel", ["splash", "mosaic", "triton"])
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "mask_heads", "causal"),
    [
        (130, 200, 1, False),
        pytest.param(70, 300, 0, False, marks=pytest.mark.slow),
        pytest.param(70, 150, H, False, marks=pytest.mark.slow),  # a mask of its own for every head
        pytest.param(200, 200, 0, True, marks=pytest.mark.slow),
        pytest.param(150, 150, 1, True, marks=pytest.mark.slow),
    ],
)
def test_pallas_kernels_equal_the_reference_off_their_blocks(
    kernel, num_queries, num_keys, mask_heads, causal, monkeypatch
):
    small_blocks(monkeypatch)
    *arrays, gradient, mask = draw(num_queries, num_keys, mask_heads, causal)

    def attend(q, k, v):
        return fused_attention(q, k, v, mask, kernel=kernel, causal=causal, scale=SCALE)

    assert_same_values_and_gradients(attend, *arrays, gradient, mask, causal)


@pytest.mark.parametrize("kernel", ["splash", "mosaic", "triton"])
def test_pallas_kernels_cap_the_scores(kernel, monkeypatch):
    small_blocks(monkeypatch)
    *arrays, gradient, mask = draw(130, 200, 1)
    scale = CappedScale(1.5, 2.0)

    def attend(q, k, v):
        return fused_attention(q, k, v, mask, kernel=kernel, scale=scale)

    uncapped = np.einsum("bqhd,bkhd->bhqk", *arrays[:2]) * scale.factor
    assert (np.abs(uncapped) > 2 * scale.cap).mean() > 0.2  # the cap changes many scores
    assert_same_values_and_gradients(attend, *arrays, gradient, mask, scale=scale)


@pytest.mark.parametrize("kernel", ["splash", "mosaic", "triton"])
def test_patterns_may_be_causal(kernel, monkeypatch):
    small_blocks(monkeypatch)
    *arrays, gradient, _ = draw(70, 70, 0)

    def attend(q, k, v):
        return fused_attention(
            q, k, v, kernel=kernel, causal=True, pattern=within_nine, scale=SCALE
        )

    positions = np.arange(70)
    seen = within_nine(positions[:, None], positions)[None, None]
    assert_same_values_and_gradients(attend, *arrays, gradient, None, causal=True, seen=seen)


def within_nine(queries, keys):
    return (keys - queries <= 9) & (queries - keys <= 9)


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize(
    ("mask_heads", "scale", "rate"), [(1, SCALE, 0.4), (H, CappedScale(SCALE, 2.0), 0.0)]
)
def test_attention_to_parts_of_the_keys_is_merged(monkeypatch, kernel, mask_heads, scale, rate):
    small_blocks(monkeypatch)
    *arrays, gradient, mask = draw(70, 300, mask_heads)
    mask[1, :, 50:170] = False
    parts = [slice(0, 50), slice(50, 170), slice(170, 300)]
    dropouts = [WeightDropout(jax.random.key(i), rate) for i in range(3)]

    def attend(q, k, v):
        softmaxes = []
        for part, dropout in zip(parts, dropouts, strict=True):
            options = {"kernel": kernel, "scale": scale, "dropout": dropout}
            softmaxes.append(fused_part(q, k[:, part], v[:, part], mask[..., part], **options))
        return merge_partial_softmaxes(softmaxes)

    def drop(weights):
        columns = [weights[..., part] for part in parts]
        share = 1 - rate
        if rate:
            columns = [
                jnp.where(kept_pairs(x, dropout), x / share, 0)
                for x, dropout in zip(columns, dropouts, strict=True)
            ]
        return jnp.concatenate(columns, -1)

    def dense(q, k, v):
        return dot_product_attention(q, k, v, mask=mask[:, :, None], scale=scale, dropout=drop)

    assert_equal_with_gradients(attend, dense, arrays, gradient)


def kept_pairs(weights, dropout):
    """The weights [rows, heads, queries, keys] that a kernel does not drop."""
    rows, heads, num_queries, num_keys = weights.shape
    queries, keys = np.arange(num_queries)[:, None], np.arange(num_keys)[None]
    words = head_words(dropout.rng, rows, heads)
    share = 1 - dropout.rate
    return jax.vmap(jax.vmap(lambda x: keep_pairs((x[0], x[1]), queries, keys, share)))(words)


@pytest.mark.parametrize(
    ("kernel", "options", "names"),
    [
        ("splash", {"dropout": WeightDropout(jax.random.key(0), 0.5)}, "dropout"),
        (
            "cudnn",
            {"pattern": within_nine, "scale": CappedScale(1.0, 2.0)},
            "patterns and no soft caps",
        ),
        ("cudnn", {"biases": [StepBias(np.zeros((H, 1)), ())]}, "position biases"),
    ],
)
def test_arguments_that_a_kernel_would_ignore(kernel, options, names):
    *arrays, _, _ = draw(70, 70, 0)
    with pytest.raises(InputError, match=f'"{kernel}" has no {names}; take'):
        fused_attention(*arrays, kernel=kernel, **options)


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "mask_heads", "bidirectional", "options", "dtype"),
    [
        (130, 200, 1, True, {}, "float32"),
        (200, 200, 1, False, {"causal": True}, "float32"),
        pytest.param(300, 300, 0, False, {"causal": True}, "float32", marks=pytest.mark.slow),
        pytest.param(300, 70, 0, True, {"scale": CappedScale(1.5, 2.0)}, "float32",
                     marks=pytest.mark.slow),
        (130, 130, 1, True, {}, "bfloat16"),
    ],
)  # fmt: skip
def test_position_biases_are_made_inside_the_kernel(
    kernel, num_queries, num_keys, mask_heads, bidirectional, options, dtype, monkeypatch
):
    """Values and gradients, of the table of buckets too, against a dense bias in float32."""
    small_blocks(monkeypatch)
    causal = options.get("causal", False)
    *arrays, gradient, mask = draw(num_queries, num_keys, mask_heads, causal)
    arrays, gradient = [x.astype(dtype) for x in arrays], gradient.astype(dtype)
    table = np.random.default_rng(1).normal(size=(32, H)).astype(np.float32)
    buckets = {"bidirectional": bidirectional, "num_buckets": 32, "max_distance": 128}
    scale = options.get("scale", SCALE)

    def with_kernel(q, k, v, table):
        starts, numbers = bucket_steps(**buckets)
        bias = StepBias(table[jnp.array(numbers)].T, starts)
        return fused_attention(
            q, k, v, mask, kernel=kernel, causal=causal, biases=[bias], scale=scale
        )

    def reference(q, k, v, table):
        distances = np.arange(num_keys) - np.arange(num_queries)[:, None]
        bias = table[relative_position_bucket(distances, **buckets)]
        seen = np.ones((1, 1, 1, 1), bool) if mask is None else mask[:, :, None]
        if causal:
            seen = seen & np.tri(num_queries, dtype=bool)
        bias = jnp.moveaxis(bias, 2, 0)[None]
        return dot_product_attention(q, k, v, mask=seen, bias=bias, scale=scale)

    def with_gradients(attend, gradient, *arrays):
        out, pull_back = jax.vjp(attend, *arrays)
        return out, *pull_back(gradient)

    result = jax.jit(functools.partial(with_gradients, with_kernel))(gradient, *arrays, table)
    exact = (np.asarray(x, np.float32) for x in (gradient, *arrays, table))
    expected = jax.jit(functools.partial(with_gradients, reference))(*exact)
    for x, y in zip(result, expected, strict=True):
        # a bucket has the sum over all of its pairs
        tolerance = (1e-6 if dtype == "float32" else 8e-3) * max(1, np.abs(y).max())
        np.testing.assert_allclose(np.asarray(x, np.float32), y, rtol=0, atol=5 * tolerance)
    assert (np.abs(result[-1]).max(1) > 0.01).sum() > (20 if bidirectional else 25)
    if mask is not None:
        assert not np.asarray(result[0][0]).any()  # a row without a key
        assert not any(np.asarray(x[0]).any() for x in result[1:4])


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
def test_a_bias_beyond_the_exponentials_of_float32_keeps_gradients_finite(kernel):
    """Exponentials overflow from 89 on: blocks have positions after the last query, too."""
    *arrays, gradient, _ = draw(70, 130, 0)
    bias = StepBias(np.full((H, 1), 100, np.float32), starts=())

    def attend(q, k, v):
        return fused_attention(q, k, v, kernel=kernel, biases=[bias], scale=SCALE)

    # The softmax of scores that are all larger by a number is the same.
    assert_same_values_and_gradients(attend, *arrays, gradient, None)


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "mask_heads", "causal"),
    [
        (130, 200, 1, False),
        pytest.param(200, 200, 0, True, marks=pytest.mark.slow),
        (70, 150, H, False),
    ],
)
def test_weights_are_dropped_inside_the_kernel(
    kernel, num_queries, num_keys, mask_heads, causal, monkeypatch
):
    """Values and gradients against weights times the same mask, which has no blocks."""
    small_blocks(monkeypatch)
    *arrays, gradient, mask = draw(num_queries, num_keys, mask_heads, causal)
    dropout = WeightDropout(jax.random.key(3), 0.3)
    words = head_words(dropout.rng, B, H)
    positions = np.arange(num_queries)[:, None], np.arange(num_keys)[None]
    keep = jnp.array([[keep_pairs(tuple(x), *positions, 0.7) for x in row] for row in words])
    values = np.random.default_rng(1).normal(size=(H, 3)).astype(np.float32)
    starts = (-20, 5)

    def with_kernel(q, k, v, values):
        options = {"causal": causal, "dropout": dropout, "scale": SCALE}
        biases = [StepBias(values, starts)]
        return fused_attention(q, k, v, mask, kernel=kernel, biases=biases, **options)

    def reference(q, k, v, values):
        seen = np.ones((1, 1, 1, 1), bool) if mask is None else mask[:, :, None]
        if causal:
            seen = seen & np.tri(num_queries, dtype=bool)
        steps = np.searchsorted(starts, positions[1] - positions[0], side="right")
        options = {"dropout": lambda x: jnp.where(keep, x / 0.7, 0.0), "scale": SCALE}
        return dot_product_attention(q, k, v, mask=seen, bias=values[None, :, steps], **options)

    def with_gradients(attend):
        out, pull_back = jax.vjp(attend, *arrays, values)
        return out, *pull_back(gradient)

    result, expected = (
        jax.jit(functools.partial(with_gradients, x))() for x in (with_kernel, reference)
    )
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
    assert np.asarray(result[-1]).any(1).all()


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize(
    ("num_queries", "num_keys", "causal"),
    [(130, 200, False), pytest.param(200, 200, True, marks=pytest.mark.slow)],
)
def test_queries_of_packed_rows_read_their_segment(
    kernel, num_queries, num_keys, causal, monkeypatch
):
    """Values and gradients of causal attention to the row itself, and to sources."""
    small_blocks(monkeypatch)
    *arrays, gradient, mask = draw(num_queries, num_keys, 1, causal)
    # Borders within and between blocks; a segment of padding at the end of the second row.
    of_keys = np.sort(np.random.default_rng(1).integers(1, 5, (B, num_keys)), axis=1)
    of_queries = of_keys[:, :num_queries].copy()
    of_queries[1, -20:] = 0
    segment_ids = SegmentIds(of_keys.astype(np.int32), of_queries.astype(np.int32))

    def attend(q, k, v):
        options = {"causal": causal, "segment_ids": segment_ids, "scale": SCALE}
        return fused_attention(q, k, v, mask, kernel=kernel, **options)

    seen = mask[:, :, None] & (of_queries[:, None, :, None] == of_keys[:, None, None])
    assert_same_values_and_gradients(attend, *arrays, gradient, None, causal, seen=seen)


def test_windows_drop_weights_inside_the_kernel(monkeypatch):
    """Values are a constant, so that results are the shares of weights that stay."""
    small_blocks(monkeypatch)
    monkeypatch.setattr(fused, "MAX_ROW", 60)
    zeros, ones = np.zeros((B, LENGTH, H, K), np.float32), np.ones((B, LENGTH, H, K), np.float32)
    kernel = functools.partial(fused_attention, kernel="triton")

    @jax.jit
    def attend(rng):
        dropout = WeightDropout(rng, 0.25)
        options = {"radius": 20, "fused": kernel, "dropout": dropout}
        return local_attention(zeros, zeros, ones, np.ones((B, LENGTH), bool), **options)

    out = np.asarray(attend(jax.random.key(0)))[..., 0]
    inside = out[:, 20:-20]  # of 41 weights each
    counts = inside * 41 * 0.75
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-4)
    assert abs(inside.mean() - 1) < 0.03  # 6 standard deviations
    assert abs(counts.std() - np.sqrt(41 * 0.75 * 0.25)) < 0.3
    np.testing.assert_array_equal(np.asarray(attend(jax.random.key(0)))[..., 0], out)
    assert (np.asarray(attend(jax.random.key(1)))[..., 0] != out).mean() > 0.7


def test_wide_heads_have_smaller_blocks_on_gpus():
    rng = np.random.default_rng(0)
    *arrays, gradient = rng.normal(0, 0.4, (4, 1, 70, 1, 200)).astype(np.float32)

    def attend(q, k, v):
        return fused_attention(q, k, v, kernel="triton", scale=SCALE)

    assert_same_values_and_gradients(attend, *arrays, gradient, None)


@pytest.mark.parametrize(
    ("num_queries", "num_keys", "mask_heads", "causal"),
    [
        *((9, num_keys, mask_heads, False) for num_keys, mask_heads in ((13, 1), (13, H), (14, 0))),
        (10, 13, 0, False),
        (10, 14, 1, False),
        (9, None, 0, True),
        (10, None, 0, True),
    ],
)
def test_arguments_of_the_gpu_kernel_are_those_of_the_reference(
    num_queries, num_keys, mask_heads, causal, monkeypatch
):
    compute_cudnn_on_cpu(monkeypatch, writes_anything=mask_heads > 0)
    *arrays, gradient, mask = draw(num_queries, num_keys or num_queries, mask_heads)

    def attend(q, k, v):
        return fused_attention(q, k, v, mask, kernel="cudnn", causal=causal, scale=SCALE)

    assert_same_values_and_gradients(attend, *arrays, gradient, mask, causal)


@pytest.mark.parametrize("num_keys", [13, 14])
def test_states_are_moved_once_for_the_gpu_kernel(num_keys, monkeypatch):
    """Attention to moved states equals attention to the states, also if maps add biases."""
    compute_cudnn_on_cpu(monkeypatch, writes_anything=True)
    q, states, _, gradient, mask = draw(10, num_keys, 1)
    kernels, biases = np.random.default_rng(0).normal(size=(2, 2, H, K, K)).astype(np.float32)

    def attend(q, states, kernels):
        moved, counts = fused.move_keys_first(states, mask[:, 0])
        assert moved.shape[1] == 14
        k, v = project(moved, kernels)
        return fused_attention(q, k, v, counts, kernel="cudnn", scale=SCALE)

    def twin(q, states, kernels):
        return reference(q, *project(states, kernels), mask, causal=False)

    def project(states, kernels):
        return jnp.einsum("blhk,nhkj->nblhj", states, kernels) + biases[:, None, None, :, 0]

    assert_equal_with_gradients(attend, twin, (q, states, kernels), gradient)


@pytest.mark.parametrize(("length", "block", "padded"), [(1, 128, 128), (512, 512, 512),
    (513, 384, 768), (910, 512, 1024), (1030, 384, 1152), (16384, 512, 16384)])  # fmt: skip
def test_blocks_are_equal_and_hardly_padded(length, block, padded):
    size, count = equal_blocks(length, 512)
    assert (size, size * count) == (block, padded)


LENGTH, GLOBALS = 150, 3
TEXT_MASK = jnp.arange(LENGTH) < jnp.array([LENGTH, 90])[:, None]
KEY_MASK = TEXT_MASK & (np.abs(np.arange(LENGTH) - 40) > 30)  # some queries have no key nearby
GLOBAL_MASK = np.array([[True, False, True], [False] * 3])[:, None, None, None]


def window(tokens, global_tokens, **options):
    extra = [KeySet(global_tokens.k, global_tokens.v, GLOBAL_MASK)]
    return local_attention(*tokens, TEXT_MASK, radius=20, key_mask=KEY_MASK, extra=extra, **options)


def wide_window(tokens, _, **options):
    return local_attention(*tokens, TEXT_MASK, radius=LENGTH + 5, **options)


def window_and_first_tokens(tokens, _, **options):
    return pattern_attention(*tokens, TEXT_MASK, KeyPattern(9, num_global=2), **options)


def longformer(tokens, global_tokens, **options):
    indices = jnp.array([[0, -1, 50], [3, 4, 140]])
    global_tokens = tokens._replace(q=global_tokens.q)
    return longformer_attention(tokens, global_tokens, TEXT_MASK, indices, radius=20, **options)


def staggered(tokens, global_tokens, **options):
    sizes = {"block_size": 32, "stagger": True}
    return block_staggered_attention(tokens, global_tokens, TEXT_MASK, **sizes, **options)


def lsg(tokens, global_tokens, *, spec, **options):
    masks = {"mask": TEXT_MASK, "key_mask": TEXT_MASK & (np.arange(LENGTH) > 0)}
    return lsg_attention(tokens, global_tokens, spec=spec, **masks, **options)


def slow(*arguments):
    return pytest.param(*arguments, marks=pytest.mark.slow)


# Rows of queries and kernels are independent: further attentions take turns with the kernels.
@pytest.mark.parametrize(
    ("kernel", "attention"),
    [
        ("mosaic", window),
        ("triton", window),
        ("mosaic", staggered),
        ("triton", staggered),
        ("mosaic", functools.partial(lsg, spec=LsgSpec(16, 12, 4, "norm"))),  # keys differ by head
        ("triton", functools.partial(lsg, spec=LsgSpec(16, 12, 4, "norm"))),
        slow("triton", wide_window),
        slow("mosaic", window_and_first_tokens),
        slow("triton", longformer),
        slow("mosaic", functools.partial(lsg, spec=LsgSpec(16, 0))),
        slow("splash", window),
        slow("triton", functools.partial(lsg, spec=LsgSpec(12, 14, 4, "pooling", causal=True))),
        slow("mosaic", functools.partial(lsg, spec=LsgSpec(8, 40, 2, "stride"))),
    ],
)
def test_pallas_kernels_compute_sparse_attention_in_rows(kernel, attention, monkeypatch):
    small_blocks(monkeypatch)
    monkeypatch.setattr(fused, "MAX_ROW", 60)
    rng = np.random.default_rng(0)

    def draw_tokens(length):
        return QKV(*rng.normal(size=(3, B, length, H, K)).astype(np.float32))

    arrays = draw_tokens(LENGTH), draw_tokens(GLOBALS)

    def gradients(kernel):
        out, pull_back = jax.vjp(functools.partial(attention, scale=SCALE, fused=kernel), *arrays)
        return out, pull_back(jax.tree.map(jnp.cos, out))

    fused_kernel = functools.partial(fused_attention, kernel=kernel)
    traced, reference = (
        jax.jit(gradients, static_argnums=0).trace(name) for name in (fused_kernel, None)
    )
    assert f"name={kernel}" in str(traced.jaxpr)
    result, expected = (jax.tree.leaves(x.lower().compile()()) for x in (traced, reference))
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-5)
    assert all(np.asarray(x).any() for x in result[:4])


# blocks of 16 tokens, which differ by head
PLAN = random_block_plan(np.random.default_rng(0), 10, H, 2)
BUCKETS = {"bidirectional": True, "num_buckets": 32, "max_distance": 16}


def dense_bias(table, distances):
    return jnp.moveaxis(table[relative_position_bucket(distances, **BUCKETS)], -1, 0)


def step_bias(table):
    starts, numbers = bucket_steps(**BUCKETS)
    return StepBias(table[jnp.array(numbers)].T, starts)


@pytest.mark.parametrize("kernel", ["mosaic", "triton"])
@pytest.mark.parametrize("has_globals", [True, False])
def test_windows_have_position_biases_inside_the_kernel(kernel, has_globals, monkeypatch):
    """LongT5's attentions in rows, with gradients of both tables of buckets."""
    small_blocks(monkeypatch)
    monkeypatch.setattr(fused, "MAX_ROW", 60)
    rng = np.random.default_rng(0)
    block_ids, global_mask = transient_blocks(TEXT_MASK, 8)
    num_globals = global_mask.shape[1]
    tokens = QKV(*rng.normal(size=(3, B, LENGTH, H, K)).astype(np.float32))
    keys = rng.normal(size=(2, B, num_globals, H, K)).astype(np.float32)
    tables = rng.normal(size=(2, 32, H)).astype(np.float32)

    def attend(kernel, tokens, keys, tables):
        options = {"radius": 20, "scale": SCALE}
        options["bias"] = dense_bias(tables[0], local_distances(24, 20))
        if kernel:
            steps = [step_bias(table) for table in tables]
            options |= {"fused": kernel, "steps": steps if has_globals else steps[:1]}
        if not has_globals:
            return local_attention(*tokens, TEXT_MASK, **options)
        side_bias = dense_bias(tables[1], side_distances(num_globals))
        global_keys = KeySet(*keys, global_mask[:, None, None, None])
        return transient_global_attention(
            tokens, TEXT_MASK, block_ids, global_keys, side_bias=side_bias, **options
        )

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradients(kernel, *arrays):
        out, pull_back = jax.vjp(functools.partial(attend, kernel), *arrays)
        return out, pull_back(jnp.cos(out))

    attend_fused = functools.partial(fused_attention, kernel=kernel)
    result, expected = (
        jax.tree.leaves(with_gradients(x, tokens, keys, tables)) for x in (attend_fused, None)
    )
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-5)
    num_used = (np.abs(np.asarray(result[-1])).max(2) > 0.01).sum(1).tolist()
    assert num_used == [31, 31 if has_globals else 0]  # no pair has bucket 16


def twin(q, k, v, mask, *, dropout, scale, biases=(), pattern=None, segment_ids=None):
    """Computes ``fused_attention`` by arrays of all pairs."""
    rows, num_queries, heads, _ = q.shape
    queries, keys = np.arange(num_queries)[:, None], np.arange(k.shape[1])[None]
    seen = mask[:, :, None]
    if pattern is not None:
        seen = seen & pattern(queries, keys)
    if segment_ids is not None:
        seen = seen & segment_ids.mask()
    total = jnp.zeros((rows, heads, num_queries, k.shape[1]))
    for bias in biases:
        positions = queries[None] if bias.queries is None else bias.queries[..., None]
        steps = np.searchsorted(bias.starts, np.arange(-1000, 1000), side="right")
        entries = jnp.array(steps)[keys - positions - bias.origin + 1000]
        inside = (keys >= bias.first_key) & (keys < (bias.end_key or k.shape[1]))
        total += jnp.where(inside, jnp.moveaxis(bias.values[:, entries], 0, 1), 0)
    drop = lambda x: jnp.where(kept_pairs(x, dropout), x / (1 - dropout.rate), 0.0)  # noqa: E731
    return dot_product_attention(q, k, v, mask=seen, bias=total, scale=scale, dropout=drop)


def biased_lsg(spec, tokens, global_tokens, table, fused, **options):
    bias = dense_bias(table, local_distances(spec.block_size, spec.block_size))
    steps = [step_bias(table)] if fused else []
    return lsg(tokens, global_tokens, spec=spec, bias=bias, steps=steps, fused=fused, **options)


def biased_longformer(tokens, global_tokens, table, fused, **options):
    bias = dense_bias(table, local_distances(24, 20))
    steps = [step_bias(table)] if fused else []
    return longformer(tokens, global_tokens, bias=bias, steps=steps, fused=fused, **options)


def biased_staggered(tokens, global_tokens, table, fused, **options):
    bias = dense_bias(table, np.arange(32) - np.arange(32)[:, None])
    steps = [step_bias(table)] if fused else []
    return staggered(tokens, global_tokens, bias=bias, steps=steps, fused=fused, **options)


def biased_window_and_first_tokens(tokens, _, table, fused, **options):
    bias = dense_bias(table, np.arange(1 - LENGTH, LENGTH))
    steps = [step_bias(table)] if fused else []
    options |= {"distance_bias": bias, "steps": steps, "fused": fused}
    return window_and_first_tokens(tokens, _, **options)


def bigbird(random_blocks, tokens, _, table, fused, **options):
    bias = dense_bias(table, local_distances(16, 16))
    steps = [step_bias(table)] if fused else []
    options |= {"random_blocks": random_blocks, "bias": bias, "steps": steps, "fused": fused}
    return bigbird_attention(*tokens, TEXT_MASK, block_size=16, **options)


def packed_window(tokens, _, table, fused, **options):
    bias = dense_bias(table, local_distances(24, 20))
    steps = [step_bias(table)] if fused else []
    ids = np.sort(np.random.default_rng(1).integers(1, 6, (B, LENGTH)), axis=1).astype(np.int32)
    options |= {"segment_ids": ids, "bias": bias, "steps": steps, "fused": fused}
    return local_attention(*tokens, TEXT_MASK, radius=20, **options)


@pytest.mark.parametrize(
    ("kernel", "rate", "attention"),
    [
        # keys differ by head
        ("triton", 0.0, functools.partial(biased_lsg, LsgSpec(16, 12, 4, "norm"))),
        ("mosaic", 0.3, functools.partial(biased_lsg, LsgSpec(16, 12, 4, "norm"))),
        ("triton", 0.3, packed_window),
        ("triton", 0.3, biased_staggered),
        # the first block in place of random ones
        ("triton", 0.0, functools.partial(bigbird, 3)),
        slow("mosaic", 0.0, functools.partial(bigbird, 3)),
        slow("triton", 0.0, packed_window),
        slow("triton", 0.3, functools.partial(biased_lsg, LsgSpec(16, 12, 4, "norm"))),
        *(
            slow(kernel, rate, attention)
            for kernel, rate in (("triton", 0.0), ("triton", 0.3), ("mosaic", 0.0))
            for attention in (
                functools.partial(bigbird, PLAN),
                functools.partial(biased_lsg, LsgSpec(12, 14, 4, "pooling", causal=True)),
                biased_longformer,
                biased_staggered,
                biased_window_and_first_tokens,
            )
            if (kernel, rate, attention) != ("triton", 0.3, biased_staggered)
        ),
    ],
)
def test_sparse_attention_has_biases_dropout_and_segments_inside_the_kernel(
    kernel, rate, attention, monkeypatch
):
    """Without dropout against key sets, with dropout against the same rows of all pairs: values,
    and gradients of the table of buckets, too."""
    small_blocks(monkeypatch)
    monkeypatch.setattr(fused, "MAX_ROW", 60)
    rng = np.random.default_rng(0)
    lengths = LENGTH, GLOBALS
    tokens = [QKV(*rng.normal(size=(3, B, n, H, K)).astype(np.float32)) for n in lengths]
    table = rng.normal(size=(32, H)).astype(np.float32)
    options = {"scale": SCALE}
    if rate:
        options["dropout"] = WeightDropout(jax.random.key(2), rate)

    @functools.partial(jax.jit, static_argnums=0)
    def with_gradients(kernel, *arrays):
        attend = functools.partial(attention, fused=kernel, **options)
        out, pull_back = jax.vjp(attend, *arrays)
        return out, pull_back(jax.tree.map(jnp.cos, out))

    functions = functools.partial(fused_attention, kernel=kernel), twin if rate else None
    result, expected = (jax.tree.leaves(with_gradients(x, *tokens, table)) for x in functions)
    for x, y in zip(result, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-5)
    assert (np.abs(np.asarray(result[-1])).max(1) > 0.01).sum() > 15


@pytest.mark.parametrize(
    ("length", "margin", "size"),
    [(16384, 1024, 4096), (5000, 1024, 2504), (100, 1024, 104), (9000, 4000, 4504)],
)
def test_rows_are_equal_and_hold_their_margins(length, margin, size):
    assert row_size(length, margin=margin, multiple=8) == size


def test_rows_are_longer_on_tpus():
    with target("TPU v5 lite", "tpu"):
        assert row_size(16384, margin=1024) == 16384
        assert row_size(32768, margin=1024) == 16384


def target(kind, platform):
    device = AbstractDevice(kind, None, platform)
    mesh = AbstractMesh((1,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)
    return use_abstract_mesh(mesh)


@pytest.mark.parametrize(
    ("kind", "platform", "dtype", "kernel"),
    [
        ("TPU v5 lite", "tpu", "bfloat16", "mosaic"),
        ("TPU v5 lite", "tpu", "float32", None),
        ("NVIDIA H200", "cuda", "bfloat16", "cudnn"),
        ("NVIDIA A100-SXM4-40GB", "cuda", "float16", "cudnn"),
        ("NVIDIA H200", "cuda", "float32", None),
        ("NVIDIA L40S", "cuda", "bfloat16", "cudnn"),
        ("NVIDIA GeForce RTX 3090", "cuda", "bfloat16", "cudnn"),
        ("NVIDIA RTX A6000", "cuda", "bfloat16", "cudnn"),
        ("NVIDIA GeForce RTX 2080 Ti", "cuda", "float16", None),
        ("Tesla T4", "cuda", "float16", None),
        ("Tesla V100-SXM2-16GB", "cuda", "bfloat16", None),
        ("AMD Instinct MI300X", "rocm", "bfloat16", None),
        ("cpu", "cpu", "bfloat16", None),
    ],
)
def test_kernel_is_that_of_the_devices_and_of_the_type(kind, platform, dtype, kernel):
    with target(kind, platform):
        options = {"causal": False, "has_mask": True}
        assert choose_kernel("auto", dtype, **SIZES, **options).kernel == kernel
        assert choose_kernel("reference", dtype, **SIZES, **options).kernel is None
        of_parts = choose_kernel("auto", dtype, **SIZES, **options, has_parts=True)
        assert of_parts.kernel == (kernel and {"cudnn": "triton"}.get(kernel, kernel))
        for change in (
            {"has_pattern": True},
            {"causal": True},
            {"has_cap": True},
        ):
            of_some_keys = choose_kernel("auto", dtype, **(SIZES | options | change)).kernel
            assert of_some_keys == ("triton" if kernel == "cudnn" else kernel)
        # heads that fill the lanes of a TPU; more queries than our kernel takes
        for change in ({"head_dim": 256}, {"num_queries": 100_000}):
            large = choose_kernel("auto", dtype, **(SIZES | options | change)).kernel
            gpu = "triton" if "head_dim" in change else "cudnn"
            assert large == {"cudnn": gpu, "mosaic": "splash"}.get(kernel)
        with_bias = choose_kernel("auto", dtype, **SIZES, **options, has_bias=True)
        assert with_bias.kernel == ("triton" if kernel == "cudnn" else kernel)
        with_dropout = choose_kernel("auto", dtype, **SIZES, **options, has_dropout=True)
        assert with_dropout.kernel == with_bias.kernel


@pytest.mark.parametrize(
    ("backend", "change", "is_fused"),
    [
        ("splash", {}, True),
        ("splash", {"num_queries": 32}, False),
        ("splash", {"num_keys": 100}, False),
        ("splash", {"head_dim": 80, "causal": True}, True),
        ("splash", {"dtype": "float32"}, True),
        ("splash", {"dtype": "float16"}, False),
        ("cudnn", {}, True),
        ("cudnn", {"dtype": "float16"}, True),
        ("cudnn", {"dtype": "float32"}, False),
        ("cudnn", {"head_dim": 60}, False),
        ("cudnn", {"head_dim": 256}, False),
        ("cudnn", {"causal": True}, False),
        ("cudnn", {"causal": True, "has_mask": False}, True),
        ("splash", {"has_pattern": True}, True),
        ("cudnn", {"has_pattern": True}, False),
        ("cudnn", {"has_cap": True}, False),
        ("cudnn", {"has_bias": True}, False),
        ("splash", {"has_bias": True}, False),
        ("cudnn", {"has_dropout": True}, False),
        ("splash", {"has_dropout": True}, False),
        ("splash", {"has_segments": True}, False),
        ("mosaic", {"has_segments": True}, True),
        ("cudnn", {"has_segments": True}, False),
        ("triton", {"has_segments": True}, True),
        ("mosaic", {"has_dropout": True, "dtype": "float32"}, True),
        ("mosaic", {"has_bias": True, "causal": True}, True),
        ("mosaic", {"dtype": "float16"}, False),
        ("mosaic", {"head_dim": 8}, True),
        ("mosaic", {"head_dim": 7}, False),
        ("mosaic", {"num_queries": 65536}, True),
        ("mosaic", {"num_queries": 65537}, False),
        ("mosaic", {"head_dim": 512, "num_queries": 8192}, True),
        ("mosaic", {"head_dim": 512, "num_queries": 8192, "dtype": "float32"}, False),
        ("mosaic", {"head_dim": 2048, "num_queries": 1024}, True),
        ("mosaic", {"head_dim": 2048, "num_queries": 2048}, False),
        ("triton", {"has_dropout": True}, True),
        ("triton", {"has_bias": True}, True),
        ("splash", {"has_cap": True}, True),
        ("triton", {"has_cap": True}, True),
        ("triton", {"has_pattern": True}, True),
        ("triton", {"causal": True}, True),
        ("triton", {"dtype": "float32"}, False),
        ("triton", {"head_dim": 256}, True),
        ("triton", {"head_dim": 264}, False),
    ],
)
def test_a_kernel_that_is_named_is_taken_where_it_can_be(backend, change, is_fused):
    options = SIZES | {"dtype": "bfloat16", "causal": False, "has_mask": True} | change
    with target("NVIDIA H200", "cuda"):
        choice = choose_kernel(backend, **options)
    assert choice.kernel == (backend if is_fused else None)


def test_kernels_of_gpus_are_not_for_other_devices():
    with pytest.raises(InputError, match='"cudnn", but the program is for the platform "cpu"'):
        choose_kernel("cudnn", jnp.bfloat16, **SIZES, causal=False, has_mask=True)


@pytest.mark.parametrize(
    ("kernel", "forward"),
    [
        ("splash", "splash_mha_fwd"),
        ("mosaic", "mosaic_attention_forward"),
        ("triton", "triton_attention_forward"),
    ],
)
def test_layers_that_are_computed_again_keep_what_the_kernel_returns(kernel, forward):
    """The policy of layers without ``remat``: the backward pass runs no forward kernel."""

    def gradients(policy):
        def layer(x, _):
            return fused_attention(x, x, x, kernel=kernel), None

        def loss(x):
            return jax.lax.scan(jax.checkpoint(layer, policy=policy), x, length=2)[0].sum()

        return str(jax.make_jaxpr(jax.grad(loss))(np.ones((B, 128, H, K), np.float32)))

    counts = [gradients(policy).count(f"name={forward}") for policy in (SAVE_MARKED_POLICY, None)]
    assert counts == [1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("device", "radius", "kind", "num_kernels", "num_products"),
    [
        pytest.param("v5e", 0, "plain", 2, 7, marks=pytest.mark.tpu_compiler),
        pytest.param("v5e", 0, "biased", 2, 7, marks=pytest.mark.tpu_compiler),
        pytest.param("h200", 0, "plain", 2, 7, marks=pytest.mark.cuda_compiler),
        pytest.param("h200", 0, "biased", 3, 9, marks=pytest.mark.cuda_compiler),
        # 99 KiB of shared memory
        pytest.param("l4", 0, "biased", 3, 9, marks=pytest.mark.cuda_compiler),
        pytest.param("a100-40", 0, "packed", 3, 9, marks=pytest.mark.cuda_compiler),
        # Each block of 64 queries reads 9 blocks of keys, of 256.
        pytest.param("h200", 256, "plain", 3, 9 * 9 / 256, marks=pytest.mark.cuda_compiler),
    ],
)
def test_kernels_compile_without_scores_in_memory(
    run_worker, device, radius, kind, num_kernels, num_products
):
    report = run_worker(WORKER, device, radius, kind, strict=False)
    assert report["kernels"] == num_kernels
    assert report["products"] == num_products
    assert report["temporary"] < report["scores"] / 20


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_tpu_kernel_compiles_on_a_mesh():
    """Four chips with two rows and half of the heads each; nothing moves between them."""
    devices = find_target("v5e:2x2").devices
    mesh = jax.make_mesh((2, 2), ("rows", "heads"), axis_types=(AxisType.Auto,) * 2,
                         devices=devices)  # fmt: skip
    spec = PartitionSpec("rows", None, "heads", None)
    array = jax.ShapeDtypeStruct((4, 512, 4, 64), jnp.bfloat16,
                                 sharding=jax.NamedSharding(mesh, spec))  # fmt: skip

    def loss(q, k, v):
        return fused_attention(q, k, v, kernel="splash", causal=True, spec=spec)

    with jax.set_mesh(mesh):
        text = jax.jit(loss).lower(*[array] * 3).compile().as_text()
    assert "tpu_custom_call" in text
    assert not any(name in text for name in ("all-gather", "all-reduce", "all-to-all"))


@pytest.mark.weekly
@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("num_queries", "head_dim", "block"), [(14464, 256, 512), (8192, 512, 256)]
)
def test_the_largest_heads_fit_in_the_memory_of_a_tpu(num_queries, head_dim, block):
    """With all that needs memory; a v5p uses the most."""
    assert tpu_block(num_queries, head_dim, 2) == block
    assert tpu_block(num_queries + 128, head_dim, 2) != block
    device, *_ = find_target("v5p").devices
    sharding = jax.sharding.SingleDeviceSharding(device)
    array = functools.partial(jax.ShapeDtypeStruct, sharding=sharding)
    tokens = array((1, num_queries, 1, head_dim), jnp.bfloat16)
    ids = array((1, num_queries), jnp.int32)
    starts, _ = bucket_steps(bidirectional=True, num_buckets=32, max_distance=128)

    def loss(tokens, values, ids):
        return fused_attention(
            tokens,
            tokens,
            tokens,
            kernel="mosaic",
            causal=True,
            biases=[StepBias(values, starts, queries=ids)],
            dropout=WeightDropout(jax.random.key(0), 0.1),
            segment_ids=SegmentIds(ids, ids),
        ).astype(jnp.float32).sum()  # fmt: skip

    with jax.default_device(device):
        gradients = jax.jit(jax.grad(loss, (0, 1)))
        gradients.lower(tokens, array((1, len(starts) + 1), jnp.float32), ids).compile()


@pytest.mark.weekly
@pytest.mark.tpu_compiler
# The reference of the window takes a fifth of all scores, twenty times as much as is allowed here.
@pytest.mark.parametrize(("name", "most"), [("window", 0.0097), ("lsg", 1 / 20)])
def test_sparse_attention_compiles_with_little_memory(name, most):
    device, *_ = find_target("v5e").devices
    length, heads = 16384, 4
    sharding = jax.sharding.SingleDeviceSharding(device)

    def tokens(length):
        x = jax.ShapeDtypeStruct((1, length, heads, 64), jnp.bfloat16, sharding=sharding)
        return QKV(x, x, x)

    def attend(tokens, global_tokens, mask, kernel):
        if name == "window":
            extra = [KeySet(global_tokens.k, global_tokens.v)]
            return local_attention(*tokens, mask, radius=256, extra=extra, fused=kernel)
        spec = LsgSpec(128, 64, 2, "stride")
        return lsg_attention(tokens, global_tokens, mask, spec, fused=kernel)[0]

    def program(kernel):
        def loss(*arrays):
            return attend(*arrays, kernel).astype(jnp.float32).sum()

        mask = jax.ShapeDtypeStruct((1, length), bool, sharding=sharding)
        gradients = jax.jit(jax.value_and_grad(loss, (0, 1)))
        with jax.default_device(device):
            return gradients.lower(tokens(length), tokens(1), mask)

    compiled = program(functools.partial(fused_attention, kernel="splash")).compile()
    assert "tpu_custom_call" in compiled.as_text()
    assert "tpu_custom_call" not in program(None).as_text()
    scores = 4 * heads * length**2  # bytes of one array of all of them
    assert compiled.memory_analysis().temp_size_in_bytes < most * scores
