"""SHA-256 sums of the files of a directory, in a file that ``sha256sum -c SHA256SUMS`` reads, too.

Who writes a directory calls ``write`` last, who reads one ``check`` first. A directory without the
file (an older one, or one of others) proves nothing and is read as it is.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from longsum_jax import atomic
from longsum_jax.errors import InputError

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_HEADER = "# {} sums"  # sha256sum skips it; sums cut short at the end of a line do not fit it

# Relative path -> the sums that it may have: two while a file is being replaced.
_Sums = dict[str, set[str]]


def write(directory: Path, without: Iterable[str] = ()) -> None:
    """Writes the sums of all files below a directory.

    Subdirectories with sums of their own are left to these.

    Args:
        directory: complete but for its sums.
        without: names, in the directory itself, that will still change.

    Raises:
        OSError: a file cannot be read, or the sums cannot be written.
    """
    names = sorted(set(_files(directory)) - set(without))
    sums = {name: {digest} for name, digest in zip(names, _digests(directory, names), strict=True)}
    _write(directory, sums)


def check(directory: Path, wanted: Callable[[str], bool] = bool) -> list[str]:
    """Compares files of a directory with their sums.

    Args:
        directory: with or without sums.
        wanted: tells from its relative path whether to read a file; all by default.

    Returns:
        The relative paths of the files that were compared, none without sums.

    Raises:
        InputError: names the first file that is missing or has another sum, or the damaged sums.
    """
    if not (directory / SUMS).exists():
        return []
    sums = _read(directory)
    names = sorted(filter(wanted, sums))
    try:
        for name, digest in zip(names, _digests(directory, names), strict=True):
            if digest not in sums[name]:
                raise InputError(_changed(directory, name, "its SHA-256 is another"))
    except OSError as error:
        name = os.path.relpath(error.filename or directory, directory)
        raise InputError(_changed(directory, name, error.strerror)) from error
    return names


@contextlib.contextmanager
def checking(directory: Path) -> Iterator[None]:
    """Compares all files with their sums while the block reads them.

    Raises:
        InputError: as ``check``, when the block ends, also with an error of its own.
    """
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(check, directory)
        try:
            yield
        finally:
            found.result()


def replace_text(directory: Path, name: str, text: str) -> None:
    """Replaces a file of a directory and its sum; the directory is whole at every moment.

    Raises:
        InputError: damaged sums.
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


def digest_of(path: Path) -> str:
    """Returns the SHA-256 of a file, 64 hexadecimal digits.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digests(directory: Path, names: Iterable[str]) -> Iterator[str]:
    """Yields the sums of files, several of which are read at a time."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        yield from threads.map(digest_of, [directory / name for name in names])


def _files(directory: Path) -> Iterator[str]:
    """Yields the relative paths of all files below a directory but those with sums elsewhere."""
    for folder, subfolders, names in os.walk(directory):
        has_sums = [name for name in subfolders if Path(folder, name, SUMS).exists()]
        subfolders[:] = [name for name in subfolders if name not in has_sums]
        for name in names:
            relative = Path(folder, name).relative_to(directory).as_posix()
            if relative != SUMS:
                yield relative


def _read(directory: Path) -> _Sums:
    """Returns the sums in a directory."""
    path = directory / SUMS
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise InputError(_changed(directory, SUMS, str(error))) from error
    if lines.pop() or not lines or lines[0] != _HEADER.format(len(lines) - 1):
        raise InputError(_changed(directory, SUMS, "it is cut short or has another first line"))
    sums: _Sums = {}
    for line in lines[1:]:
        found = _LINE.fullmatch(line)
        if found is None or not _is_below(found[2]):
            raise InputError(_changed(directory, SUMS, f"{line[:80]!r} is none of its lines"))
        sums.setdefault(found[2], set()).add(found[1])
    return sums


def _is_below(name: str) -> bool:
    """Returns True for a path below the directory that it is relative to."""
    return not (name.startswith("/") or ".." in name.split("/") or "\0" in name)


def _write(directory: Path, sums: _Sums) -> None:
    lines = [f"{digest}  {name}\n" for name in sorted(sums) for digest in sorted(sums[name])]
    header = _HEADER.format(len(lines)) + "\n"
    atomic.write_text(directory / SUMS, header + "".join(lines))


def _changed(directory: Path, name: str, reason: str) -> str:
    return (
        f"{directory / name}: not what was written there ({reason}); copy it again if it is "
        f"damaged, delete {directory / SUMS} if it was changed by intent"
    )
