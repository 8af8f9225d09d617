"""JSON Lines, one document per line, and JSON files: an object, or a list of objects or texts."""

from collections.abc import Iterator, Mapping
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.files import parse_json
from longsum_jax.readers import slack
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.rows import parsed_object, row_documents
from longsum_jax.readers.source import Source


def read(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a file with one object per line."""
    text, _ = source.decoded()
    return row_documents(source, _lines(text, source))


def read_json(source: Source) -> Iterator[Document | Failure]:
    """Reads the documents of a JSON file; messages of Slack form one document.

    Raises:
        InputError: the file is not valid JSON.
    """
    text, _ = source.decoded()
    try:
        value = parse_json(text)
    except ValueError as error:
        if "\n{" in text.strip():  # JSON Lines with the wrong file name
            return read(source)
        raise InputError(f"{source.name}: not valid JSON ({error})") from None
    if slack.are_messages(value):
        return iter([slack.read_messages(source, value)])
    objects = value if isinstance(value, list) else [value]
    return row_documents(source, _objects(objects, source))


def _lines(
    text: str, source: Source
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, parsed_object(line, f"{source.name}:{number}")


def _objects(
    objects: list[Any], source: Source
) -> Iterator[tuple[int, Mapping[str, Any] | InputError]]:
    for number, value in enumerate(objects, 1):
        if isinstance(value, dict):
            yield number, value
        elif isinstance(value, str):  # a plain text
            yield number, {source.options.document_key.split("|")[0]: value}
        else:
            name = f"{source.name}:{number}"
            kind = type(value).__name__
            remedy = 'give each document as {"document": "its text"}'
            yield (
                number,
                InputError(
                    f"{name}: expected a JSON object, got {kind}; {remedy}"
                ),
            )
