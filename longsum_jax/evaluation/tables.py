"""Formats scores as plain-text tables."""

from collections.abc import Mapping, Sequence

MIN_WIDTH = 10  # minimum width of a column, in characters


def score_table(
    columns: Sequence[str], rows: Mapping[str, Sequence[float | str]]
) -> str:
    """Returns a table of named rows of numbers with column titles.

    Args:
        columns: column titles.
        rows: row name -> a number, or a formatted number, for every column.
    """
    cells = {name: list(map(_cell, values)) for name, values in rows.items()}
    name_width = max(map(len, rows), default=0)
    widths = [
        max(map(len, column))
        for column in zip(columns, *cells.values(), strict=True)
    ]
    widths = [max(width, MIN_WIDTH) for width in widths]
    lines = [_line("", columns, name_width, widths)]
    lines += [
        _line(name, values, name_width, widths)
        for name, values in cells.items()
    ]
    return "\n".join(lines)


def _cell(value: float | str) -> str:
    """Returns a number with two decimals; a text is returned unchanged."""
    if isinstance(value, str):
        return value
    return f"{value:.2f}"


def _line(
    name: str, cells: Sequence[str], name_width: int, widths: Sequence[int]
) -> str:
    line = name.rjust(name_width)
    for cell, width in zip(cells, widths, strict=True):
        line += " " + cell.rjust(width)
    return line
