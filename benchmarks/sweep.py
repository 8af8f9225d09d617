"""Models by length, ours and their peers in turns: what encode.py and train_step.py have in common.

Rows of ours and of each peer, one after the other. On a peer's row `ratio` is how many times as
fast ours is (`cpu_ratio`: in processor seconds; `public_ratio`: Model.encode), `memory_share` is
our memory over the peer's, and `difference` how far the two are apart where they have the same
weights. `gib` is all that is held: parameters, the optimizer's state, inputs, results and what the
pass works with (`work_gib`); ours is what the compiled program says, the peer's what PyTorch's
allocator counted. `roofline` is the model's own operations (models.forward_flops) over what a large
matrix product does on this machine in the same time (`peak_flops` in the report), `loss` the loss
of the first step. The fastest of --repeats turns counts, with --median their median, --enough
seconds of them at most. `note` gives the reason if a row has no seconds: a call would exceed
--budget_gib or --budget_seconds, according to the program or to the next shorter length; memory ran
out (a training of PyTorch then has a further row with gradient checkpointing, "recomputing"); or a
peer failed. Started again with the same --out, it measures what is missing.

--device=h200 compiles for a device that need not be there (see `longsum plan`) and runs nothing;
one report takes several devices and programs, one start after the other. A program that the
compiler refuses for its memory has the memory that it asked for, and a `note`.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from common import (
    GIB,
    Deadline,
    Program,
    RefusedError,
    Seconds,
    add_median_flag,
    device_bytes,
    fastest,
    numbers,
    print_table,
    rows_before,
    write_report,
)
from models import DEFAULT, MODELS, SIZES, make_config, make_model, peak_flops

from longsum_jax.experiment.operations import longest_operations
from longsum_jax.summarization.model import Model
from longsum_plan import devices

OURS = "longsum_jax"
PUBLIC = f"{OURS}, Model.encode"
OUT_OF_MEMORY = "out of memory"
COMPILED, RECOMPUTING = "compiled", "recomputing"  # options of peers
Rows = list[dict[str, Any]]


class Peer(NamedTuple):
    """Something else that does the same."""

    call: Callable[[], Any]
    held_bytes: int  # before the call
    settings: Mapping[str, Any] = {}  # columns of its row


class Case(ABC):
    """One model at one length.

    Attributes:
        tokens: that a call reads.
        program: ours, compiled for shapes alone.
        device: to compile for, None for the one at hand.
        flops: that a call asks for.
        tolerance: how far results from the same weights may be apart.
        in_a_row: calls that a turn makes.
        can_recompute: whether a peer can save memory by gradient checkpointing.
    """

    tokens: int
    flops: float
    tolerance = 1e-3
    in_a_row = 1
    param_dtype = "float32"
    can_recompute = False

    def __init__(self, name: str, length: int, args: argparse.Namespace) -> None:
        self.name, self.length, self.args = name, length, args
        self.device = devices.find_target(args.device).devices[0] if args.device else None
        options = {
            "dtype": args.dtype,
            "dropout": getattr(args, "dropout", 0.0),
            "remat": getattr(args, "remat", False),
            "attention_backend": args.attention_backend,
        }
        self.family, self.config = make_config(name, args.size, length, **options)

    @cached_property
    def model(self) -> Model:
        return make_model(self.family, self.config, self.param_dtype)

    @property
    @abstractmethod
    def program(self) -> Program: ...

    @abstractmethod
    def ours(self) -> dict[str, Callable[[], Any]]:
        """Calls of ours by what their rows say; the first one is ``program``."""

    @abstractmethod
    def peer(self, name: str, options: Collection[str] = ()) -> Peer | None:
        """The peer, None if these flags have none; ``options`` are of ``COMPILED``, for
        torch.compile, and ``RECOMPUTING``, for gradient checkpointing."""

    def difference(self, ours: Any, theirs: Any) -> float:
        """Of results, relative."""
        theirs = theirs.float().cpu() if hasattr(theirs, "cpu") else theirs
        ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
        return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


def add_flags(parser: argparse.ArgumentParser, lengths: str) -> None:
    """Flags of both scripts."""
    parser.add_argument(
        "--models",
        default=DEFAULT,
        help=f"comma-separated, of {', '.join(MODELS)}; default: {DEFAULT}",
    )
    parser.add_argument(
        "--lengths", default=lengths, help=f"tokens of a document; default: {lengths}"
    )
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--batch", type=int, default=1, help="documents; default: 1")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16"), help="default: bfloat16, float32 on a CPU"
    )
    parser.add_argument(
        "--peers", help="of a model's peers only these, comma-separated; none: ours alone"
    )
    parser.add_argument(
        "--alone",
        choices=("plain", COMPILED),
        help="peers without ours, so that nearly all memory is theirs; compiled: by torch.compile",
    )
    parser.add_argument(
        "--attention_backend", default="auto", help="of our models; reference: without kernels"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="the ten operations of ours that take longest, in a further call",
    )
    parser.add_argument(
        "--compiled_only",
        action="store_true",
        help="memory of the compiled programs; nothing is run",
    )
    parser.add_argument(
        "--device", help="memory on this device, h200 or v5p, which need not be there; runs nothing"
    )
    parser.add_argument(
        "--budget_gib", type=float, help="memory that a row may take; default: 0.8 of the device's"
    )
    parser.add_argument(
        "--budget_seconds", type=float, default=120.0, help="that a call may take; default: 120"
    )
    parser.add_argument("--repeats", type=int, default=3, help="timed turns; default: 3")
    add_median_flag(parser)
    parser.add_argument(
        "--enough", type=float, default=30.0, help="seconds of calls that are enough; default: 30"
    )
    parser.add_argument("--out", help="JSON report to write, or to go on with")
    Deadline.add_flag(parser)


def run(args: argparse.Namespace, make_case: type[Case]) -> None:
    """Measures, prints and writes."""
    deadline = Deadline(args.minutes)
    if args.device:  # compilers read their flags with the first program
        devices.set_environment(args.device, os.environ)
        args.compiled_only = True
    is_cpu = not args.device and jax.default_backend() == "cpu"
    args.dtype = args.dtype or ("float32" if is_cpu else "bfloat16")
    args.budget_gib = args.budget_gib or 0.8 * device_bytes() / GIB
    peak = None if args.compiled_only else peak_flops(args.dtype)
    settings = {"size": args.size, "dtype": args.dtype, "batch": args.batch}
    if args.alone:  # the rows of ours are in another report
        if args.compiled_only or args.profile:
            raise SystemExit(
                "--alone measures peers: leave out --device, --compiled_only, --profile"
            )
        settings["alone"] = args.alone
    rows: Rows = rows_before(args.out, **settings)
    labels = _labels(args)
    done = {
        (row["model"], row["length"])
        for row in rows
        if (row.get("device"), row.get("program")) == (args.device, labels.get("program"))
    }
    for name in args.models.split(","):
        for length in sorted(numbers(args.lengths)):
            if (name, length) in done or deadline.is_over:
                continue
            new = measure(make_case(name, length, args), rows, peak)
            gc.collect()
            for row in new:
                print(json.dumps(row), file=sys.stderr, flush=True)
            rows += new
            if args.out:
                load = os.getloadavg()[0]
                write_report(args.out, rows, **settings, peak_flops=peak, load=load)
    print_table([{key: row[key] for key in row if key != "operations"} for row in rows])
    for row in rows:
        if "operations" in row:
            print(f"\n{row['model']}, {row['length']} tokens")
            print_table(row["operations"])


def measure(case: Case, before: Rows, peak: float | None) -> Rows:
    """The rows of one case; ``before`` are those of shorter lengths, too."""
    labels = {"model": case.name, "length": case.length} | _labels(case.args)
    rows, calls, results = ({}, {}, {}) if case.args.alone else _ours(case, labels, before)
    if not (calls or case.args.alone):
        return list(rows.values())
    peers = list(_peers(case))
    for name, options in peers:  # grows
        by = ", ".join([f"PyTorch {name}", *options])
        row = labels | {"by": by}
        try:
            note = _beyond(case, row, before)
            if not note:
                if (peer := case.peer(name, options)) is None:
                    continue
                memory, result = _first_call(peer)
        except Exception as error:
            note = failure(error)
        if note:
            rows[by] = row | {"note": note}
            peer = None
            gc.collect()  # of its memory, for the next one
            if note == OUT_OF_MEMORY and case.can_recompute and RECOMPUTING not in options:
                peers.append((name, (*options, RECOMPUTING)))
            continue
        rows[by], calls[by] = row | peer.settings | memory | _loss(result), peer.call
        if OURS not in rows:
            continue
        rows[by]["memory_share"] = rows[OURS]["gib"] / memory["gib"]
        if name == case.name or name.startswith("published"):
            rows[by]["difference"] = _checked(case, by, results[OURS], result)
    del results
    args, in_a_row = case.args, case.in_a_row
    options = {"enough": args.enough, "in_a_row": in_a_row, "statistic": args.statistic}
    taken = fastest(calls, args.repeats, warm_ups=0, **options)
    for by, seconds in taken.items():
        rows[by] |= _speed(case, seconds, peak)
        if by != OURS and OURS in taken:
            ours = taken[OURS]
            rows[by]["ratio"] = seconds.wall / ours.wall
            rows[by]["cpu_ratio"] = seconds.cpu / ours.cpu
        if by.startswith("PyTorch") and PUBLIC in taken:
            rows[by]["public_ratio"] = seconds.wall / taken[PUBLIC].wall
    if case.args.profile:
        rows[OURS]["operations"] = _operations(case.program, calls[OURS])
    return list(rows.values())


def _ours(
    case: Case, labels: dict[str, str], before: Rows
) -> tuple[dict[str, Any], dict[str, Callable[[], Any]], dict[str, Any]]:
    """Returns our rows, calls and first results, each by the name in ``by``; no calls if none may
    be timed."""
    first = labels | {"by": OURS}
    try:
        first |= {"compile_seconds": case.program.compile_seconds}
    except RefusedError as error:
        return {OURS: first | {"gib": error.bytes / GIB, "note": "refused by the compiler"}}, {}, {}
    first |= _memory(case.program.held_bytes, case.program.work_bytes)
    if case.args.compiled_only:
        return {OURS: first}, {}, {}
    if note := _beyond(case, first, before):
        return {OURS: first | {"note": note}}, {}, {}
    try:
        calls = case.ours()
        results = {by: call() for by, call in calls.items()}
    except Exception as error:
        return {OURS: first | {"note": _out_of_memory(error)}}, {}, {}
    first |= _loss(results[OURS])
    return {OURS: first} | {by: labels | {"by": by} for by in calls if by != OURS}, calls, results


def _loss(result: Any) -> dict[str, float]:
    """Returns the column of a result that is a number, the loss before the first step."""
    return {} if np.ndim(result) else {"loss": float(result)}


def _operations(program: Program, call: Callable[[], Any]) -> Rows:
    """Returns the operations of a call that take longest, with their part of the model."""
    text = program.compiled.as_text()
    with tempfile.TemporaryDirectory() as directory:
        with jax.profiler.trace(directory):
            call()
        [trace] = Path(directory).glob("**/*.xplane.pb")
        return longest_operations(trace, [text])


def _labels(args: argparse.Namespace) -> dict[str, str]:
    """Columns that tell rows of one report apart: the device, and a program other than a training
    step."""
    labels = {"device": args.device, "program": getattr(args, "program", "step")}
    return {key: value for key, value in labels.items() if value not in (None, "step")}


def _peers(case: Case) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yields names of peers, and their options of ``Case.peer``."""
    names, selected = MODELS[case.name].peers, case.args.peers
    for name in names:
        if selected is None or name in selected.split(","):
            yield name, (COMPILED,) if case.args.alone == COMPILED else ()


def _first_call(peer: Peer) -> tuple[dict[str, float], Any]:
    """Memory of the peer, and what its first call gives, which is the warm-up."""
    from torch_peers import work_bytes

    results = []
    work = work_bytes(lambda: results.append(peer.call()))
    return _memory(peer.held_bytes + work, work), results[0]


def _speed(case: Case, seconds: Seconds, peak: float) -> dict[str, float]:
    row = {"seconds": seconds.wall, "cpu_seconds": seconds.cpu}
    row["tokens_per_second"] = case.tokens / seconds.wall
    return row | {"roofline": case.flops / (seconds.wall * peak)}


def _memory(held: int, work: int) -> dict[str, float]:
    return {"gib": held / GIB, "work_gib": work / GIB}


def _checked(case: Case, by: str, ours: Any, theirs: Any) -> float:
    difference = case.difference(ours, theirs)
    if case.args.dtype == "float32" and not difference < case.tolerance:
        raise SystemExit(f"{case.name} at {case.length}: ours and {by} differ by {difference:.2g}")
    return difference


def _beyond(case: Case, row: dict[str, Any], before: Rows) -> str | None:
    """Which budget the row would exceed; memory of a peer and all seconds by how they grow with the
    length."""
    same = ("model", "by", "program")
    shorter = [x for x in before if all(x.get(key) == row.get(key) for key in same)]
    if not shorter:
        return _over("gib", row.get("gib", 0.0), case.args.budget_gib)
    last = shorter[-1]
    if "seconds" not in last:
        return last.get("note")
    growth = (case.length / last["length"]) ** (2 if MODELS[case.name].dense else 1)
    gib = row.get("gib", last["gib"] + (growth - 1) * last["work_gib"] if "gib" in last else 0.0)
    over = _over("gib", gib, case.args.budget_gib)
    return over or _over("seconds", last["seconds"] * growth, case.args.budget_seconds)


def _over(what: str, value: float, budget: float) -> str | None:
    return f"about {value:.3g} {what}, over the budget of {budget:.3g}" if value > budget else None


def _out_of_memory(error: Exception) -> str:
    if (note := failure(error)) != OUT_OF_MEMORY:
        raise error
    return note


def failure(error: Exception) -> str:
    """Returns the note of a peer that failed, which leaves the other rows."""
    text = str(error)
    if isinstance(error, MemoryError) or any(
        x in text for x in ("RESOURCE_EXHAUSTED", "out of memory", "allocate")
    ):
        return OUT_OF_MEMORY
    return f"{type(error).__name__}: {text[:300]}"
