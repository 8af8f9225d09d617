"""Compressed files and archives, unpacked in memory within limits of size and depth."""

import io
import re
import tarfile
import zipfile
from collections.abc import Iterator
from typing import Any

from longsum_jax.compressed import open_compressed
from longsum_jax.errors import InputError, in_one_line
from longsum_jax.files import (
    DAMAGED_ZIP,
    MAX_RATIO,
    RATIO_FROM,
    beyond,
    damaged,
    expands,
)
from longsum_jax.readers.document import Failure
from longsum_jax.readers.source import Source

_CHUNK = 2**20
# Exceptions raised when a damaged archive is opened or unpacked.
DAMAGED_ARCHIVE = (*DAMAGED_ZIP, OSError, tarfile.TarError, ValueError)


def decompress(source: Source, suffix: str) -> Iterator[Source | Failure]:
    """Yields the content of a compressed file.

    Args:
        source: compressed file.
        suffix: suffix of the compression format, one of
            ``compressed.SUFFIXES``.
    """
    try:
        with open_compressed(
            io.BytesIO(source.content), suffix, source.name
        ) as file:
            content = _read_limited(
                file, source.name, len(source.content), source
            )
    except InputError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise InputError(damaged(source.name, error)) from None
    inner_name = re.sub(
        rf"{re.escape(suffix)}\Z", "", source.file_name, flags=re.IGNORECASE
    )
    yield source.inner(source.name, content, inner_name)


def unzip(source: Source) -> Iterator[Source | Failure]:
    """Yields the members of a .zip file, and a failure for each member that cannot be read."""
    archive = open_zip(source)
    for member in archive.infolist():
        # Not is_dir, which raises an IndexError if the name is empty.
        if member.filename.endswith("/") or _is_hidden(member.filename):
            continue
        name = in_one_line(f"{source.name}/{member.filename or 'no name'}")
        try:
            content = read_member(archive, member, name, source)
        except InputError as error:
            yield Failure.of(name, error)
            # raises if all other members would fail as well
            source.count_bytes(0)
            continue
        yield source.inner(name, content)


def untar(source: Source) -> Iterator[Source | Failure]:
    """Yields the files in a .tar file."""
    left = source.options.max_bytes
    try:
        with tarfile.open(
            fileobj=io.BytesIO(source.content), mode="r:"
        ) as archive:
            for member in archive:
                source.count_members(1)
                if not member.isfile() or _is_hidden(member.name):
                    continue
                # a few bytes may expand to any number of zeros
                if member.issparse():
                    name = in_one_line(f"{source.name}/{member.name}")
                    yield Failure.of(
                        name, f"{name}: a file with holes; unpack the archive"
                    )
                    continue
                if member.size > left:
                    raise InputError(
                        beyond(source.name, source.options.max_bytes)
                    )
                file = archive.extractfile(member)
                content = file.read() if file else b""
                left -= len(content)
                yield source.inner(
                    in_one_line(f"{source.name}/{member.name}"), content
                )
    except InputError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise InputError(
            f"{source.name}: a damaged tar archive ({error}); copy it again"
        ) from None


def open_zip(source: Source) -> zipfile.ZipFile:
    """Opens a zip archive; EPUB and office documents are zip archives as well.

    Raises:
        InputError: the archive is damaged, has too many members or exceeds the
            size limit.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(source.content))
    except DAMAGED_ARCHIVE as error:
        raise InputError(
            f"{source.name}: a damaged zip archive ({error}); copy it again"
        ) from None
    members = archive.infolist()
    source.count_members(len(members))
    source.check_size(sum(member.file_size for member in members))
    return archive


def read_member(
    archive: zipfile.ZipFile,
    member: str | zipfile.ZipInfo,
    name: str,
    source: Source,
) -> bytes:
    """Returns the content of a member of a zip archive.

    Args:
        archive: zip archive.
        member: the member, or its name; of several of one name, the last.
        name: name in error messages.
        source: source of the archive.

    Raises:
        InputError: the member is missing, encrypted, damaged or too large.
    """
    try:
        info = archive.getinfo(member) if isinstance(member, str) else member
    except KeyError:
        raise InputError(
            f"{name}: not in the archive; the document is damaged"
        ) from None
    if info.flag_bits & 1:
        raise InputError(
            f"{name}: needs a password; unpack it, or save it without one"
        )
    try:
        with archive.open(info) as file:
            return _read_limited(file, name, info.compress_size, source)
    except InputError:
        raise
    except DAMAGED_ARCHIVE as error:
        raise InputError(
            f"{name}: damaged in the archive ({error}); copy it again"
        ) from None


def _read_limited(file: Any, name: str, packed: int, source: Source) -> bytes:
    chunks = []
    size = 0
    while chunk := file.read(_CHUNK):
        chunks.append(chunk)
        size += len(chunk)
        source.count_bytes(len(chunk))
        if size > max(RATIO_FROM, MAX_RATIO * packed):
            raise InputError(expands(name))
        source.check_time()
    return b"".join(chunks)


def _is_hidden(name: str) -> bool:
    """Returns True if a member was left by an operating system, as ``__MACOSX/._report.txt``."""
    parts = name.split("/")
    return "__MACOSX" in parts or any(
        part.startswith(".") for part in parts if part not in ".."
    )
