"""CSV and TSV with a header line, one document per row."""

import contextlib
import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.errors import InputError, counted
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source

_DECLARED_DELIMITER = re.compile(r"\s*\"?sep=([^\w\s\"]|\t)\"?[ ]*\n", re.IGNORECASE)
_SAMPLE = 2**16
_LARGEST_CELL = 2**31 - 1  # maximum that the csv module supports on every system


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a table.

    The separator is a tab in .tsv files. In other files it is a comma, semicolon, tab or bar, or
    the character declared by a first line "sep=;", as written by Excel.

    Raises:
        InputError: the file has no rows.
    """
    text, _ = source.decoded()
    has_tabs = source.file_name.casefold().endswith(".tsv")
    declared = _DECLARED_DELIMITER.match(text)
    if declared is not None:
        delimiter = declared[1]
        text = text[declared.end() :]
    else:
        delimiter = "\t" if has_tabs else _delimiter(text)
    num_lines_before = 0 if declared is None else 1
    largest_cell = min(source.options.max_bytes, _LARGEST_CELL)
    return row_documents(source, _rows(text, source, delimiter, largest_cell, num_lines_before))


def _rows(
    text: str, source: Source, delimiter: str, largest_cell: int, num_lines_before: int
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    name, is_first = source.name, True
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    while True:
        try:
            with _cells_up_to(largest_cell):
                row = next(reader, None)
        except csv.Error as error:
            number = reader.line_num + num_lines_before
            yield number, InputError(f"{name}:{number}: damaged CSV ({error})")
            return
        if row is None:
            return
        if is_first:
            columns_read(reader.fieldnames or (), source)
            is_first = False
        number = reader.line_num + num_lines_before
        yield number, _fields(row, f"{name}:{number}", delimiter)


def _fields(row: dict[Any, Any], name: str, delimiter: str) -> Mapping[str, Any] | InputError:
    """Returns the cells of a row by column, or the error that the row has too many cells."""
    beyond = row.pop(None, [])  # cells without a column, as collected by the csv module
    if any(beyond):  # programs write empty ones
        cells = f"{len(row) + len(beyond)} cells in {counted(len(row), 'column')}"
        return InputError(f"{name}: {cells}; quote texts that hold {delimiter!r}")
    # Absent cells have the value None.
    return {key: value for key, value in row.items() if key and value is not None}


@contextlib.contextmanager
def _cells_up_to(size: int) -> Iterator[None]:
    """Temporarily sets the field size limit, which the csv module has for the whole process."""
    before = csv.field_size_limit(size)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _delimiter(text: str) -> str:
    """Returns the most frequent delimiter of the header line."""
    names = text[:_SAMPLE].lstrip("\n").partition("\n")[0]
    return max(",;\t|", key=names.count)
