"""Summaries in one process for a long time: memory, compiled programs, files, threads, seconds.

    python benchmarks/soak.py --out=soak.json [--minutes=30] [--family=locost] [--longest=4096]
        [--batch_size=4] [--seed=0]

A random tiny model reads documents of the embedded documentation cut to random lengths, after one
of every length, which compiles its programs. Rows are tenths of the time. The last line says by how
much resident memory grew from the second tenth to the last.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import print_table, write_report
from flax.traverse_util import unflatten_dict

from longsum_jax.inference.model import Model
from longsum_jax.models.registry import get_family
from longsum_jax.tokenizers.bytes import ByteTokenizer

PARTS = 10


def make_model(family_name: str, seed: int) -> Model:
    """Returns a random tiny model that reads bytes."""
    family = get_family(family_name)
    config = family.presets["tiny"]
    rng = np.random.default_rng(seed)
    params = {
        path: 0.1 * rng.normal(size=shape).astype(np.float32)
        for path, shape in family.parameter_shapes(config).items()
    }
    for path, value in params.items():  # decays and steps of state-space layers have a sign
        if path.endswith(("log_dt", "inv_A_real")):
            params[path] = value - 3
    tree = jax.device_put(unflatten_dict(params, sep="/"))
    tokenizer = ByteTokenizer(unused_ids=config.vocab_size - 259)
    return Model(family, config, tree, tokenizer, {"max_new_tokens": 16})


def warm_up(longest: int, count: int) -> Iterator[list[str]]:
    """Yields documents of every length that is padded to another one, the longest first."""
    lengths = np.unique(np.geomspace(16, longest, 40).astype(int))[::-1]
    for length in lengths:
        yield ["a" * length] * count


def documents(longest: int, count: int, seed: int) -> Iterator[list[str]]:
    """Yields batches of documents of random lengths without end."""
    from pydoc_data.topics import topics

    text = " ".join(" ".join(topics.values()).split())
    rng = np.random.default_rng(seed)
    while True:
        places = rng.integers(0, len(text) - longest, count)
        sizes = np.exp(rng.uniform(np.log(16), np.log(longest), count)).astype(int)
        yield [text[place : place + size] for place, size in zip(places, sizes, strict=True)]


def compiled_programs(model: Model) -> int:
    """Returns how many programs of a model are compiled."""
    found = 0
    left: list[Any] = [model._programs]
    while left:
        value = left.pop()
        if hasattr(value, "_cache_size"):
            found += value._cache_size()
        elif hasattr(value, "__dict__") and type(value).__module__.startswith("longsum_jax"):
            left += [x for x in vars(value).values() if x is not model.module]
    return found


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def soak(
    summarize: Callable[[list[str]], Any],
    batches: Iterator[list[str]],
    count_programs: Callable[[], int],
    seconds: float,
) -> list[dict[str, Any]]:
    """Summarizes for some seconds; returns a row for every tenth of them."""
    rows = []
    began = time.monotonic()
    for part in range(1, PARTS + 1):
        done, start = 0, time.monotonic()
        while done == 0 or time.monotonic() < began + seconds * part / PARTS:
            batch = next(batches)
            summarize(batch)
            done += len(batch)
        row = {"part": part, "documents": done, "programs": count_programs()}
        row["resident_mib"] = round(resident_bytes() / 2**20, 1)
        row["files"] = len(os.listdir("/proc/self/fd"))
        row["threads"] = threading.active_count()
        row["documents_per_second"] = round(done / (time.monotonic() - start), 2)
        rows.append(row)
    return rows


def growth(rows: list[dict[str, Any]]) -> float:
    """Returns by what share resident memory grew from the second part to the last."""
    return rows[-1]["resident_mib"] / rows[1]["resident_mib"] - 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--family", default="locost")
    parser.add_argument("--longest", type=int, default=4096, help="bytes of a document")
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    model = make_model(args.family, args.seed)

    def summarize(batch: list[str]) -> None:
        model.summaries(batch, batch_size=args.batch_size)

    for batch in warm_up(args.longest, args.batch_size):
        summarize(batch)
    rows = soak(
        summarize,
        documents(args.longest, args.batch_size, args.seed),
        lambda: compiled_programs(model),
        60 * args.minutes,
    )
    print_table(rows)
    print(f"resident memory grew by {100 * growth(rows):.2f} % from the second part to the last")
    write_report(args.out, rows, **vars(args))


if __name__ == "__main__":
    main()
