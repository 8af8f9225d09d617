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
    titles = [f"{title:>{width}}" for title, width in zip(columns, widths, strict=True)]
    lines = [" ".join([" " * name_width, *titles])]
    for name, values in rows.items():
        cells = [f"{value:{width}.2f}" for value, width in zip(values, widths, strict=True)]
        lines.append(" ".join([f"{name:>{name_width}}", *cells]))
    return "\n".join(lines)
