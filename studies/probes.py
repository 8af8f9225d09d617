"""What each attention is for: small models that learn generated tasks, by length and distance.

    python studies/probes.py --out=probes.json [--minutes=60]       # every cell, then means
    python studies/probes.py --out=probes.json --tasks=needle+recall --encoders=s4d \
        --crosses=hepos --seeds=0                                      # one cell
    python studies/probes.py --show                                 # a drawn text of every task

A cell is one model: the tasks that it learns together (joined by "+"; the first symbol of a text
names its task), encoder attention, cross-attention, memory and seed. All are T5s of one encoder
layer and two decoder layers with the same number of parameters (the inner width makes up for what
attentions differ in; rows of a table that no input reaches are not counted) that see the same
texts. --plan says how many steps each length gets, or lengths in turn ("64+256:200"), of --tokens
tokens: copying is learned suddenly, after a plateau, and in short texts the plateau is short (full
attention, needle: 450 steps of 64 texts of 64 tokens, below 100 of 128 texts of 16). A constant
learning rate unlearns at 2,048 tokens, of which a step has two texts, so it falls to nothing.

Then every length of --lengths is read, by Model.generate, greedily. `exact` is the share of texts
whose answer is right to the last token, `tokens` the share of answer tokens, `by_distance` and
`tokens_by_distance` are both for texts whose fact is a quarter, a half, three quarters or the whole
length away from where the answer is asked for; `learned` is the share of right answer tokens, given
those before, at the end of training for each length.

Memory "none" reads a text whole. The others read it in segments, one up to 16 tokens, four up to
256, then as many of 64 tokens as there are, and answer after the last one: "se3" without a memory,
which must fail for what stands in earlier ones, "compressive" (full encoder attention alone) and
"attentive". They have two encoder layers, and 64 slots a layer. With "text" and "vectors" a segment
also reads marked facts of the others, as a perfect extractor finds them: their tokens behind its
own, or the states that the encoder made of them; "attentive_text" has both. "attentive_said" and
"attentive_decoder" also write a fact after the segment where it stands, which in the second the
decoder remembers, too; when they are read, the right fact is written there. These are for the
needle alone, a text of one fact.

Rows with `seeds` are means over seeds of one cell; `interval` is half the 95 % interval, by
Student's t over seeds, or Wilson's over texts where there is one seed. Started again with the same
--out, cells that are there are left out. Accuracy does not depend on how busy the machine is.
"""

import argparse
import gc
import itertools
import json
import math
import sys
from collections.abc import Sequence
from typing import Any

import benchmarks_path  # noqa: F401
import jax
import numpy as np
import probe_tasks
from common import Deadline, numbers, print_table, rows_before, write_report
from probe_models import CROSSES, ENCODERS, MEMORIES, OF_THE_NEEDLE
from probe_tasks import TASKS
from probe_training import PARTS, Cell, Row, make_probe
from scipy import stats


def cells(args: argparse.Namespace) -> list[Cell]:
    """The cells that the flags ask for; seeds of one model follow each other."""
    selected = [args.tasks, args.encoders, args.crosses, args.memories]
    for names, of in zip(selected, (TASKS, ENCODERS, CROSSES, MEMORIES), strict=True):
        for name in names.replace("+", ",").split(","):
            if name not in of:
                raise SystemExit(f'"{name}" is unknown; choose from {", ".join(of)}')
    lists = [names.split(",") for names in selected]
    for tasks, memory in itertools.product(lists[0], lists[-1]):
        if memory in OF_THE_NEEDLE and tasks != "needle":
            raise SystemExit(f'memory "{memory}" is for texts of one fact; give --tasks=needle')
    return [Cell(*x) for x in itertools.product(*lists, [args.plan], numbers(args.seeds))]


def means(rows: Sequence[Row]) -> list[Row]:
    """Rows over the seeds of each cell, task and length."""
    keys = ("task", "encoder", "cross", "memory", "length", "tasks", "plan")
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    table = []
    for key, group in groups.items():
        exact = [row["exact"] for row in group]
        texts = sum(row["texts"] for row in group)
        tokens, intervals = _by_distance(group, "tokens_by_distance")
        table.append(
            dict(zip(keys, key, strict=True))
            | {"seeds": len(group), "mean": float(np.mean(exact))}
            | {"interval": interval(exact, texts)}
            | {"mean_by_distance": _by_distance(group, "by_distance")[0]}
            | {"mean_tokens_by_distance": tokens, "interval_tokens_by_distance": intervals}
        )
    return table


def _by_distance(rows: Sequence[Row], key: str) -> tuple[list[float | None], list[float | None]]:
    """Returns the mean over seeds for each part of the distances, and half its 95 % interval.

    None stands for parts without texts, and for intervals of a single seed.
    """
    means, intervals = [], []
    nothing = [None] * PARTS  # of reports written before there were tokens by distance
    for part in zip(*(row.get(key, nothing) for row in rows), strict=True):
        known = [x for x in part if x is not None]
        means.append(float(np.mean(known)) if known else None)
        intervals.append(interval(known, 0) if len(known) > 1 else None)
    return means, intervals


def interval(values: Sequence[float], texts: int) -> float:
    """Half the 95 % interval of a mean: Student's over seeds, Wilson's over texts of one seed."""
    if len(values) > 1:
        spread = np.std(values, ddof=1) / math.sqrt(len(values))
        return float(stats.t.ppf(0.975, len(values) - 1) * spread)
    z, share = stats.norm.ppf(0.975), values[0]
    root = math.sqrt(share * (1 - share) / texts + (z / (2 * texts)) ** 2)
    return float(z * root / (1 + z**2 / texts))


def measure(args: argparse.Namespace) -> list[Row]:
    """Runs the cells that are not there yet."""
    deadline = Deadline(args.minutes)
    names = ("tokens", "learning_rate")
    settings = {name: getattr(args, name) for name in names}
    rows = [row for row in rows_before(args.out, **settings) if "seeds" not in row]
    done = {Cell(*(row[field] for field in Cell._fields)) for row in rows}
    for _, group in itertools.groupby(cells(args), lambda cell: cell[:-1]):
        todo = [cell for cell in group if cell not in done]
        probe = None
        for cell in todo:
            if deadline.is_over:
                break
            print("/".join(map(str, cell)), file=sys.stderr, flush=True)
            probe = probe or make_probe(cell, args)
            params, learned = probe.train(cell.seed)
            of_cell = cell._asdict() | {"parameters": probe.num_parameters}
            for length in numbers(args.lengths):
                for row in probe.read(params, length, cell.seed):
                    rows.append(of_cell | row | {"learned": learned})
                    print(json.dumps(row), file=sys.stderr, flush=True)
            if args.out:
                write_report(args.out, [*rows, *means(rows)], **settings)
        del probe
        gc.collect()
        jax.clear_caches()
    return rows


def show() -> None:
    """Prints a drawn text of every task."""
    for name in TASKS:
        batch = probe_tasks.draw(name, 1, 64, 0)
        text, answer = probe_tasks.spell(batch.ids[0]), probe_tasks.spell(batch.answers[0])
        print(f"{name}: {text}  ->  {answer}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--show", action="store_true", help="print a drawn text of every task")
    parser.add_argument(
        "--tasks",
        default=",".join(TASKS),
        help="comma-separated models, each of tasks joined by +; default: one model for each task",
    )
    parser.add_argument("--encoders", default=",".join(ENCODERS), help="encoder attentions")
    parser.add_argument("--crosses", default="full,hepos", help=f"of {', '.join(CROSSES)}")
    parser.add_argument(
        "--memories", default="none", help=f"of {', '.join(MEMORIES)}; default: none"
    )
    parser.add_argument("--seeds", default="0,1,2,3,4", help="default: 0,1,2,3,4")
    parser.add_argument("--plan", default=PLAN, help=f"LENGTH:STEPS of training; default: {PLAN}")
    parser.add_argument("--tokens", type=int, default=4096, help="of a step; default: 4,096")
    parser.add_argument("--learning_rate", type=float, default=3e-3, help="default: 3e-3")
    parser.add_argument(
        "--lengths", default="512,2048,4096,8192,16384", help="to read; default: 512 to 16,384"
    )
    parser.add_argument(
        "--read_tokens", type=int, default=2**16, help="of a task and length; default: 65,536"
    )
    parser.add_argument("--least", type=int, default=16, help="texts of them; default: 16")
    parser.add_argument("--most", type=int, default=128, help="texts of them; default: 128")
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)
    args = parser.parse_args()
    if args.show:
        show()
        return
    print_table(means(measure(args)))


PLAN = "16:400,64:300,256:300,1024:200,2048:50"

if __name__ == "__main__":
    main()
