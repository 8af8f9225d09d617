"""Table rows as documents: selects the columns of text, title, query and id."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.files import parse_json
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.plain_text import text_blocks
from longsum_jax.readers.source import Source
from longsum_jax.text.rows import DOCUMENT_NAMES, choose_keys


def row_documents(
    source: Source, rows: Iterator[tuple[int, Mapping[str, Any] | InputError]]
) -> Iterator[Document | Failure]:
    """Yields the document of every row, or its failure.

    Args:
        source: source of the table.
        rows: number and fields of each row, or its error.
    """
    empty = True
    for number, row in rows:
        empty = False
        name = f"{source.name}:{number}"
        try:
            if isinstance(row, InputError):
                raise row
            yield _document(source, row, name)
        except InputError as error:
            yield Failure.of(name, error)
    if empty:
        raise InputError(
            f"{source.name}: the file is empty; give rows with documents"
        )


def columns_read(names: Sequence[str], source: Source) -> list[str]:
    """Returns the columns of a table that ``row_documents`` reads.

    Raises:
        InputError: no column contains documents.
    """
    options = source.options
    keys = (
        *options.document_key.split("|"),
        _document_key(names, options.document_key, source.name),
    )
    return [
        name
        for name in names
        if name in (*keys, options.query_key, "title", "id")
    ]


def _document(source: Source, row: Mapping[str, Any], name: str) -> Document:
    key = _document_key(row, source.options.document_key, name)
    value = row[key]
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = "\n".join(value)
    if value is None:
        value = ""
    if not isinstance(value, str):
        remedy = "correct or remove the row"
        if isinstance(value, dict | list):
            remedy = "write what it holds as JSON lines, for example with jq"
        raise InputError(
            f'{name}: "{key}" must be a string, got {type(value).__name__}; {remedy}'
        )
    value = value.replace("\r\n", "\n").replace("\r", "\n")
    if not value.strip():
        raise InputError(f'{name}: "{key}" is empty; remove the row')
    query = row.get(source.options.query_key)
    title, id_ = row.get("title"), row.get("id")
    inner = source.inner(name, b"")
    if not isinstance(title, str):
        title = None
    if not isinstance(query, str) or not query.strip():
        query = None
    row_id = None
    if isinstance(id_, str | int):
        row_id = str(id_)
    return inner.document(
        text_blocks(value), title=title, query=query, id=row_id
    )


def _document_key(row: Collection[str], keys: str, name: str) -> str:
    for key in choose_keys(
        row, keys, DOCUMENT_NAMES, name.rpartition(":")[0] or name
    ).split("|"):
        if key in row:
            return key
    if not row:
        raise InputError(f"{name}: has no fields; remove it")
    first = keys.split("|")[0]
    raise InputError(
        f'{name}: no field "{first}"; {did_you_mean(first, row)}; name the one with the document '
        "(--document_key)"
    )


def parsed_object(text: str, name: str) -> Mapping[str, Any] | InputError:
    """Returns a JSON object, or an error if the text is not one."""
    try:
        value = parse_json(text)
    except ValueError as error:
        return InputError(
            f"{name}: not valid JSON ({error}); give one JSON object per line"
        )
    if not isinstance(value, dict):
        return InputError(
            f"{name}: expected a JSON object, got {type(value).__name__}; give one object per line"
        )
    return value
