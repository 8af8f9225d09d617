"""One host of several: `reading_worker.py DIRECTORY INDEX COUNT STOP [STATE]` reads prepared shards
up to batch STOP.

Prints one JSON object: epoch and token ids of every example that this host was given, and where it
stands. Run by test_hosts.py in processes of their own.
"""

import json
import sys

from longsum_jax.data.batches import Batches
from longsum_jax.data.prepared import PreparedExamples


def main(directory: str, index: str, count: str, stop: str, state: str = "") -> None:
    batches = Batches(
        PreparedExamples(directory),
        batch_size=4,
        source_lengths=(24, 64),
        target_length=12,
        seed=5,
        epochs=3,
        host_index=int(index),
        host_count=int(count),
    )
    if state:
        batches.restore(json.loads(state))
    seen = []
    for _, batch in zip(range(int(stop)), batches, strict=False):
        epoch = batches.state()["epoch"]
        rows = zip(batch["input_ids"], batch["attention_mask"], strict=True)
        seen += [(epoch, ids[mask].tolist()) for ids, mask in rows if mask.any()]
    print(json.dumps({"seen": seen, "state": batches.state()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
