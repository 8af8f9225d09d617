"""Tables of results: their specification in tables.toml, and its rendering as Markdown."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
Rows = Sequence[Row]


class Table(NamedTuple):
    """Specification of a table over the rows of a file of results.

    A cell is named as in a format string: ``"seconds:.2f"`` is the row's value of ``seconds`` with
    two decimal places.

    Attributes:
        columns: heading -> cell.
        caption: sentence above the table.
        prepare: function that derives rows before they are selected.
        where: key -> value, list of allowed values, "present" or "absent".
        mean: keys; rows that agree in them are averaged.
        sort: keys by which rows are sorted.
        across: key whose values become columns of their own.
        cells: heading of such a column, with ``{}`` in the place of the value -> cell.
        optional: True to leave the table out if no row is selected.
    """

    columns: Mapping[str, str]
    caption: str = ""
    prepare: Callable[[Any], Rows] = list
    where: Mapping[str, Any] = {}
    mean: Sequence[str] = ()
    sort: Sequence[str] = ()
    across: str = ""
    cells: Mapping[str, str] = {}
    optional: bool = False


def read_tables(path: Path, functions: Mapping[str, Callable[..., Rows]]) -> dict[str, list[Table]]:
    """Returns the tables of every file of results.

    Args:
        path: file of specifications, which describes their keys.
        functions: name -> function for ``prepare``; arguments follow the rows.
    """
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    like = content.pop("like")
    tables = {name: [_table(spec, functions) for spec in specs] for name, specs in content.items()}
    return tables | {name: tables[other] for name, other in like.items()}


def _table(spec: Mapping[str, Any], functions: Mapping[str, Callable[..., Rows]]) -> Table:
    options = dict(spec) | {"columns": _cells(spec["columns"])}
    options["cells"] = _cells(spec.get("cells", []))
    if "prepare" in spec:
        name, *arguments = spec["prepare"]
        options["prepare"] = partial(_apply, functions[name], arguments)
    return Table(**options)


def _apply(function: Callable[..., Rows], arguments: Sequence[str], rows: Any) -> Rows:
    return function(rows, *arguments)


def _cells(texts: Sequence[str]) -> dict[str, str]:
    """Returns heading -> cell of texts such as "tokens = length:,"."""
    cells = {}
    for text in texts:
        heading, _, cell = text.partition(" = ")
        cells[heading] = cell or heading
    return cells


def render(table: Table, source: Any) -> list[str]:
    """Returns the lines of a table, without columns that are empty in all rows.

    Args:
        table: specification.
        source: rows of a file of results, or what ``prepare`` takes in their place.

    Raises:
        ValueError: no row is selected, and the table is not optional.
    """
    rows = table.prepare(source)
    rows = [row for row in rows if all(_meets(row, *item) for item in table.where.items())]
    if not rows and table.optional:
        return []
    if not rows:
        raise ValueError(f"no row for the table with the columns {', '.join(table.columns)}")
    if table.mean:
        rows = _means(rows, table.mean)
    rows = sorted(rows, key=lambda row: [row[key] for key in table.sort])
    if table.across:
        columns, lines = _pivot(table, rows)
    else:
        columns = list(table.columns)
        lines = [[show(row, cell) for cell in table.columns.values()] for row in rows]
    filled = [place for place in range(len(columns)) if any(line[place] for line in lines)]
    content = [columns, ["---"] * len(columns), *lines]
    text = ["| " + " | ".join(line[place] for place in filled) + " |" for line in content]
    text[1] = text[1].replace(" ", "")
    return [f"{table.caption}:", "", *text, ""] if table.caption else [*text, ""]


def show(row: Row, cell: str) -> str:
    """Returns the text of a cell, empty if the row has no such value."""
    key, _, form = cell.partition(":")
    value = row.get(key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if form == "sig":
        form = ",.0f" if abs(value) >= 100 else ".3g"
    return format(value, form)


def _meets(row: Row, key: str, condition: Any) -> bool:
    value = row.get(key)
    if condition in ("present", "absent"):
        return (value is not None) == (condition == "present")
    return value in condition if isinstance(condition, list) else bool(value == condition)


def _means(rows: Rows, keys: Sequence[str]) -> list[Row]:
    """Returns one row for all rows with the same values of ``keys``: means of their numbers."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key) for key in keys), []).append(row)
    means = []
    for group in groups.values():
        mean = dict(group[0])
        for key, value in group[0].items():
            if key not in keys and type(value) in (int, float):
                mean[key] = sum(row[key] for row in group) / len(group)
        means.append(mean | {"count": len(group)})
    return means


def _pivot(table: Table, rows: Rows) -> tuple[list[str], list[list[str]]]:
    """Returns headings and lines of a table with a column per value of ``across``."""
    values = list(dict.fromkeys(row[table.across] for row in rows))
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    headings = [name.format(_heading(value)) for value in values for name in table.cells]
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        index = tuple(show(row, cell) for cell in table.columns.values())
        line = lines.setdefault(index, {})
        for name, cell in table.cells.items():
            line.setdefault(name.format(_heading(row[table.across])), show(row, cell))
    content = [
        [*index, *(line.get(name, "") for name in headings)] for index, line in lines.items()
    ]
    return [*table.columns, *headings], content


def _heading(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
