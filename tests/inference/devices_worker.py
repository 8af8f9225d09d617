"""Summarizes on 4 virtual devices and on one of them; prints what both gave as one JSON object.

Run by test_devices.py in a process of its own: the number of devices is fixed when JAX starts.
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

if __name__ == "__main__":
    model = longsum_jax.load(sys.argv[1])
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
    report |= {
        "alone": model.summarize(TEXTS, **options),
        "rows without": [rows_on_devices(rows) for rows in (1, 5)],
        "difference": float(np.abs(states - model.encode(ids, np.ones_like(ids))).max()),
    }
    print(json.dumps(report))
