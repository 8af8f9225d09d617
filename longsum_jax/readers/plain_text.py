"""Plain text: paragraphs at empty lines, pages at form feeds, headings by their look."""

import re
from collections.abc import Iterator

from longsum_jax.readers.cleaning import join_hyphens, lines_to_leave_out
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.source import Source

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
_REFERENCES_LINE = re.compile(r"(?:references|bibliography|works cited)\s*:?", re.IGNORECASE)


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: a file without text.
    """
    text, notes = source.decoded()
    pages = text.split("\f")
    if not source.options.keep_all:
        if len(pages) > 1:
            pages, dropped = _without_running_lines(pages)
            notes += dropped
        pages = join_hyphens("\f".join(pages)).split("\f")  # by the words of all pages
    numbered = len(pages) > 1
    blocks = [
        block
        for number, page in enumerate(pages, 1)
        for block in text_blocks(page, number if numbered else 0)
    ]
    yield source.document(blocks, num_pages=len(pages) if numbered else 0, notes=notes)


def text_blocks(text: str, page: int = 0) -> list[Block]:
    """Returns the paragraphs of a text, headings among them marked."""
    blocks = []
    for paragraph in _EMPTY_LINES.split(text):
        paragraph = paragraph.strip("\n\x0b\x0c\x85").rstrip()
        if not paragraph.strip():
            continue
        first, newline, rest = paragraph.partition("\n")
        if newline and _REFERENCES_LINE.fullmatch(first.strip()):
            blocks += [Block(first.strip(), 1, page), Block(rest, 0, page)]
        else:
            blocks.append(Block(paragraph, heading_level(paragraph), page))
    return blocks


def heading_level(paragraph: str) -> int:
    """Returns the level of a paragraph that looks like a heading, 0 of any other."""
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
    filled = [[i for i, line in enumerate(page) if line.strip()] for page in lines]
    texts = [[page[i] for i in places] for page, places in zip(lines, filled, strict=True)]
    marks, notes = lines_to_leave_out(texts)
    for page, places, marked in zip(lines, filled, marks, strict=True):
        for i, is_running in zip(places, marked, strict=True):
            if is_running:
                page[i] = ""
    return ["\n".join(page) for page in lines], notes
