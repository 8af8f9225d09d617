"""Lines of a PDF page in reading order, with their positions and sizes as PDFium measures them."""

import ctypes
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from longsum_jax.readers.cleaning import list_marks
from longsum_jax.readers.columns import FEWEST_ROWS, order_columns

# A line end. PDFium writes one of the latter two in place of a hyphen at a line
# end.
_LINE_END = re.compile("\r\n|[\x02\ufffe]")
_SPACES = re.compile(r"[ \t\xa0\u2000-\u200a]+")
# Digits of a possible footnote mark.
_DIGITS_AFTER = re.compile(
    r"(?:[^\W\d_]|[.,;:!?)\"\u201d\u2019])[ ]?(\d{1,3})(?![\w%]|[.,]\d)"
)
# Raised digits, which may be footnote marks, are private characters until
# footnotes are found.
_RAISED_DIGITS = {digit: chr(0xF0000 + ord(digit)) for digit in "0123456789"}
_TO_RAISED = str.maketrans(_RAISED_DIGITS)
FROM_RAISED = str.maketrans(
    {raised: digit for digit, raised in _RAISED_DIGITS.items()}
)
# size of a raised digit divided by the size of the letter before it
_RAISED = 0.85
_GAP = 1.0  # distance of two pieces of a line divided by the text size
_NARROWEST = 5  # width of a column divided by the text size


class PageLine(NamedTuple):
    """A line of a page: its text, and its position and size in points."""

    text: str
    left: float
    bottom: float
    size: float
    weight: int
    right: float = 0.0  # measured only on pages that may have columns


class TypeStyle(NamedTuple):
    """The most frequent type size and weight of a document."""

    size: float
    weight: float


def style_of(pages: Sequence[Sequence[PageLine]]) -> TypeStyle:
    """Returns the most frequent size and weight of the characters in some pages."""
    sizes: Counter[float] = Counter()
    weights: Counter[int] = Counter()
    for page in pages:
        for line in page:
            sizes[line.size] += len(line.text)
            weights[line.weight] += len(line.text)
    if not sizes:
        return TypeStyle(1.0, 0)
    return TypeStyle(sizes.most_common(1)[0][0], weights.most_common(1)[0][0])


def lines_of(raw: Any, textpage: Any) -> list[PageLine]:
    """Returns the lines of a page in reading order."""
    text = textpage.get_text_range()
    measure = _Measure(raw, textpage, text)
    spans = []
    lines = []
    start = 0
    for end, following in _line_ends(text):
        line = text[start:end]
        if line.strip():
            span = (
                start + len(line) - len(line.lstrip()),
                start + len(line.rstrip()),
            )
            spans.append(span)
            hyphen = "-" if following - end == 1 else ""
            lines.append(measure.line(*span, hyphen))
        start = following
    size = style_of([lines]).size
    if not _may_have_columns(measure, spans, lines, size):
        return lines
    rows = [
        measure.pieces(*span, line, size)
        for span, line in zip(spans, lines, strict=True)
    ]
    return [_joined_pieces(row) for row in order_columns(rows)]


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """Yields the offsets of each line's end and of the following line's start."""
    for match in _LINE_END.finditer(text):
        yield match.span()
    yield len(text), len(text)


def _may_have_columns(
    measure: "_Measure",
    spans: Sequence[tuple[int, int]],
    lines: Sequence[PageLine],
    size: float,
) -> bool:
    """Returns True if lines seem to have gaps at one position; every other line is measured."""
    num_level = 0
    for before, line in itertools.pairwise(lines):
        is_level = abs(before.bottom - line.bottom) < size
        num_level += is_level and line.left > before.left + _NARROWEST * size
    starts: Counter[int] = Counter()
    for span, line in zip(spans[::2], lines[::2], strict=True):
        for edge, following in measure.gaps(*span, size):
            starts[round(following)] += edge - line.left > _NARROWEST * size
    return 2 * max(starts.values(), default=0) + num_level >= FEWEST_ROWS


def _joined_pieces(row: Sequence[PageLine]) -> PageLine:
    if len(row) == 1:
        return row[0]
    return row[0]._replace(
        text=" ".join(piece.text for piece in row), right=row[-1].right
    )


class _Measure:
    """Measures parts of the text of a page.

    Args:
        raw: functions of PDFium.
        textpage: text page of PDFium.
        text: text of the page.
    """

    def __init__(self, raw: Any, textpage: Any, text: str) -> None:
        self._raw = raw
        self._page = textpage.raw
        self._text = text
        self._box = raw.FS_RECTF()
        self._edges = [ctypes.c_double() for _ in range(4)]
        # PDFium counts characters above U+FFFF twice; their number before each
        # offset.
        self._num_wide = None
        if not text.isascii() and max(text) > "\uffff":
            self._num_wide = [
                0,
                *itertools.accumulate(char > "\uffff" for char in text),
            ]

    def line(self, start: int, end: int, hyphen: str = "") -> PageLine:
        """Returns the line ``text[start:end]``, with a hyphen at its end."""
        text = list_marks(
            _SPACES.sub(" ", self._with_raised(start, end)).strip()
        )
        raw, box = self._raw, self._box
        # The first character has the position and size of the line.
        index = self._index(start)
        raw.FPDFText_GetLooseCharBox(self._page, index, ctypes.byref(box))
        weight = raw.FPDFText_GetFontWeight(self._page, index)
        # Half points: boxes of letters in one size differ a little.
        size = round(2 * (box.top - box.bottom)) / 2
        return PageLine(text + hyphen, box.left, box.bottom, size, weight)

    def _with_raised(self, start: int, end: int) -> str:
        """Returns ``text[start:end]`` with marked raised digits, which may be footnote marks."""
        text = self._text[start:end]
        for match in _DIGITS_AFTER.finditer(text):
            if self._is_raised(start + match.start(1), start + match.start()):
                before, after = text[: match.start(1)], text[match.end() :]
                text = before + match.group(1).translate(_TO_RAISED) + after
        return text

    def _is_raised(self, offset: int, before: int) -> bool:
        """Returns True if a character is smaller and higher than one before it."""
        box = self._box
        sizes = []
        for position in (before, offset):
            self._raw.FPDFText_GetLooseCharBox(
                self._page, self._index(position), ctypes.byref(box)
            )
            sizes.append((box.top - box.bottom, box.bottom, box.top))
        (height, bottom, top), (raised_height, raised_bottom, raised_top) = (
            sizes
        )
        is_higher = raised_bottom > bottom and raised_top > top - 0.25 * height
        return raised_height < _RAISED * height and is_higher

    def gaps(
        self, start: int, end: int, size: float
    ) -> list[tuple[float, float]]:
        """Returns the left and right edges of wide gaps in a line."""
        # Rectangles are parts of a line that were drawn separately.
        index = self._index(start)
        length = self._index(end - 1) - index + 1
        count = self._raw.FPDFText_CountRects(self._page, index, length)
        if count < 2:
            return []
        left, top, right, bottom = self._edges
        gaps = []
        edge = math.inf
        for i in range(count):
            self._raw.FPDFText_GetRect(self._page, i, left, top, right, bottom)
            if left.value - edge > _GAP * size:
                gaps.append((edge, left.value))
            edge = right.value
        return gaps

    def pieces(
        self, start: int, end: int, line: PageLine, size: float
    ) -> list[PageLine]:
        """Returns the pieces of a line between its gaps, with their right edges."""
        left, right, bottom, top = self._edges
        pieces = []
        for edge, following in self.gaps(start, end, size):
            middle = self._first_right_of(following - 0.5, start, end)
            if start < middle < end:
                pieces.append(self.line(start, middle)._replace(right=edge))
                start = middle
        if self._text[end : end + 1] in ("\x02", "\ufffe"):
            hyphen = "-"
        else:
            hyphen = ""
        if pieces:
            last = self.line(start, end, hyphen)
        else:
            last = line
        self._raw.FPDFText_GetCharBox(
            self._page, self._index(end - 1), left, right, bottom, top
        )
        return [*pieces, last._replace(right=max(right.value, last.left))]

    def _index(self, offset: int) -> int:
        """Returns the index of a character of the page by its offset in the text."""
        if self._num_wide is not None:
            offset += self._num_wide[offset]
        index: int = self._raw.FPDFText_GetCharIndexFromTextIndex(
            self._page, offset
        )
        return index

    def _first_right_of(self, position: float, start: int, end: int) -> int:
        """Returns the offset of the first character right of a position."""
        left, right, bottom, top = self._edges
        for offset in range(start, end):
            if self._text[offset].isspace():
                continue
            self._raw.FPDFText_GetCharBox(
                self._page, self._index(offset), left, right, bottom, top
            )
            if left.value >= position:
                return offset
        return end
