"""The input of a reader: the bytes of one document, and the limits of reading them."""

import dataclasses
import sys
import time
from collections.abc import Iterable

from longsum_jax.errors import InputError, check_whole, counted
from longsum_jax.files import beyond, check_not_named_pipe
from longsum_jax.readers.cleaning import clean
from longsum_jax.readers.document import Block, Document, lay_out
from longsum_jax.readers.encodings import decode
from longsum_jax.text.documents import replace_half_characters
from longsum_jax.text.rows import READER_KEYS

# maximum members of the archives in one file, including nested ones
MAX_MEMBERS = 100_000
# Bytes of memory for reading a file, however small. Libraries that unpack
# without limits, such as PDFium, are stopped here; the largest honest pages take
# a tenth.
_BASE_MEMORY = 2**30
# bytes of memory for each unpacked byte; HTML of many short elements takes 70
_MEMORY_RATIO = 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options and limits of reading files.

    Attributes:
        keep_all: True to keep content removed by default: boilerplate of web
            pages, running headers, page numbers, captions, hyphens at line
            ends, reference lists, quoted mail, times and notices of transcripts
            and chats.
        document_key: column or field of JSON Lines, CSV and Parquet with the
            document; "text|document" is the first of these in a row.
        query_key: column or field with a query about the document.
        max_bytes: maximum size of a file, and of everything unpacked from it,
            in bytes.
        max_depth: maximum nesting depth of archives and compressed files.
        max_pages: maximum number of pages of a PDF, chapters of an EPUB or
            slides.
        max_seconds: maximum time for reading one document, in seconds.
        sandbox: True to read files in a child process, see
            ``readers.sandbox``. Without it, a small malicious file can fill the
            memory or end this process.

    Raises:
        InputError: a limit is below 1, or a key is empty.
    """

    keep_all: bool = False
    document_key: str = READER_KEYS
    query_key: str = "query"
    max_bytes: int = 2**30
    max_depth: int = 4
    max_pages: int = 20_000
    max_seconds: float = 300.0
    sandbox: bool = True

    @property
    def max_memory(self) -> int:
        """Memory limit of the child process that reads large files, in bytes."""
        return 2**31 + 2 * int(self.max_bytes)

    def memory_for(self, num_bytes: int) -> int:
        """Returns the memory limit of the child process for one file.

        Args:
            num_bytes: size of the file, and of everything unpacked from it so
                far, in bytes.
        """
        return min(_BASE_MEMORY + _MEMORY_RATIO * num_bytes, self.max_memory)

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_depth", "max_pages"):
            check_whole(name, getattr(self, name), 1)
        if not self.max_seconds > 0:
            raise InputError(f"max_seconds={self.max_seconds} must be above 0")
        for name in ("document_key", "query_key"):
            if not getattr(self, name):
                raise InputError(f"{name} is empty; give the name of a field")


class Unpacked:
    """Total counts of everything unpacked from one file on disk, at any depth."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.num_members = 0

    def add_bytes(self, num_bytes: int) -> None:
        """Counts unpacked bytes."""
        self.num_bytes += num_bytes


class Source:
    """The content of a document to be read.

    Attributes:
        name: name of the document, also used in errors.
        path: path of the file on disk.
        content: bytes of the document.
        options: options of reading.
        depth: number of enclosing archives.
        file_name: file name whose suffix determines the kind; default:
            ``name``.
        unpacked: total counts of everything unpacked from the file on disk.
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

    def inner(
        self, name: str, content: bytes, file_name: str | None = None
    ) -> "Source":
        """Returns the source of a member or attachment of this one."""
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
        """Raises InputError if reading has exceeded the time limit."""
        if time.monotonic() - self._began > self.options.max_seconds:
            raise InputError(too_slow(self.name, self.options.max_seconds))

    def check_size(self, num_bytes: int) -> None:
        """Raises InputError if the size exceeds the limit."""
        if num_bytes > self.options.max_bytes:
            raise InputError(beyond(self.name, self.options.max_bytes))

    def check_pages(self, number: int, noun: str) -> None:
        """Raises InputError if there are more pages, chapters or slides than allowed.

        Args:
            number: number of pages.
            noun: name of the pages in the message.
        """
        if number > self.options.max_pages:
            raise InputError(
                f"{self.name}: {number} {noun}, more than max_pages={self.options.max_pages}; "
                "raise it (--max_pages)"
            )

    def count_bytes(self, num_bytes: int) -> None:
        """Counts unpacked bytes; raises InputError if they exceed the limit."""
        self.unpacked.add_bytes(num_bytes)
        self.check_size(self.unpacked.num_bytes)

    def count_members(self, num_members: int) -> None:
        """Counts members of archives; raises InputError if they exceed the limit."""
        self.unpacked.num_members += num_members
        if self.unpacked.num_members > MAX_MEMBERS:
            raise InputError(
                f"{self.name}: more than {MAX_MEMBERS} members; unpack the archive"
            )

    def decoded(self, declared: str | None = None) -> tuple[str, list[str]]:
        """Returns the content as text, and a note if its encoding was guessed or damaged.

        Args:
            declared: encoding declared by the content.

        Raises:
            InputError: the content is not text.
        """
        result = decode(self.content, self.name, declared)
        # Programs that write "\r\n" in text mode make "\r\r\n" of it.
        text = result.text.replace("\r\r\n", "\n")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        notes = []
        if result.guess:
            if result.rival:
                rival = f"; {result.rival} fits as well"
            else:
                rival = ""
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
        """Returns the document of blocks, after cleaning.

        Args:
            blocks: blocks in reading order.
            title: title of the document.
            num_pages: page count; 0 if there are no pages.
            has_pictures: True if the document contains pictures, which may show
                its text.
            notes: notes of the reader.
            query: query of the document.
            id: id of the document.

        Raises:
            InputError: no text remains.
        """
        cleaned, dropped = clean(blocks, keep_all=self.options.keep_all)
        if not cleaned:
            raise InputError(
                f"{self.name}: {_nothing_left([*notes, *dropped], has_pictures)}"
            )
        layout = lay_out(cleaned, num_pages)
        title, query, id = (
            value and replace_half_characters(value)
            for value in (title, query, id)
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


def read_content(path: str | None, name: str, max_bytes: int) -> bytes:
    """Returns the content of a file on disk or, for None, of standard input.

    Args:
        path: path of the file.
        name: name in error messages.
        max_bytes: maximum size.

    Raises:
        InputError: the file does not exist, cannot be read, is too large or is
            a named pipe.
    """
    if path is not None:
        check_not_named_pipe(path, name)
    try:
        if path is None:
            content = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{name}: no such file; check the path") from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(
            f"{name}: cannot read the file ({reason}); check it"
        ) from None
    if len(content) > max_bytes:
        raise InputError(beyond(name, max_bytes))
    return content


def too_slow(name: str, max_seconds: float) -> str:
    """Returns the error message for a document that exceeds the time limit."""
    return (
        f"{name}: reading takes longer than max_seconds={max_seconds:g}; "
        "raise it (--max_seconds), or split the document"
    )


def too_large(name: str, options: ReadOptions) -> str:
    """Returns the error message for a document that needs too much memory."""
    if not options.sandbox:
        return f"{name}: too large for the memory of this machine"
    return (
        f"{name}: reading takes more memory than the size allows ({_BASE_MEMORY / 2**30:.3g} GiB "
        f"plus {_MEMORY_RATIO} times the unpacked size, at most "
        f"{options.max_memory / 2**30:.3g} GiB); split the document, or read it without limits if "
        "you trust it (sandbox=False, --no_sandbox)"
    )


def _nothing_left(notes: list[str], has_pictures: bool) -> str:
    if has_pictures and not notes:
        return (
            "has pictures and no text; make a PDF of it and recognize its text, for example with "
            "ocrmypdf"
        )
    if not notes:
        return "the file is empty; give a text"
    return f"no text remains ({'; '.join(notes)}); keep_all (--keep_all) keeps what rules leave out"
