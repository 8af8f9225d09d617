"""Reads the documents of one file, of its attachments and of the archives in it."""

from collections.abc import Iterator

from longsum_jax.errors import InputError
from longsum_jax.readers import slack
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.registry import kind_of
from longsum_jax.readers.source import Source, too_large


def read_source(source: Source) -> Iterator[Document | Failure]:
    """Yields the documents of a file, and failures for unreadable parts."""
    try:
        kind = kind_of(source)
        if kind.read is not None:
            for item in kind.read(source):
                yield from (
                    _read_inner(item) if isinstance(item, Source) else (item,)
                )
            return
        _check_depth(source, source.depth + 1)
        empty = True
        assert kind.unpack is not None
        for inner in kind.unpack(source):
            empty = False
            if isinstance(inner, Failure):
                yield inner
            else:
                yield from read_source(inner)
        if empty:
            raise InputError(f"{source.name}: holds no files")
    except InputError as error:
        yield Failure.of(source.name, error)
    except MemoryError:
        yield Failure.of(source.name, too_large(source.name, source.options))


def read_folder(source: Source) -> Iterator[Document | Failure]:
    """Yields the conversations of a Slack export in the folder ``source.path``."""
    try:
        yield from slack.read_folder(source)
    except InputError as error:
        yield Failure.of(source.name, error)


def _read_inner(source: Source) -> Iterator[Document | Failure]:
    """Yields the documents of an attachment."""
    try:
        _check_depth(source, source.depth)
    except InputError as error:
        yield Failure.of(source.name, error)
        return
    yield from read_source(source)


def _check_depth(source: Source, depth: int) -> None:
    if depth > source.options.max_depth:
        raise InputError(
            f"{source.name}: archives nested deeper than "
            f"max_depth={source.options.max_depth}; raise it (--max_depth), or unpack them"
        )
