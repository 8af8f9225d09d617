"""The input of a reader: the bytes of one document, and the limits of reading them."""

import dataclasses
import time
from collections.abc import Iterable

from longsum_jax.errors import InputError, check_whole, counted
from longsum_jax.files import beyond
from longsum_jax.readers.cleaning import clean
from longsum_jax.readers.document import Block, Document, lay_out
from longsum_jax.readers.encodings import decode
from longsum_jax.text.documents import replace_half_characters

MAX_MEMBERS = 100_000  # of the archives in one file, and of those inside of them


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options of reading files, and limits of their sizes.

    Attributes:
        keep_all: keep what rules leave out otherwise: navigation and other boilerplate, running
            headers, page numbers, captions, hyphens at line ends, lists of references, quoted mail,
            times and notices of transcripts and chats.
        document_key: column or field of JSON lines, CSV and Parquet that holds the document;
            "text|document" is the first of these that a row has.
        query_key: column or field with a query.
        max_bytes: largest size of a file, and of all that it expands to, archives in it included.
        max_depth: archives and compressed files inside one another.
        max_pages: pages of a PDF, chapters of an EPUB.
        max_seconds: time that reading one document may take.

    Raises:
        InputError: a limit below 1, or an empty key.
    """

    keep_all: bool = False
    document_key: str = "document|text|article|content|body"
    query_key: str = "query"
    max_bytes: int = 2**30
    max_depth: int = 4
    max_pages: int = 20_000
    max_seconds: float = 300.0

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_depth", "max_pages"):
            check_whole(name, getattr(self, name), 1)
        if not self.max_seconds > 0:
            raise InputError(f"max_seconds={self.max_seconds} must be above 0")
        for name in ("document_key", "query_key"):
            if not getattr(self, name):
                raise InputError(f"{name} is empty; give the name of a field")


class Unpacked:
    """The sums of what has been unpacked from one file on disk, whatever lies in what."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.num_members = 0


class Source:
    """The content of a document that is to be read.

    Attributes:
        name: for errors, and of the document.
        path: of the file on disk.
        content: its bytes.
        options: how it is read.
        depth: of archives around it.
        file_name: by whose suffix its kind is known; ``name`` by default.
        unpacked: from the file on disk so far.
    """

    def __init__(
        self,
        name: str,
        path: str,
        content: bytes,
        options: ReadOptions,
        *,
        depth: int = 0,
        file_name: str | None = None,
        unpacked: Unpacked | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.content = content
        self.options = options
        self.depth = depth
        self.file_name = file_name or name
        self.unpacked = unpacked or Unpacked()
        self._began = time.monotonic()

    def inner(self, name: str, content: bytes, file_name: str | None = None) -> "Source":
        """Returns the source of something that lies in this one."""
        return Source(
            name,
            self.path,
            content,
            self.options,
            depth=self.depth + 1,
            file_name=file_name,
            unpacked=self.unpacked,
        )

    def check_time(self) -> None:
        """Raises InputError when reading has taken longer than it may."""
        if time.monotonic() - self._began > self.options.max_seconds:
            raise InputError(
                f"{self.name}: reading takes longer than max_seconds={self.options.max_seconds:g}; "
                "raise it (--max_seconds), or split the document"
            )

    def check_size(self, num_bytes: int) -> None:
        """Raises InputError when more bytes are read than may be."""
        if num_bytes > self.options.max_bytes:
            raise InputError(beyond(self.name, self.options.max_bytes))

    def count_bytes(self, num_bytes: int) -> None:
        """Counts what has been unpacked; raises InputError when it is more than may be."""
        self.unpacked.num_bytes += num_bytes
        self.check_size(self.unpacked.num_bytes)

    def count_members(self, num_members: int) -> None:
        """Counts members of archives; raises InputError when they are more than may be."""
        self.unpacked.num_members += num_members
        if self.unpacked.num_members > MAX_MEMBERS:
            raise InputError(f"{self.name}: more than {MAX_MEMBERS} members; unpack the archive")

    def decoded(self, declared: str | None = None) -> tuple[str, list[str]]:
        """Returns the content as text, and a note if its encoding is a guess or damaged.

        Args:
            declared: encoding that the content names.

        Raises:
            InputError: the content is not text.
        """
        result = decode(self.content, self.name, declared)
        text = result.text.replace("\r\n", "\n").replace("\r", "\n")
        notes = []
        if result.guess:
            rival = f"; {result.rival} fits as well" if result.rival else ""
            notes.append(f"read as {result.guess}, which is a guess{rival}")
        if result.num_damaged:
            damaged = counted(result.num_damaged, "damaged character")
            notes.append(f"read as UTF-8 but for {damaged}")
        return text, notes

    def document(
        self,
        blocks: Iterable[Block],
        *,
        title: str | None = None,
        num_pages: int = 0,
        has_pictures: bool = False,
        notes: Iterable[str] = (),
        query: str | None = None,
        id: str | None = None,
    ) -> Document:
        """Returns the document that blocks make, without what rules leave out.

        Args:
            blocks: in reading order.
            title: of the document.
            num_pages: it has; 0 for no pages.
            has_pictures: whether there are pictures, in which its text may be.
            notes: of the reader.
            query: of the document.
            id: of the document.

        Raises:
            InputError: no text remains.
        """
        cleaned, dropped = clean(blocks, keep_all=self.options.keep_all)
        if not cleaned:
            raise InputError(f"{self.name}: {_nothing_left([*notes, *dropped], has_pictures)}")
        layout = lay_out(cleaned, num_pages)
        title, query, id = (
            value and replace_half_characters(value) for value in (title, query, id)
        )
        title = " ".join(title.split()) if title else None
        return Document(
            text=layout.text,
            name=self.name,
            path=self.path,
            title=title or None,
            headings=layout.headings,
            pages=layout.pages,
            notes=(*notes, *dropped),
            query=query,
            id=id,
        )


def _nothing_left(notes: list[str], has_pictures: bool) -> str:
    if has_pictures and not notes:
        return (
            "has pictures and no text; make a PDF of it and recognise its text, for example with "
            "ocrmypdf"
        )
    if not notes:
        return "the file is empty; give a text"
    return f"no text remains ({'; '.join(notes)}); keep_all (--keep_all) keeps what rules leave out"
