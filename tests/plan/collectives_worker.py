"""Counts the collectives of a program for 8 virtual CPU devices; one line of JSON."""

import json
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

from longsum_plan.program_work import program_work

RING = [(index, (index + 1) % 4) for index in range(4)]


def body(x, w):
    def layer(x, w):
        whole = jax.lax.all_gather(x, "columns", axis=0, tiled=True)
        summed = jax.lax.psum((whole @ w)[:4], "rows")
        return jax.lax.ppermute(summed, "columns", RING), None

    x, _ = jax.lax.scan(layer, x, w)
    scattered = jax.lax.psum_scatter(x, "columns", scatter_dimension=1, tiled=True)
    swapped = jax.lax.all_to_all(x, "columns", split_axis=1, concat_axis=0, tiled=True)
    return x, scattered, swapped


def main():
    mesh = jax.make_mesh((2, 4), ("rows", "columns"), axis_types=(AxisType.Auto,) * 2)
    cut = P("columns", None)
    mapped = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(cut, P()),
        out_specs=(cut, P(None, "columns"), cut),
        check_vma=False,
    )
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((16, 32), (5, 32, 32))]
    text = jax.jit(mapped).lower(*shapes).compile().as_text()
    works = {"one host": program_work(text), "two hosts": program_work(text, devices_per_host=4)}
    report = {name: work.collectives for name, work in works.items()}
    print(json.dumps(report | {"operations": works["one host"].operations}))


main()
