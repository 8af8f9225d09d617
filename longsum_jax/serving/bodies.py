"""Reads request bodies: JSON and uploaded files, within a size limit."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request as HttpRequest

from longsum_jax.errors import InputError, in_one_line
from longsum_jax.inference.summary import Request
from longsum_jax.readers import Document, ReadOptions, sandbox
from longsum_jax.readers.paths import STDIN
from longsum_jax.readers.source import Source

_MAX_FILES = 100
_MAX_FIELDS = 100


class Body(NamedTuple):
    """The documents of a request, and its other fields."""

    documents: list[Request]
    fields: dict[str, Any]


async def _chunks(request: HttpRequest, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yields the body; raises HTTPException 413 as soon as it exceeds the limit."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise HTTPException(413, f"the body has more than {max_bytes:,} bytes; send less")
        yield chunk


async def read_json(request: HttpRequest, max_bytes: int) -> dict[str, Any]:
    """Returns the object in a JSON body.

    Raises:
        HTTPException: 415 for another content type, 413 for a long body, 400 for invalid JSON.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    content = b"".join([chunk async for chunk in _chunks(request, max_bytes)])
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not valid JSON; send an object in UTF-8") from None
    if not isinstance(value, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return value


async def read_documents(request: HttpRequest, max_bytes: int, options: ReadOptions) -> Body:
    """Returns the documents of ``POST /v1/summaries``.

    Args:
        request: request with a body of JSON or multipart form data.
        max_bytes: maximum size of the body.
        options: limits of reading files, which a child process reads.

    Raises:
        HTTPException: the body is invalid.
        InputError: a document cannot be read.
    """
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await _read_form(request, max_bytes, options)
    fields = await read_json(request, max_bytes)
    if ("text" in fields) == ("documents" in fields):
        raise HTTPException(422, "give either text, a string, or documents, a list of strings")
    query = fields.pop("query", None)
    texts = fields.pop("documents") if "documents" in fields else [fields.pop("text")]
    if not isinstance(texts, list) or not texts:
        raise HTTPException(422, "documents must be a list of at least one string")
    documents = [Request(text, f"document {i}", query) for i, text in enumerate(texts, 1)]
    return Body(documents, fields)


async def _read_form(request: HttpRequest, max_bytes: int, options: ReadOptions) -> Body:
    parser = MultiPartParser(
        request.headers,
        _chunks(request, max_bytes),
        max_files=_MAX_FILES,
        max_fields=_MAX_FIELDS,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError):
        raise HTTPException(400, "the body is not valid multipart form data") from None
    fields: dict[str, Any] = {}
    documents: list[Document] = []
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                content = await value.read()
                documents += await asyncio.to_thread(
                    _read_file, value.filename or "upload", content, options
                )
            else:
                fields[name] = _value(value)
    finally:
        await form.close()
    if not documents:
        raise HTTPException(422, "the form holds no file; add one as a part with a file name")
    query = fields.pop("query", None)
    requests = [
        Request(document.text, document.name, query or document.query, document.outline)
        for document in documents
    ]
    return Body(requests, fields)


def _value(text: str) -> Any:
    """Returns a form field as a number or boolean if it is one, otherwise as a text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float) else text


def _read_file(name: str, content: bytes, options: ReadOptions) -> list[Document]:
    """Returns the documents of an uploaded file; the name only determines the kind."""
    name = in_one_line(PurePosixPath(name.replace("\\", "/")).name)[:200] or "upload"
    documents = []
    for result in sandbox.read(Source(name, STDIN, content, options), is_folder=False):
        if not isinstance(result, Document):
            raise InputError(result.problem)
        documents.append(result)
    return documents


def boolean(fields: Mapping[str, Any], name: str) -> bool:
    """Returns a boolean field, by default False.

    Raises:
        HTTPException: 422 if the field is neither true nor false.
    """
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise HTTPException(422, f"{name} must be true or false")
    return value
