"""Compiles fused attention over 16,384 tokens, with gradients, for the device that is named: to all
keys, or to those within a radius.

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
CALLS = {"splash": '"tpu_custom_call"', "cudnn": '"__cudnn$fmha'}
CALLS["triton"] = '"__gpu$xla.gpu.triton"'


def compile_for(name, radius):
    import jax
    import jax.numpy as jnp

    from longsum_jax.ops.attention.fused import choose_kernel, fused_attention
    from longsum_jax.ops.attention.local import local_attention

    device, *_ = find_target(name).devices
    sharding = jax.sharding.SingleDeviceSharding(device)
    array = jax.ShapeDtypeStruct((1, LENGTH, HEADS, HEAD_DIM), jnp.bfloat16, sharding=sharding)
    mask = jax.ShapeDtypeStruct((1, LENGTH), bool, sharding=sharding)
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
        ).kernel
        attend = functools.partial(fused_attention, kernel=kernel)

        def loss(q, k, v, mask):
            if radius:
                out = local_attention(q, k, v, mask, radius=radius, fused=attend)
            else:
                out = attend(q, k, v, mask[:, None])
            return out.astype(jnp.float32).sum()

        gradients = jax.jit(jax.value_and_grad(loss, (0, 1, 2)))
        compiled = gradients.lower(array, array, array, mask).compile()
    text = compiled.as_text()
    return {
        "kernels": text.count(f"custom_call_target={CALLS[kernel]}"),
        "products": program_work(text).operations / (2 * HEADS * HEAD_DIM * LENGTH**2),
        "temporary": compiled.memory_analysis().temp_size_in_bytes,
        "scores": 4 * HEADS * LENGTH**2,
    }


if __name__ == "__main__":
    set_environment(sys.argv[1], os.environ)
    print(json.dumps(compile_for(sys.argv[1], int(sys.argv[2]))))
