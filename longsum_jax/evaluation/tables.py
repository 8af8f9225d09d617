"""Tables of scores for people."""

from collections.abc import Mapping, Sequence

MIN_WIDTH = 10  # of a column, in characters


def score_table(columns: Sequence[str], rows: Mapping[str, Sequence[float]]) -> str:
    """Returns named rows of numbers under the titles of their columns.

    Args:
        columns: titles.
        rows: name -> a number for every column.
    """
    name_width = max(map(len, rows), default=0)
    widths = [max(len(title), MIN_WIDTH) for title in columns]
    lines = [_line("", columns, name_width, widths)]
    for name, values in rows.items():
        cells = [f"{value:.2f}" for value in values]
        lines.append(_line(name, cells, name_width, widths))
    return "\n".join(lines)


def _line(name: str, cells: Sequence[str], name_width: int, widths: Sequence[int]) -> str:
    line = name.rjust(name_width)
    for cell, width in zip(cells, widths, strict=True):
        line += " " + cell.rjust(width)
    return line
