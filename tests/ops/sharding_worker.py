"""Compares attention over sequences in four shards, on 8 virtual CPU devices, with whole sequences.

Prints one JSON object: for every attention the largest differences and the number of collectives;
with the argument "weekly" for those whose like is compared without it.
Run by test_sequence_sharding.py in a process of its own, because the number of devices is fixed
when JAX starts.
"""

import functools
import json
import os
import re
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.experimental.ops.linear import efficient_attention, linear_attention
from longsum_jax.experimental.ops.patterns import KeyPattern, pattern_attention
from longsum_jax.experimental.ops.performer import draw_projection, performer_attention
from longsum_jax.ops.attention import blockwise, fused
from longsum_jax.ops.attention.blocks import neighbors
from longsum_jax.ops.attention.dense import QKV, dot_product_attention, mix_states
from longsum_jax.ops.attention.fused import fused_attention
from longsum_jax.ops.attention.hepos import mix_strided
from longsum_jax.ops.attention.key_sets import KeySet, WeightDropout
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    local_distances,
    side_distances,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.attention.longformer import gather_positions, longformer_attention
from longsum_jax.ops.attention.lsg import LsgSpec, lsg_attention
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.attention.staggered import block_staggered_attention
from longsum_jax.ops.random_masks import head_words, keep_pairs
from longsum_jax.ops.sequence_sharding import SequenceSharding, halo_exchange, shard_map_sequence

B, L, H, K, G, C = 2, 64, 2, 4, 3, 4
UNEVEN = 37  # divides neither into shards nor into blocks
SHARDING = SequenceSharding(("batch",), ("sequence",), 4)
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
RANDOM = np.random.default_rng(0)


def normal(*shape):
    return RANDOM.normal(size=shape).astype(np.float32)


# Numpy wherever nothing is traced: each operation of jax.numpy would be a program of its own.
MASK = np.arange(L) < np.array([L, 42])[:, None]
ARRAYS = {name: normal(B, L, H, K) for name in "qkv"}
GLOBALS = {f"global_{name}": normal(B, G, H, K) for name in "qkv"}
WIDE = normal(H, 2 * L - 1)
IDS, GLOBAL_MASK = map(np.asarray, jax.jit(transient_blocks, static_argnums=1)(MASK, C))
LSG = {"block_size": C, "sparse_block_size": C, "sparsity_factor": 2}


def chosen_pattern(radius, **arrays):
    pattern = KeyPattern(
        radius=radius, max_radius=5, num_global=G, span=jnp.array([2.0, 4.5]), ramp=3
    )
    return pattern_attention(**arrays, pattern=pattern)


def strided(rows, mask, **arrays):
    return mix_strided(
        states=rows.reshape(rows.shape[0], -1, K),
        mask=jnp.moveaxis(mask, 1, -1),
        **arrays,
        stride=2,
    )


def lsg(kind, **options):
    spec = LsgSpec(sparsity_type=kind, **LSG | options)
    function = functools.partial(lsg_attention, spec=spec, scale=0.5)
    shared = {"bias": normal(H, C, 3 * C)}
    text = {"tokens": QKV(**ARRAYS), "mask": MASK}
    rows = {"global_tokens": QKV(*GLOBALS.values())}
    return function, text, rows, shared, C, ("text", "rows")


def longformer(global_q, global_k, global_v, **arrays):
    global_tokens = QKV(global_q, global_k, global_v)
    return longformer_attention(global_tokens=global_tokens, radius=3, block_size=C, **arrays)


def cases():
    """Returns, by name, the function, then text, rows, shared, block and outputs for its call."""
    text = ARRAYS | {"mask": MASK}
    tokens = {"tokens": QKV(**ARRAYS), "mask": MASK}
    global_mask = GLOBAL_MASK[:, None, None, None]
    global_keys = KeySet(normal(B, L // C, H, K), normal(B, L // C, H, K), global_mask)
    local = functools.partial(local_attention, block_size=C, scale=0.5)
    keys = {name: ARRAYS[name] for name in "kv"}
    masked = lambda f: lambda mask, **arrays: f(**arrays, mask=mask[:, None, None])  # noqa: E731
    states = {"states": ARRAYS["k"][:, :, 0]}
    return {
        "window": (
            functools.partial(local, radius=3),
            text,
            {},
            {"bias": normal(H, *local_distances(C, 3).shape)},
            C,
        ),
        # A window that reaches beyond the neighbouring shard, of four blocks.
        "wide window": (functools.partial(local, radius=18), text, {}, {}, C),
        "uneven window": (
            functools.partial(local, radius=3),
            {n: x[:, :UNEVEN] for n, x in text.items()},
            {},
            {},
            C,
        ),
        "pattern": (chosen_pattern, text, {}, {"distance_bias": WIDE, "radius": np.int32(4)}, 8),
        "transient_global": (
            functools.partial(transient_global_attention, radius=3, block_size=C),
            tokens | {"block_ids": IDS},
            {"global_keys": global_keys},
            {"side_bias": normal(H, 2 * (L // C))},
            C,
        ),
        "longformer": (
            longformer,
            tokens | {"global_k": normal(B, L, H, K), "global_v": normal(B, L, H, K)},
            {
                "global_q": normal(B, G, H, K),
                "global_indices": np.array([[0, 20, 63], [5, -1, 50]], np.int32),
            },
            {},
            C,
        ),
        "block_staggered": (
            functools.partial(block_staggered_attention, block_size=C),
            tokens,
            {"global_tokens": QKV(*GLOBALS.values())},
            {"bias": normal(H, C, C), "stagger": np.True_},
            C,
            ("text", "rows"),
        ),
        "lsg norm": lsg("norm", sparse_block_size=8),
        "lsg bos_pooling": lsg("bos_pooling"),
        "linear": (linear_attention, text, {}, {}),
        "efficient": (efficient_attention, text, {}, {}),
        "performer": (
            functools.partial(performer_attention, scale=0.1),
            text,
            {},
            {
                "projection": jax.jit(draw_projection, static_argnums=(1, 2))(
                    jax.random.key(0), 6, K
                )
            },
        ),
        "cross": (
            masked(functools.partial(dot_product_attention, scale=0.5)),
            keys | {"mask": MASK},
            {"q": normal(B, 5, H, K)},
            {},
            1,
            "rows",
        ),
        "cross by states": (
            masked(mix_states),
            states | {"mask": MASK},
            {"q": normal(B, 5, H, K)},
            {},
            1,
            "rows",
        ),
        "cross by strided states": (
            strided,
            {"rows": normal(B, L, 2, K), "mask": np.stack([MASK, MASK], -1)[..., None]},
            {"q": normal(B, 5, H, K)},
            {},
            1,
            "rows",
        ),
        "block_sums": (
            functools.partial(block_sums, size=C, num_blocks=L // C),
            {"x": ARRAYS["q"], "mask": MASK},
            {},
            {},
            1,
            "rows",
        ),
        "block_sums of blocks in two shards": (
            functools.partial(block_sums, size=3, num_blocks=L // 3),
            {"x": ARRAYS["q"], "mask": MASK},
            {},
            {},
            1,
            "rows",
        ),
        "gather": (
            gather_positions,
            {"x": MASK},
            {"indices": np.array([[0, 30], [21, 22]], np.int32)},
            {},
            1,
            "rows",
        ),
    }


WEEKLY = ("efficient", "lsg bos_pooling")  # linear attention and the longest keys are as these
# Those whose windows kernels compute, too, without the biases.
FUSED = ("uneven window", "lsg norm")
FUSED_WEEKLY = ("wide window", "window and globals", "longformer", "block_staggered")


def fused_cases(names):
    """Yields cases as ``cases`` has them."""
    pattern = functools.partial(pattern_attention, pattern=KeyPattern(radius=5, num_global=G))
    result = cases()
    result["window and globals"] = (pattern, ARRAYS | {"mask": MASK}, {}, {}, 8)
    for name in names:
        function, text, rows, shared, *rest = result[name]
        shared = {key: value for key, value in shared.items() if key != "bias"}
        yield name, (function, text, rows, shared, *rest)


def moved(compiled):
    text = compiled.as_text()
    return {
        name: count
        for name in COLLECTIVES
        if (count := len(re.findall(rf"\b{name}(?:-start)?\(", text)))
    }


def compare(function, text, rows, shared, block=1, outputs="text", kernel=None):
    """Compares values and gradients by shards and whole, and counts collectives of both.

    Shards are computed by ``kernel``, if one is given.
    """
    of_shard = function
    if kernel is not None:
        attend = functools.partial(fused_attention, kernel=kernel)
        of_shard = functools.partial(function, fused=attend)

    def by_shards(text, rows, shared):
        return shard_map_sequence(
            of_shard,
            SHARDING,
            text=text,
            rows=rows,
            shared=shared,
            block=block,
            outputs=outputs,
            has_kernels=kernel is not None,
        )

    def whole(text, rows, shared):
        return function(**text, **rows, **shared)

    def with_gradients(function, *arrays):
        out, pull_back = jax.vjp(function, *arrays)
        return out, pull_back(
            jax.tree.map(
                lambda x: (
                    jnp.sin(3 * x) if x.dtype != bool else np.zeros(x.shape, jax.dtypes.float0)
                ),
                out,
            )
        )

    arrays = (text, rows, shared)
    expected = jax.jit(functools.partial(with_gradients, whole))(*arrays)
    compiled = jax.jit(functools.partial(with_gradients, by_shards)).lower(*arrays).compile()
    result = compiled(*arrays)
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    pairs = [
        (np.asarray(x, np.float32), np.asarray(y, np.float32))
        for x, y in pairs
        if x.dtype != jax.dtypes.float0
    ]
    return {
        "difference": max(float(np.abs(x - y).max()) for x, y in pairs),
        "moved": moved(compiled),
    }


def check_halo_exchange():
    """Compares ``halo_exchange`` with padding, for halos of nothing to more than the sequence."""
    x, blocks = normal(B, 8, 3), normal(B, 8, C, 3)
    reaches = ((0, 0), (1, 0), (2, 3), (5, 1), (9, 8))

    def by_shards(function, x):
        return shard_map_sequence(function, SHARDING, text={"x": x})

    @jax.jit
    def exchanged(x, blocks):
        result = {}
        for left, right in reaches:
            exchange = lambda x, axes, reach=(left, right): halo_exchange(x, *reach, axes)  # noqa: E731
            result[left, right] = by_shards(exchange, x).reshape(B, 4, -1, 3)
        side_by_side = by_shards(lambda x, axes: neighbors(x, 1, 2, axes), blocks)
        return result, side_by_side, neighbors(blocks, 1, 2)

    shards, side_by_side, whole = jax.device_get(exchanged(x, blocks))
    result = {"neighbours": float(np.abs(side_by_side - whole).max())}
    for left, right in reaches:
        padded = np.pad(x, ((0, 0), (left, right), (0, 0)))
        expected = np.stack([padded[:, 2 * i : 2 * i + 2 + left + right] for i in range(4)], 1)
        result[f"{left} {right}"] = float(np.abs(shards[left, right] - expected).max())
    return result


def check_pieces():
    """Compares as ``compare`` does, with scores computed in pieces."""
    before, blockwise.MAX_SCORE_BYTES_CPU = blockwise.MAX_SCORE_BYTES_CPU, 2**9
    try:
        return compare(*cases()["window"])
    finally:
        blockwise.MAX_SCORE_BYTES_CPU = before


def check_fused(kernel):
    """Compares a kernel on shards of rows and heads, with gradients, with the reference.

    Our own also have a position bias, whose gradients are sums over all rows, and dropout, which
    does not depend on the shards.
    """
    arrays = [normal(B, n, 4, K) for n in (70, 140, 140)]
    dropout = None
    if kernel != "splash":
        arrays.append(normal(4, 3))
        dropout = WeightDropout(jax.random.key(0), 0.5)
    mask = np.arange(140) < np.array([140, 0])[:, None, None]
    spec = jax.sharding.PartitionSpec("batch", None, "sequence", None)

    def reference(q, k, v, values=None):
        options = {}
        if values is not None:
            queries, keys = np.arange(70)[:, None], np.arange(140)[None]
            steps = np.searchsorted((-3, 50), keys - queries, side="right")
            words = head_words(dropout.rng, B, 4)
            keep = jnp.array([[keep_pairs(tuple(x), queries, keys, 0.5) for x in r] for r in words])
            options = {
                "bias": values[None, :, steps],
                "dropout": lambda x: jnp.where(keep, 2 * x, 0),
            }
        return dot_product_attention(q, k, v, mask=mask[:, :, None], **options)

    def by_shards(q, k, v, values=None):
        biases = [] if values is None else [StepBias(values, (-3, 50))]
        options = {"biases": biases, "dropout": dropout, "spec": spec}
        return fused_attention(q, k, v, mask, kernel=kernel, **options)

    def gradients(attend, *arrays):
        numbers = tuple(range(len(arrays)))
        return jax.grad(lambda *x: jnp.sin(attend(*x)).sum(), numbers)(*arrays)

    compiled = jax.jit(functools.partial(gradients, by_shards)).lower(*arrays).compile()
    expected = jax.jit(functools.partial(gradients, reference))(*arrays)
    pairs = zip(compiled(*arrays), expected, strict=True)
    pairs = [(np.asarray(x), np.asarray(y)) for x, y in pairs]
    # Gradients of the bias are sums over thousands of pairs.
    difference = max(float(np.abs(x - y).max() / max(1, np.abs(y).max())) for x, y in pairs)
    return {"difference": difference, "moved": moved(compiled)}


def biased_windows(values, **arrays):
    """LongT5's attention with the same biases twice: dense, and as steps."""
    starts = (-2, 1)

    def dense(distances):
        return values[:, np.searchsorted(starts, distances, side="right")]

    biases = {"bias": dense(local_distances(C, 3)), "side_bias": dense(side_distances(L // C))}
    steps = [StepBias(values, starts)] * 2
    return transient_global_attention(radius=3, block_size=C, **biases, **arrays, steps=steps)


def check_fused_windows(names):
    """Compares windows that kernels compute, two rows of each shard, with the reference."""
    before, fused.MAX_ROW = fused.MAX_ROW, 8
    try:
        result = {name: compare(*case, kernel="splash") for name, case in fused_cases(names)}
        if names == FUSED:
            _, text, rows, *_ = cases()["transient_global"]
            case = biased_windows, text, rows, {"values": normal(H, 3)}, C
            result["biased windows"] = compare(*case, kernel="triton")
        return result
    finally:
        fused.MAX_ROW = before


def check_dropout():
    """Counts the different outputs of eight shards with equal queries, keys and values."""
    ones = {name: np.ones((B, L, H, K), np.float32) for name in "qkv"}
    ones["mask"] = np.ones((B, L), bool)

    def attend(rng, **arrays):
        return local_attention(**arrays, radius=3, block_size=C, dropout=WeightDropout(rng, 0.5))

    by_shards = functools.partial(shard_map_sequence, attend, SHARDING)
    out = np.asarray(jax.jit(by_shards)(text=ones, rng=jax.random.key(0))).reshape(B * 4, -1)
    return {"mean": float(out.mean()), "different": len(np.unique(out, axis=0))}


def main(is_weekly):
    result = {x: compare(*case) for x, case in cases().items() if (x in WEEKLY) == is_weekly}
    result["fused windows"] = check_fused_windows(FUSED_WEEKLY if is_weekly else FUSED)
    if not is_weekly:
        result |= {"halo_exchange": check_halo_exchange(), "dropout": check_dropout()}
        result |= {"pieces": check_pieces(), "fused": check_fused("splash")}
        result |= {f"biased {x}": check_fused(x) for x in ("mosaic", "triton")}
    return result


if __name__ == "__main__":
    mesh = jax.make_mesh(
        (2, 4), ("batch", "sequence"), axis_types=(jax.sharding.AxisType.Auto,) * 2
    )
    with jax.set_mesh(mesh):
        print(json.dumps(main(sys.argv[1:] == ["weekly"])))
