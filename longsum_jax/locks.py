"""Locks on outputs that only one process may write at a time.

A lock is an operating system lock on a file: .lock in a directory, .NAME.lock
next to an output that does not exist yet. It is released when its process ends
for any reason. With POSIX, it also works across machines on network file
systems with locks (NFS 4, Lustre); Windows locks through the library filelock.
On file systems without locks (some mounted buckets), nothing is locked.
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
_PART = ".longsum"  # suffix of unfinished outputs
_MOST_READ = 1000  # bytes
_held: set[Path] = set()  # locked by this process, which may enter them again


@contextlib.contextmanager
def locked(directory: Path, doing: str, remedy: str) -> Iterator[None]:
    """Keeps other processes out of a directory for the duration of the block.

    Unfinished files that killed processes left in the directory are removed.

    Args:
        directory: existing, writable directory.
        doing: activity of another process in the directory, for the error
            message.
        remedy: remedy for the error message.

    Raises:
        InputError: another process holds the lock, or the lock file cannot be
            created.
    """
    directory = directory.resolve()
    path = directory / LOCK
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(_holding(directory, path, doing, remedy))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be written ({error.strerror})"
            ) from error
        _remove_parts(directory)
        yield


@contextlib.contextmanager
def locked_output(path: Path) -> Iterator[None]:
    """Keeps other processes from writing an output for the duration of the block.

    Args:
        path: file or directory to write; its parent must exist.

    Raises:
        InputError: another process writes the output.
        OSError: the lock file cannot be created.
    """
    output = path.parent.resolve() / path.name  # not the target of a link
    if output.parent in _held:
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            lock = _holding(
                output, _lock_of(output), "writes", "give another path"
            )
            stack.enter_context(lock)
        except OSError as error:
            error.filename = str(path)
            raise
        yield


def _lock_of(output: Path) -> Path:
    """Returns the path of the lock file of an output."""
    return output.with_name(f".{output.name}{LOCK}")


def part_of(path: Path) -> Path:
    """Returns the path of an output until it is finished."""
    return path.with_name(f".{path.name}{_PART}")


def _remove_parts(directory: Path) -> None:
    """Removes unfinished files that no living process holds."""
    with contextlib.suppress(OSError):
        names = os.listdir(directory)
        for name in names:
            path = directory / name
            is_part = name.startswith(".") and name.endswith(_PART)
            if is_part and stat.S_ISREG(path.lstat().st_mode):
                output = path.with_name(name[1 : -len(_PART)])
                _remove_unless_held(path, output)


def _remove_unless_held(path: Path, output: Path) -> None:
    """Removes the unfinished file of an output that no process writes."""
    # Another process that holds it raises InputError.
    lock = _holding(output, _lock_of(output), "writes", "")
    with contextlib.suppress(InputError), lock:
        path.unlink()


class _HeldError(Exception):
    """Another process holds the lock; the message names it."""


@contextlib.contextmanager
def _holding(
    output: Path, path: Path, doing: str, remedy: str
) -> Iterator[None]:
    """Holds a lock for the duration of the block, unless this process already holds it.

    Args:
        output: file or directory that the lock protects.
        path: lock file.
        doing, remedy: as for ``locked``.

    Raises:
        InputError: another process holds the lock, or the lock file is not a
            file.
        OSError: the lock file cannot be created.
    """
    if output in _held:
        yield
        return
    if fcntl is not None:
        lock_file = _open
    else:
        lock_file = _open_in_windows
    try:
        with lock_file(path):
            _held.add(output)
            try:
                yield
            finally:
                _held.discard(output)
                if fcntl is not None:
                    # A leftover file does not lock anything.
                    with contextlib.suppress(OSError):
                        path.unlink(missing_ok=True)
    except _HeldError as error:
        raise InputError(
            f"{output}: another process {doing} there ({error}); wait for its end, or {remedy}"
        ) from None
    if fcntl is None:  # open files cannot be removed there
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _open_in_windows(path: Path) -> Iterator[None]:
    """Opens and locks a file by means of the library filelock."""
    import filelock

    lock = filelock.FileLock(str(path), timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise _HeldError("unknown") from None
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def _open(path: Path) -> Iterator[None]:
    """Opens and locks a file, and writes the name of this process to it."""
    with _open_locked(path) as file:
        _name_holder(file)
        yield


def _open_locked(path: Path) -> BinaryIO:
    """Opens and locks a file, if the file system supports locks.

    Raises:
        InputError: not a regular file.
        _HeldError: another process holds the lock.
        OSError: the file cannot be created.
    """
    while True:
        # Do not follow a link, which may lead to any file.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags, 0o666)
        file = os.fdopen(descriptor, "r+b", buffering=0)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            file.close()
            raise InputError(f"{path}: not a regular file; delete it")
        try:
            # Not flock, with which a child that outlives this process would
            # keep the lock.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:  # POSIX allows both
            with file:
                file.seek(0)
                raise _HeldError(_holder(file)) from error
        except OSError:
            return file  # a file system without locks
        if _is_still_there(path, file):
            return file
        # its previous holder removed it, and another process may have made a
        # new one
        file.close()


def _is_still_there(path: Path, file: BinaryIO) -> bool:
    """Returns True if ``path`` still refers to the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _holder(file: BinaryIO) -> str:
    """Returns the description of the holder in a lock file."""
    return (
        in_one_line(file.read(_MOST_READ).decode(errors="replace").strip())
        or "unknown"
    )


def _name_holder(file: BinaryIO) -> None:
    """Writes a description of this process to the lock file; the lock works without it."""
    holder = f"process {os.getpid()} on {socket.gethostname()}\n"
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), holder.encode())
