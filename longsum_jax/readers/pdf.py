"""PDF text layers: lines with positions and sizes become paragraphs and headings."""

import ctypes
import itertools
import math
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

from longsum_jax.errors import InputError, counted
from longsum_jax.extra import import_extra
from longsum_jax.readers.cleaning import (
    join_hyphens,
    lines_to_leave_out,
    list_marks,
    without_line_numbers,
    words_of,
)
from longsum_jax.readers.columns import FEWEST_ROWS, order_columns
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.text.captions import LONGEST_CAPTION, begins_caption
from longsum_jax.text.ngrams import num_words

# A line end. PDFium writes one of the latter two in place of a hyphen at a line
# end.
_LINE_END = re.compile("\r\n|[\x02\ufffe]")
_SPACES = re.compile(r"[ \t\xa0\u2000-\u200a]+")
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+\S")
_ENDS = (".", "!", "?", ":", '"', "”", "\u2019", "。")
# A possible footnote mark, raised digits in lines, and a footnote.
_DIGITS_AFTER = re.compile(
    r"(?:[^\W\d_]|[.,;:!?)\"\u201d\u2019])[ ]?(\d{1,3})(?![\w%]|[.,]\d)"
)
# private use
_RAISED_DIGITS = {digit: chr(0xF0000 + ord(digit)) for digit in "0123456789"}
_TO_RAISED = str.maketrans(_RAISED_DIGITS)
_FROM_RAISED = str.maketrans(
    {raised: digit for digit, raised in _RAISED_DIGITS.items()}
)
_RAISED_NUMBER = re.compile("[ ]?([\U000f0030-\U000f0039]+)")
_SIGNS = "*\u2217\u2020\u2021\xa7\xb6"
_SIGN_AFTER = re.compile(
    rf"(?<=[^\s{_SIGNS}])([{_SIGNS}]{{1,3}})(?=[\s,;.]|\Z)"
)
_FOOTNOTE = re.compile(
    rf"(?!\d+(?:st|nd|rd|th)\b)(\d{{1,3}}|[{_SIGNS}]{{1,3}})[.)\]]?\s?(?=[^\W\d_]|[\"\u201c\u2018(])"
)
_LIST_ITEM = re.compile(
    r"(?:[•●▪◦‣·\u2013-]|\(?\d{1,3}[.)]|\[\d{1,3}\]|\(?[a-z][.)])\s"
)

_GAP = 1.0  # distance of two pieces of a line divided by the text size
_NARROWEST = 5  # width of a column divided by the text size
_SMALLER = 0.93  # size of a footnote divided by the text size
# size of a raised digit divided by the size of the letter before it
_RAISED = 0.85
# characters of a full line of text, which may not be below a footnote
_FULL_LINE = 30
_SAME_COLUMN = 60  # points between the left edges of lines in one column
_LARGER = 1.12  # size of a heading divided by the text size
_BOLDER = 150  # weight of a heading minus the weight of the text
_LONGEST_HEADING = 120  # characters
# distance between paragraphs divided by the distance between lines
_WIDER_GAP = 1.35
# maximum on a scanned page with a stamp of a library or web site
_STAMP_LINES = 4
_SHORT_LINE = 0.75  # length of a last line divided by the length of a full line
_LEVELS = 6

_pdfium_lock = threading.Lock()  # PDFium is not thread-safe


class _PageLine(NamedTuple):
    """A line of a page: its text, and its position and size in points."""

    text: str
    left: float
    bottom: float
    size: float
    weight: int
    right: float = 0.0  # measured only on pages that may have columns


class _Style(NamedTuple):
    """The most frequent type size and weight of a document."""

    size: float
    weight: float


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file is damaged or encrypted, is a scan without a text
            layer, or has too many pages.
    """
    with _pdfium_lock:
        pages, title, bookmarks, pages_with_images = _read_pages(source)
    texts, dropped = _without_line_numbers(pages)
    marks, notes = lines_to_leave_out(
        [[line.text for line in page] for page in texts]
    )
    dropped += notes
    for number, (page, marked) in enumerate(zip(texts, marks, strict=True)):
        texts[number] = [
            line
            for line, is_left_out in zip(page, marked, strict=True)
            if not is_left_out
        ]
    # The stamp of a library does not count as text of a page.
    scans = [number + 1 for number in pages_with_images if not texts[number]]
    notes = []
    if scans:
        _check_scans(source, len(scans), sum(map(bool, texts)), len(pages))
        notes.append(_about_images(scans, len(pages)))
    if not source.options.keep_all:
        pages, footnotes = _without_footnotes(texts)
        notes += [*dropped, *footnotes]
    pages = [[_with_digits(line) for line in page] for page in pages]
    assembler = _Assembler(pages, bookmarks, keep_all=source.options.keep_all)
    blocks = assembler.blocks()
    if assembler.num_captions:
        notes.append(f"{counted(assembler.num_captions, 'caption')} left out")
    yield source.document(
        blocks, title=title, num_pages=len(pages), notes=notes
    )


def _without_line_numbers(
    pages: Sequence[Sequence[_PageLine]],
) -> tuple[list[list[_PageLine]], list[str]]:
    texts, notes = without_line_numbers(
        [[line.text for line in page] for page in pages]
    )
    if not notes:
        return list(map(list, pages)), []
    results = []
    for page, page_texts in zip(pages, texts, strict=True):
        lines = zip(page, page_texts, strict=True)
        results.append(
            [line._replace(text=text) for line, text in lines if text]
        )
    return results, notes


def _without_footnotes(
    pages: Sequence[Sequence[_PageLine]],
) -> tuple[list[list[_PageLine]], list[str]]:
    """Returns the lines of each page without footnotes and their marks, and a note."""
    size = _style_of(pages).size
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
    page: Sequence[_PageLine], small: Set[float]
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
    page: Sequence[_PageLine], start: int, small: Set[float]
) -> bool:
    note = page[start]
    return any(
        line.bottom < note.bottom
        and abs(line.left - note.left) < _SAME_COLUMN
        and line.size not in small
        and len(line.text) >= _FULL_LINE
        for line in page
    )


def _without_marks(line: _PageLine, marks: Set[str]) -> _PageLine:
    def replaced(match: re.Match[str]) -> str:
        if match.group(1).translate(_FROM_RAISED) in marks:
            return ""
        return match.group()

    text = _SIGN_AFTER.sub(replaced, _RAISED_NUMBER.sub(replaced, line.text))
    return line._replace(text=text)


def _with_digits(line: _PageLine) -> _PageLine:
    """Returns a line in which raised digits are plain digits again."""
    if line.text.isascii():
        return line
    return line._replace(text=line.text.translate(_FROM_RAISED))


def _check_scans(
    source: Source, num_scans: int, num_texts: int, num_pages: int
) -> None:
    """Raises InputError if more pages are images than text."""
    if num_scans <= num_texts or (num_texts and source.options.keep_all):
        return
    if num_texts:
        others = "; --keep_all reads the other pages"
    else:
        others = ""
    raise InputError(
        f"{source.name}: a scan ({num_scans} of {num_pages} pages are images without a text "
        "layer); run an OCR program on it, for example ocrmypdf, or register a reader with OCR "
        f'as longsum_jax.readers.KINDS["pdf"]{others}'
    )


def _read_pages(
    source: Source,
) -> tuple[
    list[list[_PageLine]], str | None, dict[tuple[int, str], int], list[int]
]:
    """Returns lines by page, title, bookmarks, and indices of pages with an image and few lines."""
    pdfium = import_extra("pypdfium2", source.name, "PDF")
    document = _open(pdfium, source)
    try:
        num_pages = len(document)
        source.check_pages(num_pages, "pages")
        pages = []
        with_images = []
        for number in range(num_pages):
            source.check_time()
            lines, has_images = _read_page(
                pdfium, document, number, source.name
            )
            pages.append(lines)
            if has_images:
                with_images.append(number)
        title = (document.get_metadata_dict().get("Title") or "").strip()
        return pages, title or None, _bookmarks(document), with_images
    finally:
        document.close()


def _open(pdfium: Any, source: Source) -> Any:
    try:
        return pdfium.PdfDocument(source.content)
    except pdfium.PdfiumError as error:
        if "password" in str(error).lower():
            raise InputError(
                f"{source.name}: the PDF is encrypted and needs a password; save it without one"
            ) from None
        raise InputError(
            f"{source.name}: a damaged PDF ({error}); copy it again"
        ) from None


def _read_page(
    pdfium: Any, document: Any, number: int, name: str
) -> tuple[list[_PageLine], bool]:
    """Returns the lines of a page, and True if it has few lines and an image."""
    try:
        page = document[number]
    except pdfium.PdfiumError as error:
        raise InputError(
            f"{name}: page {number + 1} is damaged ({error}); copy the file again"
        ) from None
    try:
        lines = _lines(pdfium.raw, page.get_textpage())
        image = pdfium.raw.FPDF_PAGEOBJ_IMAGE
        has_few_lines = len(lines) <= _STAMP_LINES
        has_images = has_few_lines and any(
            page.get_objects(filter=[image], max_depth=3)
        )
        return lines, has_images
    finally:
        page.close()


def _lines(raw: Any, textpage: Any) -> list[_PageLine]:
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
    size = _style_of([lines]).size
    if not _may_have_columns(measure, spans, lines, size):
        return lines
    rows = [
        measure.pieces(*span, line, size)
        for span, line in zip(spans, lines, strict=True)
    ]
    return [_joined_pieces(row) for row in order_columns(rows)]


def _may_have_columns(
    measure: "_Measure",
    spans: Sequence[tuple[int, int]],
    lines: Sequence[_PageLine],
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


def _joined_pieces(row: Sequence[_PageLine]) -> _PageLine:
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

    def line(self, start: int, end: int, hyphen: str = "") -> _PageLine:
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
        return _PageLine(text + hyphen, box.left, box.bottom, size, weight)

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
        self, start: int, end: int, line: _PageLine, size: float
    ) -> list[_PageLine]:
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


def _line_ends(text: str) -> Iterator[tuple[int, int]]:
    """Yields the offsets of each line's end and of the following line's start."""
    for match in _LINE_END.finditer(text):
        yield match.span()
    yield len(text), len(text)


def _bookmarks(document: Any) -> dict[tuple[int, str], int]:
    """Returns levels of the table of contents by page index and title."""
    levels = {}
    try:
        for bookmark in document.get_toc(max_depth=_LEVELS):
            target = bookmark.get_dest()
            page = None
            if target is not None:
                page = target.get_index()
            if page is not None:
                levels[page, _key(bookmark.get_title())] = bookmark.level + 1
    except (
        RuntimeError,
        ValueError,
    ):  # a damaged table of contents; the headings remain
        return {}
    return levels


def _key(title: str) -> str:
    """Returns the lowercase letters of a title; bookmarks vary in numbers, spaces and case."""
    return "".join(filter(str.isalpha, title.casefold()))


class _Assembler:
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
        pages: Sequence[Sequence[_PageLine]],
        bookmarks: dict[tuple[int, str], int],
        *,
        keep_all: bool,
    ) -> None:
        self._pages = pages
        self._bookmarks = bookmarks
        self._pages_of_bookmarks = {page for page, _ in bookmarks}
        self._keep_all = keep_all
        self.num_captions = 0
        self._words = words_of(
            "\n".join(line.text for page in pages for line in page)
        )
        self._style = _style_of(pages)
        self._sizes = self._heading_sizes()
        self._leading = _leading_of(pages, self._style.size)
        self._width = _width_of(pages)

    def blocks(self) -> list[Block]:
        """Returns the blocks of the document; paragraphs may continue across pages."""
        groups: list[list[tuple[int, _PageLine]]] = []
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

    def _captions(self, number: int, page: Sequence[_PageLine]) -> set[int]:
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
            # Text directly after a caption in the same type is
            # indistinguishable from it.
            if (
                num_words(
                    " ".join(
                        caption_line.text for caption_line in page[start:end]
                    )
                )
                <= LONGEST_CAPTION
            ):
                captions.update(range(start, end))
                self.num_captions += 1
        return captions

    def _is_same_caption(self, last: _PageLine, line: _PageLine) -> bool:
        down = last.bottom - line.bottom
        is_below = 0 < down <= _WIDER_GAP * self._leading
        ended = last.text.endswith(_ENDS) or line.text[0].isupper()
        is_last = ended and len(last.text) < _SHORT_LINE * self._width
        is_alike = line.size == last.size and not begins_caption(line.text)
        return is_below and is_alike and not is_last

    def _level(self, number: int, line: _PageLine) -> int:
        """Returns the heading level of a line; 0 if it is not a heading."""
        if number in self._pages_of_bookmarks:
            level = self._bookmarks.get((number, _key(line.text)))
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
            return min(_LEVELS, 1 + numbered.group(1).count("."))
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
            size: min(_LEVELS, level) for level, size in enumerate(ordered, 1)
        }

    def _continues(
        self,
        before: tuple[int, _PageLine],
        current: tuple[int, _PageLine],
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
        self, group: Sequence[tuple[int, _PageLine]], level: int
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


def _style_of(pages: Sequence[Sequence[_PageLine]]) -> _Style:
    sizes: Counter[float] = Counter()
    weights: Counter[int] = Counter()
    for page in pages:
        for line in page:
            sizes[line.size] += len(line.text)
            weights[line.weight] += len(line.text)
    if not sizes:
        return _Style(1.0, 0)
    return _Style(sizes.most_common(1)[0][0], weights.most_common(1)[0][0])


def _leading_of(pages: Sequence[Sequence[_PageLine]], size: float) -> float:
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


def _width_of(pages: Sequence[Sequence[_PageLine]]) -> int:
    """Returns the number of characters of a full line."""
    lengths = sorted(len(line.text) for page in pages for line in page)
    if lengths:
        return lengths[len(lengths) * 9 // 10]
    return 0


def _about_images(pages: Sequence[int], num_pages: int) -> str:
    shown = ", ".join(map(str, pages[:10])) + (
        ", ..." if len(pages) > 10 else ""
    )
    return f"{len(pages)} of {num_pages} pages are images without a text layer ({shown})"
