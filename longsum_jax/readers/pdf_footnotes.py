"""Footnotes of a PDF, recognized by their size and mark, and their marks in the text."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence, Set

from longsum_jax.errors import counted
from longsum_jax.readers.pdf_lines import FROM_RAISED, PageLine, style_of

_RAISED_NUMBER = re.compile("[ ]?([\U000f0030-\U000f0039]+)")
_SIGNS = "*\u2217\u2020\u2021\xa7\xb6"
_SIGN_AFTER = re.compile(
    rf"(?<=[^\s{_SIGNS}])([{_SIGNS}]{{1,3}})(?=[\s,;.]|\Z)"
)
_FOOTNOTE = re.compile(
    rf"(?!\d+(?:st|nd|rd|th)\b)(\d{{1,3}}|[{_SIGNS}]{{1,3}})[.)\]]?\s?(?=[^\W\d_]|[\"\u201c\u2018(])"
)
_SMALLER = 0.93  # size of a footnote divided by the text size
# characters of a full line of text, which may not be below a footnote
_FULL_LINE = 30
_SAME_COLUMN = 60  # points between the left edges of lines in one column


def without_footnotes(
    pages: Sequence[Sequence[PageLine]],
) -> tuple[list[list[PageLine]], list[str]]:
    """Returns the lines of each page without footnotes and their marks, and a note."""
    size = style_of(pages).size
    chars: Counter[float] = Counter()
    for line in itertools.chain(*pages):
        chars[line.size] += len(line.text)
    # A size used in much of the document is not the size of footnotes.
    small = {
        other
        for other, count in chars.items()
        if other <= _SMALLER * size and count < 0.3 * chars.total()
    }
    if chars[size] < 0.4 * chars.total():  # boxes of a font fit each letter
        small = set()
    results = []
    count = 0
    for page in pages:
        indices, marks = _footnotes(page, small)
        count += len(marks)
        lines = [line for i, line in enumerate(page) if i not in indices]
        if marks:
            lines = [_without_marks(line, marks) for line in lines]
        results.append(lines)
    return results, [f"{counted(count, 'footnote')} left out"] if count else []


def _footnotes(
    page: Sequence[PageLine], small: Set[float]
) -> tuple[set[int], set[str]]:
    """Returns the indices of footnote lines, and the marks of the footnotes.

    Footnotes are smaller than the text, begin with a mark, and have no text
    below them.

    Args:
        page: lines of a page.
        small: sizes of lines that may be footnotes.
    """
    indices: set[int] = set()
    marks: set[str] = set()
    groups = itertools.groupby(
        range(len(page)), lambda i: page[i].size in small
    )
    for is_small, group in groups:
        run = list(group) if is_small else []
        while run and _FOOTNOTE.match(page[run[0]].text) is None:
            run.pop(0)
        is_long = 2 * len(run) > len(page)
        if not run or is_long or _has_text_below(page, run[0], small):
            continue
        matches = [_FOOTNOTE.match(page[i].text) for i in run]
        indices.update(run)
        marks.update(match.group(1) for match in matches if match is not None)
    return indices, marks


def _has_text_below(
    page: Sequence[PageLine], start: int, small: Set[float]
) -> bool:
    note = page[start]
    return any(
        line.bottom < note.bottom
        and abs(line.left - note.left) < _SAME_COLUMN
        and line.size not in small
        and len(line.text) >= _FULL_LINE
        for line in page
    )


def _without_marks(line: PageLine, marks: Set[str]) -> PageLine:
    def replaced(match: re.Match[str]) -> str:
        if match.group(1).translate(FROM_RAISED) in marks:
            return ""
        return match.group()

    text = _SIGN_AFTER.sub(replaced, _RAISED_NUMBER.sub(replaced, line.text))
    return line._replace(text=text)


def with_digits(line: PageLine) -> PageLine:
    """Returns a line in which raised digits are plain digits again."""
    if line.text.isascii():
        return line
    return line._replace(text=line.text.translate(FROM_RAISED))
