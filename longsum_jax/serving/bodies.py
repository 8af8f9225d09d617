"""Reads request bodies: JSON and uploaded files, within a size limit."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple, NoReturn

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from longsum_jax.errors import in_one_line
from longsum_jax.readers import Document, Failure, ReadOptions, sandbox
from longsum_jax.readers.paths import STDIN
from longsum_jax.readers.source import Source
from longsum_jax.serving.uploads import Uploads
from longsum_jax.summarization.summary import Request

_MAX_FILES = 100
_MAX_FIELDS = 100
_TEXT_FIELDS = ("text", "query", "model")  # of a form, never numbers
# The errors of readers that name a limit of the server.
_LIMIT = re.compile(r"max_(bytes|pages|seconds|depth)\b|times its size")


class Body(NamedTuple):
    """The documents of a request, or why they cannot be read, and its fields."""

    documents: list[Request | Failure]
    fields: dict[str, Any]


def _media_type(request: HttpRequest) -> str:
    content_type = request.headers.get("content-type", "")
    return content_type.partition(";")[0].strip().lower()


async def read_json(request: HttpRequest, uploads: Uploads) -> dict[str, Any]:
    """Returns the object in a JSON body.

    Raises:
        HTTPException: 415 for another content type, 413 for a long body, 408 if
            no data arrive, 400 for invalid JSON.
    """
    if _media_type(request) != "application/json":
        raise HTTPException(415, "the content type must be application/json")
    content = b"".join([chunk async for chunk in uploads.chunks(request)])
    try:
        text = content.decode("utf-8")
        value = await asyncio.to_thread(
            json.loads, text, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        raise HTTPException(
            400, "the body is not valid JSON; send an object in UTF-8"
        ) from None
    if not isinstance(value, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)  # NaN and Infinity are not JSON


async def read_documents(
    request: HttpRequest, uploads: Uploads, options: ReadOptions
) -> Body:
    """Returns the documents of ``POST /v1/summaries``.

    Args:
        request: request with a body of JSON or multipart form data.
        uploads: the bodies that are being read.
        options: limits of reading files, which a child process reads.

    Raises:
        HTTPException: the body is invalid.
    """
    if _media_type(request) == "multipart/form-data":
        return await _read_form(request, uploads, options)
    fields = await read_json(request, uploads)
    if ("text" in fields) == ("documents" in fields):
        raise HTTPException(
            422, "give either text, a string, or documents, a list of strings"
        )
    query = fields.pop("query", None)
    if query == "":
        query = None
    if "documents" in fields:
        texts = fields.pop("documents")
    else:
        texts = [fields.pop("text")]
    return Body(list(as_requests(texts, query)), fields)


def as_requests(texts: Any, query: str | None = None) -> list[Request]:
    """Returns the documents of a JSON body.

    Args:
        texts: list of texts; whether they are strings is checked later.
        query: question or topic of the summaries.

    Raises:
        HTTPException: 422 if there is no list or no text.
    """
    if not isinstance(texts, list) or not texts:
        raise HTTPException(
            422, "documents must be a list of at least one string"
        )
    return [
        Request(text, f"document {i}", query) for i, text in enumerate(texts, 1)
    ]


async def _read_form(
    request: HttpRequest, uploads: Uploads, options: ReadOptions
) -> Body:
    parser = MultiPartParser(
        request.headers,
        uploads.chunks(request),
        max_files=_MAX_FILES,
        max_fields=_MAX_FIELDS,
        max_part_size=uploads.max_bytes,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError, LookupError):
        raise HTTPException(
            400, "the body is not valid multipart form data"
        ) from None
    fields: dict[str, Any] = {}
    results: list[Document | Failure] = []
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                content = await value.read()
                results += await asyncio.to_thread(
                    _read_file, value.filename or "upload", content, options
                )
            else:
                if name in _TEXT_FIELDS:
                    fields[name] = value
                else:
                    fields[name] = _value(value)
    finally:
        await form.close()
    query = fields.pop("query", None)
    documents: list[Request | Failure] = []
    for result in results:
        if isinstance(result, Failure):
            documents.append(result)
            continue
        lead = query or result.query
        documents.append(
            Request(result.text, result.name, lead, result.outline)
        )
    if "text" in fields:
        documents += as_requests([fields.pop("text")], query)
    if not documents:
        raise HTTPException(
            422, "the form holds no file; add one as a part with a file name"
        )
    return Body(documents, fields)


def _value(text: str) -> Any:
    """Returns a form field as a number or boolean if it is one, otherwise as a text."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text
    if isinstance(value, int | float):
        return value
    return text


def _read_file(
    name: str, content: bytes, options: ReadOptions
) -> list[Document | Failure]:
    """Returns the documents of an uploaded file; the name only determines the kind."""
    name = (
        in_one_line(PurePosixPath(name.replace("\\", "/")).name)[:200]
        or "upload"
    )
    return list(
        sandbox.read(Source(name, STDIN, content, options), is_folder=False)
    )


def failure_error(failure: Failure) -> HTTPException:
    """Returns the error of an unreadable file: 413 beyond a limit, else 422."""
    if _LIMIT.search(failure.problem):
        reason = failure.problem.partition(";")[0]
        return HTTPException(
            413, f"{reason}; send less, or ask for a higher limit"
        )
    return HTTPException(422, failure.problem)


def boolean(fields: Mapping[str, Any], name: str) -> bool:
    """Returns a boolean field; False if it is missing or null.

    Raises:
        HTTPException: 422 if the field is neither true nor false.
    """
    value = fields.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise HTTPException(422, f"{name} must be true or false")
    return value


async def wait_for_disconnect(request: HttpRequest) -> NoReturn:
    """Waits until the client closes the connection, after its body was read.

    Raises:
        ClientDisconnect: the connection is closed.
    """
    while (await request.receive())["type"] != "http.disconnect":
        pass
    raise ClientDisconnect
