"""Text tables of plans."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from longsum_plan.devices import GB, Target
from longsum_plan.plan import ProgramPlan

_BOUNDS = {"compute": "compute", "memory": "HBM", "links": "links"}


class Table(NamedTuple):
    """A table of text cells, the first row of which is the header."""

    rows: Sequence[Sequence[str]]

    def __str__(self) -> str:
        widths = [
            max(map(len, column)) for column in zip(*self.rows, strict=True)
        ]
        lines = []
        for row in self.rows:
            first, *rest = row
            cells = [first.ljust(widths[0])]
            cells += [
                cell.rjust(width)
                for cell, width in zip(rest, widths[1:], strict=True)
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


def memory_table(plans: Iterable[ProgramPlan], target: Target) -> Table:
    """Returns a table of the programs' memory on one device, in GB (10^9 bytes)."""
    names = (
        "parameters",
        "optimizer",
        "arguments",
        "results",
        "temporary",
        "idle",
        "total",
    )
    rows = [["GB per device", *names, "of", "fits"]]
    if target.memory:
        limit = _gb(target.memory)
    else:
        limit = "?"
    for plan in plans:
        cells = []
        for name in names:
            if name in plan.memory:
                cells.append(_gb(plan.memory[name]))
            else:
                cells.append("-")
        fits = {True: "yes", False: "NO", None: "?"}[plan.fits]
        rows.append([plan.name, *cells, limit, fits])
    return Table(rows)


def work_table(plans: Iterable[ProgramPlan]) -> Table:
    """Returns a table of operations, bytes and roofline times."""
    rows = [
        [
            "per device",
            "TFLOP",
            "GB moved",
            "GB sent",
            "at least",
            "bound by",
            "compiled in",
        ]
    ]
    for plan in plans:
        work, least = plan.work, plan.least_seconds
        cells = ["-"] * 3
        if work is not None:
            cells = [
                f"{work.operations / 1e12:.4g}",
                _gb(work.num_bytes),
                _gb(work.sent),
            ]
        if least is None:
            shown = "-"
        else:
            shown = f"{milliseconds(least)} ms"
        bound = _BOUNDS.get(plan.bound, "-")
        rows.append(
            [plan.name, *cells, shown, bound, f"{plan.compile_seconds:.0f} s"]
        )
    return Table(rows)


def parts_table(plan: ProgramPlan, count: int) -> Table | None:
    """Returns a table of the longest parts of a program; None if it has no parts."""
    total = sum(part.least_seconds for part in plan.parts)
    head = [
        f"{plan.name}, longest parts",
        "pass",
        "at least",
        "share",
        "bound by",
    ]
    rows = [[*head, "TFLOP", "GB moved", "GB sent", "largest array"]]
    for planned in plan.parts[:count]:
        part, least = planned.part, planned.least_seconds
        times = ["-"] * 3
        if total:
            times = [
                f"{milliseconds(least)} ms",
                f"{least / total:.0%}",
                _BOUNDS[planned.bound],
            ]
        work = part.work
        sizes = [
            f"{work.operations / 1e12:.4g}",
            _gb(work.num_bytes),
            _gb(work.sent),
        ]
        names = part.module or "(no module)", part.stage
        rows.append([*names, *times, *sizes, str(part.largest or "-")])
    if len(rows) > 1:
        return Table(rows)
    return None


def collectives_table(plans: Iterable[ProgramPlan]) -> Table | None:
    """Returns a table of the programs' collectives; None if there are none."""
    rows = [["collectives per device", "kind", "count", "GB", "GB sent"]]
    for plan in plans:
        if plan.work:
            collectives = plan.work.collectives
        else:
            collectives = {}
        for kind, traffic in sorted(collectives.items()):
            sizes = [_gb(traffic.num_bytes), _gb(traffic.sent)]
            rows.append([plan.name, kind, f"{traffic.count:,.0f}", *sizes])
    if len(rows) > 1:
        return Table(rows)
    return None


def _gb(num_bytes: float) -> str:
    gigabytes = num_bytes / GB
    if gigabytes >= 0.01 or gigabytes == 0:
        return f"{gigabytes:,.2f}"
    return f"{gigabytes:.1e}"


def milliseconds(seconds: float) -> str:
    """Returns a time in milliseconds, to three digits or whole milliseconds."""
    if seconds < 0.9995:  # 999.5 ms have four digits
        return f"{1000 * seconds:,.3g}"
    return f"{1000 * seconds:,.0f}"
