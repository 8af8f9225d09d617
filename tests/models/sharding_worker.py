"""Compares sharded with unsharded computation on 8 virtual CPU devices; prints one JSON object of what it found.

Run by test_sharding.py in a process of its own, because the number of devices is fixed when JAX starts.
"""

import functools
import json
import os
import re

# Compiled with less care, which halves the time; the partitioner runs all the same.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8 --xla_backend_optimization_level=0"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.models.locost import LocostConfig
from longsum_jax.models.t5 import T5
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.ops.ssm import DiagonalSSM
from longsum_jax.ops.ssm_conv import ssm_convolution, ssm_convolution_sharded
from longsum_jax.training.partition import MeshOptions, activate, create_sharded, make_mesh, put_batch

SPECS = {"batch": P("batch"), "channels": P(None, None, "batch"), "length": P(None, "batch")}
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")


def collectives(compiled):
    text = compiled.as_text()
    return {name: len(re.findall(rf"\b{name}(?:-start)?\(", text)) for name in COLLECTIVES}


def largest_difference(tree, reference):
    """Over all arrays, relative to the largest entry of each."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(reference), strict=True)
    return max(float(np.abs(np.asarray(x) - y).max() / max(np.abs(y).max(), 1e-3)) for x, y in pairs)


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
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), tree)


def check_operation(spec):
    """Values, gradients and collectives of the sharded operation."""
    u, ssm, D = operation_inputs()
    mesh = make_mesh(MeshOptions("replicated"))
    channels = spec[2:]
    places = (spec, DiagonalSSM(*(P(None, *channels) for _ in ssm)), P(*channels))
    arguments = jax.tree.map(lambda x, place: jax.device_put(x, NamedSharding(mesh, place)), (u, ssm, D), places)

    def gradients(convolve, u, ssm, D):
        y, pull_back = jax.vjp(convolve, u, ssm, D)
        return pull_back(jnp.sin(y))

    expected = jax.jit(ssm_convolution)(u, ssm, D)
    expected_gradients = jax.jit(functools.partial(gradients, ssm_convolution))(u, ssm, D)
    sharded = functools.partial(ssm_convolution_sharded, spec=spec)
    with jax.set_mesh(mesh):
        forward = jax.jit(sharded).lower(*arguments).compile()
        backward = jax.jit(functools.partial(gradients, sharded)).lower(*arguments).compile()
        return {
            "forward": collectives(forward),
            "backward": collectives(backward),
            "difference": largest_difference(forward(*arguments), expected),
            "gradient_difference": largest_difference(backward(*arguments), expected_gradients),
        }


def check_plain_jit():
    """What GSPMD makes of the same operation without shard_map."""
    mesh = make_mesh(MeshOptions("replicated"))
    u, ssm, D = operation_inputs()
    u = jax.device_put(u, NamedSharding(mesh, P("batch")))
    return collectives(jax.jit(ssm_convolution).lower(u, ssm, D).compile())


CONFIG = LocostConfig(
    vocab_size=96, d_model=32, d_state=8, d_kv=8, d_ff=64, num_layers=1, num_decoder_layers=1, num_heads=4
)
MODEL = T5(CONFIG)
PRESETS = {
    "replicated": MeshOptions("replicated"),
    "fsdp+tensor": MeshOptions("fsdp+tensor", batch=2, fsdp=2, tensor=2),
    "fsdp+sequence": MeshOptions("fsdp+sequence", batch=1, fsdp=2, sequence=4),
}


def init(key):
    ids = jnp.zeros((1, 2), jnp.int32)
    return MODEL.init(key, ids, ids, ids)["params"]


def loss(params, batch):
    decoder_ids = shift_right(batch["labels"], start_id=0, pad_id=0)
    logits = MODEL.apply({"params": params}, batch["input_ids"], batch["attention_mask"], decoder_ids)
    total, weight = token_cross_entropy(logits, batch["labels"])
    return total / weight


def check_models():
    """Loss and gradients of a whole model, created and run on a mesh, against one device."""
    rng = np.random.default_rng(0)
    batch = {
        "input_ids": rng.integers(2, 96, (8, 24)),
        "attention_mask": np.arange(24) < rng.integers(5, 25, (8, 1)),
        "labels": rng.integers(2, 96, (8, 6)),
    }
    step, expected, report = jax.value_and_grad(loss), None, {}
    for name, options in PRESETS.items():
        mesh = make_mesh(options)
        params, _ = create_sharded(init, mesh, options.rules, jax.random.key(0))
        if expected is None:
            expected = jax.jit(step)(jax.device_get(params), batch)
        with activate(mesh, options.rules):
            value, gradients = jax.jit(step)(params, put_batch(batch, mesh))
        report[f"model {name}"] = {
            "loss_difference": largest_difference(value, expected[0]),
            "gradient_difference": largest_difference(gradients, expected[1]),
        }
    return report


if __name__ == "__main__":
    report = {f"operation over {name}": check_operation(spec) for name, spec in SPECS.items()}
    report |= {"plain jit": check_plain_jit()} | check_models()
    print(json.dumps(report))
