"""What the subprocess tests run: `worker.py MODE ...`; the result is one line of JSON."""

import json
import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jax
import numpy as np
import optax
import toy
from jax.experimental import multihost_utils

from longsum_jax.errors import InputError
from longsum_jax.training.distributed import Cluster, join, require_agreement
from longsum_jax.training.mesh import MeshOptions, host_rows, make_mesh, put_batch
from longsum_jax.training.state import plan_state, shardings_of
from longsum_jax.training.step import make_train_step


def agree(port: str, index: str, value: str) -> None:
    """One of two processes with configs that differ where ``value`` says so."""
    config = {"same": [1, "a"], "optimizer": {"name": "adamw", "learning_rate": value}}
    join(Cluster("the test", f"127.0.0.1:{port}", 2, int(index)), timeout=60)
    try:
        require_agreement(config, "config")
        print(json.dumps("agreed"))
    except InputError as error:
        print(json.dumps(str(error)))


def cut(workdir: str, kill_at: str) -> None:
    """Trains with dropout; at batch number ``kill_at`` the process kills itself, saves still under
    way."""

    def on_batch(number: int) -> None:
        if number == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)

    batches = toy.ToyBatches(on_batch=on_batch)
    result = toy.toy_fit(workdir, dropout=0.2, batches=batches, steps=10, checkpoint_every=1)
    print(json.dumps({"stopped_by": result.stopped_by}))


def meshes(workdir: str) -> None:
    """Trains under every preset on 8 devices, and goes on with one run on three meshes in turn."""
    results = {"losses": {}, "specs": {}, "compilations": {}}
    layouts = {
        "replicated": MeshOptions(),
        "fsdp": MeshOptions("fsdp", batch=2, fsdp=4),
        "fsdp+tensor": MeshOptions("fsdp+tensor", batch=2, fsdp=2, tensor=2),
    }
    for name, options in layouts.items():
        here = Path(workdir) / name
        accumulation = 2 if name == "fsdp" else 1
        result = toy.toy_fit(
            here,
            steps=4,
            batches=toy.ToyBatches(rows=16),
            mesh_options=options,
            accumulation=accumulation,
            checkpoint_every=0,
        )
        results["losses"][name] = list(toy.losses(here).values())
        moments = result.state.opt_state[1].mu
        kernels = [tree["Dense_0"]["kernel"] for tree in (result.state.params, moments)]
        results["specs"][name] = [list(kernel.sharding.spec) for kernel in kernels]
        results["compilations"][name] = result.compilations
    for steps, options in (
        (2, layouts["fsdp"]),
        (3, layouts["fsdp+tensor"]),
        (4, layouts["replicated"]),
    ):
        here = Path(workdir) / "moving"
        toy.toy_fit(here, steps=steps, batches=toy.ToyBatches(rows=16), mesh_options=options)
    results["losses"]["moving"] = list(toy.losses(here).values())
    results["collectives"] = _collectives_of_accumulation()
    results["errors"] = _mesh_errors()
    print(json.dumps(results))


def _collectives_of_accumulation() -> list[str]:
    """The kinds of communication in a compiled step of two micro-batches on replicated
    parameters."""
    options, optimizer = MeshOptions(), optax.sgd(0.1)
    mesh, model = make_mesh(options), toy.ToyModel()
    rng = jax.random.key(0)
    abstract, _ = plan_state(toy.make_init(model), optimizer, mesh, options.rules, rng)
    step = make_train_step(
        toy.make_loss(model), optimizer, accumulation=2, shardings=shardings_of(abstract)
    )
    batch = put_batch(next(toy.ToyBatches(rows=16)), mesh, accumulation=2)
    text = step.lower(abstract, batch).compile().as_text()
    kinds = ("all-gather", "all-to-all", "collective-permute", "all-reduce", "reduce-scatter")
    return [kind for kind in kinds if kind in text]


def _mesh_errors() -> list[str]:
    mesh = make_mesh(MeshOptions("fsdp", batch=2, fsdp=4))
    attempts = [
        lambda: make_mesh(MeshOptions("fsdp", batch=3, fsdp=2)),
        lambda: make_mesh(MeshOptions("fsdp", fsdp=3)),
        lambda: make_mesh(MeshOptions("fsdp", batch=-1, fsdp=-1)),
        lambda: put_batch({"ids": np.zeros((12, 3), np.int32)}, mesh),
        lambda: put_batch({"ids": np.zeros((16, 3), np.int32)}, mesh, 4),
    ]
    messages = []
    for attempt in attempts:
        try:
            attempt()
        except InputError as error:
            messages.append(str(error))
    return messages


def host(workdir: str, port: str, index: str) -> None:
    """One of two hosts with two devices each: train 4 steps, then on to where host 1 is stopped."""
    join(Cluster("the test", f"127.0.0.1:{port}", 2, int(index)), timeout=60)
    mesh = MeshOptions("fsdp", batch=2, fsdp=2)

    def on_batch(number: int) -> None:
        if number == 8 and index == "1":
            os.kill(os.getpid(), signal.SIGTERM)

    for steps in (4, 30):
        batches = toy.ToyBatches(rows=8, host=int(index), hosts=2, on_batch=on_batch)
        result = toy.toy_fit(workdir, steps=steps, batches=batches, mesh_options=mesh)
    print(
        json.dumps(
            {"step": result.step, "stopped_by": result.stopped_by, "devices": jax.device_count()}
        )
    )


def interleaved(port: str, index: str) -> None:
    """One of two hosts with two devices each, whose devices alternate in the mesh, as on slices of
    TPUs: it reads its own rows, and sees all rows."""
    join(Cluster("the test", f"127.0.0.1:{port}", 2, int(index)), timeout=60)
    devices = np.array(jax.devices())[[0, 2, 1, 3]]
    axes = make_mesh(MeshOptions()).axis_names
    mesh = jax.sharding.Mesh(devices.reshape(4, 1, 1, 1), axes)
    own = host_rows(mesh).rows_of(8)
    placed = put_batch({"number": np.array(own, np.int32)}, mesh)["number"]
    together = multihost_utils.process_allgather(placed, tiled=True)
    print(json.dumps({"own": own, "together": together.tolist()}))


def doubled(workdir: str, port: str, index: str, hosts: str, stop_at: str) -> None:
    """One of several hosts that train 12 steps with dropout, unless the last one is stopped."""
    join(Cluster("the test", f"127.0.0.1:{port}", int(hosts), int(index)), timeout=60)
    is_last = int(index) == int(hosts) - 1
    batches = toy.Documents(int(index), int(hosts), int(stop_at) if is_last else 0)
    mesh = MeshOptions("fsdp", batch=-1, fsdp=2)
    options = {"steps": 12, "dropout": 0.2, "checkpoint_every": 0}
    result = toy.toy_fit(workdir, batches=batches, mesh_options=mesh, **options)
    print(json.dumps({"step": result.step, "rows": batches.rows}))


if __name__ == "__main__":
    modes = {"agree": agree, "cut": cut, "meshes": meshes, "host": host, "doubled": doubled}
    modes["interleaved"] = interleaved
    modes[sys.argv[1]](*sys.argv[2:])
