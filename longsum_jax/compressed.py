"""Opens compressed files for reading: gzip, xz, bzip2 and Zstandard."""

import bz2
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from longsum_jax.extra import import_extra

SUFFIXES = (".gz", ".xz", ".bz2", ".zst")
ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_OPENERS: Mapping[str, Callable[..., Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
}
_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)
_BUFFER = 2**18  # bytes


def open_compressed(
    file: str | Path | IO[bytes], suffix: str, name: str
) -> io.BufferedReader:
    """Returns a stream of the decompressed content, which raises EOFError if the file is damaged.

    Args:
        file: path, or a stream of the compressed bytes.
        suffix: suffix in ``SUFFIXES``.
        name: name of the file, for errors.

    Raises:
        InputError: the package for Zstandard, needed before Python 3.14, is not
            installed.
        OSError: the file cannot be read.
    """
    if suffix == ".zst":
        zstd = import_zstd(name)
        unpacked = _Unpacked(zstd.ZstdFile(file), (*_ERRORS, zstd.ZstdError))
    else:
        unpacked = _Unpacked(_OPENERS[suffix](file), _ERRORS)
    return io.BufferedReader(unpacked, _BUFFER)


def import_zstd(name: str) -> ModuleType:
    """Returns Python's Zstandard module, or its backport before Python 3.14.

    Args:
        name: name of the file that needs it, for the error.

    Raises:
        InputError: the package is not installed.
    """
    return import_extra(ZSTD, name, "Zstandard")


class _Unpacked(io.RawIOBase):
    """A stream that raises EOFError for damaged content."""

    def __init__(
        self, stream: Any, errors: tuple[type[Exception], ...]
    ) -> None:
        self._stream = stream
        self._errors = errors

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            return self._stream.readinto(buffer)
        except self._errors as error:
            # an error of the disk
            if isinstance(error, OSError) and error.errno:
                raise
            raise EOFError(str(error)) from error

    def close(self) -> None:
        self._stream.close()
        super().close()
