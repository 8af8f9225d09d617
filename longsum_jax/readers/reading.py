"""Reads documents from files, folders, patterns and archives of any supported kind."""

import os
from collections.abc import Callable, Iterator

from longsum_jax.errors import InputError
from longsum_jax.readers import slack
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.paths import STDIN, expand, printable
from longsum_jax.readers.registry import kind_of
from longsum_jax.readers.source import ReadOptions, Source, read_content


def read_documents(
    *paths: str | os.PathLike[str],
    options: ReadOptions | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    exclude: str | os.PathLike[str] | None = None,
) -> Iterator[Document]:
    """Yields documents one by one.

    Args:
        *paths: files, folders, glob patterns, file:// URLs; "-" is standard input.
        options: options and limits of reading.
        on_failure: callback for every document that cannot be read; reading continues with the
            others. By default the first failure raises an error.
        exclude: folder to skip if it lies inside another one.

    Yields:
        Documents, in the order of ``paths``; archives, mailboxes and tables yield several.

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
    """Yields the documents of a file, and failures for unreadable parts."""
    name = "standard input" if path == STDIN else printable(path)
    if path != STDIN and os.path.isdir(path):  # see ``expand``
        yield from _read_folder(Source(name, path, b"", options))
        return
    try:
        content = read_content(None if path == STDIN else path, name, options.max_bytes)
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
    """Yields the documents of an attachment."""
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
