"""CSV and TSV with a line of column names, a document a row."""

import contextlib
import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.errors import InputError, counted
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source

_SAMPLE = 2**16
_LARGEST_CELL = 2**31 - 1  # that the module can count on every system


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a table.

    Between the columns of a .tsv file are tabs, of other files commas, semicolons, tabs or bars.

    Raises:
        InputError: a file without rows.
    """
    text, _ = source.decoded()
    has_tabs = source.file_name.casefold().endswith(".tsv")
    delimiter = "\t" if has_tabs else _delimiter(text)
    largest_cell = min(source.options.max_bytes, _LARGEST_CELL)
    return row_documents(source, _rows(text, source, delimiter, largest_cell))


def _rows(
    text: str, source: Source, delimiter: str, largest_cell: int
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    name, is_first = source.name, True
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    while True:
        try:
            with _cells_up_to(largest_cell):
                row = next(reader, None)
        except csv.Error as error:
            yield reader.line_num, InputError(f"{name}:{reader.line_num}: damaged CSV ({error})")
            return
        if row is None:
            return
        if is_first:
            columns_read(reader.fieldnames or (), source)
            is_first = False
        yield reader.line_num, _fields(row, f"{name}:{reader.line_num}", delimiter)


def _fields(row: dict[Any, Any], name: str, delimiter: str) -> Mapping[str, Any] | InputError:
    """Returns the cells of a row by their columns, or the error that it has too many."""
    beyond = row.pop(None, [])  # cells without a column, which the csv module puts there
    if any(beyond):  # programs write empty ones
        cells = f"{len(row) + len(beyond)} cells in {counted(len(row), 'column')}"
        return InputError(f"{name}: {cells}; quote texts that hold {delimiter!r}")
    # Absent cells have the value None.
    return {key: value for key, value in row.items() if key and value is not None}


@contextlib.contextmanager
def _cells_up_to(size: int) -> Iterator[None]:
    """Sets the limit that the csv module has for the whole process, and sets it back."""
    before = csv.field_size_limit(size)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimiter(text: str) -> str:
    """Returns the most frequent delimiter of the line of names."""
    names = text[:_SAMPLE].lstrip("\n").partition("\n")[0]
    return max(",;\t|", key=names.count)
