"""Reading order of columns that a file draws row by row, detected by the gaps between them."""

import itertools
from collections.abc import Sequence
from typing import Protocol, TypeVar


class Piece(Protocol):
    """A part of a row of text without a wide gap inside, with its position in points."""

    @property
    def text(self) -> str:
        """The text of the piece."""

    @property
    def left(self) -> float:
        """The left edge."""

    @property
    def right(self) -> float:
        """The right edge."""

    @property
    def bottom(self) -> float:
        """The lower edge; it increases up the page."""

    @property
    def size(self) -> float:
        """The font size."""


P = TypeVar("P", bound=Piece)

# rows with a gap at the same position that may separate columns
FEWEST_ROWS = 8
_FULL = 0.7  # width of a full line over the width of its column
_FEWEST_FULL = 0.6  # share of full lines in a column of running text
# share of lines that begin with a lowercase letter in running text
_FEWEST_SMALL = 0.3
_FEWEST_CHARS = 15  # average characters in a line of a column


def order_columns(rows: Sequence[Sequence[P]]) -> list[list[P]]:
    """Returns rows in reading order: first the left column of a region, then the right one.

    A region is a sequence of rows that leave one vertical gap free, with
    running text on both sides: most lines are full, and some begin in the
    middle of a sentence. Table cells do not qualify. Rows that cross the gap
    keep their position between regions. Each column is searched for further
    gaps.

    Args:
        rows: pieces of each row from left to right, in the order of the file.
    """
    gap = _most_frequent_gap(rows)
    if gap is None:
        return list(map(list, rows))
    results: list[list[P]] = []
    for crosses, group in itertools.groupby(
        rows, lambda row: _crosses(row, gap)
    ):
        region = list(group)
        lefts = [
            [piece for piece in row if piece.right <= gap] for row in region
        ]
        rights = [
            [piece for piece in row if piece.left >= gap] for row in region
        ]
        num_gaps = len(_gaps_at(gap, region))
        is_frequent = num_gaps >= max(FEWEST_ROWS, len(region) / 4)
        if (
            not crosses
            and is_frequent
            and _is_running_text(lefts)
            and _is_running_text(rights)
        ):
            for column in (lefts, rights):
                results += order_columns(list(filter(None, column)))
        else:
            results += map(list, region)
    return results


def _most_frequent_gap(rows: Sequence[Sequence[Piece]]) -> float | None:
    """Returns the horizontal position of the most frequent gap; None if it is too rare."""
    gaps = _gaps(rows)
    if len(gaps) < FEWEST_ROWS:
        return None
    # The position shared by most gaps is at the right end of one of them.
    ends = {right - 0.5 for _, right in gaps}
    counts = {
        end: sum(left < end < right for left, right in gaps)
        for end in sorted(ends)
    }
    best = max(counts, key=lambda end: counts[end])
    return best if counts[best] >= FEWEST_ROWS else None


def _gaps(rows: Sequence[Sequence[Piece]]) -> list[tuple[float, float]]:
    """Returns the left and right edges of gaps within rows, and between rows of equal height."""
    gaps = []
    for row in rows:
        gaps += [
            (left.right, right.left) for left, right in itertools.pairwise(row)
        ]
    for above, below in itertools.pairwise(rows):
        # Two columns whose lines have different heights on the page.
        last, first = above[-1], below[0]
        if (
            abs(last.bottom - first.bottom) < last.size
            and first.left > last.right + last.size
        ):
            gaps.append((last.right, first.left))
    return gaps


def _gaps_at(
    position: float, rows: Sequence[Sequence[Piece]]
) -> list[tuple[float, float]]:
    return [gap for gap in _gaps(rows) if gap[0] < position < gap[1]]


def _crosses(row: Sequence[Piece], gap: float) -> bool:
    return any(piece.left < gap < piece.right for piece in row)


def _is_running_text(rows: Sequence[Sequence[Piece]]) -> bool:
    filled = [row for row in rows if row]
    if len(filled) < FEWEST_ROWS:
        return False
    texts = [row[0].text for row in filled]
    left = min(row[0].left for row in filled)
    right = max(row[-1].right for row in filled)
    width = right - left
    num_full = sum(
        row[-1].right - row[0].left >= _FULL * width for row in filled
    )
    num_small = sum(text[0].islower() for text in texts)
    num_chars = sum(len(piece.text) for row in filled for piece in row)
    return (
        num_full >= _FEWEST_FULL * len(filled)
        and num_small >= _FEWEST_SMALL * len(filled)
        and num_chars >= _FEWEST_CHARS * len(filled)
    )
