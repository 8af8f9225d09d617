"""Reads the rows of data files: JSON lines, JSON arrays, CSV, TSV and Parquet."""

import contextlib
import csv
import functools
import logging
import os
import re
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import Any, BinaryIO

from longsum_jax.compressed import SUFFIXES, open_compressed
from longsum_jax.errors import InputError, counted, in_one_line
from longsum_jax.extra import missing_extra
from longsum_jax.files import (
    ARROW_SUFFIXES,
    DAMAGED,
    MAX_CONTAINERS,
    MAX_LINE_BYTES,
    bounded_lines,
    check_not_named_pipe,
    damaged,
    parse_json,
)
from longsum_jax.remote import is_remote, open_remote, remote_size

MAX_BYTES = 64 * 2**30  # largest size of a file, after decompression
# largest size of a JSON array, which is parsed at once
_MAX_ARRAY_BYTES = 2**30
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The usual names of columns, in the order of preference.
DOCUMENT_NAMES = (
    *(
        "document",
        "article",
        "report",
        "dialogue",
        "transcript",
        "text",
        "source",
        "input",
    ),
    *("content", "body", "prompt"),
)
SUMMARY_NAMES = (
    *("summary", "highlights", "abstract", "target", "output"),
    *("completion", "response", "chosen"),
)
# default of ``readers.ReadOptions``
READER_KEYS = "document|text|article|content|body"
# Defaults of keys, in place of which a usual name may be chosen.
_DEFAULT_KEYS = ("document", "text|document", READER_KEYS, "summary")
_DECLARED_DELIMITER = re.compile(
    r"\s*\"?sep=([^\w\s\"]|\t)\"?[ ]*\Z", re.IGNORECASE
)
# maximum that the csv module supports on every system
_LARGEST_CELL = 2**31 - 1
_COLUMNAR_ROWS = 64  # rows of Parquet and Arrow in memory at a time

Row = dict[str, Any]


def read_rows(
    path: str | Path, max_bytes: int = MAX_BYTES
) -> Iterator[tuple[int, Row]]:
    """Yields the number, from 1, and the fields of every row of a file.

    The suffix selects the format: ``.csv`` and ``.tsv`` (UTF-8, with a header
    line), ``.parquet``, ``.arrow`` and ``.feather`` (need pyarrow), ``.json`` with
    an array of objects; every other file has one JSON object per line. All but
    Parquet may be compressed (``.csv.gz``). The number of a row is its first line
    in the file; of an array, Parquet or Arrow file, its position.

    Raises:
        InputError: a row is invalid, the file is missing, unreadable, empty or
            damaged, or the file or a line is too large.
    """
    suffix = _data_suffix(path)
    if suffix == ".parquet":
        rows = _parquet_rows(path)
    elif suffix in ARROW_SUFFIXES:
        rows = _arrow_rows(path)
    elif suffix in (".csv", ".tsv"):
        rows = _table_rows(path, "\t" if suffix == ".tsv" else None, max_bytes)
    elif suffix == ".json" and _begins_array(path):
        rows = _array_rows(path, min(max_bytes, _MAX_ARRAY_BYTES))
    else:
        rows = _json_rows(path, max_bytes)
    empty = True
    for number, row in rows:
        yield number, row
        empty = False
    if empty:
        content = "one JSON object per line"
        if suffix in (".csv", ".tsv", ".parquet", *ARROW_SUFFIXES):
            content = "rows below the names of its columns"
        raise InputError(
            f"{path}: the file is empty; give a file with {content}"
        )


def choose_keys(
    row: Collection[str], keys: str, usual: tuple[str, ...], path: str
) -> str:
    """Returns the keys "a|b" to read in a file: ``keys``, or a usual name of its first row.

    A usual name is chosen only if ``keys`` are a default and none of them
    exists. The choice is logged once.

    Args:
        row: keys of the first row.
        keys: keys, separated by "|".
        usual: usual names, in the order of preference.
        path: path of the file, for the log.
    """
    if keys not in _DEFAULT_KEYS or any(
        name in row for name in keys.split("|")
    ):
        return keys
    for name in usual:
        if name in row:
            _log_choice(path, usual[0], name)
            return name
    return keys


@functools.cache
def _log_choice(path: str, role: str, name: str) -> None:
    """Logs once per process that a column was selected by its name."""
    message = in_one_line(f'{path}: column "{name}" is read as the {role}')
    logging.getLogger(__name__).warning("%s", message)


def _data_suffix(path: str | Path) -> str:
    """Returns the last suffix in lower case, without the suffix of a compressed file."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in SUFFIXES:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextlib.contextmanager
def open_bytes(path: str | Path) -> Iterator[BinaryIO]:
    """Opens a file for reading bytes, decompressed; read errors become InputErrors."""
    check_not_named_pipe(path, str(path))
    suffix = Path(path).suffix
    try:
        with contextlib.ExitStack() as stack:
            file: Any = path
            if is_remote(path):
                file = stack.enter_context(open_remote(path))
            elif suffix not in SUFFIXES:
                file = stack.enter_context(open(path, "rb"))
            if suffix in SUFFIXES:
                unpacked = open_compressed(file, suffix, str(path))
                file = stack.enter_context(unpacked)
            yield file
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except DAMAGED as error:
        raise InputError(damaged(str(path), error)) from None
    except OSError as error:
        raise InputError(
            f"{path}: cannot read the file ({error.strerror or error}); check it"
        ) from None


def decode_utf8(content: bytes, where: str) -> str:
    """Returns bytes as text; InputError, naming ``where``, if they are not UTF-8."""
    if b"\0" in content:
        raise InputError(
            f"{where}: NUL byte at position {content.index(0)}; give UTF-8 text, not a binary file"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"0x{content[error.start]:02x} at position {error.start}"
        raise InputError(
            f"{where}: byte {byte} is not UTF-8; convert the file to UTF-8"
        ) from None


def _lines(
    path: str | Path, max_bytes: int, *, skip_blank: bool = True
) -> Iterator[tuple[int, bytes]]:
    """Yields the number, from 1, and the bytes of every line, without a byte order mark."""
    is_packed = Path(path).suffix in SUFFIXES
    with open_bytes(path) as stream:
        packed = None
        if is_packed:
            size_of = remote_size if is_remote(path) else os.path.getsize
            packed = size_of(path)
        for number, line in bounded_lines(
            stream,
            str(path),
            max_bytes=max_bytes,
            packed=packed,
            skip_blank=skip_blank,
        ):
            if number == 1:
                line = line.removeprefix(_BYTE_ORDER_MARK)
            if line.strip() or not skip_blank:
                yield number, line


def _json_rows(path: str | Path, max_bytes: int) -> Iterator[tuple[int, Row]]:
    for number, line in _lines(path, max_bytes):
        where = f"{path}:{number}"
        text = decode_utf8(line, where)
        try:
            row = parse_json(text)
        except ValueError as error:
            raise InputError(
                f"{where}: not valid JSON ({error}); give one JSON object per line"
            ) from None
        yield number, _object(row, where, "give one object per line")


def _object(row: Any, where: str, remedy: str) -> Row:
    if not isinstance(row, dict):
        raise InputError(
            f"{where}: expected a JSON object, got {type(row).__name__}; {remedy}"
        )
    return row


def _begins_array(path: str | Path) -> bool:
    with open_bytes(path) as stream:
        return (
            stream.read(2**10).removeprefix(_BYTE_ORDER_MARK).lstrip()[:1]
            == b"["
        )


def _array_rows(path: str | Path, max_bytes: int) -> Iterator[tuple[int, Row]]:
    """Yields the objects of a JSON array, which is parsed at once."""
    content = b"".join(line for _, line in _lines(path, max_bytes))
    text = decode_utf8(content, str(path))
    try:
        rows = parse_json(text)
    except ValueError as error:
        raise InputError(
            f"{path}: not a valid JSON array ({error}); give one JSON object per line, or at most "
            f"{MAX_CONTAINERS} objects in an array"
        ) from None
    for number, row in enumerate(rows, start=1):
        yield (
            number,
            _object(row, f"{path}:{number}", "give an array of objects"),
        )


def _table_rows(
    path: str | Path, delimiter: str | None, max_bytes: int
) -> Iterator[tuple[int, Row]]:
    """Yields the rows of a CSV or TSV file; the delimiter None is detected in the header."""
    lines = _lines(path, max_bytes, skip_blank=False)
    texts = (decode_utf8(line, f"{path}:{number}") for number, line in lines)
    for number, row in table_rows(texts, str(path), delimiter, MAX_LINE_BYTES):
        if isinstance(row, InputError):
            raise row
        yield number, dict(row)


def table_rows(
    lines: Iterable[str],
    name: str,
    delimiter: str | None,
    max_cell: int,
    check_header: Callable[[Sequence[str]], object] = lambda names: None,
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    """Yields the first line and the cells by column of every row, or the error of the row.

    Args:
        lines: lines of a table with their line ends. The first line with text
            has the names of the columns; a line "sep=;" may precede it, as
            written by Excel. Repeated names are numbered.
        name: name of the file, for errors.
        delimiter: character between cells; None for a comma, semicolon, tab or
            bar, whichever is most frequent in the header.
        max_cell: maximum number of characters in a cell.
        check_header: function called with the names of the columns before the
            first row.
    """
    lines = iter(lines)
    header, num_lines_before = "", 0
    for header in lines:
        declared = _DECLARED_DELIMITER.match(header.rstrip("\r\n"))
        if declared is not None:
            delimiter = declared[1]
        elif header.strip():
            break
        num_lines_before += 1
    if delimiter is None:
        delimiter = max(",;\t|", key=header.count)
    reader = csv.reader(_joined(header, lines), delimiter=delimiter)
    columns: list[str] = []
    is_checked = False
    while True:
        # the first line of the row, whose cells may contain line breaks
        number = reader.line_num + 1 + num_lines_before
        try:
            with _cells_up_to(min(max_cell, _LARGEST_CELL)):
                cells = next(reader, None)
        except csv.Error as error:
            yield number, InputError(f"{name}:{number}: damaged CSV ({error})")
            return
        if cells is None:
            return
        if not cells:  # an empty line
            continue
        if not columns:
            columns = _distinct(cells)
            continue
        if not is_checked:
            check_header(columns)
            is_checked = True
        yield number, _by_column(columns, cells, f"{name}:{number}", delimiter)


def _distinct(columns: Sequence[str]) -> list[str]:
    """Returns the names of columns; repeated ones are numbered: "text" twice is text.1, text.2."""
    counts = Counter(columns)
    numbers = Counter[str]()
    result = []
    for column in columns:
        numbers[column] += 1
        is_repeated = column and counts[column] > 1
        result.append(f"{column}.{numbers[column]}" if is_repeated else column)
    return result


def _joined(header: str, lines: Iterator[str]) -> Iterator[str]:
    if header.strip():
        yield header
    yield from lines


def _by_column(
    columns: Sequence[str], cells: Sequence[str], name: str, delimiter: str
) -> Mapping[str, Any] | InputError:
    """Returns the cells of a row by column, or the error that the row has too many cells."""
    if any(cells[len(columns) :]):  # programs write empty ones
        numbers = f"{len(cells)} cells in {counted(len(columns), 'column')}"
        return InputError(
            f"{name}: {numbers}; quote texts that hold {delimiter!r}"
        )
    named = zip(columns, cells, strict=False)  # a row may have fewer cells
    return {column: cell for column, cell in named if column}


@contextlib.contextmanager
def _cells_up_to(size: int) -> Iterator[None]:
    """Temporarily sets the field size limit, which the csv module has for the whole process."""
    before = csv.field_size_limit(size)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _arrow_rows(path: str | Path) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
    except ImportError:
        raise missing_extra(str(path), "Arrow", "files") from None
    from longsum_jax.text.arrow import open_arrow

    number = 0
    try:
        with open_bytes(path) as stream:
            for batch in open_arrow(stream).batches:
                batch.validate(full=True)
                for start in range(0, len(batch), _COLUMNAR_ROWS):
                    rows = batch.slice(start, _COLUMNAR_ROWS)
                    for row in rows.to_pylist():
                        number += 1
                        yield number, row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: damaged Arrow after row {number} ({error}); copy it again"
        ) from None


def _parquet_rows(path: str | Path) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise missing_extra(str(path), "Parquet", "files") from None
    number = 0
    try:
        with (
            open_bytes(path) as stream,
            pyarrow.parquet.ParquetFile(stream) as file,
        ):
            for batch in file.iter_batches(_COLUMNAR_ROWS):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            f"{path}: damaged Parquet after row {number} ({error}); copy it again"
        ) from None
