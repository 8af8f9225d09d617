"""Writes files and directories atomically, so that incomplete content never has the final name.

Content is written next to its target as ".NAME.longsum" and renamed at the end,
which is atomic within a file system. A failure leaves no trace, and does not
change the target. Only one process writes a target at a time, see ``locks``;
the content that a killed process leaves is removed, or continued, by the next
process that writes the target. Replacing a directory takes two renames: if a
process is killed between them, the next one restores the old directory.
"""

import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from longsum_jax.locks import locked_output, part_of


def write_text(path: Path, text: str) -> None:
    """Replaces the content of a file, in UTF-8.

    Raises:
        OSError: the file cannot be written.
    """
    with open_text(path) as file:
        file.write(text)


@contextlib.contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Opens a UTF-8 file that replaces ``path`` when the block ends without an exception.

    Paths that end in .gz or .xz are compressed; the same text always results in
    the same bytes.

    Raises:
        InputError: another process writes the file.
        OSError: the file cannot be written.
    """
    with locked_output(path):
        temporary = part_of(path)
        try:
            _remove(temporary)  # left by a killed process
            with temporary.open("xb") as file:  # never follows a link
                with _compressed(file, path.suffix) as stream:
                    text = io.TextIOWrapper(stream, encoding="utf-8")
                    try:
                        yield text
                    finally:
                        text.detach()
                # Without fsync, a power failure soon after the rename could
                # leave an empty file.
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            # errors of a full disk have no file name
            error.filename = error.filename or str(path)
            raise
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _compressed(
    file: BinaryIO, suffix: str
) -> contextlib.AbstractContextManager[Any]:
    """Returns a stream into ``file``, which stays open when the stream is closed."""
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if suffix == ".xz":
        return lzma.open(file, "wb")
    return contextlib.nullcontext(file)


@contextlib.contextmanager
def new_directory(
    target: Path, *, overwrite: bool = False, resume: bool = False
) -> Iterator[Path]:
    """Yields a directory to fill, which is renamed to ``target`` when the block ends.

    Args:
        target: missing or empty directory; its parents are created. A link is
            followed, not replaced.
        overwrite: True if a directory with content may be replaced.
        resume: True if the directory of a killed or interrupted (Ctrl-C)
            process is yielded with its content; otherwise it is emptied.

    Raises:
        InputError: another process writes the directory.
        OSError: the directory cannot be written, or the target is not empty.
    """
    target = Path(os.path.realpath(target))
    with scratch_directory(target, resume=resume) as work:
        yield work
        work.chmod(_usual_mode(work))  # until then it is private
        if overwrite and target.exists() and any(target.iterdir()):
            _swap(work, target)
        else:
            os.replace(work, target)  # also replaces an empty directory


def _usual_mode(directory: Path) -> int:
    """Returns the permissions of new directories, without changing the umask of other threads."""
    sample = directory / ".mode"
    sample.mkdir()
    mode = stat.S_IMODE(sample.stat().st_mode)
    sample.rmdir()
    return mode


@contextlib.contextmanager
def scratch_directory(target: Path, *, resume: bool = False) -> Iterator[Path]:
    """Yields a directory next to ``target``, on its file system, and removes it at the end.

    Args:
        target: path of the output.
        resume: True if content of a killed or interrupted (Ctrl-C) process is
            retained.

    Raises:
        InputError: another process writes ``target``.
        OSError: the directory or the parents of ``target`` cannot be created.
    """
    # if the parent is a file, mkdir raises
    with contextlib.suppress(FileExistsError):
        target.parent.mkdir(parents=True)
    with locked_output(target):
        _finish_swap(target)
        work = part_of(target)
        if not (resume and _is_own_directory(work)):
            _remove(work)
            work.mkdir(mode=0o700)
        try:
            yield work
        except KeyboardInterrupt:
            if not resume:
                _remove(work)
            raise
        except BaseException:
            _remove(work)
            raise
        _remove(work)


def _is_own_directory(path: Path) -> bool:
    """Returns True for a directory that this user created, not a link to it."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return False
    is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return stat.S_ISDIR(status.st_mode) and is_own


def empty(directory: Path) -> None:
    """Removes the content of a directory."""
    for path in directory.iterdir():
        _remove(path)


def _remove(path: Path) -> None:
    """Removes a file, a link or a directory, if possible."""
    with contextlib.suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    """Renames ``work`` to ``target``, and finally deletes the replaced directory."""
    old = _old_of(target)
    os.replace(target, old)
    try:
        os.replace(work, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old)


def _old_of(target: Path) -> Path:
    """Returns the path of a directory while it is replaced."""
    return target.with_name(f".{target.name}.longsum-old")


def _finish_swap(target: Path) -> None:
    """Restores or deletes the directory that a killed process was replacing."""
    old = _old_of(target)
    if old.is_dir() and not target.exists():
        os.replace(old, target)
    _remove(old)
