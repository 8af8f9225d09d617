"""Compares sharded with unsharded computation on 8 virtual CPU devices; prints one JSON object of
what it found; with the argument "weekly" in further ways.

Run by test_sharding.py in a process of its own, because the number of devices is fixed when JAX
starts.
"""

import dataclasses
import functools
import json
import os
import re
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.experimental.attention.lsh import LshAttention
from longsum_jax.layers import decoder_cache
from longsum_jax.layers.attention.cross import SourceAttention
from longsum_jax.layers.attention.full import FullAttention
from longsum_jax.layers.attention.multi_head import ExtraKeyValues, causal_mask
from longsum_jax.layers.attention.options import LshOptions
from longsum_jax.layers.partitioning import look_up
from longsum_jax.models.locost import LocostConfig
from longsum_jax.models.registry import get_family
from longsum_jax.models.t5 import T5, T5Config
from longsum_jax.models.t5gemma2 import T5Gemma2, T5Gemma2Config
from longsum_jax.ops.attention.key_sets import KeySet
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.ops.ssm.convolution import ssm_convolution, ssm_convolution_sharded
from longsum_jax.ops.ssm.kernel import DiagonalSSM
from longsum_jax.training.mesh import (
    MeshOptions,
    activate,
    create_sharded,
    make_mesh,
    plan_layout,
    put_batch,
)
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import create_state, plan_state, shardings_of

SPECS = {"batch": P("batch"), "channels": P(None, None, "batch"), "length": P(None, "batch")}
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def collectives(compiled):
    text = compiled.as_text()
    return {name: len(re.findall(rf"\b{name}(?:-start)?\(", text)) for name in COLLECTIVES}


def largest_difference(tree, reference):
    """Over all arrays, relative to the largest entry of each."""
    leaves = map(jax.tree.leaves, jax.device_get((tree, reference)))
    pairs = [(x, y) for x, y in zip(*leaves, strict=True) if y.size]
    return max(float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-3)) for x, y in pairs)


def operation_inputs(batch=8, length=40, channels=16, modes=4):
    rng = np.random.default_rng(0)
    shape = (1, channels, modes)
    ssm = DiagonalSSM(
        rng.uniform(-7, -2, shape[:2]),
        -rng.uniform(0.1, 1, shape),
        rng.normal(size=shape) * 5,
        rng.normal(size=(*shape, 2)),
        rng.normal(size=(2, *shape[1:], 2)),
    )
    tree = (rng.normal(size=(batch, length, channels)), ssm, rng.normal(size=channels))
    return jax.tree.map(lambda x: np.asarray(x, np.float32), tree)


def value_and_gradients(convolve, u, ssm, D):
    y, pull_back = jax.vjp(convolve, u, ssm, D)
    return y, pull_back(jnp.sin(y))


@functools.cache
def unsharded_operation():
    """Values and gradients on one device."""
    operation = functools.partial(value_and_gradients, ssm_convolution)
    return jax.device_get(jax.jit(operation)(*operation_inputs()))


def check_operation(spec):
    """Values, gradients and collectives of the sharded operation."""
    u, ssm, D = operation_inputs()
    mesh = make_mesh(MeshOptions("replicated"))
    channels = spec[2:]
    places = (spec, DiagonalSSM(*(P(None, *channels) for _ in ssm)), P(*channels))
    arguments = jax.tree.map(
        lambda x, place: jax.device_put(x, NamedSharding(mesh, place)), (u, ssm, D), places
    )
    sharded = functools.partial(ssm_convolution_sharded, spec=spec)

    def gradients(u, ssm, D):
        return value_and_gradients(sharded, u, ssm, D)[1]

    expected, expected_gradients = unsharded_operation()
    with jax.set_mesh(mesh):
        forward = jax.jit(sharded).lower(*arguments).compile()
        backward = jax.jit(gradients).lower(*arguments).compile()
        return {
            "forward": collectives(forward),
            "backward": collectives(backward),
            "difference": largest_difference(forward(*arguments), expected),
            "gradient_difference": largest_difference(backward(*arguments), expected_gradients),
        }


CONFIG = LocostConfig.of(
    vocab_size=96,
    d_model=32,
    d_state=8,
    d_kv=8,
    d_ff=64,
    num_layers=1,
    num_decoder_layers=1,
    num_heads=4,
)
SIZES = {
    name: getattr(CONFIG, name) for name in ("vocab_size", "d_model", "d_kv", "d_ff", "num_heads")
}
SIZES |= {"num_layers": 1, "num_decoder_layers": 1, "dropout_rate": 0.0}
LSG = T5Config.of(
    encoder_attention="lsg",
    block_size=4,
    sparse_block_size=4,
    num_global_tokens=3,
    cross_attention="hepos",
    hepos_stride=2,
    length_chunk=2,
    **SIZES,
)
PAGES = T5Config.of(page_length=8, page_recompute=True, **SIZES)
GEMMA = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "head_dim": 8}
GEMMA |= {"num_attention_heads": 4, "num_key_value_heads": 2, "query_pre_attn_scalar": 8.0}
MERGED = get_family("t5gemma2").config(
    {
        "vocab_size": 96,
        "encoder": GEMMA,
        "decoder": GEMMA,
        "encoder_attention": "local",
        "local_radius": 4,
        "eoi_token_index": 7,
    }
)
FSDP = MeshOptions("fsdp", batch=2, fsdp=4)
LONG = MeshOptions("fsdp+sequence", batch=2, fsdp=1, sequence=4)
PRESETS = {
    "replicated": MeshOptions("replicated"),
    "fsdp+tensor": MeshOptions("fsdp+tensor", batch=2, fsdp=2, tensor=2),
    "fsdp+sequence": MeshOptions("fsdp+sequence", batch=1, fsdp=2, sequence=4),
}


def module_of(config):
    return T5Gemma2(config) if isinstance(config, T5Gemma2Config) else T5(config)


@functools.cache
def init_of(config):
    """The ``init`` of a model, traced once."""

    def init(key):
        ids = np.zeros((1, 2), np.int32)
        return module_of(config).init(key, ids, ids, ids)["params"]

    return jax.jit(init)


def loss(model, params, batch):
    decoder_ids = shift_right(batch["labels"], start_id=0, pad_id=0)
    logits = model.apply(
        {"params": params}, batch["input_ids"], batch["attention_mask"], decoder_ids
    )
    total, weight = token_cross_entropy(logits, batch["labels"])
    return total / weight


def layout_of(init, mesh, rules):
    return plan_layout(init, mesh, rules, jax.random.key(0)).shardings


def drawn_params(init):
    """Random parameters on the host, which takes less than compiling ``init``."""
    shapes = nn.meta.unbox(jax.eval_shape(init, jax.random.key(0)))
    rng = np.random.default_rng(0)
    return jax.tree.map(lambda x: np.asarray(0.2 * rng.normal(size=x.shape), x.dtype), shapes)


def check_creation(options):
    """Parameters that are born on a mesh, against those of one device."""
    create = init_of(CONFIG)
    layout = layout_of(create, make_mesh(options), options.rules)
    params = create_sharded(create, layout, jax.random.key(0))
    return largest_difference(params, nn.meta.unbox(create(jax.random.key(0))))


def check_model(config, presets, length):
    """Loss and gradients of a whole model on a mesh, against one device."""
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(2, 96, (8, length)),
        "attention_mask": np.arange(length) < rng.integers(5, length + 1, (8, 1)),
        "labels": rng.integers(2, 96, (8, 6)),
    }
    step, report = jax.value_and_grad(functools.partial(loss, module_of(config))), {}
    whole = drawn_params(init_of(config))
    expected = jax.jit(step)(whole, batch)
    for name, options in presets.items():
        mesh = make_mesh(options)
        params = jax.device_put(whole, layout_of(init_of(config), mesh, options.rules))
        with activate(mesh, options.rules):
            value, gradients = jax.jit(step)(params, put_batch(batch, mesh))
        report[f"model {name}"] = {
            "loss_difference": largest_difference(value, expected[0]),
            "gradient_difference": largest_difference(gradients, expected[1]),
        }
    return report


# Attentions to keys anywhere: every device computes some heads of whole sequences.
BY_HEADS = {
    "full": {},
    "bigbird": {"block_size": 2, "num_random_blocks": 1},
    "window+stride": {"attention_window": (4,), "attention_stride": 3},
    "adaptive_span+random": {"attention_window": (4,), "block_size": 4, "num_random_blocks": 2},
    "lsh": {"lsh_chunk_length": 4, "lsh_num_buckets": 4, "lsh_num_hashes": 2},
    "sinkhorn": {"block_size": 4},
}
BY_HEADS_DAILY = {"full", "lsh"}


def check_attention(name, length=36, **options):
    """States and gradients of an encoder with four heads on a mesh that cuts its texts in four,
    against one device, and the collectives of both."""
    config = T5Config.of(encoder_attention=name, **SIZES | options)
    model, init = T5(config), init_of(config)
    rng = np.random.default_rng(0)
    batch = {
        "ids": rng.integers(2, 96, (2, length)).astype(np.int32),
        "mask": np.arange(length) < np.array([[length], [21]]),
    }

    def total(params, batch):
        states = model.apply({"params": params}, *batch.values(), method="encode")
        return jnp.sum(jnp.sin(states) * batch["mask"][..., None])

    whole = drawn_params(init)
    step = jax.jit(jax.value_and_grad(total))
    expected = step(whole, batch)
    mesh = make_mesh(LONG)
    params = jax.device_put(whole, layout_of(init, mesh, LONG.rules))
    with activate(mesh, LONG.rules):
        compiled = step.lower(params, batch).compile()
        result = compiled(params, batch)
    return {
        "difference": largest_difference(result[0], expected[0]),
        "gradient_difference": largest_difference(result[1], expected[1]),
        "collectives": collectives(compiled),
    }


def check_full_attention(length, num_extra=0, backend="auto"):
    """Full attention, to extra keys too, of a text that a mesh shards, against one device."""
    init = nn.initializers.normal(0.2)
    rng = np.random.default_rng(0)
    x, extra_states = (rng.normal(size=(2, n, 32)).astype(np.float32) for n in (length, num_extra))
    mask, valid = (np.arange(n) < np.array([[n], [n - 3]]) for n in (length, num_extra))

    def states(backend, params, x, extra_states):
        extra = ExtraKeyValues(extra_states, extra_states, valid) if num_extra else None
        attention = FullAttention(32, 4, 8, init, init, backend=backend)
        return attention.apply(params, x, (mask, None, None, None), (), True, extra)

    def gradients(backend, *arguments):
        def total(*arguments):
            return jnp.sum(jnp.sin(states(backend, *arguments)) * mask[..., None])

        return jax.value_and_grad(total, argnums=(0, 1, 2))(*arguments)

    attention = FullAttention(32, 4, 8, init, init)
    params = drawn_params(lambda key: attention.init(key, x, (mask, None, None, None), (), True))
    step = jax.jit(gradients, static_argnums=0)
    expected = step("reference", params, x, extra_states)
    with activate(make_mesh(LONG), LONG.rules):
        traced = step.trace(backend, params, x, extra_states)
        result = traced.lower().compile()(params, x, extra_states)
    return {
        "difference": largest_difference(result, expected),
        "splash": "splash" in str(traced.jaxpr),
    }


def check_fused_source(is_merged):
    """Cross-attention to a source that a mesh shards, with its gradients, against one device.

    Args:
        is_merged: True for one softmax over the keys of the source and of the target.
    """
    init = nn.initializers.normal(0.2)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=(2, n, 32)).astype(np.float32) for n in (70, 518)]
    # The second row has no token on three of four shards, or none at all.
    masks = [np.arange(518) < np.array([[518], [n]]) for n in (100, 0)]

    def attend(module, x, states, mask):
        k, v = module.project_kv(states)
        mask = mask[:, None, None]
        if not is_merged:
            return module.attend(x, k, v, mask=mask)
        own = KeySet(*module.project_kv(x), causal_mask(x.shape[1]))
        return module.attend_with(x, k, v, [own], mask=mask, causal=True)

    def module(backend):
        return SourceAttention(32, 4, 8, init, init, num_kv_heads=2, backend=backend)

    def gradients(backend, mask, *arguments):
        def total(params, x, states):
            out = nn.apply(attend, module(backend))(params, x, states, mask)
            return jnp.sum(jnp.sin(out)), out

        return jax.value_and_grad(total, (0, 1, 2), has_aux=True)(*arguments)

    params = drawn_params(lambda key: nn.init(attend, module("reference"))(key, *arrays, masks[0]))
    step = jax.jit(gradients, static_argnums=0)
    differences = []
    for mask in masks:
        expected = step("reference", mask, params, *arrays)
        with activate(make_mesh(LONG), LONG.rules):
            traced = step.trace("mosaic", mask, params, *arrays)
            result = traced.lower().compile()(mask, params, *arrays)
        differences.append(largest_difference(result, expected))
    return {"differences": differences, "kernel": "mosaic_attention_forward" in str(traced.jaxpr)}


def check_fused_lsh(options):
    """LSH attention by a kernel on a mesh, with its gradients, against one device without one."""
    init = nn.initializers.normal(0.2)
    x = np.random.default_rng(0).normal(size=(4, 200, 32)).astype(np.float32)
    mask = np.arange(200) < np.array([[200], [121], [1], [30]])
    lsh = LshOptions(lsh_chunk_length=16, lsh_num_buckets=8, lsh_num_hashes=2)

    def states(backend, params, x):
        attention = LshAttention(32, 4, 8, init, init, backend=backend, options=lsh)
        return attention.apply(params, x, (mask, None), 0, True)

    def gradients(backend, *arguments):
        def total(*arguments):
            return jnp.sum(jnp.sin(states(backend, *arguments)) * mask[..., None])

        return jax.value_and_grad(total, argnums=(0, 1))(*arguments)

    attention = LshAttention(32, 4, 8, init, init, options=lsh)
    params = drawn_params(lambda key: attention.init(key, x, (mask, None), 0, True))
    step = jax.jit(gradients, static_argnums=0)
    expected = step("reference", params, x)
    with activate(make_mesh(options), options.rules):
        traced = step.trace("mosaic", params, x)
        result = traced.lower().compile()(params, x)
    return {
        "difference": largest_difference(result, expected),
        "kernel": "mosaic_attention_forward" in str(traced.jaxpr),
    }


def check_adafactor(options):
    """Parameters and second moments after two steps with made-up gradients, on a mesh and on one
    device."""
    family = get_family("locost")
    init_params, axes = jax.jit(family.init_params(CONFIG)), family.parameter_axes(CONFIG)
    values = OptimizerOptions("adafactor", 0.01, min_dim_size_to_factor=8, scale_parameter=True)
    optimizer = make_optimizer(values, axes)

    def step(state):
        gradients = jax.tree.map(lambda x: jnp.sin(37 * x) * x, state.params)
        updates, slots = optimizer.update(gradients, state.opt_state, state.params)
        params = jax.tree.map(jnp.add, state.params, updates)
        return state.replace(params=params, opt_state=slots)

    whole = drawn_params(init_params)
    result = []
    for mesh in (make_mesh(MeshOptions(batch=1), jax.devices()[:1]), make_mesh(options)):
        rules, key = options.rules, jax.random.key(0)
        abstract, _ = plan_state(init_params, optimizer, mesh, rules, key)
        state = create_state(abstract, init_params, optimizer, key, whole)
        run = jax.jit(step, out_shardings=shardings_of(abstract))
        result.append(jax.device_get(run(run(state))))
    return largest_difference(*result[::-1])


def check_decoding(cross_attention, cache_bytes, config=None):
    """A step of decoding over a source that a mesh shards, from kept keys or from the states
    themselves."""
    decoder_cache.MAX_CROSS_CACHE_BYTES = cache_bytes
    config = config or T5Config.of(
        encoder_attention="window", attention_window=(4,), cross_attention=cross_attention, **SIZES
    )
    mesh = make_mesh(LONG)
    params = jax.device_put(drawn_params(init_of(config)))
    apply = functools.partial(module_of(config).apply, {"params": params})
    ids = np.random.default_rng(1).integers(2, 96, (2, 64)).astype(np.int32)
    mask = np.arange(64) < np.array([[64], [37]])

    def read(ids, mask):
        return apply(apply(ids, mask, method="encode"), mask, method="read_source")

    def step(ids, source):
        cache = apply(source, 2, 3, method="init_cache")
        return apply(ids, cache, source, method="decode_step")[0]

    expected = jax.jit(lambda ids, mask: step(ids[:, :2], read(ids, mask)))(ids, mask)
    with activate(mesh, LONG.rules):
        batch = put_batch({"ids": ids, "mask": mask}, mesh)
        source = jax.jit(read)(batch["ids"], batch["mask"])
        compiled = jax.jit(step).lower(batch["ids"][:, :2], source).compile()
        result = compiled(batch["ids"][:, :2], source)
    retained = (
        source.layers[0].cross_kv.k.swapaxes(1, -1) if source.states is None else source.states
    )
    return {
        "difference": largest_difference(result, expected),
        "gathered": collectives(compiled)["all-gather"],
        "share": retained.sharding.shard_shape(retained.shape)[1] / retained.shape[1],
    }


def check_stored_states(attention, length=30):
    """What a memory stores of a text, on a mesh that cuts it in four, against one device."""
    config = T5Config.of(
        encoder_attention=attention,
        block_size=4,
        sparse_block_size=4,
        num_global_tokens=3,
        memory="attentive",
        memory_size=4,
        **SIZES,
    )
    init, apply = init_of(config), T5(config).apply
    ids = np.random.default_rng(0).integers(2, 96, (2, length)).astype(np.int32)
    mask = np.arange(length) < np.array([[length], [21]])

    def stored(params, ids, mask):
        memory = apply({"params": params}, *ids.shape, 1, 1, method="init_memory")
        _, memory = apply({"params": params}, ids, mask, memory, method="read_segment")
        return jnp.where(mask[:, None, :, None], memory.encoder[0].hidden, 0)

    whole = drawn_params(init)
    expected = jax.jit(stored)(whole, ids, mask)
    mesh = make_mesh(LONG)
    params = jax.device_put(whole, layout_of(init, mesh, LONG.rules))
    with activate(mesh, LONG.rules):
        return largest_difference(jax.jit(stored)(params, ids, mask), expected)


def check_look_up(count):
    """Rows of a table with sharded columns, and its gradient, on a mesh and on one device."""
    rng = np.random.default_rng(0)
    table = np.asarray(rng.normal(size=(96, 32)), np.float32)
    ids = rng.integers(0, 96, (8, count)).astype(np.int32)

    def rows_and_gradient(table, ids):
        rows, pull_back = jax.vjp(lambda table: look_up(table, ids), table)
        return rows, *pull_back(jnp.sin(rows))

    expected = jax.jit(rows_and_gradient)(table, ids)
    mesh = make_mesh(FSDP)
    columns = NamedSharding(mesh, P(None, "fsdp"))
    documents = NamedSharding(mesh, P(("batch", "fsdp")))
    with activate(mesh, FSDP.rules):
        sharded = jax.jit(rows_and_gradient, out_shardings=(documents, columns))
        arguments = jax.device_put(table, columns), jax.device_put(ids, documents)
        compiled = sharded.lower(*arguments).compile()
        return {
            "collectives": collectives(compiled),
            "difference": largest_difference(compiled(*arguments), expected),
        }


def check_memory(length=4096):
    """Temporary bytes of one device for the gradients of an encoder, on one device and on eight."""
    config = T5Config.of(
        encoder_attention="window", attention_window=(64,), **SIZES | {"num_layers": 2}
    )
    model, shapes = T5(config), nn.meta.unbox(jax.eval_shape(init_of(config), jax.random.key(0)))

    def total(params, ids, mask):
        return (model.apply({"params": params}, ids, mask, method="encode") ** 2).sum()

    result = []
    for devices in (1, 8):
        options = dataclasses.replace(LONG, batch=1, sequence=devices)
        mesh = make_mesh(options, jax.devices()[:devices])
        ids, mask = (jax.ShapeDtypeStruct((1, length), dtype) for dtype in (jnp.int32, jnp.bool_))
        with activate(mesh, options.rules):
            compiled = jax.jit(jax.grad(total)).lower(shapes, ids, mask).compile()
        result.append(compiled.memory_analysis().temp_size_in_bytes)
    return result


def daily():
    """Returns results on one mesh of every kind, with one attention for every way to shard."""
    report = {f"operation over {name}": check_operation(spec) for name, spec in SPECS.items()}
    report["memory"] = check_memory()
    report |= {f"look up {count} rows": check_look_up(count) for count in (8, 24)}
    shards = {name: PRESETS[name] for name in ("fsdp+tensor", "fsdp+sequence")}
    report |= check_model(CONFIG, shards, 24)
    report |= named("lsg", check_model(LSG, {"fsdp+sequence": LONG}, 30))
    report |= named("pages", check_model(PAGES, {"fsdp+sequence": PRESETS["fsdp+sequence"]}, 30))
    report |= by_heads(BY_HEADS_DAILY)
    report["full, 2 heads"] = check_attention("full", 37, num_heads=2)
    report["full, 37 tokens"] = check_attention("full", 37)
    # one shard without a text's tokens
    report["longformer, 36 tokens"] = check_attention("longformer", 36, attention_window=(8,))
    report["extra keys"] = check_full_attention(36, num_extra=5)
    report["fused"] = check_full_attention(130, backend="splash")
    report["fused source"] = check_fused_source(is_merged=False)
    report["fused source and target"] = check_fused_source(is_merged=True)
    for name, options in {"fsdp+tensor": PRESETS["fsdp+tensor"], "sequence": LONG}.items():
        report[f"fused lsh, {name}"] = check_fused_lsh(options)
    report["creation"] = check_creation(PRESETS["fsdp+tensor"])
    report["adafactor"] = check_adafactor(PRESETS["fsdp+tensor"])
    report["decoding from keys"] = check_decoding("full", 2**31)
    report["decoding from states"] = check_decoding("hepos", 0)
    report["memory of lsg"] = check_stored_states("lsg")
    return report


def weekly():
    """Returns results of further ways to shard, each of them similar to one of ``daily``."""
    report = check_model(CONFIG, {"replicated": PRESETS["replicated"]}, 24)
    meshes = {name: PRESETS[name] for name in ("replicated", "fsdp+tensor")} | {"fsdp": FSDP}
    report |= named("pages", check_model(PAGES, meshes, 30))
    report |= named("merged", check_model(MERGED, {"fsdp+sequence": LONG}, 30))
    report |= by_heads(BY_HEADS.keys() - BY_HEADS_DAILY)
    report["decoding by one attention"] = check_decoding("full", 2**31, MERGED)
    report["memory of block_staggered"] = check_stored_states("block_staggered")
    return report


def by_heads(names):
    return {f"{name} by heads": check_attention(name, **BY_HEADS[name]) for name in names}


def named(prefix, report):
    return {f"{prefix} {name}": result for name, result in report.items()}


if __name__ == "__main__":
    print(json.dumps(weekly() if sys.argv[1:] == ["weekly"] else daily()))
