"""Plain text: paragraphs at empty lines, pages at form feeds, headings by appearance,
turns of transcripts and chats.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from longsum_jax.readers.cleaning import (
    join_hyphens,
    lines_to_leave_out,
    without_line_numbers,
)
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source
from longsum_jax.readers.transcripts import Transcript, find_transcript
from longsum_jax.text.sentences import (
    LONGEST_WRAPPED_LINE,
    SHORTEST_WRAP,
    WIDEST_WRAP,
    breaks_sentence,
)

_EMPTY_LINES = re.compile(r"\n(?:[ \t\xa0]*\n)+")
# "Chapter 4", "PART II. The sea", "Appendix B"
_CHAPTER = re.compile(
    r"(?:chapter|part|book|volume|section|article|appendix|act|scene|title)\s+"
    r"(?:\d+|[ivxlc]+|[a-z])\b[.:)]?.{0,80}",
    re.IGNORECASE,
)
_LARGEST = re.compile(r"(?:part|book|volume|title)\b", re.IGNORECASE)
_NUMBERED = re.compile(r"(\d{1,2}(?:\.\d{1,2}){0,4})\.?\s+[A-Z][^.!?;]{1,78}")
_CAPITALS = re.compile(r"[A-Z][A-Z0-9 ,:;&'\u2019\-()]{3,78}")
_REFERENCES_LINE = re.compile(
    r"(?:references|bibliography|works cited)\s*:?", re.IGNORECASE
)

_OPEN_END = re.compile(r"[\w,;-]\Z")
_SHORTEST_DOUBLE = 40  # characters of a full line of double-spaced text
_FEWEST_BREAKS = 20  # minimum breaks inside sentences in double-spaced text
# A speaker's name before the spoken text.
_TURN = re.compile(r"[^\W\d_][^\s:]{0,19}(?: [^\W\d_][^\s:]{0,19}){0,3}: \S")


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file has no text.
    """
    text, notes = source.decoded()
    pages = text.split("\f")
    num_pages = len(pages) if len(pages) > 1 else 0
    transcript = None
    if not source.options.keep_all:
        lines, dropped = without_line_numbers(
            [page.split("\n") for page in pages]
        )
        pages = ["\n".join(page) for page in lines]
        notes += dropped
        if num_pages:
            pages, dropped = _without_running_lines(pages)
            notes += dropped
        transcript = find_transcript(_raw_blocks(pages))
    if transcript is not None:
        blocks = transcript_blocks(transcript)
        notes += transcript.notes
    else:
        if not source.options.keep_all:
            text = _single_spaced("\f".join(pages))
            # uses the words of all pages
            pages = join_hyphens(text).split("\f")
        blocks = []
        for number, page in enumerate(pages, 1):
            page_number = number if num_pages else 0
            blocks += text_blocks(page, page_number)
    yield source.document(blocks, num_pages=num_pages, notes=notes)


def _raw_blocks(pages: Sequence[str]) -> Iterator[Block]:
    """Yields paragraphs with their line breaks."""
    for number, page in enumerate(pages, 1):
        for paragraph in _EMPTY_LINES.split(page):
            yield Block(paragraph, 0, number if len(pages) > 1 else 0)


def transcript_blocks(transcript: Transcript) -> list[Block]:
    """Returns the turns of a transcript, and the paragraphs and headings between them."""
    blocks: list[Block] = []
    for block, is_turn in transcript.parts:
        is_read = is_turn or block.level > 0
        if is_read:
            blocks += [block]
        else:
            blocks += text_blocks(block.text, block.page)
    return blocks


def text_blocks(text: str, page: int = 0) -> list[Block]:
    """Returns the paragraphs of a text; apparent headings get a level."""
    blocks = []
    for paragraph in _EMPTY_LINES.split(text):
        paragraph = paragraph.strip("\n\x0b\x0c\x85").rstrip()
        if not paragraph.strip():
            continue
        lines = paragraph.split("\n")
        if _is_talk(lines):
            blocks += [Block(turn, 0, page) for turn in _turns(lines)]
            continue
        paragraph = _unwrapped(lines)
        first, newline, rest = paragraph.partition("\n")
        if newline and _REFERENCES_LINE.fullmatch(first.strip()):
            blocks += [Block(first.strip(), 1, page), Block(rest, 0, page)]
        else:
            blocks.append(Block(paragraph, heading_level(paragraph), page))
    return blocks


def heading_level(paragraph: str) -> int:
    """Returns the level of a paragraph that looks like a heading; 0 for any other."""
    line = paragraph.strip()
    if "\n" in line or len(line) > 100:
        return 0
    if _CHAPTER.fullmatch(line) and line[0].isupper() and line[-1] not in ",;":
        return 1 if _LARGEST.match(line) else 2
    numbered = _NUMBERED.fullmatch(line)
    if numbered is not None:
        return 1 + numbered.group(1).count(".")
    if _CAPITALS.fullmatch(line) or _REFERENCES_LINE.fullmatch(line):
        return 1
    return 0


def _without_running_lines(pages: list[str]) -> tuple[list[str], list[str]]:
    lines = [page.split("\n") for page in pages]
    filled = []
    texts = []
    for page in lines:
        indices = [i for i, line in enumerate(page) if line.strip()]
        filled.append(indices)
        texts.append([page[i] for i in indices])
    marks, notes = lines_to_leave_out(texts)
    for page, indices, marked in zip(lines, filled, marks, strict=True):
        for i, is_running in zip(indices, marked, strict=True):
            if is_running:
                page[i] = ""
    return ["\n".join(page) for page in lines], notes


def _single_spaced(text: str) -> str:
    """Returns a text without the empty lines of its double-spaced parts.

    Such an empty line separates two single lines of the width of wrapped prose,
    the first of which has no final stop. The second one, or a line next to
    them, begins with a lowercase letter.
    """
    borders = [
        0,
        *(match.start() for match in _EMPTY_LINES.finditer(text)),
        len(text),
    ]
    # empty lines first
    parts = [text[start:end] for start, end in itertools.pairwise(borders)]
    lines = [part.strip() for part in parts]
    open_ended = [_is_open_ended(line) for line in lines]
    small = [
        line[:1].islower() and len(line) <= LONGEST_WRAPPED_LINE
        for line in lines
    ]
    # True if a sentence continues from the previous line; a capital is accepted
    # among such lines.
    goes_on = [
        False,
        *(a and b for a, b in zip(open_ended, small[1:], strict=False)),
        False,
    ]
    if sum(goes_on) < _FEWEST_BREAKS:
        return text
    for i in range(1, len(parts)):
        near = goes_on[i - 1] or goes_on[i + 1]
        if goes_on[i] or (open_ended[i - 1] and near and "\n" not in lines[i]):
            parts[i] = f"\n{lines[i]}"
    return "".join(parts)


def _is_open_ended(line: str) -> bool:
    """Returns True if a paragraph is a single line of wrapped prose without a final stop."""
    is_full = _SHORTEST_DOUBLE <= len(line) <= LONGEST_WRAPPED_LINE
    return is_full and "\n" not in line and _OPEN_END.search(line) is not None


def _is_talk(lines: Sequence[str]) -> bool:
    """Returns True if most lines of a paragraph are speakers' turns, as short as wrapped prose.

    ``split_sentences`` would join such lines; longer lines remain separate.
    """
    if max(map(len, lines)) > LONGEST_WRAPPED_LINE:
        return False
    turns = sum(_TURN.match(line) is not None for line in lines)
    return turns >= max(2, 0.6 * len(lines))


def _turns(lines: Sequence[str]) -> list[str]:
    """Returns turns; a line without a speaker's name belongs to the preceding turn."""
    turns: list[str] = []
    for line in lines:
        if turns and _TURN.match(line) is None:
            turns[-1] += f"\n{line}"
        else:
            turns.append(line)
    return turns


def _unwrapped(lines: Sequence[str]) -> str:
    """Joins lines of the width of wrapped prose if a few (an address, code) are wider.

    ``join_wrapped_lines`` does not join them, because a paragraph in which all
    lines are long may have one paragraph per line.
    """
    body = lines[:-1]
    widest = max(map(len, lines))
    full = sum(SHORTEST_WRAP <= len(line) <= WIDEST_WRAP for line in body)
    if (
        not WIDEST_WRAP < widest <= 2 * WIDEST_WRAP
        or not body
        or full < 0.8 * len(body)
    ):
        return "\n".join(lines)
    parts = [lines[0]]
    for line, following in itertools.pairwise(lines):
        parts += [" " if breaks_sentence(line, following) else "\n", following]
    return "".join(parts)
