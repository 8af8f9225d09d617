"""A document that was read: its text, and the positions of its headings and pages."""

from collections.abc import Sequence
from typing import NamedTuple

from longsum_jax.errors import in_one_line
from longsum_jax.text.joining import join_documents
from longsum_jax.text.statements import Outline

PARAGRAPH = "\n\n"  # separator of two blocks


class Heading(NamedTuple):
    """A heading of a document.

    Attributes:
        start, end: position in the text; the heading is ``text[start:end]``.
        level: level of the heading; 1 is the highest.
    """

    start: int
    end: int
    level: int


class Document(NamedTuple):
    """The text of a file, an archive member, a message or a table row.

    Attributes:
        text: cleaned text of the document.
        name: name of the file, plus the member, message or row if the file
            contains several.
        path: path of the file; "-" is standard input.
        title: title recorded in the document, or None.
        headings: headings in the order of the text.
        pages: offset in ``text`` at which each page begins; () if there are no
            pages.
        notes: sentences about removed or guessed content.
        query: query of a table row about its document, or None.
        borders: offsets in ``text`` of the second and following documents, if
            several documents are read as one.
        id: id of a table row, or None.
    """

    text: str
    name: str
    path: str
    title: str | None = None
    headings: tuple[Heading, ...] = ()
    pages: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    query: str | None = None
    borders: tuple[int, ...] = ()
    id: str | None = None

    @property
    def outline(self) -> Outline:
        """Positions of headings and pages, for citing sentences of the document."""
        return Outline(
            [(start, end) for start, end, _ in self.headings], self.pages
        )


def joined(documents: Sequence[Document], separator: str) -> Document:
    """Returns documents as one, with the path and query of the first and the headings of all.

    Args:
        documents: documents; at least one.
        separator: text between the documents, see ``text.joining``.
    """
    first, *others = documents
    if not others:
        return first
    text, borders = join_documents(
        [document.text for document in documents], separator
    )
    headings = []
    for document, start in zip(documents, (0, *borders), strict=True):
        offset = start - len(document.text) + len(document.text.lstrip())
        headings += [
            Heading(begin + offset, end + offset, level)
            for begin, end, level in document.headings
        ]
    notes = [
        f"{document.name}: {note}"
        for document in documents
        for note in document.notes
    ]
    return Document(
        text=text,
        name=f"{first.name} and {len(others)} more",
        path=first.path,
        headings=tuple(headings),
        notes=tuple(notes),
        query=first.query,
        borders=borders,
    )


class Failure(NamedTuple):
    """A document that could not be read, and the reason as one line."""

    name: str
    problem: str

    @classmethod
    def of(cls, name: str, problem: object) -> "Failure":
        """Creates the failure of a document; library messages may have several lines."""
        return cls(name, in_one_line(str(problem).replace("\n", " ")))


class Block(NamedTuple):
    """A paragraph or heading, the unit from which documents are assembled.

    Attributes:
        text: text without white space at its ends.
        level: heading level; 0 for a paragraph.
        page: number of the page on which the block begins, from 1; 0 if there
            are no pages.
        breaks: offsets in ``text`` at which the following pages begin.
    """

    text: str
    level: int = 0
    page: int = 0
    breaks: tuple[int, ...] = ()


class TextLayout(NamedTuple):
    """The text of joined blocks, with the positions of its headings and pages."""

    text: str
    headings: tuple[Heading, ...]
    pages: tuple[int, ...]


def lay_out(blocks: Sequence[Block], num_pages: int = 0) -> TextLayout:
    """Joins blocks with an empty line between them.

    Args:
        blocks: blocks in reading order.
        num_pages: page count of the document; an empty page begins at the start
            of the next one.
    """
    texts = []
    headings = []
    starts: dict[int, int] = {}
    start = 0
    for block in blocks:
        if block.level:
            headings.append(
                Heading(start, start + len(block.text), block.level)
            )
        if block.page:
            starts.setdefault(block.page, start)
        for i, offset in enumerate(block.breaks, 1):
            starts.setdefault(block.page + i, start + offset)
        texts.append(block.text)
        start += len(block.text) + len(PARAGRAPH)
    text = PARAGRAPH.join(texts)
    return TextLayout(
        text, tuple(headings), _page_starts(starts, num_pages, len(text))
    )


def _page_starts(
    starts: dict[int, int], num_pages: int, length: int
) -> tuple[int, ...]:
    pages = []
    following = length
    for page in range(num_pages, 0, -1):
        following = min(starts.get(page, following), following)
        pages.append(following)
    return tuple(reversed(pages))
