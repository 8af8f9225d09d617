"""Reads documents from files, folders, patterns and archives of any supported kind."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Generator, Iterator

from longsum_jax.errors import InputError
from longsum_jax.readers import sandbox
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.paths import STDIN, expand, printable
from longsum_jax.readers.source import ReadOptions, Source, read_content


def read_documents(
    *paths: str | os.PathLike[str],
    options: ReadOptions | None = None,
    on_failure: Callable[[Failure], None] | None = None,
    exclude: Collection[str | os.PathLike[str]] = (),
) -> Iterator[Document]:
    """Reads the documents of files, folders, patterns and archives, one at a time.

    This is a generator: files are read, and errors raised, in the course of the
    iteration.

    Args:
        *paths: files, folders, glob patterns, file:// URLs; "-" is standard
            input.
        options: options and limits of reading; None for the defaults.
        on_failure: callback for every document that cannot be read; reading
            continues with the others. None to raise an error at the first
            failure.
        exclude: folders and files to skip inside folders and among the matches
            of patterns.

    Yields:
        Documents, in the order of ``paths``; archives, mailboxes and tables
        yield several.

    Raises:
        InputError: a document cannot be read and ``on_failure`` is None, or an
            argument is not a path, such as a list of paths.
    """
    options = options or ReadOptions()
    for path in expand(
        [_name(path) for path in paths], [os.fspath(path) for path in exclude]
    ):
        if isinstance(path, Failure):
            _report(path, on_failure)
            continue
        with contextlib.closing(read_file(path, options)) as results:
            for result in results:
                if isinstance(result, Document):
                    yield result
                else:
                    _report(result, on_failure)


def _report(
    failure: Failure, on_failure: Callable[[Failure], None] | None
) -> None:
    """Passes a failure to the callback; raises InputError if there is none."""
    if on_failure is None:
        raise InputError(failure.problem)
    on_failure(failure)


def read_file(
    path: str, options: ReadOptions
) -> Generator[Document | Failure, None, None]:
    """Yields the documents of a file, and failures for unreadable parts."""
    if path == STDIN:
        name = "standard input"
    else:
        name = printable(path)
    # with a Slack export, see ``expand``
    is_folder = path != STDIN and os.path.isdir(path)
    content = b""
    if not is_folder:
        try:
            content = read_content(
                None if path == STDIN else path, name, options.max_bytes
            )
        except InputError as error:
            yield Failure.of(name, error)
            return
    if options.sandbox and not _are_readers_registered():
        yield from sandbox.read(
            Source(name, path, content, options), is_folder=is_folder
        )
        return
    from longsum_jax.readers.contents import read_folder, read_source

    source = Source(
        name, path, content, dataclasses.replace(options, sandbox=False)
    )
    yield from read_folder(source) if is_folder else read_source(source)


def _are_readers_registered() -> bool:
    """Returns True if readers of the user were registered, which only this process has."""
    # The registry is imported by whoever changes it. This process does not need
    # it otherwise.
    registry = sys.modules.get("longsum_jax.readers.registry")
    return registry is not None and registry.is_changed()


def _name(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise InputError(
            f"a path is of type {type(path).__name__}; give paths one by one, as "
            "read_documents(*paths) does"
        )
    return os.fspath(path)
