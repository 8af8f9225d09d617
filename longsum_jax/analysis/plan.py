"""Plans of programs: memory, work and time at least, from compiled programs that are never run."""

import functools
import itertools
import json
import math
import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from longsum_jax.analysis.devices import GB, Hardware, Target
from longsum_jax.analysis.program_parts import Part, program_parts
from longsum_jax.analysis.program_work import Work
from longsum_jax.errors import InputError
from longsum_jax.inference.abstract import AbstractProgram
from longsum_jax.ops.attention.fused import Choice, noted_choices
from longsum_jax.ops.device_memory import held_bytes

# XLA's refusals of programs that do not fit, in powers of 1,024: "Used 20.10G of 15.75G hbm", or
# "memory required for HLO temporaries (17.13G) exceeds available HBM (15.75G)".
_REFUSED = re.compile(r"([Uu]sed |temporaries \()([\d.]+)([KMGT]?)i?B?(?: of|\))")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
BOUNDS = {"compute": "compute", "memory": "HBM", "links": "links"}


@dataclass(frozen=True)
class ProgramPlan:
    """Memory and work of one device in a program.

    Attributes:
        name: of the program.
        memory: bytes: "arguments", of them "parameters" and "optimizer", "results" that are not
            written over arguments, "temporary" values, "code", what is "idle" on the device
            meanwhile, and the "total" without "parameters" and "optimizer", which are counted in
            the arguments. A program that XLA refuses has "parameters", "optimizer" and "total".
        fits: whether the total is at most what the device has; None where that is not known.
        work: of all parts; None of refused programs.
        seconds: time at least of "compute", "memory" and "links", each by itself; {} where the
            device's rates are not known.
        compile_seconds: on this machine.
        attention: how each layer that has a kernel for some devices computes attention.
        parts: of the program by module and pass, the longest first.
    """

    name: str
    memory: Mapping[str, int]
    fits: bool | None
    work: Work | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    compile_seconds: float = 0.0
    attention: Mapping[str, Choice] = field(default_factory=dict)
    parts: Sequence["PlannedPart"] = ()

    @property
    def total(self) -> int:
        """Bytes that one device holds at most."""
        return self.memory["total"]

    @property
    def bound(self) -> str:
        """The slowest of compute, memory and links; "" where rates are not known."""
        return _slowest(self.seconds)

    @property
    def least_seconds(self) -> float | None:
        """The roofline's time: that of the slowest part."""
        return max(self.seconds.values(), default=None)

    def report(self) -> dict[str, Any]:
        """Returns the plan as plain values for JSON, bytes and seconds as they are."""
        work = self.work
        values: dict[str, Any] = {
            "program": self.name,
            "memory_bytes": dict(self.memory),
            "fits": self.fits,
            "roofline_seconds": dict(self.seconds),
            "bound": self.bound,
            "compile_seconds": self.compile_seconds,
            "attention": {name: choice._asdict() for name, choice in self.attention.items()},
        }
        if work is None:
            return values
        collectives = {kind: traffic._asdict() for kind, traffic in work.collectives.items()}
        return values | {
            "operations": dict(work.products),
            "moved_bytes": work.num_bytes,
            "collectives": collectives,
            "loops_counted_to_their_limit": work.open_loops,
            "parts": [part.report() for part in self.parts],
        }


class PlannedPart(NamedTuple):
    """A part of a program, and what it takes at least.

    Attributes:
        part: see ``program_parts``.
        seconds: as of a ``ProgramPlan``.
    """

    part: Part
    seconds: Mapping[str, float]

    @property
    def least_seconds(self) -> float:
        """The roofline's time of the part by itself; 0 where rates are not known."""
        return max(self.seconds.values(), default=0.0)

    @property
    def bound(self) -> str:
        """As of a ``ProgramPlan``."""
        return _slowest(self.seconds)

    def report(self) -> dict[str, Any]:
        """Returns the part as plain values for JSON."""
        work, largest = self.part.work, self.part.largest
        return {
            "module": self.part.module,
            "pass": self.part.stage,
            "roofline_seconds": dict(self.seconds),
            "operations": dict(work.products),
            "moved_bytes": work.num_bytes,
            "sent_bytes": work.sent,
            "largest_array": largest and str(largest),
        }


def _slowest(seconds: Mapping[str, float]) -> str:
    return max(seconds, key=lambda part: seconds[part]) if seconds else ""


def plan_program(program: AbstractProgram, target: Target) -> ProgramPlan:
    """Compiles a program for a target's devices and reads what it takes.

    Args:
        program: its arrays, or the mesh that it is lowered in, name the same devices.
        target: of ``devices.find_target``.
    """
    parts = {name: device_bytes(tree) for name, tree in program.parts.items()}
    with noted_choices() as attention:
        lowered = program.lower()
    began = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        arguments = device_bytes(program.arguments) or sum(parts.values())
        idle = device_bytes(program.idle)
        memory = {**parts, "total": needed_bytes(error, arguments) + idle}
        seconds = time.perf_counter() - began
        return ProgramPlan(program.name, memory, False, None, {}, seconds, attention)
    seconds = time.perf_counter() - began
    analysis = compiled.memory_analysis()
    assert analysis is not None  # of a program that is compiled here
    idle = device_bytes(program.idle) + device_bytes(_left_out(compiled, program.arguments))
    memory = {
        "arguments": analysis.argument_size_in_bytes,
        **parts,
        "results": analysis.output_size_in_bytes - analysis.alias_size_in_bytes,
        "temporary": analysis.temp_size_in_bytes,
        "code": analysis.generated_code_size_in_bytes,
        "idle": idle,
        "total": held_bytes(compiled) + analysis.generated_code_size_in_bytes + idle,
    }
    found = program_parts(
        compiled.as_text() or "", trips=program.trips, devices_per_host=target.devices_per_host
    )
    work = functools.reduce(Work.plus, (part.work for part in found), Work())
    planned = [PlannedPart(part, roofline(part.work, target.hardware)) for part in found]
    planned.sort(key=lambda part: (part.least_seconds, part.part.work.num_bytes), reverse=True)
    fits = memory["total"] <= target.memory if target.memory else None
    times = roofline(work, target.hardware)
    return ProgramPlan(program.name, memory, fits, work, times, seconds, attention, planned)


def roofline(work: Work, hardware: Hardware | None) -> dict[str, float]:
    """Returns the seconds that products, memory and links take at their peaks, each by itself.

    {} where the peaks are not known. Source: Williams, Waterman and Patterson 2009; links besides.
    """
    if hardware is None:
        return {}
    links = 0.0
    for traffic in work.collectives.values():
        inside = traffic.sent - traffic.sent_between_hosts
        links += inside / hardware.link + traffic.sent_between_hosts / hardware.host_link
    products = work.products.items()
    return {
        "compute": sum(count / hardware.products[kind] for kind, count in products),
        "memory": work.num_bytes / hardware.bandwidth,
        "links": links,
    }


def device_bytes(tree: Any) -> int:
    """Returns the bytes of a tree of arrays or shapes that lie on one device."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        shape = leaf.shape if sharding is None else sharding.shard_shape(leaf.shape)
        total += math.prod(shape) * leaf.dtype.itemsize
    return total


def _left_out(compiled: jax.stages.Compiled, arguments: tuple[Any, ...]) -> list[Any]:
    """Returns the shapes among the arguments that the program does not use."""
    if not arguments:
        return []
    shardings, _ = compiled.input_shardings
    used = jax.tree.leaves(shardings, is_leaf=lambda x: x is None)
    shapes = jax.tree.leaves(arguments, is_leaf=lambda x: x is None)
    pairs = zip(shapes, used, strict=True)
    return [shape for shape, sharding in pairs if sharding is None and shape is not None]


def refused_bytes(message: str, arguments: int = 0) -> int | None:
    """Returns the bytes that a program would take by XLA's refusal; None for other errors.

    Args:
        message: of XLA.
        arguments: bytes of the program's arguments, which a message about temporary arrays leaves
            out.
    """
    if OUT_OF_MEMORY not in message:
        return None
    found = [
        int(float(number) * 1024 ** _POWERS[unit]) + arguments * what.startswith("temp")
        for what, number, unit in _REFUSED.findall(message)
    ]
    return max(found, default=None)


def needed_bytes(error: jax.errors.JaxRuntimeError, arguments: int = 0) -> int:
    """Returns ``refused_bytes`` of a refused program; raises ``error`` if it is another."""
    needed = refused_bytes(str(error), arguments)
    if needed is None:
        raise error
    return needed


class Trial(NamedTuple):
    """One attempt at making a program fit.

    Attributes:
        values: all changes of the config together, dotted key -> value.
        says: what the last one costs.
        plan: of the program so changed; None where the config is refused.
        refusal: why it is.
    """

    values: Mapping[str, Any]
    says: str
    plan: ProgramPlan | None
    refusal: str = ""

    @property
    def flags(self) -> str:
        """The changes as flags of ``longsum train``."""
        return shlex.join(f"--config.{key}={value}" for key, value in self.values.items())

    def report(self) -> dict[str, Any]:
        """Returns the trial as plain values for JSON."""
        total = self.plan.total if self.plan else None
        fits = self.plan.fits if self.plan else None
        least = self.plan.least_seconds if self.plan else None
        values = {"changes": dict(self.values), "says": self.says, "least_seconds": least}
        return values | {"total_bytes": total, "fits": fits, "refusal": self.refusal}


def find_fit(
    plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
    current: ProgramPlan,
    changes: Iterable[tuple[Mapping[str, Any], str]],
    *,
    tries: int,
) -> Iterator[Trial]:
    """Yields attempts at making a program fit, the last one of which fits unless all fail.

    A change that helps is kept for the next attempt; one that saves less than a hundredth is not.

    Args:
        plan_with: changes of the config -> the plan of the program.
        current: the plan without any.
        changes: values and what they cost, the cheapest first.
        tries: most attempts; each compiles the program.
    """
    kept: dict[str, Any] = {}
    least = current.total
    for values, says in itertools.islice(changes, tries):
        together = kept | dict(values)
        try:
            plan = plan_with(together)
        except InputError as error:
            yield Trial(together, says, None, str(error))
            continue
        yield Trial(together, says, plan)
        if plan.fits:
            return
        if plan.total < 0.99 * least:
            kept, least = together, plan.total


def find_faster(
    plan_with: Callable[[Mapping[str, Any]], ProgramPlan],
    current: ProgramPlan,
    changes: Iterable[tuple[Mapping[str, Any], str]],
    *,
    tries: int,
) -> Iterator[Trial]:
    """Yields attempts at using memory that is left; a change that fits and is faster is kept.

    Arguments are those of ``find_fit``. Faster is what has a lower roofline.
    """
    kept: dict[str, Any] = {}
    least = current.least_seconds or 0.0
    for values, says in itertools.islice(changes, tries):
        together = kept | dict(values)
        plan = plan_with(together)
        yield Trial(together, says, plan)
        seconds = plan.least_seconds
        if plan.fits and seconds is not None and seconds < least:
            kept, least = together, seconds


class Table(NamedTuple):
    """Lines of a table for people, the first one its heading."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self.rows, strict=True)]
        lines = []
        for row in self.rows:
            first, *rest = row
            cells = [first.ljust(widths[0])]
            cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def memory_table(plans: Iterable[ProgramPlan], target: Target) -> Table:
    """Returns the memory of programs on one device in GB (10^9 bytes)."""
    names = ("parameters", "optimizer", "arguments", "results", "temporary", "idle", "total")
    rows = [["GB per device", *names, "of", "fits"]]
    limit = _gb(target.memory) if target.memory else "?"
    for plan in plans:
        cells = [_gb(plan.memory[name]) if name in plan.memory else "-" for name in names]
        fits = {True: "yes", False: "NO", None: "?"}[plan.fits]
        rows.append([plan.name, *cells, limit, fits])
    return Table(rows)


def work_table(plans: Iterable[ProgramPlan]) -> Table:
    """Returns operations, bytes and times at least."""
    rows = [["per device", "TFLOP", "GB moved", "GB sent", "at least", "bound by", "compiled in"]]
    for plan in plans:
        work, least = plan.work, plan.least_seconds
        cells = ["-"] * 3
        if work is not None:
            cells = [f"{work.operations / 1e12:.4g}", _gb(work.num_bytes), _gb(work.sent)]
        shown = "-" if least is None else f"{milliseconds(least)} ms"
        bound = BOUNDS.get(plan.bound, "-")
        rows.append([plan.name, *cells, shown, bound, f"{plan.compile_seconds:.0f} s"])
    return Table(rows)


def parts_table(plan: ProgramPlan, count: int) -> Table | None:
    """Returns the longest parts of a program; None of a program without any."""
    total = sum(part.least_seconds for part in plan.parts)
    head = [f"{plan.name}, longest parts", "pass", "at least", "share", "bound by"]
    rows = [[*head, "TFLOP", "GB moved", "GB sent", "largest array"]]
    for planned in plan.parts[:count]:
        part, least = planned.part, planned.least_seconds
        times = ["-"] * 3
        if total:
            times = [f"{milliseconds(least)} ms", f"{least / total:.0%}", BOUNDS[planned.bound]]
        work = part.work
        sizes = [f"{work.operations / 1e12:.4g}", _gb(work.num_bytes), _gb(work.sent)]
        names = part.module or "(no module)", part.stage
        rows.append([*names, *times, *sizes, str(part.largest or "-")])
    return Table(rows) if len(rows) > 1 else None


def collectives_table(plans: Iterable[ProgramPlan]) -> Table | None:
    """Returns counts and bytes of the collectives of programs; None if there are none."""
    rows = [["collectives per device", "kind", "count", "GB", "GB sent"]]
    for plan in plans:
        found = plan.work.collectives if plan.work else {}
        for kind, traffic in sorted(found.items()):
            sizes = [_gb(traffic.num_bytes), _gb(traffic.sent)]
            rows.append([plan.name, kind, f"{traffic.count:,.0f}", *sizes])
    return Table(rows) if len(rows) > 1 else None


def reference_line(plans: Iterable[ProgramPlan]) -> str:
    """Returns which attentions are computed without a kernel and why; "" if there are none."""
    layers: dict[str, dict[str, None]] = {}
    for plan in plans:
        for name, choice in plan.attention.items():
            if choice.kernel is None and choice.reason:
                layers.setdefault(choice.reason, {})[name] = None
    found = [f"{', '.join(names)} ({reason})" for reason, names in layers.items()]
    return f"attention without a fused kernel: {'; '.join(found)}" if found else ""


def _gb(num_bytes: float) -> str:
    gigabytes = num_bytes / GB
    if gigabytes >= 0.01 or gigabytes == 0:
        return f"{gigabytes:,.2f}"
    return f"{gigabytes:.1e}"


def milliseconds(seconds: float) -> str:
    """Returns a time in milliseconds, to three digits."""
    return f"{1000 * seconds:,.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def write_json(path: str | Path, report: Mapping[str, Any]) -> None:
    """Writes a plan.

    Raises:
        InputError: a place that cannot be written.
    """
    try:
        Path(path).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--out={path}: cannot be written ({error.strerror}); give another file"
        ) from error
