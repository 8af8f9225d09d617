"""Removes parts of a file that are not text: running headers, page and line numbers,
hyphens at line ends, reference lists, licenses of public-domain books, control
characters.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from longsum_jax.errors import counted
from longsum_jax.readers.document import Block
from longsum_jax.text.documents import replace_half_characters
from longsum_jax.text.hyphens import hyphenated_words, keeps_hyphen

# Commands of terminals, such as colors; C0 and C1 except tab and line feed, soft
# hyphens, byte order marks and noncharacters.
_CONTROL = re.compile(
    r"(?:\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\ufeff\ufffe\uffff])+"
)
# Other line breaks: vertical tabs, which Word uses inside paragraphs, form
# feeds, NEL.
_LINE_BREAK = re.compile("[\x0b\x0c\x85]")
# A soft hyphen at the end of a line with the rest of its word, and one left by
# a joined line. "two- and three-year"
_SUSPENDED = r"(?:and|or|to|und|oder|bis|et|ou|y|o|e|en|of|och|eller|og)\b"
_SOFT_HYPHEN_AT_END = re.compile(
    r"(?<=\w)\xad[ \t]*\n[ \t]*(\w\S*+)([ \t]++(?=\S))?"
)
_SOFT_HYPHEN_INSIDE = re.compile(
    rf"(?<=\w)\xad[ \t]+(?=[^\W\d_])(?!{_SUSPENDED})"
)
# Characters of the fonts Symbol and Wingdings, at the start of a line and
# elsewhere.
_PRIVATE = re.compile("[\uf000-\uf0ff]")
_PRIVATE_BULLET = re.compile(
    "^[ \\t]*[\uf000-\uf0ff]++[ \\t]*(?=\\S)", re.MULTILINE
)
_SYMBOLS = str.maketrans(
    "\uf02d\uf044\uf053\uf061\uf062\uf067\uf06d\uf0a3\uf0ae\uf0b0\uf0b1\uf0b3\uf0b4\uf0b9\uf0bb",
    "\u2212\u0394\u03a3\u03b1\u03b2\u03b3\u03bc\u2264\u2192\xb0\xb1\u2265\xd7\u2260\u2248",
)

_REFERENCES = re.compile(
    r"(?:(?:\d+|[IVX]+|[A-Z])\.?\s+)?"
    r"(?:references(?: cited)?|bibliography|literature cited|works cited|literatur(?:verzeichnis)?|"
    r"références|bibliographie|referencias|bibliografía|riferimenti|bibliografia)\s*:?",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)(?:1[89]|20)\d\d(?!\d)")
# Entries contain years; a text without one for so many characters is not a
# reference list.
_CHARS_PER_YEAR = 400

_GUTENBERG_START = re.compile(
    r"\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*", re.IGNORECASE
)
_GUTENBERG_END = re.compile(
    r"\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG.*", re.IGNORECASE
)

_PAGE_NUMBER = re.compile(
    r"[-\u2013\u2014\[( ]*(?:(?:page|seite|p\.)\s*)?(?:\d{1,4}|[ivxlc]{1,7})"
    r"(?:\s*(?:/|of|von|sur|de)\s*\d+)?[-\u2013\u2014\]). ]*",
    re.IGNORECASE,
)
# Dots that lead from a title to its page number.
_LEADERS = re.compile(r"(?:\. ?){5,}\s*\d+$")
# characters at the end of a line that are searched for leaders
_END_OF_LINE = 200
_DIGITS = re.compile(r"\d+")
# lines at the top and bottom of a page that may be running lines
_EDGE_LINES = 3
# A running line is at the same position on at least three of the pages nearby:
# chapters have different ones, and left pages may differ from right pages.
_NEAR_PAGES = 4
_FEWEST_PAGES = 3

_LINE_STEPS = (1, 5, 10)
# maximum between numbered lines: a page number, a running header, a title
_LINES_BETWEEN = 3
_FEWEST_LINES, _FEWEST_FIFTHS = 8, 4  # numbered lines in a chain

# The two parts of a word, the characters attached to it, and whether its second
# line continues. Words match possessively (++), so that the time is linear in
# the length of the text. (Python before 3.11.5 backtracks wrongly out of
# possessive groups, so groups are not possessive.)
_HYPHEN_AT_END = re.compile(
    r"(?<!\w)(?<!\w-)(\w++(?:-\w++)*)[-\u2010]\n[ \t]*(\w++)(\S*+)((?<!-)[ \t]++(?=\S))?"
)
# The two parts of a word if the line end was replaced by a space.
_HYPHEN_AND_SPACE = re.compile(
    rf"(?<![\w-])([^\W\d_]++(?:-[^\W\d_]++)*)[-\u2010][ \n](?!{_SUSPENDED})([^\W\d_]++)(?!-)"
)
_HYPHEN_ENDS = ("- ", "-\n", "\u2010 ", "\u2010\n")
_FEWEST_CUT_WORDS = 2  # minimum joined words of a document copied from pages


def clean(
    blocks: Iterable[Block], *, keep_all: bool
) -> tuple[list[Block], list[str]]:
    """Returns the blocks that belong to the text, and a note about each kind of removed block.

    Control characters are removed even with ``keep_all``, because no output can
    show them.
    """
    remaining, notes = _without_control_characters(blocks)
    if keep_all:
        return remaining, notes
    remaining = _with_whole_words(remaining)
    for rule in (_without_license, _without_references):
        remaining, note = rule(remaining)
        if note:
            notes.append(note)
    return remaining, notes


def _without_control_characters(
    blocks: Iterable[Block],
) -> tuple[list[Block], list[str]]:
    results = []
    count = 0
    for block in blocks:
        text = replace_half_characters(_LINE_BREAK.sub("\n", block.text))
        if text != block.text:
            block = block._replace(text=text)
        count += sum(map(len, _CONTROL.findall(text)))
        if "\xad" in text:
            block = _substitute(block, _SOFT_HYPHEN_AT_END, _joined_line)
            block = _substitute(block, _SOFT_HYPHEN_INSIDE, _nothing)
        block = _substitute(block, _CONTROL, _nothing)
        if _PRIVATE.search(text):
            block = _substitute(block, _PRIVATE_BULLET, lambda match: "\u2022 ")
            block = _substitute(
                block._replace(text=block.text.translate(_SYMBOLS)),
                _PRIVATE,
                _nothing,
            )
        if block.text.strip():
            results.append(block)
    return results, [
        f"{counted(count, 'control character')} left out"
    ] if count else []


def _nothing(match: re.Match[str]) -> str:
    return ""


def _joined_line(match: re.Match[str]) -> str:
    """Returns the rest of a word, followed by the line end that preceded it."""
    rest, goes_on = match.groups()
    return rest + ("\n" if goes_on else "")


def _substitute(
    block: Block,
    pattern: re.Pattern[str],
    replacement: Callable[[re.Match[str]], str],
) -> Block:
    """Replaces the matches in a block and updates the offsets of its page breaks."""
    if not block.breaks:
        return block._replace(text=pattern.sub(replacement, block.text))
    parts = []
    breaks = list(block.breaks)
    end = 0
    for match in pattern.finditer(block.text):
        new = replacement(match)
        parts += [block.text[end : match.start()], new]
        end = match.end()
        for i, offset in enumerate(block.breaks):
            if offset >= end:
                breaks[i] += len(new) - len(match.group())
    text = "".join([*parts, block.text[end:]])
    return block._replace(text=text, breaks=tuple(breaks))


def _with_whole_words(blocks: list[Block]) -> list[Block]:
    """Joins words that a hyphen and a space cut in two, as in text copied from a page.

    A word is joined if the document contains the whole word elsewhere. If
    several words are joined in this way, so are the others whose second part is
    not a word of the document.
    """
    pairs: list[re.Match[str]] = []
    for block in blocks:
        if any(end in block.text for end in _HYPHEN_ENDS):
            pairs += _HYPHEN_AND_SPACE.finditer(block.text)
    if not pairs:
        return blocks
    words = hyphenated_words(
        "\n".join(_HYPHEN_AND_SPACE.sub(" ", block.text) for block in blocks)
    )

    def is_word(first: str, second: str) -> bool:
        whole = f"{first}{second}".casefold(), f"{first}-{second}".casefold()
        return not words.isdisjoint(whole)

    num_words = sum(is_word(*pair.groups()) for pair in pairs)
    is_copied = num_words >= max(_FEWEST_CUT_WORDS, len(pairs) / 4)

    def joined(match: re.Match[str]) -> str:
        first, second = match.groups()
        if not is_word(first, second) and not (
            is_copied and second.casefold() not in words
        ):
            return match.group()
        return f"{first}{'-' if keeps_hyphen(first, second, words) else ''}{second}"

    return [_substitute(block, _HYPHEN_AND_SPACE, joined) for block in blocks]


def _without_license(blocks: list[Block]) -> tuple[list[Block], str | None]:
    """Removes the header and license that Project Gutenberg adds to its books."""
    starts = [
        i
        for i, block in enumerate(blocks)
        if _GUTENBERG_START.search(block.text)
    ]
    ends = [
        i for i, block in enumerate(blocks) if _GUTENBERG_END.search(block.text)
    ]
    start = starts[0] + 1 if starts else 0
    end = ends[-1] if ends else len(blocks)
    if start >= end or not (starts or ends):
        return blocks, None
    return blocks[start:end], "Project Gutenberg's license left out"


def _without_references(blocks: list[Block]) -> tuple[list[Block], str | None]:
    """Removes the last reference list, up to the next heading of the same level."""
    indices = [
        i
        for i, block in enumerate(blocks)
        if _REFERENCES.fullmatch(block.text.strip())
    ]
    for start in reversed(indices):
        end = _end_of_references(blocks, start)
        if end > start + 1:
            left_out = sum(len(block.text) for block in blocks[start:end])
            note = f'list of references ("{blocks[start].text.strip()}") of {left_out:,} characters'
            return blocks[:start] + blocks[end:], f"{note} left out"
    return blocks, None


def _end_of_references(blocks: Sequence[Block], start: int) -> int:
    """Returns the end of the references after ``start``; ``start + 1`` if there are none."""
    level = blocks[start].level or 9
    end = start + 1
    chars_without_year = 0
    for i in range(start + 1, len(blocks)):
        block = blocks[i]
        if 0 < block.level <= level:
            break
        has_year = _YEAR.search(block.text) is not None
        if has_year:
            chars_without_year = 0
        else:
            chars_without_year = chars_without_year + len(block.text)
        if chars_without_year > _CHARS_PER_YEAR:
            break
        if has_year:
            end = i + 1
    entries = "".join(block.text for block in blocks[start + 1 : end])
    is_list = len(_YEAR.findall(entries)) * _CHARS_PER_YEAR >= len(entries) > 0
    return end if is_list else start + 1


def lines_to_leave_out(
    pages: Sequence[Sequence[str]],
) -> tuple[list[list[bool]], list[str]]:
    """Finds running headers and footers, page numbers and lines of tables of contents.

    Args:
        pages: lines of each page, from top to bottom.

    Returns:
        A flag per line of each page, True if it is removed, and a note about
        each kind.
    """
    counts: Counter[str] = Counter()
    marks = [[False] * len(page) for page in pages]
    for page, marked in zip(pages, marks, strict=True):
        for i, line in enumerate(page):
            if _LEADERS.search(line[-_END_OF_LINE:]):
                marked[i] = True
                counts["line of contents"] += 1
    for is_top in (True, False):
        _mark_running_lines(pages, marks, counts, is_top=is_top)
    kinds = ("running header", "page number", "line of contents")
    return marks, [
        f"{counted(counts[kind], kind)} left out"
        for kind in kinds
        if counts[kind]
    ]


def _mark_running_lines(
    pages: Sequence[Sequence[str]],
    marks: list[list[bool]],
    counts: Counter[str],
    *,
    is_top: bool,
) -> None:
    """Marks running lines from one edge of the pages inwards, up to the first line of text."""
    if len(pages) == 1:
        return
    reached = set(range(len(pages)))  # pages whose outer lines are all marked
    for depth in range(_EDGE_LINES):
        lines = {}
        for number in sorted(reached):
            # On a page of a few lines the middle is text.
            if (
                depth
                < min(_EDGE_LINES, max(1, len(pages[number]) // 3))
                <= len(pages[number])
            ):
                lines[number] = pages[number][
                    depth if is_top else -1 - depth
                ].strip()
        patterns = {number: _pattern(line) for number, line in lines.items()}
        reached = set()
        for number, line in lines.items():
            near = range(number - _NEAR_PAGES, number + _NEAR_PAGES + 1)
            count = sum(
                patterns.get(other) == patterns[number] for other in near
            )
            is_number = _PAGE_NUMBER.fullmatch(line) is not None
            if count < _FEWEST_PAGES and not is_number:
                continue
            reached.add(number)
            if is_top:
                index = depth
            else:
                index = len(pages[number]) - 1 - depth
            if not marks[number][index]:
                marks[number][index] = True
                counts["page number" if is_number else "running header"] += 1


def _pattern(line: str) -> str:
    """Returns a line with all numbers masked, to compare it with the lines of other pages."""
    return " ".join(_DIGITS.sub("#", line).casefold().split())


def list_marks(line: str) -> str:
    """Returns a line in which a bullet of Symbol or Wingdings is replaced by a list mark."""
    if _PRIVATE.search(line):
        return _PRIVATE_BULLET.sub("\u2022 ", line)
    return line


def without_line_numbers(
    pages: Sequence[Sequence[str]],
) -> tuple[list[list[str]], list[str]]:
    """Removes line numbers in a margin: 1, 2, 3, ... or every fifth or tenth.

    They are at the start or end of lines, or on separate lines, and increase
    from line to line; a sequence may continue on the next page.

    Args:
        pages: lines of each page.

    Returns:
        The lines of each page, and a note. A line with only a number becomes
        "".
    """
    lines = [line for page in pages for line in page]
    filled = [i for i, line in enumerate(lines) if line.strip()]
    count = 0
    for split in (_number_before, _number_after):
        numbered = [split(lines[i]) for i in filled]
        for position in _numbered_lines(numbered):
            lines[filled[position]] = numbered[position].rest
            count += 1
    remaining = iter(lines)
    results = [[next(remaining) for _ in page] for page in pages]
    return results, [
        f"{counted(count, 'line number')} left out"
    ] if count else []


class _Numbered(NamedTuple):
    """A line with a number at its start or end, or without a number.

    Attributes:
        number: line number, or None.
        rest: line without the number.
        is_last: True if the number is at the end.
        is_apart: True if more than one space separates the number from the
            line.
    """

    number: int | None
    rest: str = ""
    is_last: bool = False
    is_apart: bool = True


_NOT_NUMBERED = _Numbered(None)


def _number_before(line: str) -> _Numbered:
    if not line.lstrip()[:1].isdigit():
        return _NOT_NUMBERED
    number, *rest = line.split(None, 1)
    if not _is_line_number(number):
        return _NOT_NUMBERED
    return _Numbered(int(number), "".join(rest))


def _number_after(line: str) -> _Numbered:
    if not line.rstrip()[-1:].isdigit():
        return _NOT_NUMBERED
    *rest, number = line.rsplit(None, 1)
    if not rest or not _is_line_number(number):
        return _NOT_NUMBERED
    is_apart = len(line.rstrip()) > len(rest[0]) + 1 + len(number)
    return _Numbered(int(number), rest[0], True, is_apart)


def _is_line_number(text: str) -> bool:
    return len(text) <= 4 and text.isascii() and text.isdigit()


def _numbered_lines(lines: Sequence[_Numbered]) -> set[int]:
    """Returns the positions of lines whose numbers are line numbers."""
    selected: set[int] = set()
    for step in _LINE_STEPS:
        # by the number that would continue a chain
        chains: dict[int, list[int]] = {}
        ended = []
        for position, line in enumerate(lines):
            if line.number is None:
                continue
            # Each numbered line extends the chain that expects its number, or
            # begins a new one.
            chain = chains.pop(line.number, [])
            if chain and position - chain[-1] > step + _LINES_BETWEEN:
                ended.append(chain)
                chain = []
            # If two chains expect the same number, the older one ends.
            if line.number + step in chains:
                ended.append(chains[line.number + step])
            chains[line.number + step] = [*chain, position]
        for chain in [*ended, *chains.values()]:
            if _counts_lines(lines, chain, step):
                selected.update(chain)
    return selected


def _counts_lines(
    lines: Sequence[_Numbered], chain: Sequence[int], step: int
) -> bool:
    """Returns True if a chain of numbers counts lines rather than items, rows or years."""
    if len(chain) < _FEWEST_FIFTHS:
        return False
    # Every fifth or tenth line: numbers are about ``step`` lines apart, with
    # few others between.
    span = lines[chain[0] : chain[-1] + 1]
    if step > 1:
        distances = [
            after - before for before, after in itertools.pairwise(chain)
        ]
        num_regular = sum(
            step - 2 <= distance <= step + 1 for distance in distances
        )
        num_others = sum(line.number is not None for line in span) - len(chain)
        is_regular = num_regular >= 0.75 * len(distances)
        return is_regular and num_others < len(chain)
    # Every line: the chain covers much of its span.
    if len(chain) < max(_FEWEST_LINES, 0.4 * len(span)):
        return False
    if lines[chain[0]].is_last:
        return all(lines[position].is_apart for position in chain)
    # Lines of prose often begin in the middle of a sentence; items and rows do
    # not.
    rests = [lines[position].rest for position in chain if lines[position].rest]
    return sum(rest[0].islower() for rest in rests) >= 0.25 * len(rests)


def join_hyphens(text: str, words: Set[str] | None = None) -> str:
    """Joins words that a hyphen at the end of a line cuts in two; the line ends after the word.

    See ``keeps_hyphen`` for hyphens that stay.

    Args:
        text: lines of text.
        words: result of ``hyphenated_words`` for the whole document; default: the words
            of ``text``.
    """
    if _HYPHEN_AT_END.search(text) is None:
        return text
    vocabulary = hyphenated_words(text) if words is None else words

    def joined(match: re.Match[str]) -> str:
        first, second, rest, goes_on = match.groups()
        if keeps_hyphen(first, second, vocabulary):
            hyphen = "-"
        else:
            hyphen = ""
        return f"{first}{hyphen}{second}{rest}" + ("\n" if goes_on else "")

    return _HYPHEN_AT_END.sub(joined, text)
