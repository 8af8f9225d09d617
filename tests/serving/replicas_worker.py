"""Serves a model on 4 virtual devices, by replicas and by shards; prints one JSON object.

    python replicas_worker.py DIRECTORY

Run by test_replicas.py in a process of its own: the number of devices is fixed when JAX starts.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import contextlib
from concurrent.futures import CancelledError

import jax

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.serving.engine import Engine
from longsum_jax.serving.metrics import Metrics
from longsum_jax.serving.replicas import make_replicas
from longsum_jax.summarization.summary import Request

TEXTS = [f"Text {number} has some words. " * (1 + number % 3) for number in range(8)]
OPTIONS = ({}, {"strategy": "segments", "segment_length": 32})
ARRANGEMENTS = {
    "one": (1, {}),
    "two": (2, {}),
    "sharded": ("auto", {"fsdp": 2, "tensor": 2}),
}


def parameters(replica):
    return jax.tree.leaves(replica.model.params)


def devices(replica):
    leaves = parameters(replica)
    return sorted({device.id for leaf in leaves for device in leaf.sharding.device_set})


def serve(model, count, sizes):
    """Returns the summaries of all texts, the devices of each replica, and the metrics."""
    replicas = make_replicas(model, count, **sizes)
    engine = Engine(replicas=replicas, batch_size=4)
    metrics = Metrics(engine)
    for future in engine.warm_up(256):
        with contextlib.suppress(CancelledError):
            future.result(300)
    metrics.is_warm = True
    requests = [Request(text, "text", None) for text in TEXTS]
    summaries = []
    for options in OPTIONS:
        futures = engine.submit(requests, options)
        summaries.append([future.result(300).text for future in futures])
    # The smallest share of a parameter that a device stores.
    shares = [
        min(leaf.addressable_shards[0].data.size / leaf.size for leaf in parameters(replica))
        for replica in replicas
    ]
    engine.close()
    rows = [counts.running_row_turns for counts in engine.statistics.values()]
    return {
        "summaries": summaries,
        "devices": list(map(devices, replicas)),
        "shares": shares,
        "rows": rows,
        "metrics": metrics.text(),
    }


def main(directory):
    model = longsum_jax.load(directory)
    report = {name: serve(model, *arrangement) for name, arrangement in ARRANGEMENTS.items()}
    report["groups"] = list(map(devices, make_replicas(model, tensor=2)))
    try:
        make_replicas(model, 3, tensor=2)
    except InputError as error:
        report["error"] = str(error)
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1])
