"""Jupyter notebooks (nbformat 4): Markdown cells are read, code and its output are removed."""

from collections.abc import Iterator
from typing import Any

from longsum_jax.errors import InputError
from longsum_jax.files import parse_json
from longsum_jax.readers.document import Block, Document
from longsum_jax.readers.markdown import markdown_blocks, markdown_document
from longsum_jax.readers.source import Source


def read(source: Source) -> Iterator[Document]:
    """Reads one document.

    Raises:
        InputError: the file is not a notebook, or has no text.
    """
    text, notes = source.decoded()
    try:
        notebook = parse_json(text)
    except ValueError as error:
        raise InputError(f"{source.name}: not valid JSON ({error})") from None
    try:
        blocks = [
            block for cell in notebook["cells"] for block in _blocks(cell)
        ]
    except (LookupError, TypeError):
        raise InputError(
            f"{source.name}: not a notebook: its cells must have a type and a source; open it in "
            "Jupyter and save it"
        ) from None
    yield markdown_document(source, blocks, notes=notes)


def _blocks(cell: dict[str, Any]) -> Iterator[tuple[Block, bool]]:
    """Yields the blocks of a cell, each with True if it is code."""
    lines = cell["source"]
    if isinstance(lines, str):
        text = lines
    else:
        text = "".join(lines)
    if cell["cell_type"] == "markdown":
        yield from markdown_blocks(text)
    elif text.strip():  # code, or a raw cell for another program
        yield Block(text.strip("\n")), True
