"""What every benchmark shares: timing, compiled programs, the machine's description, a table, and a
JSON report."""

import argparse
import contextlib
import json
import math
import os
import platform
import re
import resource
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "sentencepiece",
    "sentencex",
    "rouge_score",
    "torch",
    "transformers",
)
# Instruction sets of x86 and of Arm for vectors and matrices, as Linux names them.
INSTRUCTION_SETS = re.compile(r"(avx|fma|f16c|amx|asimd|sve|sme2?$|bf16|i8mm)")
GIB = 2**30
Statistic = Callable[[Iterable[float]], float]  # of the turns of a call


class Seconds(NamedTuple):
    """Of one call: on the clock, and of the processor, all threads and finished child processes
    together, which waiting does not lengthen."""

    wall: float
    cpu: float


class Program(NamedTuple):
    """A compiled JAX program and what it is called with."""

    compiled: Any
    arguments: tuple
    compile_seconds: float

    def __call__(self) -> Any:
        """Runs it to the end."""
        import jax

        return jax.block_until_ready(self.compiled(*self.arguments))

    @property
    def work_bytes(self) -> int:
        """What it takes besides arguments and results."""
        return self.compiled.memory_analysis().temp_size_in_bytes

    @property
    def held_bytes(self) -> int:
        """All that it holds: arguments, results and what it works with."""
        m = self.compiled.memory_analysis()
        held = m.argument_size_in_bytes + m.output_size_in_bytes - m.alias_size_in_bytes
        return held + m.temp_size_in_bytes


class RefusedError(Exception):
    """A program that the compiler refuses, and the ``bytes`` that it would take."""

    def __init__(self, size: int) -> None:
        super().__init__(f"refused by the compiler: it would take {size / GIB:.1f} GiB")
        self.bytes = size


def compiled(function: Any, *arguments: Any, device: Any = None) -> Program:
    """``function``, jitted or not, compiled for ``arguments``: arrays, or shapes where it is not to
    be run; for ``device`` if one is given, which need not be there: it decides how operations
    compute, see ``longsum_jax.ops.platform``. Raises ``RefusedError``."""
    import jax

    from longsum_plan.plan import device_bytes, needed_bytes

    if device is not None:
        there = partial(jax.ShapeDtypeStruct, sharding=jax.sharding.SingleDeviceSharding(device))
        arguments = jax.tree.map(lambda x: there(x.shape, x.dtype), arguments)
    start = time.perf_counter()
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    with contextlib.nullcontext() if device is None else jax.default_device(device):
        lowered = jitted.lower(*arguments)
        try:
            program = lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            raise RefusedError(needed_bytes(error, device_bytes(arguments))) from error
    return Program(program, arguments, time.perf_counter() - start)


def timed(call: Callable[[], Any]) -> Seconds:
    """Times one call."""
    wall, cpu = time.perf_counter(), _cpu_seconds()
    call()
    return Seconds(time.perf_counter() - wall, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Returns the seconds of the processor of this process and its finished children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def fastest(
    calls: Mapping[str, Callable[[], Any]],
    repeats: int,
    *,
    warm_ups: int = 1,
    enough: float = math.inf,
    in_a_row: int = 1,
    statistic: Statistic = min,
) -> dict[str, Seconds]:
    """Returns the seconds of each call; calls take turns, so that other work affects all alike.

    Args:
        repeats: turns that count; there is at least one.
        warm_ups: turns before them.
        enough: seconds on the clock after which a call has no further turn.
        in_a_row: calls of a turn, each timed.
        statistic: function from the seconds of all turns to the result.
    """
    for _ in range(warm_ups):
        for call in calls.values():
            call()
    taken: dict[str, list[Seconds]] = {name: [] for name in calls}
    for turn in range(max(repeats, 1)):
        for name, call in calls.items():
            if turn == 0 or sum(seconds.wall for seconds in taken[name]) < enough:
                taken[name] += [timed(call) for _ in range(in_a_row)]
    return {
        name: Seconds(*map(statistic, zip(*turns, strict=True))) for name, turns in taken.items()
    }


def add_median_flag(parser: argparse.ArgumentParser) -> None:
    """Adds --median, which sets ``statistic``."""
    parser.add_argument(
        "--median",
        dest="statistic",
        action="store_const",
        const=statistics.median,
        default=min,
        help="the median of the turns counts, not the fastest",
    )


class Deadline:
    """The end of the minutes that a script may take; what has begun by then is finished."""

    def __init__(self, minutes: float) -> None:
        self._end = time.monotonic() + 60 * minutes

    @staticmethod
    def add_flag(parser: argparse.ArgumentParser) -> None:
        """Adds --minutes."""
        parser.add_argument(
            "--minutes",
            type=float,
            default=math.inf,
            help="begin nothing after so many; the same command goes on from --out later",
        )

    @property
    def seconds(self) -> float:
        """Seconds that are left; none are where it is negative."""
        return self._end - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Tells whether nothing more may begin."""
        return self.seconds <= 0


def numbers(text: str) -> list[int]:
    """ "1024,4096" -> [1024, 4096]."""
    return [int(part) for part in text.split(",")]


def lsg_options(name: str) -> dict[str, Any]:
    """Options of LSG attention by name: "128/4 norm" has blocks of 128 tokens, and of every four
    tokens beyond them one sparse key, chosen by its norm; "256/none" blocks of 256 alone.

    Raises:
        SystemExit: another form of name.
    """
    result = re.fullmatch(r"(\d+)/(none|(\d+) (\w+))", name)
    if result is None:
        raise SystemExit(f'"{name}" is no LSG attention; write "128/4 norm" or "256/none"')
    block, _, factor, kind = result.groups()
    if kind is None:
        return {"block_size": int(block), "sparsity_type": "none"}
    blocks = dict.fromkeys(("block_size", "sparse_block_size"), int(block))
    return {"sparsity_type": kind, **blocks, "sparsity_factor": int(factor)}


def describe_machine() -> dict[str, Any]:
    """Returns processor and its instruction sets, usable cores, memory, accelerators in use, Python
    and package versions."""
    return {
        "cpu": _cpu_field("model name") or platform.processor() or platform.machine(),
        "instruction_sets": _instruction_sets(),
        "cores": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "devices": _devices(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def device_bytes() -> int:
    """Returns the memory of the first device, which on a CPU is the machine's."""
    import jax

    stats = jax.devices()[0].memory_stats()
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (stats or {}).get("bytes_limit") or pages


def write_report(path: str | Path, rows: Sequence[Mapping[str, Any]], **extra: Any) -> None:
    """Writes rows, machine, command and ``extra`` as JSON."""
    script = Path(sys.argv[0]).resolve()
    # The path of the script from the root of the repository.
    name = f"{script.parent.name}/{script.name}"
    command = shlex.join(["python", name, *map(_portable, sys.argv[1:])])
    report = {
        "command": command,
        "machine": describe_machine(),
        **extra,
        "rows": [dict(row) for row in rows],
    }
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A run that ends here must not leave half a report to the next one.
    unfinished = path.with_name(f"{path.name}.new")
    unfinished.write_text(json.dumps(report, indent=2) + "\n")
    unfinished.replace(path)


def rows_before(path: str | None, **settings: Any) -> list[dict[str, Any]]:
    """Returns the rows that an earlier start wrote, none without a report.

    Args:
        path: of the report, None for none.
        settings: what ``write_report`` is given besides the rows.

    Raises:
        SystemExit: the report is of other settings, or of another processor.
    """
    if path is None or not Path(path).exists():
        return []
    report = json.loads(Path(path).read_text())
    expected = settings | {"cpu": describe_machine()["cpu"]}
    known = report | {"cpu": report["machine"]["cpu"]}
    for key, value in expected.items():
        if known.get(key) != value:
            raise SystemExit(
                f"{path} is of {key}={known.get(key)}, this is {value}; give another --out"
            )
    return report["rows"]


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows under the union of their keys, numbers to four digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        )


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of ``print_table`` in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [
        columns,
        ["---"] * len(columns),
        *([_cell(row.get(column)) for column in columns] for row in rows),
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _portable(argument: str) -> str:
    """An argument without the folders of this machine."""
    flag, equals, value = argument.rpartition("=")
    return f"{flag}{equals}{Path(value).name}" if Path(value).is_absolute() else argument


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cpu_field(*names: str) -> str:
    """A field of the first processor as Linux describes it, "" without one."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    values = [line.split(":", 1)[1].strip() for line in lines if line.startswith(names)]
    return values[0] if values else ""


def _instruction_sets() -> list[str]:
    """Those for vectors and matrices, on which the speed of products depends."""
    flags = _cpu_field("flags", "Features").split()
    return sorted(filter(INSTRUCTION_SETS.match, flags))


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def _devices() -> list[str]:
    jax = sys.modules.get("jax")  # a benchmark that does not use jax has no devices
    return [] if jax is None else [device.device_kind for device in jax.devices()]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
