"""Expands paths, folders, patterns, file:// URLs and standard input to files."""

import glob
import os
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from longsum_jax.errors import in_one_line
from longsum_jax.readers import slack
from longsum_jax.readers.document import Failure
from longsum_jax.text.arrow import datasets_metadata

STDIN = "-"


def printable(path: str) -> str:
    """Returns a path as one printable line; other characters are escaped."""
    return in_one_line(path)


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the shortest suffixes of paths that are distinct, in printable characters."""
    paths = [printable(path) for path in paths]
    parts = [Path(path).parts for path in paths]
    names = paths
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(components[-length:]) for components in parts]
        if len(set(names)) == len(set(paths)):
            break
    return names


def expand(
    paths: Sequence[str], exclude: Collection[str] = ()
) -> Iterator[str | Failure]:
    """Yields files in the order of ``paths``; the files of folders and patterns are sorted.

    Folders are read recursively, without hidden files; a folder that several
    links lead to is read once. A folder with a Slack export is yielded instead
    of its files.

    Args:
        paths: paths from the user.
        exclude: folders and files to skip inside folders and among the matches
            of patterns, because output is written to them.
    """
    excluded = {os.path.realpath(path) for path in exclude}
    for path in paths:
        if path == STDIN or os.path.exists(path):
            yield from _existing(path, excluded)
        elif path.startswith("file:"):
            yield from _local_url(path, excluded)
        elif "://" in path:
            yield _failed(
                path,
                "only files of this machine are read; fetch it first, or give "
                "rows of cloud storage as json:URL",
            )
        elif glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches:
                yield _failed(
                    path, "no file matches the pattern; check the path"
                )
            for match in matches:
                if os.path.isfile(match):
                    if os.path.realpath(match) not in excluded:
                        yield match
                elif "**" not in path:
                    yield from _existing(match, excluded)
        else:
            yield _failed(path, "no such file; check the path")


def _local_url(url: str, excluded: Collection[str]) -> Iterator[str | Failure]:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        remedy = "only files of this machine are read; write file:/// before a whole path"
        yield _failed(url, f"lies on {parts.netloc}; {remedy}")
        return
    path = urllib.request.url2pathname(parts.path)
    if "\0" not in path and os.path.exists(path):
        yield from _existing(path, excluded)
    else:
        yield _failed(url, "no such file; check the path")


def _existing(path: str, excluded: Collection[str]) -> Iterator[str | Failure]:
    if os.path.isdir(path):
        yield from _files_below(path, excluded)
    else:
        yield path


def _files_below(
    folder: str, excluded: Collection[str]
) -> Iterator[str | Failure]:
    """Yields the files of a folder, without ``excluded`` folders and files (real paths)."""
    if os.path.realpath(folder) in excluded:
        yield _failed(
            folder,
            "summaries would be written into this folder; name another for them",
        )
        return
    failures: list[OSError] = []
    visited = set()
    is_empty = True
    for directory, folders, files in os.walk(
        folder, followlinks=True, onerror=failures.append
    ):
        status = os.stat(directory)
        real_directory = os.path.realpath(directory)
        if (
            status.st_dev,
            status.st_ino,
        ) in visited or real_directory in excluded:
            folders.clear()  # a link to a parent or sibling folder
            continue
        visited.add((status.st_dev, status.st_ino))
        if slack.is_folder(directory):
            is_empty = False
            folders.clear()
            yield directory
            continue
        folders[:] = sorted(
            name for name in folders if not name.startswith(".")
        )
        for name in sorted({*files} - datasets_metadata(files)):
            if (
                name.startswith(".")
                or os.path.join(real_directory, name) in excluded
            ):
                continue
            is_empty = False
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                yield path
            elif os.path.islink(path) and not os.path.exists(path):
                yield _failed(path, "a link that leads nowhere")
            else:
                yield _failed(path, "no regular file")
    for error in failures:
        failed = os.fspath(error.filename)
        yield _failed(
            failed, f"cannot read the folder ({error.strerror}); check it"
        )
    if is_empty and not failures:
        yield _failed(folder, "the folder holds no files; check the path")


def _failed(path: str, problem: str) -> Failure:
    return Failure.of(printable(path), f"{printable(path)}: {problem}")
