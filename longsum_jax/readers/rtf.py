"""RTF through striprtf; the format has no headings that programs agree on."""

from collections.abc import Iterator

from longsum_jax.errors import InputError
from longsum_jax.extra import import_extra
from longsum_jax.readers.document import Document
from longsum_jax.readers.plain_text import text_blocks
from longsum_jax.readers.source import Source


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: a damaged document, or one without text.
    """
    striprtf = import_extra("striprtf.striprtf", source.name, "RTF")
    # Everything outside of ASCII is escaped; bytes that are not are in the usual code page.
    content = source.content.decode("cp1252", errors="replace")
    try:
        text = striprtf.rtf_to_text(content, errors="replace")
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
        raise InputError(f"{source.name}: damaged RTF ({error}); save it anew") from None
    # A line is a paragraph, or a row of a table.
    lines = [_row(line) if line.endswith("|") else line for line in text.split("\n")]
    yield source.document(block for line in lines for block in text_blocks(line))


def _row(line: str) -> str:
    """Returns the cells of a row, behind each of which a stroke stands, as other readers do."""
    return " | ".join(filter(None, map(str.strip, line.split("|"))))
