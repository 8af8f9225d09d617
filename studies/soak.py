"""Summaries, then training, each in one process for a long time: memory, compiled programs, files,
threads, speed.

    python studies/soak.py --out=soak.json [--sections=summaries,training]
        [--short=20000] [--long=200] [--saves=300] [--family=locost] [--batch_size=64] [--seed=0]

    summaries  A random tiny model reads documents of the embedded documentation: batches of short
               ones, up to 128 tokens, and between them long ones of 8,192 to 32,768, one at a
               time. Before the first row it has read one of every length, which compiles its
               programs.
    training   `longsum train` makes tiny steps, each with a checkpoint and an evaluation.

Rows are tenths of the work. Resident memory is the least of a tenth, measured after every batch or
step: what is held, without what one long document takes for a while. The last lines say by how much
it grew from the first tenth after all programs were compiled to the last. With the same --out,
sections that are there are not run again.
"""

import argparse
import functools
import math
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import benchmarks_path  # noqa: F401
import jax
import numpy as np
from common import print_table, rows_before, write_report
from flax.traverse_util import unflatten_dict
from reliability_runs import CONFIG, write_rows

from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.bytes import ByteTokenizer

PARTS = 10
SHORT = (16, 128)  # shortest and longest of the short documents, in bytes
LONG = (2**13, 2**15)
SECTIONS = ("summaries", "training")


class Watch:
    """The rows of a section, which are made while it is under way.

    Args:
        section: of the table.
        total: units of work: documents, or steps.
    """

    def __init__(self, section: str, total: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self._section, self._total = section, total
        self._compiled = compilations()
        self._done, self._before, self._least = 0, 0, math.inf
        self._start = time.monotonic()

    def add(self, units: int) -> None:
        """Counts work that is done; makes a row when a tenth of all is."""
        self._done += units
        self._least = min(self._least, resident_bytes())
        if self._done * PARTS >= self._total * (len(self.rows) + 1):
            self._make_row()

    def _make_row(self) -> None:
        now = time.monotonic()
        done = self._done - self._before
        self.rows.append(
            {
                "section": self._section,
                "part": len(self.rows) + 1,
                "done": done,
                "compiled": compilations() - self._compiled,
                "resident_mib": round(self._least / 2**20, 1),
                "files": len(os.listdir("/proc/self/fd")),
                "threads": len(os.listdir("/proc/self/task")),
                "per_second": round(done / (now - self._start), 2),
            }
        )
        self._before, self._least = self._done, math.inf
        self._compiled, self._start = compilations(), now


_compiled: list[str] = []


def _listen(event: str, seconds: float, **_: Any) -> None:
    del seconds
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


def compilations() -> int:
    """Returns how many programs this process has compiled."""
    return len(_compiled)


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def settled(rows: list[dict[str, Any]]) -> int:
    """Returns the place of the first row after the last one in which a program was compiled."""
    compiled = [place for place, row in enumerate(rows) if row["compiled"]]
    return min(compiled[-1] + 1 if compiled else 0, len(rows) - 1)


def growth(rows: list[dict[str, Any]]) -> float:
    """Returns by what share resident memory grew from the first tenth without compilations, in it
    and after it, to the last.
    """
    return rows[-1]["resident_mib"] / rows[settled(rows)]["resident_mib"] - 1


# Summaries


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
    return Model(family, config, tree, tokenizer, {"max_new_tokens": 8})


def warm_up(sizes: tuple[int, int], count: int) -> Iterator[list[str]]:
    """Yields documents of every length that is padded to another one, the longest first."""
    lengths = np.unique(np.geomspace(*sizes, 8).astype(int))[::-1]
    for length in lengths:
        yield ["a" * length] * count


def documents(sizes: tuple[int, int], count: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yields batches of documents of random lengths without end."""
    from pydoc_data.topics import topics

    text = " ".join(" ".join(topics.values()).split())
    shortest, longest = sizes
    while True:
        places = rng.integers(0, len(text) - longest, count)
        drawn = np.exp(rng.uniform(np.log(shortest), np.log(longest), count)).astype(int)
        yield [text[place : place + size] for place, size in zip(places, drawn, strict=True)]


def mixed(short: int, long: int, batch_size: int, rng: np.random.Generator) -> Iterator[list[str]]:
    """Yields batches of short documents, and between them long ones, evenly spread."""
    shorts, longs = documents(SHORT, batch_size, rng), documents(LONG, 1, rng)
    done = 0
    for start in range(0, short, batch_size):
        batch = next(shorts)[: short - start]
        yield batch
        for _ in range(done, long * (start + len(batch)) // short):
            yield next(longs)
            done += 1


def soak(
    summarize: Callable[[list[str]], Any], batches: Iterable[list[str]], watch: Watch
) -> list[dict[str, Any]]:
    """Summarizes batches; returns the rows."""
    for batch in batches:
        summarize(batch)
        watch.add(len(batch))
    return watch.rows


def soak_summaries(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the rows of the summaries."""
    model = make_model(args.family, args.seed)

    def summarize(batch: list[str]) -> None:
        model.summaries(batch, batch_size=args.batch_size)

    for sizes, count in ((LONG, 1), (SHORT, args.batch_size)):
        for batch in warm_up(sizes, count):
            summarize(batch)
    rng = np.random.default_rng(args.seed)
    batches = mixed(args.short, args.long, args.batch_size, rng)
    watch = Watch("summaries", args.short + args.long)
    return soak(summarize, batches, watch)


# Training


def soak_training(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the rows of the training."""
    from longsum_jax.commands import train
    from longsum_jax.training import loop

    watch = Watch("training", args.saves)
    fit = loop.fit
    with tempfile.TemporaryDirectory() as folder:
        documents_file = Path(folder, "rows.jsonl")
        write_rows(documents_file, args.seed)
        often = f"training.steps={args.saves},training.checkpoint_every=1,training.eval_every=1"
        config = f"{CONFIG}:summaries,rows={documents_file},{often}"
        loop.fit = functools.partial(fit, hooks=[lambda *_: watch.add(1)])
        try:
            train.main([f"--config={config}", f"--workdir={folder}/run"])
        finally:
            loop.fit = fit
    return watch.rows


def in_a_process(section: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Returns the rows of a section, which has a process of its own."""
    run = soak_summaries if section == "summaries" else soak_training
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, args).result()


def main() -> None:
    """Prints the tables and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", metavar="FILE")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--short", type=int, default=20_000, help="documents; default: 20000")
    parser.add_argument("--long", type=int, default=200, help="documents; default: 200")
    parser.add_argument("--saves", type=int, default=300, help="default: 300")
    parser.add_argument("--family", default="locost")
    parser.add_argument("--batch_size", type=int, default=64, help="of short documents")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    sections = args.sections.split(",")
    if unknown := set(sections) - set(SECTIONS):
        parser.error(f"--sections: {', '.join(unknown)} is none of {', '.join(SECTIONS)}")
    settings = {name: getattr(args, name) for name in ("short", "long", "saves", "family", "seed")}
    rows = rows_before(args.out, **settings)
    known = {row["section"] for row in rows}
    for section in sections:
        if section not in known:
            rows += in_a_process(section, args)
        if args.out:
            write_report(args.out, rows, **settings, date=time.strftime("%Y-%m-%d"))
    for section in dict.fromkeys(row["section"] for row in rows):
        result = [row for row in rows if row["section"] == section]
        print_table(result)
        print(f"resident memory grew by {100 * growth(result):.2f} %")


if __name__ == "__main__":
    main()
