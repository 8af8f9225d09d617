"""Plans of programs: memory, work and roofline time, from compiled programs that are never run."""

import functools
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax

from longsum_jax.errors import InputError
from longsum_plan.compilation import Compilation, compile_program
from longsum_plan.devices import Hardware, Target
from longsum_plan.program import AbstractProgram
from longsum_plan.program_parts import ModulePart, program_parts
from longsum_plan.program_work import Work

# XLA's out-of-memory messages, in powers of 1,024: "Used 20.10G of 15.75G hbm",
# or "memory required for HLO temporaries (17.13G) exceeds available HBM
# (15.75G)".
_REFUSED = re.compile(
    r"([Uu]sed |temporaries \()([\d.]+)([KMGT]?)i?B?(?: of|\))"
)
# a kernel that needs too much on-chip memory: "in memory space vmem"
_ON_CHIP = re.compile(r"memory space (?!hbm)")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True)
class ProgramPlan:
    """Memory and work of a program on one device.

    Attributes:
        name: name of the program.
        memory: bytes by kind: "arguments"; "parameters" and "optimizer", which
            are parts of the arguments; "results" that are not written over
            arguments; "temporary" values; "code"; data that is "idle" on the
            device during the run; and the "total", which counts the parts only
            as arguments. A program that XLA rejects has only "parameters",
            "optimizer" and "total".
        fits: True if the total fits into the device's memory; None if its size
            is unknown.
        work: work of all parts; None for rejected programs.
        seconds: lower bounds on the time for "compute", "memory" and "links"
            separately; {} if the device's rates are unknown.
        compile_seconds: compilation time on the machine that compiled it.
        parts: parts of the program by module and pass, longest first.
        notes: further entries of the report.
    """

    name: str
    memory: Mapping[str, int]
    fits: bool | None
    work: Work | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    compile_seconds: float = 0.0
    parts: Sequence["PlannedPart"] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

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
            **self.notes,
        }
        if work is None:
            return values
        collectives = {
            kind: traffic._asdict()
            for kind, traffic in work.collectives.items()
        }
        return values | {
            "operations": dict(work.products),
            "moved_bytes": work.num_bytes,
            "collectives": collectives,
            "loops_counted_to_their_limit": work.open_loops,
            "parts": [part.report() for part in self.parts],
        }


class PlannedPart(NamedTuple):
    """A part of a program, with lower bounds on its time.

    Attributes:
        part: part of the program, see ``program_parts``.
        seconds: lower bounds on the time, as in ``ProgramPlan``.
    """

    part: ModulePart
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
    if seconds:
        return max(seconds, key=lambda part: seconds[part])
    return ""


def plan_program(program: AbstractProgram, target: Target) -> ProgramPlan:
    """Compiles a program for a target's devices and analyzes its memory and work.

    Args:
        program: program whose arrays or mesh use the devices of the target.
        target: target from ``devices.find_target``.

    Returns:
        The plan. If XLA rejects the program because it needs too much memory,
        ``fits`` is False, and there are no work and no times.

    Raises:
        jax.errors.JaxRuntimeError: XLA cannot compile the program for another
            reason.
    """
    parts = {name: device_bytes(tree) for name, tree in program.parts.items()}
    lowered = program.lower()
    began = time.perf_counter()
    try:
        compiled = compile_program(lowered, target)
    except jax.errors.JaxRuntimeError as error:
        arguments = device_bytes(program.arguments) or sum(parts.values())
        idle = device_bytes(program.idle)
        memory = {**parts, "total": needed_bytes(error, arguments) + idle}
        seconds = time.perf_counter() - began
        return ProgramPlan(program.name, memory, False, None, {}, seconds)
    memory = _memory(program, compiled, parts)
    fits = None
    if target.memory:
        fits = memory["total"] <= target.memory
    program_works = program_parts(
        compiled.text,
        trips=program.trips,
        devices_per_host=target.devices_per_host,
    )
    work = functools.reduce(
        Work.plus, (part.work for part in program_works), Work()
    )
    planned = [
        PlannedPart(part, roofline(part.work, target.hardware))
        for part in program_works
    ]
    planned.sort(
        key=lambda part: (part.least_seconds, part.part.work.num_bytes),
        reverse=True,
    )
    times = roofline(work, target.hardware)
    return ProgramPlan(
        program.name, memory, fits, work, times, compiled.seconds, planned
    )


def _memory(
    program: AbstractProgram, compiled: Compilation, parts: Mapping[str, int]
) -> dict[str, int]:
    """Returns ``ProgramPlan.memory`` of a compiled program."""
    idle = device_bytes(program.idle) + device_bytes(
        _left_out(compiled, program.arguments)
    )
    memory = {**compiled.memory, **parts, "idle": idle}
    # Parameters and optimizer state are arguments.
    memory["total"] = sum(memory.values()) - sum(parts.values())
    return memory


def roofline(work: Work, hardware: Hardware | None) -> dict[str, float]:
    """Returns the seconds for products, memory and links at their peak rates, separately.

    Returns {} if the rates are unknown. Source: Williams, Waterman and
    Patterson 2009, with links added.
    """
    if hardware is None:
        return {}
    links = 0.0
    for traffic in work.collectives.values():
        inside = traffic.sent - traffic.sent_between_hosts
        links += (
            inside / hardware.link
            + traffic.sent_between_hosts / hardware.host_link
        )
    products = work.products.items()
    return {
        "compute": sum(
            count / hardware.products[kind] for kind, count in products
        ),
        "memory": work.num_bytes / hardware.bandwidth,
        "links": links,
    }


def device_bytes(tree: Any) -> int:
    """Returns the bytes on one device of a tree of arrays or shapes."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        if sharding is None:
            shape = leaf.shape
        else:
            shape = sharding.shard_shape(leaf.shape)
        total += math.prod(shape) * leaf.dtype.itemsize
    return total


def _left_out(compiled: Compilation, arguments: tuple[Any, ...]) -> list[Any]:
    """Returns the shapes among the arguments that the program does not use."""
    if not arguments:
        return []
    shapes = jax.tree.leaves(arguments, is_leaf=lambda x: x is None)
    pairs = zip(shapes, compiled.is_used, strict=True)
    return [
        shape for shape, is_used in pairs if not is_used and shape is not None
    ]


def refused_bytes(message: str, arguments: int = 0) -> int | None:
    """Returns the bytes required by a program that XLA rejects; None for other errors.

    On-chip memory that a kernel lacks is another error.

    Args:
        message: error message of XLA.
        arguments: bytes of the program's arguments, which messages about
            temporary arrays do not include.
    """
    if OUT_OF_MEMORY not in message or _ON_CHIP.search(message):
        return None
    sizes = [
        int(float(number) * 1024 ** _POWERS[unit])
        + arguments * what.startswith("temp")
        for what, number, unit in _REFUSED.findall(message)
    ]
    return max(sizes, default=None)


def needed_bytes(error: jax.errors.JaxRuntimeError, arguments: int = 0) -> int:
    """Returns ``refused_bytes`` of a rejected program; reraises any other ``error``."""
    needed = refused_bytes(str(error), arguments)
    if needed is None:
        raise error
    return needed


def write_json(path: str | Path, report: Mapping[str, Any]) -> None:
    """Writes a plan as JSON.

    Raises:
        InputError: the file cannot be written.
    """
    try:
        Path(path).write_text(
            json.dumps(report, indent=2) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise InputError(
            f"--out={path}: cannot be written ({error.strerror}); give another file"
        ) from error
