"""Expands paths, folders, patterns, file:// URLs and standard input to files, and names paths."""

import glob
import os
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from longsum_jax.errors import in_one_line
from longsum_jax.readers import slack
from longsum_jax.readers.document import Failure

STDIN = "-"


def printable(path: str) -> str:
    """Returns a path in one line that any terminal shows; strange characters are escaped."""
    return in_one_line(path)


def short_names(paths: Sequence[str]) -> list[str]:
    """Returns the shortest ends of paths that tell them apart, in characters that can be shown."""
    paths = [printable(path) for path in paths]
    parts = [Path(path).parts for path in paths]
    names = paths
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-length:]) for each in parts]
        if len(set(names)) == len(set(paths)):
            break
    return names


def expand(paths: Sequence[str], exclude: str | None = None) -> Iterator[str | Failure]:
    """Yields files in the order of ``paths``, those of folders and patterns sorted.

    Folders are read with all that lies in them but hidden files; a folder that several links lead
    to is read once. A folder that is an export of Slack is yielded in place of its files.

    Args:
        paths: what the user gave.
        exclude: folder that is left out, for what is written there.
    """
    for path in paths:
        if path == STDIN or os.path.exists(path):
            yield from _existing(path, exclude)
        elif path.startswith("file:"):
            yield from _local_url(path, exclude)
        elif "://" in path:
            yield _failed(path, "only files of this machine are read; fetch it first")
        elif glob.has_magic(path):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches:
                yield _failed(path, "no file matches the pattern; check the path")
            for match in matches:
                if os.path.isfile(match) or "**" not in path:
                    yield from _existing(match, exclude)
        else:
            yield _failed(path, "no such file; check the path")


def _local_url(url: str, exclude: str | None) -> Iterator[str | Failure]:
    parts = urllib.parse.urlsplit(url)
    if parts.netloc not in ("", "localhost"):
        remedy = "only files of this machine are read; write file:/// before a whole path"
        yield _failed(url, f"lies on {parts.netloc}; {remedy}")
        return
    path = urllib.request.url2pathname(parts.path)
    if "\0" not in path and os.path.exists(path):
        yield from _existing(path, exclude)
    else:
        yield _failed(url, "no such file; check the path")


def _existing(path: str, exclude: str | None) -> Iterator[str | Failure]:
    if os.path.isdir(path):
        yield from _files_below(path, exclude)
    else:
        yield path


def _files_below(folder: str, exclude: str | None) -> Iterator[str | Failure]:
    left_out = os.path.realpath(exclude) if exclude else None
    if os.path.realpath(folder) == left_out:
        yield _failed(folder, "summaries would be written into this folder; name another for them")
        return
    failures: list[OSError] = []
    visited = set()
    found = False
    for directory, folders, files in os.walk(folder, followlinks=True, onerror=failures.append):
        status = os.stat(directory)
        if (status.st_dev, status.st_ino) in visited or os.path.realpath(directory) == left_out:
            folders.clear()  # a link to a folder above or beside
            continue
        visited.add((status.st_dev, status.st_ino))
        if slack.is_folder(directory):
            found = True
            folders.clear()
            yield directory
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.startswith("."):
                continue
            found = True
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                yield path
            elif os.path.islink(path) and not os.path.exists(path):
                yield _failed(path, "a link that leads nowhere")
            else:
                yield _failed(path, "no regular file")
    for error in failures:
        place = os.fspath(error.filename)
        yield _failed(place, f"cannot read the folder ({error.strerror}); check it")
    if not found and not failures:
        yield _failed(folder, "the folder holds no files")


def _failed(path: str, problem: str) -> Failure:
    return Failure.of(printable(path), f"{printable(path)}: {problem}")
