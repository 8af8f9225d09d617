"""Checks of texts and lists that users pass to a loaded model."""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from longsum_jax.errors import InputError, counted
from longsum_jax.text.documents import check_characters

# The end of errors about names of files in place of texts.
READERS = "longsum_jax.readers.read_documents(path) reads files"


def listed(texts: Any, name: str) -> list[Any]:
    """Returns a list of texts for one text or several; raises InputError for other types.

    Args:
        texts: argument to check; list items are not checked.
        name: name of the argument.
    """
    if isinstance(texts, str):
        return [texts]
    # Iterating over dictionaries, sets or named tuples (``readers.Document``)
    # yields no texts.
    is_record = isinstance(texts, bytes | Mapping | Set) or hasattr(
        texts, "_fields"
    )
    if is_record or not isinstance(texts, Iterable):
        raise InputError(
            f"{name} is of type {type(texts).__name__}; give a string, or a list of strings"
        )
    return list(texts)


def one_for_each(
    documents: Sequence[Any], values: Any, name: str, default: list[Any]
) -> list[Any]:
    """Returns a list of one value for each document.

    Args:
        documents: documents that the values belong to.
        values: argument to check, of any type that can be iterated over; None
            or no values for the default.
        name: name of the argument.
        default: values if none are given.

    Raises:
        InputError: another number of values, or a text.
    """
    if values is None:
        return default
    if isinstance(values, str):
        raise InputError(
            f"{name} is a text; give a list of one for each document"
        )
    result = listed(values, name) or default
    if len(result) != len(documents):
        raise InputError(
            f"{name} has {counted(len(result), 'item')} for "
            f"{counted(len(documents), 'document')}; give one for each"
        )
    return result


def check_document(text: Any, name: str, query: Any = None) -> None:
    """Raises InputError for an empty document, and for a document or query that is not
    a text or contains a lone surrogate.

    Args:
        text: text of the document.
        name: name of the document in the message.
        query: question or topic, or None.
    """
    if not isinstance(text, str):
        hint = f": {READERS}" if isinstance(text, os.PathLike) else ""
        raise InputError(
            f"{name} is of type {type(text).__name__}; give its text, a string{hint}"
        )
    if not text.strip():
        raise InputError(f"{name} is empty; give it some text or leave it out")
    if query is not None and not isinstance(query, str):
        raise InputError(
            f"the query of {name} is of type {type(query).__name__}; give a string or None"
        )
    for value in (text, query or ""):
        check_characters(value, name, "decode its source again")
