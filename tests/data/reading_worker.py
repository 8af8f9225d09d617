"""One host of several: `reading_worker.py DIRECTORY` reads prepared shards as often as it is asked.

A line of standard input is a JSON list: index of the host, number of hosts, the batch to stop at,
and where to go on or null. The answer is one JSON object: epoch and token ids of every example that
this host was given, and where it stands. Run by test_hosts.py in processes of their own.
"""

import json
import sys

from longsum_jax.data.batches import Batches
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.typing import RowShards


def read(directory: str, index: int, count: int, stop: int, state: dict | None) -> dict:
    batches = Batches(
        PreparedExamples(directory),
        batch_size=4,
        source_lengths=(24, 64),
        target_length=12,
        seed=5,
        epochs=3,
        host_rows=RowShards((index,), count),
    )
    if state:
        batches.restore(state)
    seen = []
    for _, batch in zip(range(stop), batches, strict=False):
        epoch = batches.state()["epoch"]
        rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
        seen += [(epoch, ids[mask].tolist()) for ids, mask in rows if mask.any()]
    return {"seen": seen, "state": batches.state()}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(read(sys.argv[1], *json.loads(line))), flush=True)
