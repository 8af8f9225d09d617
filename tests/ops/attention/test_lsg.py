"""LSG attention against the published code, and against dense attention under masks made from its
description."""

import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.ops.attention import lsg, lsg_selection
from longsum_jax.ops.attention.dense import QKV
from longsum_jax.ops.attention.lsg import (
    LsgSpec,
    lsg_attention,
    lsg_self_attention,
)
from longsum_jax.ops.attention.lsg_selection import chunk_size, lsh_projections, sparse_keys
from longsum_plan.devices import find_target

GOLDEN = Path(__file__).parents[2] / "golden" / "lsg"
CASES = json.loads((GOLDEN / "attn_core_cases.json").read_text())
KINDS = ("norm", "lsh", "pooling", "stride", "block_stride", "bos_pooling")
GROUPS = [(kind, causal) for kind in (*KINDS, "none") for causal in (False, True)]
B, H, K, SCALE = 2, 4, 8, 8**-0.5


def attend_lsg(*arrays_and_mask, **options):
    """``lsg_attention`` of six arrays and a mask; fields of ``LsgSpec`` are among the options."""
    *arrays, mask = arrays_and_mask
    fields = {name: options.pop(name) for name in LsgSpec._fields if name in options}
    tokens, global_tokens = QKV(*arrays[:3]), QKV(*arrays[3:])
    return lsg_attention(tokens, global_tokens, mask, LsgSpec(**fields), **options)


# Against the published code


def golden_call(case, arrays, **options):
    """(function of q, k, v [B, G + L, H, K] and a mask -> [B, G + L, H K], its arguments, which
    rows count)."""
    inputs, name, count = case["inputs"], case["name"], case["num_global_tokens"]
    q, k, v = (arrays[f"{inputs}/{x}"].swapaxes(1, 2) for x in "qkv")
    mask = arrays[f"{inputs}/mask"].astype(bool) | (not case["masked"])
    projections = tuple(arrays[f"{name}/R{i}"][0, :, 0] for i in range(case["n_random"]))
    names = ("block_size", "sparse_block_size", "sparsity_factor", "sparsity_type", "causal")
    options = (
        {key: case[key] for key in names} | {"projections": projections, "scale": SCALE} | options
    )

    def call(q, k, v, mask):
        text, tokens = (
            [x[:, part] for x in (q, k, v)] for part in (slice(count, None), slice(count))
        )
        text, tokens = attend_lsg(*text, *tokens, mask, **options)
        out = jnp.concatenate([tokens, text], 1)
        return out.reshape(*out.shape[:2], -1)

    counts = np.concatenate([np.ones((B, count), bool), mask], 1)[..., None]
    return call, (q, k, v, mask), counts


def check_golden(case, arrays):
    """Values and, where they are stored, gradients, as published: its defects included."""
    name = case["name"]
    call, inputs, counts = golden_call(case, arrays, reference_quirks=True)
    cotangent = (arrays[f"{case['inputs']}/dout"] * counts).astype(np.float32)

    def outputs_and_gradients(q, k, v, mask):
        out, pull_back = jax.vjp(lambda *x: call(*x, mask), q, k, v)
        return (out, *pull_back(cotangent)) if f"{name}/dq" in arrays else (out,)

    result, *gradients = jax.jit(outputs_and_gradients)(*inputs)
    tolerance = 1e-5  # pooling divides by the count + 1e-6 there
    np.testing.assert_allclose(
        result * counts, arrays[f"{name}/out"] * counts, atol=tolerance, err_msg=name
    )
    for gradient, letter in zip(gradients, "qkv", strict=False):
        expected = arrays[f"{name}/d{letter}"].swapaxes(1, 2)
        np.testing.assert_allclose(gradient, expected, atol=2e-5, err_msg=f"{name} d{letter}")


def is_wrong_there(case):
    """Where the published code departs from its description: a step of one key, and padding seen by
    bos_pooling.

    Padding comes last, so that causal attention has none to see.
    """
    pooled = (
        case["sparsity_type"] == "bos_pooling"
        or case["sparsity_factor"] == case["sparse_block_size"]
    )
    shifted = case["sparsity_factor"] == case["block_size"]
    return (
        case["sparsity_type"] != "none"
        and not case["causal"]
        and (shifted or (pooled and case["masked"]))
    )


@pytest.fixture(scope="module")
def arrays():
    with np.load(GOLDEN / "attn_core.npz") as file:
        return dict(file)


def shows_more(case):
    """Whether a case shows more than its like; the weekly test has the others, too.

    What the number of globals, the size of blocks, a lower factor and full masks change is the same
    for every selection.
    """
    like_others = case["block_size"] == case["sparse_block_size"] == 8 and case["masked"]
    plain = like_others and case["num_global_tokens"] == 1 and case["sparsity_factor"] != 2
    return plain or (case["sparsity_type"] == "norm" and not case["causal"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "causal"), GROUPS)
def test_as_published(kind, causal, arrays):
    cases = [
        case
        for case in CASES
        if (case["sparsity_type"], case["causal"]) == (kind, causal) and shows_more(case)
    ]
    assert any(f"{case['name']}/dq" in arrays for case in cases)
    for case in cases:
        check_golden(case, arrays)


@pytest.mark.weekly
def test_further_published_cases(arrays):
    for case in CASES:
        if not shows_more(case):
            check_golden(case, arrays)


@pytest.mark.slow
def test_without_quirks_only_the_defects_differ(arrays):
    """One case of each defect, and one without; ``out_fixed`` is bos_pooling without seen
    padding."""
    cases = [
        case
        for case in CASES
        if "f4_g1_mask_long" in case["name"] or "f8_g1_mask_long" in case["name"]
    ]
    defects = {
        (case["sparsity_type"], case["sparsity_factor"]): case
        for case in cases
        if is_wrong_there(case)
    }
    assert len(defects) == 5
    fine = next(
        case for case in cases if case["sparsity_type"] == "norm" and not is_wrong_there(case)
    )
    for case in (fine, *defects.values()):
        name = case["name"]
        call, inputs, counts = golden_call(case, arrays)
        result, published = (
            np.asarray(jax.jit(call)(*inputs)) * counts,
            arrays[f"{name}/out"] * counts,
        )
        if case["has_fixed"] and "f8" not in name:
            np.testing.assert_allclose(
                result, arrays[f"{name}/out_fixed"] * counts, atol=5e-6, err_msg=name
            )
        if case is fine:
            np.testing.assert_allclose(result, published, atol=5e-6, err_msg=name)
        else:
            assert np.abs(result - published).max() > 1e-3, name


@pytest.mark.shared_data
@pytest.mark.slow
def test_all_published_cases(shared_data):
    directory = shared_data.parent / "golden" / "lsg"
    with np.load(directory / "attn_core.npz") as file:
        every = dict(file)
    for case in json.loads((directory / "attn_core_cases.json").read_text()):
        check_golden(case, every)


# Against dense attention


def mixtures(kind, q, k, seen, *, factor, block, sparse_block, projections):
    """What each sparse key is made of, by the description of its selection: weights [B, H, M, L],
    seen [B, H, M]."""
    length = k.shape[1]
    weights = np.zeros((B, H, length // factor, length))
    sizes = [
        n
        for n in range(factor, block + 1, factor)
        if block % n == 0 and n <= max(min(block, sparse_block), factor)
    ]
    chunk = max(sizes)
    if kind == "lsh" and chunk // factor < 2:
        kind = "bos_pooling"
    for b, h in np.ndindex(B, H):
        rows = weights[b, h]
        for m in range(length // factor):
            group = np.arange(m * factor, (m + 1) * factor)
            real = group[seen[b, group]]
            if kind == "stride":
                rows[m, group[h % factor]] = 1
            elif kind == "pooling" and len(real):
                rows[m, real] = 1 / len(real)
            elif kind == "bos_pooling" and len(real):
                scores = np.exp(k[b, real, h] @ q[b, 0, h] * SCALE)
                rows[m, real] = scores / scores.sum()
        if kind == "block_stride":
            run = block // factor
            for m in range(length // factor):
                rows[m, m // run * block + (m % run + h * run) % block] = 1
        if kind in ("norm", "lsh"):
            for start in range(0, length, chunk):
                part = rows[start // factor : (start + chunk) // factor]
                (_longest if kind == "norm" else _clustered)(
                    part, k[b, :, h], seen[b], start, chunk, [r[h] for r in projections]
                )
    if factor == 1:
        weights[:] = np.eye(length)
    return weights, np.einsum("bhml,bl->bhm", weights > 0, seen) > 0


def _longest(rows, k, seen, start, chunk, _):
    order = sorted(range(start, start + chunk), key=lambda i: (not seen[i], -np.linalg.norm(k[i])))
    for row, i in zip(rows, sorted(order[: len(rows)]), strict=True):
        row[i] = 1


def _clustered(rows, k, seen, start, chunk, projections):
    members = {i: ([i], k[i]) for i in range(start, start + chunk) if seen[i]}
    for directions in projections:
        buckets = {}
        for tokens, total in members.values():
            products = total @ directions
            bucket = int(np.argmax(np.concatenate([products, -products])))
            old_tokens, old_total = buckets.get(bucket, ([], 0))
            buckets[bucket] = (old_tokens + tokens, old_total + total)
        members = buckets
    for bucket, (tokens, _) in members.items():
        rows[bucket, tokens] = 1 / len(tokens)


def sentence_masks(length, seen, sparse_seen, *, factor, block, sparse_block, causal):
    """A query sees the tokens of three blocks (two, none later, if causal) and the S sparse keys
    nearest to them.

    bool [B, 1, L, L] and [B, H, L, M]. Sparse key m stands for tokens m f to (m + 1) f.
    """
    tokens = np.zeros((length, length), bool)
    sparse = np.zeros((length, sparse_seen.shape[2]), bool)
    first = np.arange(sparse_seen.shape[2]) * factor
    for i in range(length):
        start, end = (i // block - 1) * block, (i // block + 2) * block
        tokens[i, max(start, 0) : (i + 1 if causal else end)] = True
        left, right = np.flatnonzero(first + factor <= start), np.flatnonzero(first >= end)
        sparse[i, left[max(0, len(left) - sparse_block) :]] = True
        if not causal:
            sparse[i, right[:sparse_block]] = True
    return tokens & seen[:, None, None], sparse & sparse_seen[:, :, None]


def attend(q, k, v, seen, xp):
    """softmax(q k) v [B, T, H, K] over what is seen, bool [B, H or 1, T, L]; some key always is."""
    scores = xp.where(seen, xp.einsum("bthk,blhk->bhtl", q, k) * SCALE, -1e30)
    weights = xp.exp(scores - scores.max(-1, keepdims=True))
    return xp.einsum("bhtl,blhk->bthk", weights / weights.sum(-1, keepdims=True), v)


def dense(
    q, k, v, global_q, global_k, global_v, mask, mixture, *, factor, block, sparse_block, causal
):
    """LSG attention by one dense softmax; gradients flow but for those through the choice of a
    ``mixture``.

    In numpy, which needs no compiling, unless gradients are wanted.
    """
    xp = np if isinstance(q, np.ndarray) else jnp
    length, (weights, sparse_seen) = q.shape[1], mixture
    tokens, sparse = sentence_masks(
        length,
        mask,
        sparse_seen,
        factor=factor,
        block=block,
        sparse_block=sparse_block,
        causal=causal,
    )
    if length <= 2 * block:
        allowed = np.tri(length, dtype=bool) if causal else True
        tokens, sparse = (
            (mask[:, None, None] & allowed) & np.ones_like(tokens),
            np.zeros_like(sparse),
        )
    sparse_k, sparse_v = (xp.einsum("bhml,blhk->bmhk", weights[..., :length], x) for x in (k, v))
    keys, values = (
        xp.concatenate([global_k, sparse_k, k], 1),
        xp.concatenate([global_v, sparse_v, v], 1),
    )
    ones = np.ones((B, H, length, global_k.shape[1]), bool)
    seen = np.concatenate([ones, sparse, np.broadcast_to(tokens, (B, H, length, length))], -1)
    out = attend(q, keys, values, seen, xp)
    everything = xp.concatenate([global_k, k], 1), xp.concatenate([global_v, v], 1)
    seen = np.concatenate([ones[:, :1, 0], mask[:, None]], -1)[:, :, None]
    return out, global_q if causal else attend(global_q, *everything, seen, xp)


def make_twin(arrays, mask, options):
    """``dense`` for ``options`` of lsg_attention."""
    sizes = {"factor": options["sparsity_factor"], "block": options["block_size"]}
    sizes["sparse_block"] = options["sparse_block_size"]
    extra = (0, -mask.shape[1] % sizes["block"])
    q, k = arrays[0], np.pad(arrays[1], ((0, 0), extra, (0, 0), (0, 0)))
    seen = np.pad(mask, ((0, 0), extra))
    mixture = mixtures(
        options["sparsity_type"], q, k, seen, projections=options["projections"], **sizes
    )
    return lambda *x: dense(*x, mask, mixture, **sizes, causal=options["causal"])


def make_arrays(length, count=2, rows=None):
    rng = np.random.default_rng(length)
    arrays = [
        rng.normal(size=(B, n, H, K)).astype(np.float32) for n in (length,) * 3 + (count,) * 3
    ]
    return arrays, np.arange(length) < np.array(rows or (length, int(0.7 * length)))[:, None]


def make_options(kind, factor, block, sparse_block, causal=False):
    projections = ()
    if kind == "lsh":
        sizes = {
            "chunk": chunk_size(block, sparse_block, factor),
            "factor": factor,
            "pre_rounds": 1,
        }
        projections = lsh_projections(jax.random.key(7), H, K, **sizes)
    options = {
        "sparsity_type": kind,
        "sparsity_factor": factor,
        "block_size": block,
        "sparse_block_size": sparse_block,
    }
    return options | {
        "projections": [np.asarray(x) for x in projections],
        "causal": causal,
        "scale": SCALE,
    }


def assert_same(found, wanted, mask, **tolerance):
    np.testing.assert_allclose(found[0][mask], wanted[0][mask], **tolerance)
    np.testing.assert_allclose(found[1], wanted[1], **tolerance)


# Every factor of a block of 12, with sparse blocks below, equal to and above it.
SHAPES = [(1, 12), (2, 5), (2, 20), (3, 20), (4, 5), (4, 12), (6, 5), (6, 20), (12, 5), (12, 20)]


def check_twin(options, length):
    arrays, mask = make_arrays(length)
    result = jax.jit(lambda *x: attend_lsg(*x, mask, **options))(*arrays)
    assert_same(result, make_twin(arrays, mask, options)(*arrays), mask, atol=3e-6)


@pytest.mark.parametrize(("factor", "sparse_block"), SHAPES)
def test_a_query_sees_the_nearest_sparse_keys_beside_its_window(factor, sparse_block):
    kind, causal = ("stride", "block_stride", "norm")[factor % 3], sparse_block == 20
    check_twin(make_options(kind, factor, 12, sparse_block, causal), 61)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("block", "factor", "sparse_block"), [(8, 2, 8), (12, 3, 5)])
def test_every_selection(kind, block, factor, sparse_block):
    check_twin(make_options(kind, factor, block, sparse_block), 53)


@pytest.mark.slow
@pytest.mark.parametrize(("causal", "length"), [(False, 75), (True, 75), (True, 61)])
def test_pieces_of_a_text_change_nothing(causal, length, monkeypatch):
    """Ten or eight blocks, four at a time, the last piece of ten being shorter: each comes with
    what its neighbours see in it."""
    monkeypatch.setattr(lsg, "MIN_PIECE_BLOCKS", 4)
    monkeypatch.setattr(lsg, "max_score_bytes", lambda: 1)
    options = make_options("stride", 4, 8, 8, causal)
    check_twin(options, length)
    if not causal:
        arrays, mask = make_arrays(length)
        check_gradients(
            lambda *x: attend_lsg(*x, mask, **options),
            make_twin(arrays, mask, options),
            arrays,
            mask,
        )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [5, 16])
def test_up_to_two_blocks_everything_is_seen(length, causal):
    """Causal too, where the published code ends in an error."""
    check_twin(make_options("norm", 4, 8, 8, causal), length)


def check_gradients(function, twin, arrays, mask):
    def gradients(function):
        def loss(*x):
            out, global_out = function(*x)
            return jnp.sin(out[mask]).sum() + jnp.sin(global_out).sum()

        return jax.jit(jax.grad(loss, tuple(range(6))))(*arrays)

    for x, y in zip(gradients(function), gradients(twin), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize("kind", ["norm", "lsh", "pooling"])
def test_gradients(kind):
    options = make_options(kind, 4, 8, 8)
    arrays, mask = make_arrays(53)
    check_gradients(
        lambda *x: attend_lsg(*x, mask, **options),
        make_twin(arrays, mask, options),
        arrays,
        mask,
    )


def test_the_largest_are_the_same_without_sorts_and_gathers(monkeypatch):
    """As accelerators choose and take them; equal norms and padding among the keys."""
    k, v = np.random.default_rng(0).normal(size=(2, B, 32, H, K)).astype(np.float32)
    k[:, 9:14] = k[:, 8:9]
    mask = jnp.arange(32) < jnp.array([32, 18])[:, None]
    selection = LsgSpec(16, 8, 4, "norm").selection()

    def values_and_gradients(k, v):
        def keys(k, v):
            return sparse_keys(k, v, mask, selection, first_query=k[:, 0])[:2]

        out, pull_back = jax.vjp(keys, k, v)
        sparse = sparse_keys(k, v, mask, selection, first_query=k[:, 0])
        return sparse, out, pull_back(jax.tree.map(jnp.cos, out))

    gathered = jax.jit(values_and_gradients)(k, v)
    monkeypatch.setattr(lsg_selection, "target_platform", lambda: "tpu")
    multiplied = jax.jit(lambda *x: values_and_gradients(*x))
    text = str(multiplied.trace(k, v).jaxpr)
    assert not any(name in text for name in ("sort", "top_k", "gather", "scatter"))
    for x, y in zip(*map(jax.tree.leaves, (gathered, multiplied(k, v))), strict=True):
        np.testing.assert_array_equal(x, y)


def gradients_of_selections(kinds, sharding=None):
    """The gradients of the sum of some selections, and the shapes of their arguments."""
    length, heads, size = 512, 4, 64

    def shape(length, dtype=jnp.bfloat16, width=(heads, size)):
        return jax.ShapeDtypeStruct((1, length, *width), dtype, sharding=sharding)

    rounds = {"chunk": chunk_size(128, 64, 4), "factor": 4, "pre_rounds": 1}
    draw = functools.partial(lsh_projections, heads=heads, head_dim=size, **rounds)
    projections = [np.asarray(x) for x in draw(jax.random.key(0))]

    def loss(text, tokens, mask):
        total = 0.0
        for kind in kinds:
            spec = LsgSpec(128, 64, 4, kind)
            own = projections if kind == "lsh" else ()
            out, _ = lsg_attention(QKV(*text), QKV(*tokens), mask, spec, projections=own)
            total += out.astype(jnp.float32).sum()
        return total

    return jax.grad(loss, (0, 1)), ([shape(length)] * 3, [shape(1)] * 3, shape(length, bool, ()))


@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_selections_neither_sort_nor_gather_on_accelerators(platform, monkeypatch):
    monkeypatch.setattr(lsg_selection, "target_platform", lambda: platform)
    kinds = KINDS if platform == "tpu" else ("norm",)
    gradients, shapes = gradients_of_selections(kinds)
    program = str(jax.make_jaxpr(gradients)(*shapes))
    result = [name for name in ("sort", "top_k", "gather", "scatter") if f" {name}[" in program]
    assert bool(result) == (platform == "cpu")


@pytest.mark.weekly
@pytest.mark.tpu_compiler
def test_selections_neither_sort_nor_gather_as_compiled_for_tpus():
    """Values and gradients of all of them in one program, compiled for a v5e."""
    device, *_ = find_target("v5e").devices
    gradients, shapes = gradients_of_selections(KINDS, jax.sharding.SingleDeviceSharding(device))
    with jax.default_device(device):
        program = jax.jit(gradients).lower(*shapes).compile().as_text()
    assert not any(f" {name}(" in program for name in ("sort", "gather", "scatter", "topk"))


# What holds for every selection


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_not_seen(kind):
    """Neither what stands there nor, for one kind, how much of it; a row of padding alone gives
    zeros and finite gradients."""
    options = make_options(kind, 4, 8, 8)
    arrays, mask = make_arrays(53, rows=(37, 0))
    for x in arrays:
        x[1] = x[0]

    @jax.jit
    def call(*x):
        out, pull_back = jax.vjp(lambda *y: attend_lsg(*y, x[-1], **options), *x[:-1])
        return out, pull_back(jax.tree.map(jnp.ones_like, out))

    def pad(length, rows):
        return [np.pad(x[:, :rows], ((0, 0), (0, length - rows), (0, 0), (0, 0)),
                       constant_values=9.0) for x in arrays[:3]] + arrays[3:]  # fmt: skip

    result, gradients = call(*arrays, mask)
    assert all(np.isfinite(x).all() for x in gradients)
    longer = [(pad(72, 53), np.pad(mask, ((0, 0), (0, 19))))] if kind == "norm" else []
    for changed in [(pad(53, 37), mask), *longer]:
        expected, _ = call(*changed[0], changed[1])
        assert_same(result, expected, (slice(0, 1), slice(0, 37)), atol=2e-6)
        assert not np.asarray(expected[0][1]).any()
        assert not np.asarray(expected[0][0, 37:]).any()


@pytest.mark.parametrize("kind", KINDS)
def test_causal_attention_sees_nothing_later(kind):
    options = make_options(kind, 2, 8, 8, causal=True)
    arrays, _ = make_arrays(43)
    mask = np.ones((B, 43), bool)
    call = jax.jit(lambda *x: attend_lsg(*x, mask, **options)[0])
    changed = [x + (np.arange(43) >= 30)[:, None, None] for x in arrays[:3]] + arrays[3:]
    changed = [x.astype(np.float32) for x in changed]
    np.testing.assert_allclose(call(*changed)[:, :30], call(*arrays)[:, :30], atol=1e-6)
    assert np.abs(call(*changed)[:, 30:] - call(*arrays)[:, 30:]).max() > 0.1


def test_keys_may_be_hidden_that_are_no_padding():
    """A hidden first token is seen by nobody, and sees as before."""
    options = make_options("norm", 2, 8, 8)
    arrays, mask = make_arrays(43)
    hidden = mask & (np.arange(43) > 0)
    result = jax.jit(lambda *x: attend_lsg(*x, mask, key_mask=hidden, **options))(*arrays)
    expected = make_twin(arrays, hidden, options)(*arrays)
    assert_same(result, expected, mask, atol=3e-6)
    assert np.asarray(result[0][:, 0]).any()


# The layer of its own: blocks of 4 tokens, 3 sparse keys, every second token, which by the head.
LAYER = LsgSpec(4, 3, 2, "stride")


def seen_by_hand(length, causal):
    """bool [H, length, length]: by the rules of the paper, one key at a time; the first token sees
    all, and is seen by all."""
    seen = np.zeros((H, length, length), bool)
    for head in range(H):
        for token in range(length):
            start = token // 4 * 4 - 4
            end = token + 1 if causal else start + 12
            strided = [key for key in range(1, length) if key % 2 == head % 2]
            left = [key for key in range(0, max(start, 0)) if key % 2 == head % 2][-3:]
            right = [] if causal else [key for key in strided if key >= end][:3]
            for key in (0, *range(max(start, 0), min(end, length)), *left, *right):
                seen[head, token, key] = True
        seen[head, 0] = True if not causal else np.arange(length) == 0
    return seen


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [7, 26])
def test_a_layer_of_its_own_has_a_global_first_token(length, causal):
    rng = np.random.default_rng(length)
    q, k, v = rng.normal(size=(3, B, length, H, K)).astype(np.float32)
    mask = np.arange(length) < np.array([[length], [length - 2]])
    spec = LAYER._replace(causal=causal)
    result = jax.jit(lambda *x: lsg_self_attention(QKV(*x), mask, spec, scale=SCALE))(q, k, v)

    seen = seen_by_hand(length, causal)
    if length <= 8:  # two blocks
        seen = np.broadcast_to(np.tril(np.ones_like(seen)) if causal else True, seen.shape)
    seen = seen & mask[:, None, None]
    scores = np.where(seen, np.einsum("bqhk,blhk->bhql", q, k, dtype=np.float64) * SCALE, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhql,blhk->bqhk", weights / weights.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(result[mask], expected[mask], atol=1e-5)
    assert not result[~mask].any()


def test_no_sparse_keys_is_the_same_whatever_says_so():
    arrays, mask = make_arrays(43)
    options = [{"sparsity_type": "none"}, {"sparse_block_size": 0}, {"sparsity_factor": 0}]

    def call(option):
        attend = jax.jit(lambda *x: attend_lsg(*x, mask, block_size=8, **option))
        return attend(*arrays)

    first, *others = map(call, options)
    for other in others:
        assert_same(other, first, mask, atol=0)


def values_and_gradients(arrays, mask):
    """Of LSG attention to the largest keys: (gradients of three arrays, the two outputs)."""
    options = make_options("norm", 4, 8, 8)

    def loss(*x):
        out = attend_lsg(*x, mask, **options)
        return sum((y.astype(jnp.float32) ** 2).sum() for y in out), out

    return jax.grad(loss, (0, 2, 5), has_aux=True)(*arrays)


def assert_close_in_bfloat16(found, wanted):
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert x.dtype == jnp.bfloat16
        x, y = (np.asarray(array, np.float32) for array in (x, y))
        np.testing.assert_allclose(x, y, rtol=0.05, atol=0.05 * max(1, np.abs(y).max()))


@pytest.mark.slow
def test_bfloat16():
    arrays, mask = make_arrays(43)
    narrow = [jnp.asarray(x, jnp.bfloat16) for x in arrays]
    call = jax.jit(values_and_gradients)
    assert_close_in_bfloat16(call(narrow, mask), call([x.astype(np.float32) for x in narrow], mask))


@pytest.mark.weekly
@pytest.mark.parametrize("length", [16, 43])
def test_bfloat16_without_jit(length):
    """XLA on CPUs has no product of bfloat16 arrays for some of the layouts that occur then."""
    arrays, mask = make_arrays(length)
    narrow = [jnp.asarray(x, jnp.bfloat16) for x in arrays]
    result, expected = (
        values_and_gradients(narrow, mask),
        jax.jit(values_and_gradients)(narrow, mask),
    )
    assert_close_in_bfloat16(result, expected)


@pytest.mark.slow
def test_lsh_puts_equal_keys_together():
    """Two keys in turn: every cluster is one of them, and its value the mean of what stands beside
    that key."""
    k = jnp.tile(jnp.array([[1.0, 0, 0], [0, 1.0, 0]]), (8, 1))[None, :, None]
    v = jnp.arange(16.0)[None, :, None, None] * jnp.ones((1, 1, 1, 3))
    selection = LsgSpec(16, 16, 4, "lsh").selection()
    projections = lsh_projections(jax.random.key(0), 1, 3, chunk=16, factor=4, pre_rounds=1)
    sparse = sparse_keys(
        k, v, jnp.ones((1, 16), bool), selection, first_query=k[:, 0], projections=projections
    )
    seen = np.asarray(sparse.mask[0, :, 0])
    means = sorted(np.asarray(sparse.v)[0, seen, 0, 0])
    assert means in ([7.0, 8.0], [7.5])  # apart, or both in one bucket
    assert len(projections) == 2


# Bad input


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sparsity_type": "norms"}, 'sparsity_type "norms" is unknown; did you mean "norm"'),
        (
            {"sparsity_factor": 3},
            "sparsity_factor 3 does not divide block_size 8; the nearest that does is 2",
        ),
        (
            {"sparsity_factor": 16},
            "sparsity_factor 16 does not divide block_size 8; the nearest that does is 8",
        ),
        (
            {"sparse_block_size": -1},
            "sparse_block_size is -1; it must be 0 .no sparse keys. or more",
        ),
        ({"block_size": 0}, "block_size is 0; it must be 1 or more tokens"),
    ],
)
def test_options_that_do_not_fit(options, problem):
    sizes = {"sparsity_type": "norm", "block_size": 8, "sparse_block_size": 8, "sparsity_factor": 2}
    with pytest.raises(InputError, match=problem):
        LsgSpec(**sizes | options).selection()
