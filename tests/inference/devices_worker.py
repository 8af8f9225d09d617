"""Runs models on 4 virtual devices and on one of them; prints what both gave as one JSON object.

    python devices_worker.py DIRECTORY             # summaries of texts
    python devices_worker.py DIRECTORY DIRECTORY   # states and ids of models without tokenizers

Run by test_devices.py and models/test_families.py in a process of its own: the number of devices is
fixed when JAX starts.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import numpy as np

import longsum_jax
from longsum_jax.inference.devices import rows_on_devices

TEXTS = ["A first text is short.", "Another one has some more words than that. It ends here."] * 3


def summaries(directory):
    model = longsum_jax.load(directory)
    options = {"max_new_tokens": 4, "num_beams": 2, "batch_size": 3}
    with model.on_all_devices(jax.devices()[:1]) as alone:
        assert alone is model
    ids = np.full((4, 16), 7)
    with model.on_all_devices() as parallel:
        states = parallel.encode(ids, np.ones_like(ids))
        report = {
            "parallel": parallel.summarize(TEXTS, **options),
            "rows": [rows_on_devices(rows) for rows in (1, 4, 5)],
            "shard": states.sharding.shard_shape(states.shape),
            "devices": len(jax.tree.leaves(parallel.params)[0].sharding.device_set),
        }
    return report | {
        "alone": model.summarize(TEXTS, **options),
        "rows without": [rows_on_devices(rows) for rows in (1, 5)],
        "difference": float(np.abs(states - model.encode(ids, np.ones_like(ids))).max()),
    }


def states_and_ids(directory):
    """The largest difference of states, relative to the largest; generated ids of both."""
    model = longsum_jax.load(directory)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 60, (4, 24))
    mask = np.arange(24) < np.array([[24], [9], [17], [20]])
    ids = np.where(mask, ids, model.config.pad_token_id)

    def run(model):
        states = np.asarray(model.encode(ids, mask))[mask]
        if not model.family.is_encoder_decoder:
            return states, []
        return states, np.asarray(model.generate(ids, mask, max_new_tokens=6)).tolist()

    with model.on_all_devices() as parallel:
        result, found_ids = run(parallel)
    expected, wanted_ids = run(model)
    difference = float(np.abs(result - expected).max() / np.abs(expected).max())
    return {"difference": difference, "parallel": found_ids, "alone": wanted_ids}


if __name__ == "__main__":
    directories = sys.argv[1:]
    if len(directories) == 1:
        print(json.dumps(summaries(directories[0])))
    else:
        print(json.dumps([states_and_ids(directory) for directory in directories]))
