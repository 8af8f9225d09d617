"""What a page of results is made of: columns, tables, and functions of their rows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]


class Column(NamedTuple):
    """One column: heading, key of the rows, and how a value is printed."""

    heading: str
    key: str
    show: Callable[[Any], str] = str


class Table(NamedTuple):
    """One table of a page: heading, columns, and the rows that belong to it.

    ``more_columns`` gives columns, from all rows, whose number depends on what was measured.
    """

    heading: str
    columns: Sequence[Column]
    rows: Callable[[list[Row]], list[Row]] = lambda rows: rows
    more_columns: Callable[[list[Row]], list[Column]] = lambda rows: []


class Page(NamedTuple):
    """One page.

    Attributes:
        title: heading of the page.
        advice: one sentence of advice for the reader.
        text: what was measured and how to read the tables.
        tables: see ``Table``.
        picture: figure of the rows, the first thing on the page.
    """

    title: str
    advice: str
    text: str
    tables: Sequence[Table]
    picture: Callable[[list[Row]], "Figure"] | None = None


def count(value: int) -> str:
    """Returns an integer with separators of thousands."""
    return f"{value:,}"


def digits(places: int) -> Callable[[Any], str]:
    """Returns a printer of numbers with ``places`` decimal places."""
    return lambda value: f"{value:,.{places}f}"


def significant(value: float) -> str:
    """Returns a number to three digits, however large or small."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def small(value: float) -> str:
    """Returns a small number in scientific notation."""
    return f"{value:.1e}"


def yes(value: bool) -> str:
    """Returns yes or no."""
    return "yes" if value else "no"


def where(**values: Any) -> Callable[[list[Row]], list[Row]]:
    """Returns a filter of rows by equal values."""
    return lambda rows: [
        row for row in rows if all(row.get(key) == value for key, value in values.items())
    ]


def having(key: str, *without: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a filter of rows that have a value for ``key`` and none for ``without``."""
    return lambda rows: [
        row
        for row in rows
        if row.get(key) is not None and all(row.get(name) is None for name in without)
    ]


def pivot(key: str, across: str, value: str) -> Callable[[list[Row]], list[Row]]:
    """Returns a function that turns rows into one row per ``key`` with a column per ``across``."""

    def turn(rows: list[Row]) -> list[Row]:
        turned: dict[Any, Row] = {}
        for row in rows:
            if value in row:
                turned.setdefault(row[key], {key: row[key]})[str(row[across])] = row[value]
        return list(turned.values())

    return turn


def percent(share: float) -> str:
    """Returns a share in percent."""
    return f"{100 * share:.1f}"


MODEL = Column("model", "model")
TOKENS = Column("tokens", "length", count)
