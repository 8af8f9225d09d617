"""Operations of a run's compiled steps: their time at the peak rate, and a measured profile."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import jax

from longsum_jax import atomic
from longsum_jax.errors import counted, terminal_text
from longsum_plan.devices import Hardware, hardware_of
from longsum_plan.program_parts import origin
from longsum_plan.program_text import Instruction, parse
from longsum_plan.program_work import program_work

PROFILE = "profile"  # subdirectory of a workdir
OPERATIONS = "operations.md"  # of a profile
NUM_OPERATIONS = 10
# Instructions whose time includes the instructions that they run.
_CONTROL_FLOW = frozenset({"call", "conditional", "while"})
_OP_NAME = re.compile(r'\bop_name="([^"]*)"')
_PACKAGE = "longsum_jax/"


class StepOperations:
    """Counts the products of compiled steps, and keeps the programs for a profile.

    Args:
        hardware: peak rates of the devices; None if unknown.
        keeps_texts: True to keep the texts of the programs.

    Attributes:
        texts: texts of the programs, if they are kept.
    """

    def __init__(
        self, hardware: Hardware | None, *, keeps_texts: bool = False
    ) -> None:
        self._hardware = hardware
        self._keeps_texts = keeps_texts
        self.texts: list[str] = []

    @classmethod
    def of_devices(cls, *, keeps_texts: bool = False) -> "StepOperations":
        """Returns the counter for the devices of this process."""
        kind = jax.local_devices()[0].device_kind
        return cls(hardware_of(kind), keeps_texts=keeps_texts)

    def __call__(self, compiled: jax.stages.Compiled) -> float:
        """Returns the seconds of a program's products at the peak rate; 0 if unknown.

        Products are counted for one device, with the iterations of loops, and
        include recomputed activations. Each type of factors has its own peak
        rate (``longsum_plan.devices``).
        """
        if self._hardware is None and not self._keeps_texts:
            return 0.0
        text = compiled.as_text() or ""
        if self._keeps_texts:
            self.texts.append(text)
        if self._hardware is None:
            return 0.0
        try:
            return product_seconds(text, self._hardware)
        except (KeyError, IndexError, ValueError) as error:
            # A count for the log must not stop a training.
            print(
                f"mfu is left out of metrics.jsonl: the program has an unknown operation ({error})",
                file=sys.stderr,
            )
            return 0.0


def product_seconds(text: str, hardware: Hardware) -> float:
    """Returns the seconds that the products of a program take at the peak rates of a device.

    Args:
        text: text from ``jax.stages.Compiled.as_text()``.
        hardware: peak rates of the device.

    Raises:
        KeyError: a product of a type without a peak rate.
    """
    products = program_work(text).products
    return sum(
        count / hardware.products[kind] for kind, count in products.items()
    )


class OperationTime(NamedTuple):
    """The measured time of an instruction of a program.

    Attributes:
        name: name of the instruction.
        seconds: total seconds on all devices.
        count: number of executions.
    """

    name: str
    seconds: float
    count: int  # type: ignore[assignment] # hides tuple.count


class StepProfiler:
    """A hook of ``training.loop.fit`` that profiles some steps, as a context.

    The first step of the process, which is compiled, is left out. The trace and
    the table of the dearest operations are written after the last profiled
    step, or at the end of the run.

    Args:
        directory: directory of the profile.
        steps: number of steps to profile.
        operations: counter that keeps the texts of the programs.
    """

    def __init__(
        self, directory: Path, steps: int, operations: StepOperations
    ) -> None:
        self._directory = directory
        self._steps = steps
        self._operations = operations
        self._first: int | None = None  # step before the trace
        self._last = 0
        self._is_tracing = False

    def __enter__(self) -> "StepProfiler":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_tracing:
            self._stop()

    def __call__(
        self, step: int, state: Any, metrics: Mapping[str, Any]
    ) -> None:
        del state
        if self._first is None:
            jax.block_until_ready(dict(metrics))
            self._first = self._last = step
            jax.profiler.start_trace(str(self._directory))
            self._is_tracing = True
            return
        if not self._is_tracing:
            return
        self._last = step
        if step - self._first == self._steps:
            jax.block_until_ready(dict(metrics))
            self._stop()

    def _stop(self) -> None:
        self._is_tracing = False
        jax.profiler.stop_trace()
        assert self._first is not None
        steps = self._last - self._first
        if steps and jax.process_index() == 0:
            _write_table(self._directory, steps, self._operations.texts)


def _write_table(directory: Path, steps: int, texts: list[str]) -> None:
    """Writes the table of the newest trace in a directory, and prints its path."""
    traces = sorted(
        directory.glob("**/*.xplane.pb"), key=lambda path: path.stat().st_mtime
    )
    if not traces:
        message = f"{directory}: no trace was written"
        print(terminal_text(message), file=sys.stderr)
        return
    times = operation_times(traces[-1], _instructions(texts))
    path = directory / OPERATIONS
    atomic.write_text(path, operations_table(times, texts, steps))
    message = f"profile of {counted(steps, 'step')}: {path}"
    print(terminal_text(message), file=sys.stderr)


def operation_times(
    trace: Path, instructions: Mapping[str, Instruction]
) -> list[OperationTime]:
    """Returns the times of instructions in a trace, the longest first.

    Args:
        trace: file written by JAX's profiler (.xplane.pb).
        instructions: instructions of the programs by name; others, and control
            flow, are left out.
    """
    seconds: dict[str, float] = {}
    counts: dict[str, int] = {}
    for name, duration in _device_events(trace):
        instruction = instructions.get(name)
        if instruction is None or instruction.opcode in _CONTROL_FLOW:
            continue
        seconds[name] = seconds.get(name, 0.0) + duration
        counts[name] = counts.get(name, 0) + 1
    times = [
        OperationTime(name, total, counts[name])
        for name, total in seconds.items()
    ]
    return sorted(times, key=lambda time: -time.seconds)


def _device_events(trace: Path) -> Iterator[tuple[str, float]]:
    """Yields the instructions that ran on devices, with their seconds."""
    data = jax.profiler.ProfileData.from_file(str(trace))
    for plane in data.planes:
        for line in plane.lines:
            for event in line.events:
                # A loop over stats, because they are read lazily.
                name = next(
                    (
                        str(value)
                        for key, value in event.stats
                        if key == "hlo_op"
                    ),
                    None,
                )
                if name is None and line.name == "XLA Ops":  # of a TPU
                    name = event.name.partition(" = ")[0].lstrip("%")
                if name is not None:
                    yield name, event.duration_ns / 1e9


def operations_table(
    times: list[OperationTime], texts: list[str], steps: int
) -> str:
    """Returns a Markdown table of the dearest operations.

    Args:
        times: times from ``operation_times``.
        texts: texts of the programs that ran.
        steps: number of profiled steps.
    """
    total = _total(times)
    lines = [
        "# The dearest operations",
        "",
        f"Time on all devices in {counted(steps, 'step')}, {1e3 * total / steps:.2f} ms per step. "
        "A fusion has the line of its last operation.",
        "",
        "| ms per step | share | runs per step | operation | part of the model | source |",
        "|---:|---:|---:|---|---|---|",
    ]
    for row in _longest(times, texts):
        cells = (
            f"{1e3 * row['seconds'] / steps:.3f}",
            f"{100 * row['share']:.1f}%",
            f"{row['count'] / steps:g}",
            f"`{row['name']}` ({row['kind']})",
            row["part"],
            row["source"],
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def longest_operations(trace: Path, texts: list[str]) -> list[dict[str, Any]]:
    """Returns the operations of a trace that take longest, as plain values for JSON.

    Args:
        trace: file written by JAX's profiler (.xplane.pb).
        texts: texts of the programs that ran.
    """
    return _longest(operation_times(trace, _instructions(texts)), texts)


def _longest(
    times: list[OperationTime], texts: list[str]
) -> list[dict[str, Any]]:
    instructions = _instructions(texts)
    sources = _sources(texts)
    total = _total(times)
    rows = []
    for time in times[:NUM_OPERATIONS]:
        instruction = instructions[time.name]
        module, stage = origin(instruction)
        row = {
            "name": time.name,
            "kind": _kind(instruction),
            "part": f"{module or 'other'}, {stage}",
            "source": sources.get(time.name, ""),
            "seconds": time.seconds,
            "share": time.seconds / total,
            "count": time.count,
        }
        rows.append(row)
    return rows


def _total(times: list[OperationTime]) -> float:
    """Returns the seconds of all operations; 1 if there are none."""
    return sum(time.seconds for time in times) or 1.0


def _instructions(texts: Iterable[str]) -> dict[str, Instruction]:
    """Returns the instructions of all programs by name."""
    instructions: dict[str, Instruction] = {}
    for text in texts:
        for computation in parse(text)[0].values():
            instructions |= computation.instructions
    return instructions


def _kind(instruction: Instruction) -> str:
    """Returns the primitive of an instruction's result, or else its opcode."""
    match = _OP_NAME.search(instruction.attributes)
    operation = match.group(1).rpartition("/")[2] if match else ""
    return operation or instruction.opcode


def _sources(texts: Iterable[str]) -> dict[str, str]:
    """Returns the source lines of instructions, "layers/dense.py:80", by their names."""
    sources: dict[str, str] = {}
    for text in texts:
        line_of_frame = _frames(text)
        for match in re.finditer(
            r"^\s+(?:ROOT )?%?([\w.-]+) = .*metadata=\{(.*)\}",
            text,
            re.MULTILINE,
        ):
            name, metadata = match.groups()
            source = _source(metadata, line_of_frame)
            if source:
                sources[name] = source
    return sources


def _source(metadata: str, line_of_frame: Callable[[int], str]) -> str:
    frame = re.search(r"\bstack_frame_id=(\d+)", metadata)
    if frame:
        return line_of_frame(int(frame.group(1)))
    file = re.search(r'\bsource_file="([^"]*)"', metadata)
    line = re.search(r"\bsource_line=(\d+)", metadata)
    return f"{_short(file.group(1))}:{line.group(1)}" if file and line else ""


def _frames(text: str) -> Callable[[int], str]:
    """Returns the function from a stack frame to its innermost source line in this package.

    The head of a program lists frames as "9 {file_location_id=2
    parent_frame_id=8}". Without a frame in this package, the innermost frame is
    used.
    """
    names = dict(
        re.findall(r'^(\d+) "(.*)"$', _section(text, "FileNames"), re.M)
    )
    locations = {
        number: f"{names.get(file, '')}:{line}"
        for number, file, line in re.findall(
            r"^(\d+) \{file_name_id=(\d+) .*?\bline=(\d+)",
            _section(text, "FileLocations"),
            re.M,
        )
    }
    frames = {
        int(number): (locations.get(location, ""), int(parent or 0))
        for number, location, parent in re.findall(
            r"^(\d+) \{file_location_id=(\d+)(?: parent_frame_id=(\d+))?",
            _section(text, "StackFrames"),
            re.M,
        )
    }

    def line_of(frame: int) -> str:
        innermost, _ = frames.get(frame, ("", 0))
        visited: set[int] = set()
        while frame in frames and frame not in visited:
            visited.add(frame)
            location, parent = frames[frame]
            if f"/{_PACKAGE}" in location:
                return _short(location)
            frame = parent
        return _short(innermost)

    return line_of


def _section(text: str, name: str) -> str:
    """Returns the lines of a table at the head of a program; "" if it has none."""
    match = re.search(rf"^{name}\n((?:\d.*\n)*)", text, re.MULTILINE)
    return match.group(1) if match else ""


def _short(location: str) -> str:
    """Returns a path from the package on, or from the last two directories."""
    _, inside, rest = location.rpartition(f"/{_PACKAGE}")
    return rest if inside else "/".join(location.split("/")[-3:])
