"""What every benchmark shares: the machine's description, a table, and a JSON report."""

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

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


def describe_machine() -> dict[str, Any]:
    """Returns processor, usable cores, memory, accelerators in use, Python and package versions."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "devices": _devices(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def write_report(path: str | Path, rows: Sequence[Mapping[str, Any]], **extra: Any) -> None:
    """Writes rows, machine, command and ``extra`` as JSON."""
    command = shlex.join(["python", *sys.argv])
    report = {"command": command, "machine": describe_machine(), **extra, "rows": [dict(row) for row in rows]}
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")


def print_table(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints rows under the union of their keys, numbers to four digits."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    table = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def markdown_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table of ``print_table`` in Markdown."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = [columns, ["---"] * len(columns), *([_cell(row.get(column)) for column in columns] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


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
