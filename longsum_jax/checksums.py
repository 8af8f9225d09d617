"""SHA-256 sums of the files in a directory, in the format of ``sha256sum -c SHA256SUMS``.

Call ``write`` last when writing a directory, and ``check`` first when reading
one. A directory without the file (from an older version or another program) is
not verified, unless ``require`` is called: files that this library writes
contain ``MARK``, by which a reader knows that the sums are missing. Files in the
cache of the Hugging Face Hub have their hash as name.
"""

import contextlib
import errno
import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.files import open_regular, read_bytes

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# Entry of the metadata in a file whose directory has sums.
MARK = {"checksums": SUMS}
# The cache names large files by SHA-256 and small ones by their SHA-1 in Git.
_HUB_BLOB = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CHUNK_BYTES = 2**20
# a comment for sha256sum; detects files that are cut short
_HEADER = "# {} sums"


class MissingSumsError(InputError):
    """A directory that this library wrote has lost its sums."""


# Relative path -> the allowed sums: two while a file is being replaced.
_Sums = dict[str, set[str]]


def write(directory: Path, selects: Callable[[str], bool] = bool) -> None:
    """Writes the sums of the files below a directory.

    Subdirectories with their own sums are skipped.

    Args:
        directory: directory that is complete except for its sums.
        selects: predicate on the relative path of a file that selects it; all
            by default.

    Raises:
        OSError: a file cannot be read, or the sums cannot be written.
    """
    names = sorted(filter(selects, _files(directory)))
    sums: _Sums = {}
    for name, digest in zip(names, _digests(directory, names), strict=True):
        if isinstance(digest, OSError):
            raise digest
        sums[name] = {digest}
    _write(directory, sums)


def check(directory: Path, selects: Callable[[str], bool] = bool) -> None:
    """Raises InputError for the first file of a directory that does not match its sum.

    Args:
        directory: directory with or without sums.
        selects: predicate on the relative path of a file that selects it; all
            by default.

    Raises:
        InputError: a file or the sums are damaged; the message names the file.
    """
    for name, problem in compare(directory, selects):
        if problem:
            raise InputError(_changed(directory, name, problem))


def is_marked(metadata: object) -> bool:
    """Returns True for metadata with ``MARK``, of a file whose directory must have sums."""
    return isinstance(metadata, Mapping) and MARK.items() <= metadata.items()


def require(directory: Path) -> None:
    """Raises MissingSumsError if a directory that this library wrote has no sums."""
    if not (directory / SUMS).exists():
        raise MissingSumsError(
            f"{directory / SUMS} is missing, so damaged files would not be noticed; copy the "
            f"directory again, or run longsum verify --unverified {directory} to accept its files"
        )


def compare(
    directory: Path, selects: Callable[[str], bool] = bool
) -> Iterator[tuple[str, str | None]]:
    """Yields the relative path of each file with a sum, and its problem, None if it matches.

    Args:
        directory, selects: arguments as for ``check``.

    Raises:
        InputError: the sums are damaged.
    """
    if not (directory / SUMS).exists():
        return
    sums = _read(directory)
    names = sorted(filter(selects, sums))
    for name, digest in zip(names, _digests(directory, names), strict=True):
        if isinstance(digest, OSError):
            yield name, digest.strerror or type(digest).__name__
        else:
            yield name, None if digest in sums[name] else "its SHA-256 differs"


def names(directory: Path) -> list[str]:
    """Returns the relative paths of the files with a sum, none for a directory without sums.

    Raises:
        InputError: the sums are damaged.
    """
    if not (directory / SUMS).exists():
        return []
    return sorted(_read(directory))


@contextlib.contextmanager
def checking(check: Callable[[Path], None], directory: Path) -> Iterator[None]:
    """Checks a directory concurrently with the block that reads its files.

    Raises:
        InputError: as ``check``, when the block ends, even if the block raises
            an error.
    """
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(check, directory)
        try:
            yield
        finally:
            future.result()


def replace_text(directory: Path, name: str, text: str) -> None:
    """Replaces a file of a directory and its sum; the directory is consistent at any time.

    Raises:
        InputError: the sums are damaged.
        OSError: a file cannot be written.
    """
    if not (directory / SUMS).exists():
        atomic.write_text(directory / name, text)
        return
    sums = _read(directory)
    new = hashlib.sha256(text.encode()).hexdigest()
    _write(directory, sums | {name: sums.get(name, set()) | {new}})
    atomic.write_text(directory / name, text)
    _write(directory, sums | {name: {new}})


def blob_of(path: Path) -> Path | None:
    """Returns the file of the Hugging Face Hub's cache that a path links to, None for others."""
    target = Path(os.path.realpath(path))
    is_blob = target.parent.name == "blobs" and _HUB_BLOB.fullmatch(target.name)
    return target if is_blob else None


def check_blob(blob: Path) -> None:
    """Compares a file with the hash that is its name.

    Args:
        blob: result of ``blob_of``.

    Raises:
        InputError: the file does not match its name.
        OSError: the file cannot be read.
    """
    if len(blob.name) == 64:
        kind, digests = "SHA-256", [digest_of(blob)]
    else:
        kind, digests = "SHA-1", _sha1_digests(blob)
    if blob.name not in digests:
        raise InputError(
            f"{blob}: its {kind} differs from its name; delete it and fetch it again"
        )


def _sha1_digests(path: Path) -> list[str]:
    """Returns the SHA-1 of a file in Git and, for servers between us and the Hub, without Git's
    header.
    """
    plain = hashlib.sha1(usedforsecurity=False)
    with open_regular(path) as file:
        size = file.seek(0, os.SEEK_END)
        in_git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        file.seek(0)
        while chunk := file.read(_CHUNK_BYTES):
            plain.update(chunk)
            in_git.update(chunk)
    return [in_git.hexdigest(), plain.hexdigest()]


def digest_of(path: Path) -> str:
    """Returns the SHA-256 of a file, 64 hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (
        InputError
    ) as error:  # a pipe or a device, on which reading would block
        raise OSError(errno.EINVAL, str(error)) from None


def _digests(directory: Path, names: Iterable[str]) -> Iterator[str | OSError]:
    """Yields the sums or read errors of files, several of which are read concurrently."""
    paths = [directory / name for name in names]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(_digest_or_error, paths)


def _digest_or_error(path: Path) -> str | OSError:
    try:
        return digest_of(path)
    except OSError as error:
        return error


def _files(directory: Path) -> Iterator[str]:
    """Yields the relative paths of all files below a directory, except in directories with sums."""
    for folder, subfolders, names in os.walk(directory):
        has_sums = [
            name for name in subfolders if Path(folder, name, SUMS).exists()
        ]
        subfolders[:] = [name for name in subfolders if name not in has_sums]
        for name in names:
            relative = Path(folder, name).relative_to(directory).as_posix()
            if relative != SUMS:
                yield relative


def _read(directory: Path) -> _Sums:
    """Returns the sums in a directory's SHA256SUMS."""
    path = directory / SUMS
    try:
        lines = read_bytes(path).decode().split("\n")
    except (OSError, ValueError) as error:
        raise InputError(_changed(directory, SUMS, str(error))) from error
    if lines.pop() or not lines or lines[0] != _HEADER.format(len(lines) - 1):
        raise InputError(
            _changed(
                directory, SUMS, "it is truncated or has a wrong first line"
            )
        )
    sums: _Sums = {}
    for line in lines[1:]:
        match = _LINE.fullmatch(line)
        if match is None or not _is_below(match[2]):
            raise InputError(
                _changed(directory, SUMS, f"unexpected line {line[:80]!r}")
            )
        sums.setdefault(match[2], set()).add(match[1])
    return sums


def _is_below(name: str) -> bool:
    """Returns True for a normalized path below its base directory: with other spellings, a large
    file could be read once per line.
    """
    is_inside = not (
        name.startswith("/") or ".." in name.split("/") or "\0" in name
    )
    return is_inside and name == posixpath.normpath(name) != "."


def _write(directory: Path, sums: _Sums) -> None:
    lines = [
        f"{digest}  {name}\n"
        for name in sorted(sums)
        for digest in sorted(sums[name])
    ]
    header = _HEADER.format(len(lines)) + "\n"
    atomic.write_text(directory / SUMS, header + "".join(lines))


def _changed(directory: Path, name: str, reason: str) -> str:
    return (
        f"{directory / name}: changed since it was written ({reason}); copy it again if it is "
        f"damaged, or delete {directory / SUMS} if the change is intended, and run "
        f"longsum verify --unverified {directory}"
    )
