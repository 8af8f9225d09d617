"""XLSX (Office Open XML workbooks): the rows of sheets that have a column with documents."""

import re
import zipfile
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from longsum_jax.errors import InputError
from longsum_jax.readers.archives import open_zip
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import columns_read, row_documents
from longsum_jax.readers.source import Source
from longsum_jax.readers.xml_tree import (
    local_name,
    read_xml,
    relationship_id,
    relationships,
    whole_number,
)

WORKBOOK = "xl/workbook.xml"
_STRINGS = "xl/sharedStrings.xml"
_VISIBLE = "visible"  # state of a sheet
_COLUMN = re.compile(r"([A-Z]{1,3})\d+")  # reference of a cell: "AB12"


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a workbook, one per row, like the CSV reader.

    The first non-empty row of a sheet contains the column names.

    Raises:
        InputError: the workbook is damaged, or no sheet has a column with
            documents.
    """
    archive = open_zip(source)
    strings = []
    if _STRINGS in archive.namelist():
        strings = [_text(item) for item in read_xml(archive, _STRINGS, source)]
    targets = relationships(archive, WORKBOOK, source)
    problems = []
    is_read = False
    for sheet in read_xml(archive, WORKBOOK, source).iter():
        path = targets.get(relationship_id(sheet))
        if (
            local_name(sheet) != "sheet"
            or path is None
            or sheet.get("state", _VISIBLE) != _VISIBLE
        ):
            continue
        inner = source.inner(f"{source.name}/{sheet.get('name', path)}", b"")
        rows = _rows(archive, path, strings, source)
        _, names = next(rows, (0, {}))
        if not names:  # an empty sheet, or a chart
            continue
        try:
            columns_read(list(names.values()), inner)
        except InputError as error:
            problems.append(error)
            continue
        is_read = True
        yield from row_documents(inner, _named_cells(rows, names))
    if not is_read:
        raise (
            problems[0]
            if problems
            else InputError(
                f"{source.name}: has no rows; give a workbook with documents"
            )
        )


def _named_cells(
    rows: Iterator[tuple[int, dict[int, str]]], names: Mapping[int, str]
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yields the number of each row, and its cells by column name."""
    for number, cells in rows:
        yield (
            number,
            {name: cells.get(column, "") for column, name in names.items()},
        )


def _rows(
    archive: zipfile.ZipFile, path: str, strings: list[str], source: Source
) -> Iterator[tuple[int, dict[int, str]]]:
    """Yields the number of each non-empty row, and its cells by column number."""
    number = 0
    for row in read_xml(archive, path, source).iter():
        if local_name(row) != "row":
            continue
        source.check_time()
        number = whole_number(row.get("r", "")) or number + 1
        cells: dict[int, str] = {}
        column = 0
        for cell in row:
            reference = _COLUMN.fullmatch(cell.get("r", ""))
            if reference:
                column = _column(reference[1])
            else:
                column = column + 1
            text = _cell(cell, strings).strip()
            if text:
                cells[column] = text
        if cells:
            yield number, cells


def _column(letters: str) -> int:
    """Returns the number of a column: 1 for "A", 27 for "AA"."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _cell(cell: Element, strings: list[str]) -> str:
    """Returns the displayed value of a cell; "" for an error such as #N/A."""
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return _text(cell)
    value = next(
        (child.text or "" for child in cell if local_name(child) == "v"), ""
    )
    if kind == "s":
        index = whole_number(value)
        if index is not None and index < len(strings):
            return strings[index]
        return ""
    return "" if kind == "e" else value


def _text(element: Element) -> str:
    """Returns the text of a cell, without pronunciation (phonetic) text."""
    parts = []
    for child in element:
        if local_name(child) == "t":
            parts.append(child.text or "")
        elif local_name(child) != "rPh":
            parts.append(_text(child))
    return "".join(parts)
