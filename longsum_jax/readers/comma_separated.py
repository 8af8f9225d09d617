"""CSV and TSV with a header line, one document per row."""

import io
from collections.abc import Iterator, Sequence

from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source
from longsum_jax.text.rows import table_rows


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a table.

    The separator is a tab in .tsv files. In other files it is a comma,
    semicolon, tab or bar, or the character declared by a first line "sep=;", as
    written by Excel.

    Raises:
        InputError: the file has no rows.
    """
    text, _ = source.decoded()
    delimiter = None
    if source.file_name.casefold().endswith(".tsv"):
        delimiter = "\t"

    def check_header(names: Sequence[str]) -> None:
        columns_read(names, source)

    lines = io.StringIO(text, newline="")
    rows = table_rows(
        lines, source.name, delimiter, source.options.max_bytes, check_header
    )
    return row_documents(source, rows)
