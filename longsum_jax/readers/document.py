"""A document as it was read: its text, and where in it headings and pages begin."""

from collections.abc import Sequence
from typing import NamedTuple

from longsum_jax.errors import in_one_line
from longsum_jax.text.joining import join_documents
from longsum_jax.text.statements import Outline

PARAGRAPH = "\n\n"  # between two blocks


class Heading(NamedTuple):
    """A heading of a document.

    Attributes:
        start, end: it is ``text[start:end]``.
        level: 1 for the largest headings.
    """

    start: int
    end: int
    level: int


class Document(NamedTuple):
    """The text of a file, of a member of an archive, of a message or of a row.

    Attributes:
        text: what remains of the document.
        name: the file, with member, message or row where it holds several.
        path: the file on disk; "-" is standard input.
        title: as the document gives it, or None.
        headings: in the order of the text.
        pages: offset in ``text`` at which each page begins; () where there are no pages.
        notes: what was left out or guessed, a sentence each.
        query: what a row of a table asks of its document, or None.
        borders: places in ``text`` at which all but the first of several documents begin that are
            read as one.
        id: of a row of a table, or None.
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
        """Positions of headings and pages, by which sentences of the document are cited."""
        return Outline([(start, end) for start, end, _ in self.headings], self.pages)


def joined(documents: Sequence[Document], separator: str) -> Document:
    """Returns documents as one, with the first one's place and query and the headings of all.

    Args:
        documents: at least one.
        separator: between them, see ``text.joining``.
    """
    first, *others = documents
    if not others:
        return first
    text, borders = join_documents([document.text for document in documents], separator)
    headings = []
    for document, start in zip(documents, (0, *borders), strict=True):
        offset = start - len(document.text) + len(document.text.lstrip())
        headings += [
            Heading(begin + offset, end + offset, level) for begin, end, level in document.headings
        ]
    notes = [f"{document.name}: {note}" for document in documents for note in document.notes]
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
    """A document that could not be read, and the sentence that says why, in one line."""

    name: str
    problem: str

    @classmethod
    def of(cls, name: str, problem: object) -> "Failure":
        """Returns the failure of a document; messages of libraries may have several lines."""
        return cls(name, in_one_line(str(problem).replace("\n", " ")))


class Block(NamedTuple):
    """A paragraph or a heading, from which documents are put together.

    Attributes:
        text: without white space at its ends.
        level: of a heading; 0 is a paragraph.
        page: on which the block begins, from 1; 0 where there are no pages.
        breaks: offsets in ``text`` at which the pages after that begin.
    """

    text: str
    level: int = 0
    page: int = 0
    breaks: tuple[int, ...] = ()


class Layout(NamedTuple):
    """Blocks put together: a text, and what stands where in it."""

    text: str
    headings: tuple[Heading, ...]
    pages: tuple[int, ...]


def lay_out(blocks: Sequence[Block], num_pages: int = 0) -> Layout:
    """Joins blocks with an empty line between them.

    Args:
        blocks: in reading order.
        num_pages: of the document; pages without text begin where the next one does.
    """
    texts = []
    headings = []
    starts: dict[int, int] = {}
    place = 0
    for block in blocks:
        if block.level:
            headings.append(Heading(place, place + len(block.text), block.level))
        if block.page:
            starts.setdefault(block.page, place)
        for i, offset in enumerate(block.breaks, 1):
            starts.setdefault(block.page + i, place + offset)
        texts.append(block.text)
        place += len(block.text) + len(PARAGRAPH)
    text = PARAGRAPH.join(texts)
    return Layout(text, tuple(headings), _page_starts(starts, num_pages, len(text)))


def _page_starts(starts: dict[int, int], num_pages: int, length: int) -> tuple[int, ...]:
    pages = []
    following = length
    for page in range(num_pages, 0, -1):
        following = min(starts.get(page, following), following)
        pages.append(following)
    return tuple(reversed(pages))
