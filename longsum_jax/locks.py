"""Locks on directories that only one process may write at a time.

The lock is an operating system lock on the file .lock: it is released when its process ends for any
reason, and also works across machines on network file systems with locks (NFS 4, Lustre). Without
support for locks (Windows, some mounted buckets), nothing is locked.
"""

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from longsum_jax.errors import InputError, in_one_line

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_MOST_READ = 1000  # bytes
_held: set[Path] = set()  # directories locked by this process, which may enter them again


@contextlib.contextmanager
def locked(directory: Path, doing: str, remedy: str) -> Iterator[None]:
    """Keeps other processes out of a directory for the duration of the block.

    Args:
        directory: existing, writable directory.
        doing: activity of another process in the directory, for the error message.
        remedy: remedy for the error message.

    Raises:
        InputError: another process holds the lock, or the lock file cannot be created.
    """
    directory = directory.resolve()
    if fcntl is None or directory in _held:
        yield
        return
    path = directory / LOCK
    try:
        with _open(path) as file:
            _held.add(directory)
            _name_holder(file)
            try:
                yield
            finally:
                _held.discard(directory)
                with contextlib.suppress(OSError):  # a leftover file does not lock anything
                    path.unlink(missing_ok=True)
    except _HeldError as error:
        raise InputError(
            f"{directory}: another process {doing} there ({error}); wait for its end, or {remedy}"
        ) from None


class _HeldError(Exception):
    """Another process holds the lock; the message names it."""


def _open(path: Path) -> BinaryIO:
    """Opens and locks a file, if the file system supports locks.

    Raises:
        InputError: the file cannot be created.
    """
    while True:
        try:
            # Do not follow a link, which may lead to any file.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise InputError(f"{path}: not a regular file; delete it")
        try:
            # Not flock, with which a child that outlives this process would keep the lock.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows both
            with file:
                file.seek(0)
                raise _HeldError(_holder(file)) from error
        except OSError:
            return file  # a file system without locks
        if _is_still_there(path, file):
            return file
        file.close()  # its previous holder removed it, and another process may have made a new one


def _is_still_there(path: Path, file: BinaryIO) -> bool:
    """Returns True if ``path`` still refers to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _holder(file: BinaryIO) -> str:
    """Returns the description of the holder in a lock file."""
    return in_one_line(file.read(_MOST_READ).decode(errors="replace").strip()) or "unknown"


def _name_holder(file: BinaryIO) -> None:
    """Writes a description of this process to the lock file; the lock works without it."""
    holder = f"process {os.getpid()} on {socket.gethostname()}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), holder.encode())
