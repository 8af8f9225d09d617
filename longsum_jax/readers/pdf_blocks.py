"""Headings, paragraphs and captions of a PDF, from the positions and sizes of its lines."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence, Set

from longsum_jax.readers.cleaning import join_hyphens
from longsum_jax.readers.document import Block
from longsum_jax.readers.pdf_lines import PageLine, style_of
from longsum_jax.text.captions import LONGEST_CAPTION, begins_caption
from longsum_jax.text.hyphens import hyphenated_words
from longsum_jax.text.ngrams import num_words

_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+\S")
_ENDS = (".", "!", "?", ":", '"', "”", "\u2019", "。")
_LIST_ITEM = re.compile(
    r"(?:[•●▪◦‣·\u2013-]|\(?\d{1,3}[.)]|\[\d{1,3}\]|\(?[a-z][.)])\s"
)
_LARGER = 1.12  # size of a heading divided by the text size
_BOLDER = 150  # weight of a heading minus the weight of the text
_LONGEST_HEADING = 120  # characters
# distance between paragraphs divided by the distance between lines
_WIDER_GAP = 1.35
_SHORT_LINE = 0.75  # length of a last line divided by the length of a full line
MAX_LEVEL = 6  # deepest level of headings


class Assembler:
    """Assembles lines into paragraphs and headings.

    Args:
        pages: lines of each page.
        bookmarks: levels of headings by page and title.
        keep_all: True to keep captions and hyphens at line ends.

    Attributes:
        num_captions: number of removed captions.
    """

    def __init__(
        self,
        pages: Sequence[Sequence[PageLine]],
        bookmarks: dict[tuple[int, str], int],
        *,
        keep_all: bool,
    ) -> None:
        self._pages = pages
        self._bookmarks = bookmarks
        self._pages_of_bookmarks = {page for page, _ in bookmarks}
        self._keep_all = keep_all
        self.num_captions = 0
        self._words = hyphenated_words(
            "\n".join(line.text for page in pages for line in page)
        )
        self._style = style_of(pages)
        self._sizes = self._heading_sizes()
        self._leading = _leading_of(pages, self._style.size)
        self._width = _width_of(pages)

    def blocks(self) -> list[Block]:
        """Returns the blocks of the document; paragraphs may continue across pages."""
        groups: list[list[tuple[int, PageLine]]] = []
        levels: list[int] = []
        before = None
        for number, page in enumerate(self._pages):
            if self._keep_all:
                captions = set()
            else:
                captions = self._captions(number, page)
            for i, line in enumerate(page):
                if i in captions:  # the text around it may continue
                    continue
                level = self._level(number, line)
                entry = number, line
                if before is not None and self._continues(
                    before, entry, levels[-1], level
                ):
                    groups[-1].append(entry)
                else:
                    groups.append([entry])
                    levels.append(level)
                before = entry
        return [
            self._block(group, level)
            for group, level in zip(groups, levels, strict=True)
        ]

    def _captions(self, number: int, page: Sequence[PageLine]) -> set[int]:
        """Returns the indices of a page's lines that are captions, and counts the captions."""
        captions: set[int] = set()
        for start, line in enumerate(page):
            if (
                start in captions
                or not begins_caption(line.text)
                or self._level(number, line)
            ):
                continue
            end = start + 1
            while end < len(page) and self._is_same_caption(
                page[end - 1], page[end]
            ):
                end += 1
            text = " ".join(part.text for part in page[start:end])
            # Text directly after a caption in the same type is
            # indistinguishable from it.
            if num_words(text) <= LONGEST_CAPTION:
                captions.update(range(start, end))
                self.num_captions += 1
        return captions

    def _is_same_caption(self, last: PageLine, line: PageLine) -> bool:
        down = last.bottom - line.bottom
        is_below = 0 < down <= _WIDER_GAP * self._leading
        ended = last.text.endswith(_ENDS) or line.text[0].isupper()
        is_last = ended and len(last.text) < _SHORT_LINE * self._width
        is_alike = line.size == last.size and not begins_caption(line.text)
        return is_below and is_alike and not is_last

    def _level(self, number: int, line: PageLine) -> int:
        """Returns the heading level of a line; 0 if it is not a heading."""
        if number in self._pages_of_bookmarks:
            level = self._bookmarks.get((number, bookmark_key(line.text)))
            if level is not None:
                return level
        if len(line.text) > _LONGEST_HEADING or not any(
            map(str.isalpha, line.text)
        ):
            return 0
        if line.size in self._sizes:
            return self._sizes[line.size]
        numbered = _NUMBERED.match(line.text)
        is_bold = (
            line.weight >= self._style.weight + _BOLDER
            and line.size >= self._style.size
        )
        if is_bold and numbered and not line.text.endswith(_ENDS):
            return min(MAX_LEVEL, 1 + numbered.group(1).count("."))
        return 0

    def _heading_sizes(self) -> dict[float, int]:
        """Returns heading levels by type size, for sizes larger than the text, largest first."""
        counts: Counter[float] = Counter()
        for page in self._pages:
            for line in page:
                counts[line.size] += len(line.text)
        total = sum(counts.values())
        larger = [
            size
            for size, chars in counts.items()
            # A size used in much of the document is text, however large.
            if size > _LARGER * self._style.size and chars < 0.2 * total
        ]
        ordered = sorted(larger, reverse=True)
        return {
            size: min(MAX_LEVEL, level) for level, size in enumerate(ordered, 1)
        }

    def _continues(
        self,
        before: tuple[int, PageLine],
        current: tuple[int, PageLine],
        level_before: int,
        level: int,
    ) -> bool:
        """Returns True if a line belongs to the block of the preceding line."""
        (page, last), (here, line) = before, current
        if level or level_before:
            # Headings may have several lines, one below the other.
            near = 0 < last.bottom - line.bottom < 1.6 * max(last.size, 1.0)
            is_numbered = _NUMBERED.match(line.text) is not None
            return (
                level == level_before
                and page == here
                and near
                and not is_numbered
            )
        # inside a word
        if last.text.endswith(("-", "\u2010")) and line.text[0].islower():
            return True
        if _LIST_ITEM.match(line.text):
            return False
        ended = last.text.endswith(_ENDS)
        down = last.bottom - line.bottom
        if page != here or down < 0:  # the next page or column
            return not ended
        if abs(last.size - line.size) > 0.2 * self._style.size:
            return not ended and line.text[0].islower()
        if down > _WIDER_GAP * self._leading:
            return not ended and line.text[0].islower()
        is_indented = line.left > last.left + 0.7 * self._style.size
        is_short = len(last.text) < _SHORT_LINE * self._width
        return not ((is_indented or is_short) and ended)

    def _block(
        self, group: Sequence[tuple[int, PageLine]], level: int
    ) -> Block:
        page = group[0][0]
        breaks: list[int] = []
        text = ""
        for number, line in group:
            if text:
                text += "\n"
            while page + len(breaks) < number:
                breaks.append(len(text))
            text += line.text
        if not self._keep_all and "-\n" in text:
            text, breaks = _joined(text, breaks, self._words)
        return Block(
            text.replace("-\n", "-").replace("\n", " "),
            level,
            page + 1,
            tuple(breaks),
        )


def _joined(
    text: str, breaks: Sequence[int], words: Set[str]
) -> tuple[str, list[int]]:
    """Joins hyphenated words across pages; a word cut by a page end moves to the next page."""
    joined = join_hyphens(text, words)
    # Joining only removes hyphens and moves line ends, so counts of other
    # characters locate breaks.
    counts = [
        len(re.sub(r"[-\u2010\s]", "", text[:position])) for position in breaks
    ]
    positions: list[int] = []
    count = 0
    for position, char in enumerate(joined):
        while len(positions) < len(counts) and count >= counts[len(positions)]:
            positions.append(position)
        count += char not in "-\u2010" and not char.isspace()
    return joined, positions + [len(joined)] * (len(counts) - len(positions))


def _leading_of(pages: Sequence[Sequence[PageLine]], size: float) -> float:
    """Returns the distance between consecutive lines of a paragraph.

    It is the smallest frequent distance: larger ones separate paragraphs, and
    distances below the text size are caused by raised and lowered letters.
    """
    steps: Counter[int] = Counter()
    for page in pages:
        for last, line in itertools.pairwise(page):
            step = last.bottom - line.bottom
            if 0.8 * size < step < 4 * size:
                steps[round(step)] += 1
    frequent = [
        step for step, count in steps.items() if count >= 0.1 * steps.total()
    ]
    return float(min(frequent, default=1))


def _width_of(pages: Sequence[Sequence[PageLine]]) -> int:
    """Returns the number of characters of a full line."""
    lengths = sorted(len(line.text) for page in pages for line in page)
    if lengths:
        return lengths[len(lengths) * 9 // 10]
    return 0


def bookmark_key(title: str) -> str:
    """Returns the lowercase letters of a title; bookmarks vary in numbers, spaces and case."""
    return "".join(filter(str.isalpha, title.casefold()))
