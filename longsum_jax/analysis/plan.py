"""Plans of programs: memory, work and roofline time, from compiled programs that are never run."""

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

# XLA's out-of-memory messages, in powers of 1,024: "Used 20.10G of 15.75G hbm", or "memory required
# for HLO temporaries (17.13G) exceeds available HBM (15.75G)".
_REFUSED = re.compile(r"([Uu]sed |temporaries \()([\d.]+)([KMGT]?)i?B?(?: of|\))")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
BOUNDS = {"compute": "compute", "memory": "HBM", "links": "links"}


@dataclass(frozen=True)
class ProgramPlan:
    """Memory and work of a program on one device.

    Attributes:
        name: name of the program.
        memory: bytes of "arguments", of which "parameters" and "optimizer" are parts; "results" not
            written over arguments; "temporary" values; "code"; data that is "idle" on the device
            during the run; and the "total", in which "parameters" and "optimizer" are counted only
            as arguments. A program that XLA rejects has "parameters", "optimizer" and "total".
        fits: whether the total fits into the device's memory; None if its size is unknown.
        work: work of all parts; None for rejected programs.
        seconds: lower bounds of the time for "compute", "memory" and "links" separately; {} if the
            device's rates are unknown.
        compile_seconds: compilation time on this machine.
        attention: implementation of attention chosen for each layer that has a kernel for some
            devices.
        parts: parts of the program by module and pass, longest first.
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
        """Maximum bytes in use on one device."""
        return self.memory["total"]

    @property
    def bound(self) -> str:
        """The bottleneck: the slowest of compute, memory and links; "" if rates are unknown."""
        return _slowest(self.seconds)

    @property
    def least_seconds(self) -> float | None:
        """The roofline time: the time of the bottleneck; None if rates are unknown."""
        return max(self.seconds.values(), default=None)

    def report(self) -> dict[str, Any]:
        """Returns the plan as plain values for JSON, in bytes and seconds."""
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
    """A part of a program, with lower bounds of its time.

    Attributes:
        part: part of the program, see ``program_parts``.
        seconds: lower bounds of the time, as in ``ProgramPlan``.
    """

    part: Part
    seconds: Mapping[str, float]

    @property
    def least_seconds(self) -> float:
        """The roofline time of this part; 0 if rates are unknown."""
        return max(self.seconds.values(), default=0.0)

    @property
    def bound(self) -> str:
        """The bottleneck, as in ``ProgramPlan``."""
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
    """Compiles a program for a target's devices and analyzes its memory and work.

    Args:
        program: program whose arrays or mesh use the devices of the target.
        target: target from ``devices.find_target``.
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
    assert analysis is not None  # because the program was compiled here
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
    """Returns the seconds for products, memory and links at their peak rates, separately.

    Returns {} if the rates are unknown. Source: Williams, Waterman and Patterson 2009, with links
    added.
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
    """Returns the bytes on one device of a tree of arrays or shapes."""
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
    """Returns the bytes required by a program that XLA rejects; None for other errors.

    Args:
        message: error message of XLA.
        arguments: bytes of the program's arguments, which messages about temporary arrays do not
            include.
    """
    if OUT_OF_MEMORY not in message:
        return None
    found = [
        int(float(number) * 1024 ** _POWERS[unit]) + arguments * what.startswith("temp")
        for what, number, unit in _REFUSED.findall(message)
    ]
    return max(found, default=None)


def needed_bytes(error: jax.errors.JaxRuntimeError, arguments: int = 0) -> int:
    """Returns ``refused_bytes`` of a rejected program; reraises any other ``error``."""
    needed = refused_bytes(str(error), arguments)
    if needed is None:
        raise error
    return needed


class Trial(NamedTuple):
    """One attempt to make a program fit.

    Attributes:
        values: all changes of the config, dotted key -> value.
        says: description of the last change and its cost.
        plan: plan of the changed program; None if the config is invalid.
        refusal: reason why the config is invalid.
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
    """Yields attempts to make a program fit; the last one fits unless all fail.

    A change that saves at least 1 % of memory is kept for the next attempt.

    Args:
        plan_with: function from changes of the config to the plan of the program.
        current: plan without changes.
        changes: values with descriptions of their costs, cheapest first.
        tries: maximum number of attempts, each of which compiles the program.
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
    """Yields attempts to use remaining memory; a change that fits and is faster is kept.

    The arguments are described in ``find_fit``. Speed is measured by the roofline time.
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
    """A table of text cells, the first row of which is the header."""

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
    """Returns a table of the programs' memory on one device, in GB (10^9 bytes)."""
    names = ("parameters", "optimizer", "arguments", "results", "temporary", "idle", "total")
    rows = [["GB per device", *names, "of", "fits"]]
    limit = _gb(target.memory) if target.memory else "?"
    for plan in plans:
        cells = [_gb(plan.memory[name]) if name in plan.memory else "-" for name in names]
        fits = {True: "yes", False: "NO", None: "?"}[plan.fits]
        rows.append([plan.name, *cells, limit, fits])
    return Table(rows)


def work_table(plans: Iterable[ProgramPlan]) -> Table:
    """Returns a table of operations, bytes and roofline times."""
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
    """Returns a table of the longest parts of a program; None if it has no parts."""
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
    """Returns a table of the programs' collectives; None if there are none."""
    rows = [["collectives per device", "kind", "count", "GB", "GB sent"]]
    for plan in plans:
        found = plan.work.collectives if plan.work else {}
        for kind, traffic in sorted(found.items()):
            sizes = [_gb(traffic.num_bytes), _gb(traffic.sent)]
            rows.append([plan.name, kind, f"{traffic.count:,.0f}", *sizes])
    return Table(rows) if len(rows) > 1 else None


def reference_line(plans: Iterable[ProgramPlan]) -> str:
    """Returns the attentions without a fused kernel and the reasons; "" if there are none."""
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
    """Writes a plan as JSON.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        Path(path).write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"--out={path}: cannot be written ({error.strerror}); give another file"
        ) from error
