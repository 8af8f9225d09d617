"""Finds and opens files in cloud storage, such as gs://BUCKET/FILE, through fsspec."""

import re
from pathlib import Path
from typing import Any, BinaryIO, cast

from longsum_jax.errors import InputError, first_line

_URL = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str | Path) -> bool:
    """Returns True for a URL, False for a local path."""
    return _URL.match(str(path)) is not None


def find_remote(pattern: str) -> list[str | Path]:
    """Returns the URLs of the files that match a URL or glob pattern, sorted.

    Raises:
        InputError: no file matches, the storage cannot be read, or its package
            is not installed.
    """
    storage, path = _storage_of(pattern)
    try:
        matches = sorted(filter(storage.isfile, storage.glob(path)))
    except Exception as error:  # each storage has errors of its own
        raise _cannot_read(pattern, error) from error
    if not matches:
        raise InputError(
            f"{pattern}: no file matches; check the bucket and the path"
        )
    return [storage.unstrip_protocol(match) for match in matches]


def open_remote(path: str | Path) -> BinaryIO:
    """Opens a file in cloud storage for reading bytes.

    Raises:
        InputError: the file cannot be read, or the package for its storage is
            not installed.
    """
    storage, name = _storage_of(str(path))
    try:
        return cast(BinaryIO, storage.open(name, "rb"))
    except Exception as error:  # each storage has errors of its own
        raise _cannot_read(str(path), error) from error


def remote_size(path: str | Path) -> int:
    """Returns the size of a file in cloud storage in bytes; raises as ``open_remote``."""
    storage, name = _storage_of(str(path))
    try:
        return int(storage.size(name))
    except Exception as error:  # each storage has errors of its own
        raise _cannot_read(str(path), error) from error


def _storage_of(url: str) -> tuple[Any, str]:
    """Returns fsspec's file system for a URL, and the path in it."""
    try:
        from fsspec.core import url_to_fs

        storage, path = url_to_fs(url)
    except ImportError as error:
        raise InputError(
            f"{url}: needs a package ({first_line(error)}): pip install 'longsum_jax[cloud]'"
        ) from None
    except Exception as error:  # each storage has errors of its own
        raise _cannot_read(url, error) from error
    return storage, path


def _cannot_read(url: str, error: Exception) -> InputError:
    reason = first_line(error) or type(error).__name__
    return InputError(
        f"{url}: cannot be read ({reason}); check the address and your login"
    )
