"""Compiles fused attention over 16,384 tokens, with gradients, for the device that is named: to all
keys, plainly, with T5's position bias and dropout, or with the segments of packed rows, or to those
within a radius.

Prints one JSON object: the kernels in the program, the products of queries and keys in them, its
temporary bytes, and those of one array of scores. Run by test_fused.py in a process of its own,
because JAX reads the environment when it is imported.
"""

import functools
import json
import os
import sys

from longsum_plan.devices import find_target, set_environment
from longsum_plan.program_work import program_work

LENGTH, HEADS, HEAD_DIM = 16384, 12, 64
# The target of a custom call, by kernel.
CALLS = {"splash": '"tpu_custom_call"', "mosaic": '"tpu_custom_call"', "cudnn": '"__cudnn$fmha'}
CALLS["triton"] = '"__gpu$xla.gpu.triton"'


def compile_for(name, radius, kind):
    import jax
    import jax.numpy as jnp

    from longsum_jax.ops.attention.fused import choose_kernel, fused_attention
    from longsum_jax.ops.attention.key_sets import WeightDropout
    from longsum_jax.ops.attention.local import local_attention
    from longsum_jax.ops.attention.relative_position import StepBias, bucket_steps
    from longsum_jax.ops.packing import SegmentIds

    device, *_ = find_target(name).devices
    sharding = jax.sharding.SingleDeviceSharding(device)
    array = jax.ShapeDtypeStruct((1, LENGTH, HEADS, HEAD_DIM), jnp.bfloat16, sharding=sharding)
    mask = jax.ShapeDtypeStruct((1, LENGTH), bool, sharding=sharding)
    ids = jax.ShapeDtypeStruct((1, LENGTH), jnp.int32, sharding=sharding)
    table = jax.ShapeDtypeStruct((HEADS, 32), jnp.float32, sharding=sharding)
    with jax.default_device(device):
        kernel = choose_kernel(
            "auto",
            array.dtype,
            num_queries=LENGTH,
            num_keys=LENGTH,
            head_dim=HEAD_DIM,
            causal=False,
            has_mask=True,
            has_pattern=radius > 0,
            has_bias=kind == "biased",
            has_dropout=kind == "biased",
            has_segments=kind == "packed",
        ).kernel
        attend = functools.partial(fused_attention, kernel=kernel)

        def loss(q, k, v, table, mask, ids):
            options = {}
            if kind == "packed":
                options["segment_ids"] = SegmentIds(ids, ids)
            if kind == "biased":
                starts, buckets = bucket_steps(bidirectional=True, num_buckets=32, max_distance=128)
                options["biases"] = [StepBias(table[:, jnp.array(buckets)], starts)]
                options["dropout"] = WeightDropout(jax.random.key(0), 0.1)
            if radius:
                out = local_attention(q, k, v, mask, radius=radius, fused=attend)
            else:
                out = attend(q, k, v, mask[:, None], **options)
            return out.astype(jnp.float32).sum()

        gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))
        compiled = gradients.lower(array, array, array, table, mask, ids).compile()
    text = compiled.as_text()
    return {
        "kernels": text.count(f"custom_call_target={CALLS[kernel]}"),
        "products": program_work(text).operations / (2 * HEADS * HEAD_DIM * LENGTH**2),
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
        "scores": 4 * HEADS * LENGTH**2,
    }


if __name__ == "__main__":
    set_environment(sys.argv[1], os.environ)
    print(json.dumps(compile_for(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
