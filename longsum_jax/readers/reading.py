"""Reads documents of files, folders, patterns and archives, whatever their kind."""

import os
import sys
from collections.abc import Callable, Iterator

from longsum_jax.errors import InputError
from longsum_jax.files import beyond
from longsum_jax.readers import slack
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.paths import STDIN, expand, printable
from longsum_jax.readers.registry import kind_of
from longsum_jax.readers.source import ReadOptions, Source


def read_documents(
    *paths: str | os.PathLike[str],
    options: ReadOptions | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    exclude: str | os.PathLike[str] | None = None,
) -> Iterator[Document]:
    """Reads documents one after another.

    Args:
        *paths: files, folders, glob patterns, file:// URLs; "-" is standard input.
        options: what is left out, and limits.
        on_failure: called with every document that cannot be read; the others follow. By default
            the first of them is an error.
        exclude: folder that is left out when it lies in another one.

    Yields:
        Documents, in the order of ``paths``; several of archives, mailboxes and tables.

    Raises:
        InputError: a document cannot be read and ``on_failure`` is None.
    """
    options = options or ReadOptions()
    left_out = None if exclude is None else os.fspath(exclude)
    for path in expand([_name(path) for path in paths], left_out):
        found = [path] if isinstance(path, Failure) else read_file(path, options)
        for document in found:
            if isinstance(document, Document):
                yield document
            elif on_failure is None:
                raise InputError(document.problem)
            else:
                on_failure(document)


def read_file(path: str, options: ReadOptions) -> Iterator[Document | Failure]:
    """Yields the documents of a file, and what could not be read of it."""
    name = "standard input" if path == STDIN else printable(path)
    if path != STDIN and os.path.isdir(path):  # see ``expand``
        yield from _read_folder(Source(name, path, b"", options))
        return
    try:
        content = _content(path, name, options.max_bytes)
    except InputError as error:
        yield Failure.of(name, error)
        return
    yield from _read(Source(name, path, content, options))


def _read_folder(source: Source) -> Iterator[Document | Failure]:
    try:
        yield from slack.read_folder(source)
    except InputError as error:
        yield Failure.of(source.name, error)


def _name(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"a path is of type {type(path).__name__}; give paths one by one, as "
            "read_documents(*paths) does"
        )
    return os.fspath(path)


def _content(path: str, name: str, max_bytes: int) -> bytes:
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(max_bytes + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise InputError(f"{name}: no such file; check the path") from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{name}: cannot read the file ({reason}); check it") from None
    if len(content) > max_bytes:
        raise InputError(beyond(name, max_bytes))
    return content


def _read(source: Source) -> Iterator[Document | Failure]:
    try:
        kind = kind_of(source)
        if kind.read is not None:
            for found in kind.read(source):
                yield from _read_inner(found) if isinstance(found, Source) else (found,)
            return
        _check_depth(source, source.depth + 1)
        empty = True
        assert kind.unpack is not None
        for inner in kind.unpack(source):
            empty = False
            if isinstance(inner, Failure):
                yield inner
            else:
                yield from _read(inner)
        if empty:
            raise InputError(f"{source.name}: holds no files")
    except InputError as error:
        yield Failure.of(source.name, error)
    except MemoryError:
        yield Failure.of(source.name, f"{source.name}: too large for the memory of this machine")


def _read_inner(source: Source) -> Iterator[Document | Failure]:
    """Yields the documents of something that lies beside the document of its file."""
    try:
        _check_depth(source, source.depth)
    except InputError as error:
        yield Failure.of(source.name, error)
        return
    yield from _read(source)


def _check_depth(source: Source, depth: int) -> None:
    if depth > source.options.max_depth:
        raise InputError(
            f"{source.name}: archives inside one another deeper than "
            f"max_depth={source.options.max_depth}; raise it (--max_depth), or unpack them"
        )
