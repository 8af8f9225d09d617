"""Saving and restoring checkpoints: seconds, the wait of a training step, memory of each process.

    python benchmarks/checkpoints.py --out=checkpoints.json [--preset=base] [--directory=DIR]

Every part runs in processes of its own, whose peak memory is measured. "write" saves the state of
a LOCOST with Adafactor, as in configs/locost_c4.py, while steps go on that change every parameter;
"read" restores it in one process, and "read, sharded" in two processes with half of every parameter
each, checksums included. The checkpoint is removed at the end.

"hosts" makes no arrays: bytes of the state of T5Gemma 9B-2B with AdamW, from its shardings over
the devices of 8 and 16 hosts.
"""

import argparse
import functools
import math
import multiprocessing
import resource
import socket
import statistics
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
from common import GIB, print_table, write_report
from jax.sharding import AbstractMesh, AxisType

from longsum_jax.models.registry import get_family
from longsum_jax.training.checkpointing import TrainingCheckpoints
from longsum_jax.training.distributed import Cluster, join
from longsum_jax.training.mesh import MESH_AXES, MeshOptions, make_mesh
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import TrainState, create_state, plan_state

STEP = 1  # number of the checkpoint
IDLE_STEPS = 5
DEVICES_PER_HOST = 8

Row = dict[str, Any]


def optimizer(name: str) -> Any:
    """An optimizer of the run; its learning rate does not matter here."""
    options = OptimizerOptions(name=name, learning_rate=1e-3)
    return make_optimizer(options)


def planned(preset: str, fsdp: int) -> tuple[TrainState, Any]:
    """The shapes of a LOCOST's state with shardings, and the function that initializes it."""
    family = get_family("locost")
    options = MeshOptions("fsdp", batch=1, fsdp=fsdp)
    init = family.init_params(family.presets[preset])
    mesh, rules = make_mesh(options), options.rules
    abstract, _ = plan_state(init, optimizer("adafactor"), mesh, rules, jax.random.key(0))
    return abstract, init


def write(directory: str, preset: str) -> Row:
    """Saves a state while steps go on."""
    abstract, init = planned(preset, 1)
    state = create_state(abstract, init, optimizer("adafactor"), jax.random.key(0))

    @functools.partial(jax.jit, donate_argnums=0)
    def step(params: Any) -> Any:
        return jax.tree.map(lambda x: 0.999 * x, params)

    def timed_step(params: Any) -> tuple[float, Any]:
        start = time.perf_counter()
        params = jax.block_until_ready(step(params))
        return time.perf_counter() - start, params

    _, params = timed_step(state.params)
    idle, during = [], []
    for _ in range(IDLE_STEPS):
        seconds, params = timed_step(params)
        idle.append(seconds)
    checkpoints = TrainingCheckpoints(directory)
    start = time.perf_counter()
    checkpoints.save(STEP, params, state.without_params(), {})
    wait = time.perf_counter() - start
    writer = threading.Thread(target=checkpoints.wait)
    writer.start()
    while writer.is_alive():
        seconds, params = timed_step(params)
        during.append(seconds)
    total = time.perf_counter() - start
    checkpoints.close()
    return {
        "part": "write",
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(params)),
        "state_gib": state_bytes(abstract) / GIB,
        "seconds": total,
        "wait_seconds": wait,
        "step_seconds": statistics.median(idle),
        "step_seconds_during": statistics.median(during),
        "steps_during": len(during),
        "longest_step_during": max(during),
        "peak_gib": peak_gib(),
    }


def read(directory: str, preset: str, processes: int, process: int, port: int) -> Row:
    """Restores the state, or the part of one of several processes."""
    if processes > 1:
        join(Cluster("the benchmark", f"127.0.0.1:{port}", processes, process))
    abstract, _ = planned(preset, processes)
    before = peak_gib()
    start = time.perf_counter()
    checkpoints = TrainingCheckpoints(directory)
    restored = checkpoints.restore(abstract.params, abstract.without_params())
    jax.block_until_ready((restored.params, restored.state))
    seconds = time.perf_counter() - start
    checkpoints.close()
    return {
        "part": "read" if processes == 1 else f"read, sharded, process {process}",
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(restored.params)),
        "state_gib": state_bytes(abstract) / GIB,
        "seconds": seconds,
        "gib_before": before,
        "peak_gib": peak_gib(),
    }


def on_hosts(hosts: int) -> Row:
    """Bytes of a large model's state on each of several hosts."""
    family, devices = get_family("t5gemma"), hosts * DEVICES_PER_HOST
    mesh = AbstractMesh((1, devices, 1, 1), MESH_AXES, axis_types=(AxisType.Auto,) * 4)
    abstract, layout = plan_state(
        family.init_params(family.presets["9b_2b"]),
        optimizer("adamw"),
        mesh,
        MeshOptions("fsdp", fsdp=-1, batch=1).rules,
        jax.random.key(0),
    )
    whole = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(abstract))
    return {
        "part": "hosts",
        "hosts": hosts,
        "devices": devices,
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(layout.shapes)),
        "whole_gib": whole / GIB,
        # As if no two devices of a host had the same part of an array.
        "state_gib": DEVICES_PER_HOST * state_bytes(abstract) / GIB,
    }


def state_bytes(abstract: Any) -> int:
    """Bytes of a state on each device."""
    return sum(
        math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf in jax.tree.leaves(abstract)
    )


def peak_gib() -> float:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GIB


def in_processes(count: int, function: Any, *arguments: Any) -> list[Row]:
    """Calls a function in new processes, if there are several with the number of each."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, context) as pool:
        if count == 1:
            return [pool.submit(function, *arguments).result()]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        calls = [pool.submit(function, *arguments, count, i, port) for i in range(count)]
        return [call.result() for call in calls]


def main() -> None:
    """Runs all parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="checkpoints.json")
    parser.add_argument("--preset", default="base", help="of LOCOST; default: base")
    parser.add_argument("--directory", help="for the checkpoint; default: a temporary one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as directory:
        path = str(Path(directory) / "checkpoints")
        rows = in_processes(1, write, path, args.preset)
        rows += in_processes(1, read, path, args.preset, 1, 0, 0)
        rows += in_processes(2, read, path, args.preset)
    rows += [on_hosts(hosts) for hosts in (8, 16)]
    print_table(rows)
    write_report(args.out, rows)


if __name__ == "__main__":
    main()
