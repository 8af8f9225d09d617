"""Locks on directories that one process writes at a time.

The lock is one of the operating system on the file .lock: it ends with its process, however that
ends, and is known to the other machines of a network file system that has locks (NFS 4, Lustre).
Where there are none (Windows, some mounted buckets), nothing is locked.
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
_held: set[Path] = set()  # by this process, whose own locks do not keep it out


@contextlib.contextmanager
def locked(directory: Path, doing: str, remedy: str) -> Iterator[None]:
    """Keeps other processes out of a directory while the block runs.

    Args:
        directory: is there, and can be written.
        doing: what another process does there, for the error message.
        remedy: what to do then.

    Raises:
        InputError: another process holds the lock; or the file cannot be made.
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
                with contextlib.suppress(OSError):  # the file alone locks nothing
                    path.unlink(missing_ok=True)
    except _HeldError as error:
        raise InputError(
            f"{directory}: another process {doing} there ({error}); wait for its end, or {remedy}"
        ) from None


class _HeldError(Exception):
    """Another process has the lock; says which."""


def _open(path: Path) -> BinaryIO:
    """Opens and locks a file, where the file system has locks.

    Raises:
        InputError: it cannot be made.
    """
    while True:
        try:
            # Not through a link, which may lead to any file.
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from error
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise InputError(f"{path}: no regular file; delete it")
        try:
            # Not flock: a child that outlives this process would keep the lock.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows both
            with file:
                file.seek(0)
                raise _HeldError(_holder(file)) from error
        except OSError:
            return file  # a file system without locks
        if _is_still_there(path, file):
            return file
        file.close()  # its last holder has removed it, and another may have made a new one


def _is_still_there(path: Path, file: BinaryIO) -> bool:
    """Returns whether ``path`` is the name of an open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _holder(file: BinaryIO) -> str:
    """Returns what the file of a lock says of its holder."""
    return in_one_line(file.read(_MOST_READ).decode(errors="replace").strip()) or "unknown"


def _name_holder(file: BinaryIO) -> None:
    """Writes this process into the file of a lock, which holds without that on a full disk."""
    holder = f"process {os.getpid()} on {socket.gethostname()}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), holder.encode())
