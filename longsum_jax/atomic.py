"""Writes files and directories atomically, so that incomplete content never has the final name.

Content is written next to its target under a hidden temporary name and renamed at the end, which is
atomic within a file system. A failure leaves no trace, and does not change the target. Replacing a
directory takes two renames, though: a process killed between them leaves the old directory next to
the target, as ".NAME.old-...".
"""

import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO


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

    Paths that end in .gz or .xz are compressed; the same text always results in the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):  # left by a killed process with the same id
            temporary.unlink()
        with temporary.open("xb") as file:  # never follows a link
            with _compressed(file, path.suffix) as stream:
                text = io.TextIOWrapper(stream, encoding="utf-8")
                try:
                    yield text
                finally:
                    text.detach()
            # Without fsync, a power failure soon after the rename could leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # errors of a full disk have no file name
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def _compressed(file: BinaryIO, suffix: str) -> contextlib.AbstractContextManager[Any]:
    """Returns a stream into ``file``, which stays open when the stream is closed."""
    if suffix == ".gz":
        return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
    if suffix == ".xz":
        return lzma.open(file, "wb")
    return contextlib.nullcontext(file)


@contextlib.contextmanager
def new_directory(target: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Yields a directory to fill, which is renamed to ``target`` when the block ends.

    Args:
        target: missing or empty directory; its parents are created. A link is followed, not
            replaced.
        overwrite: whether a directory with content may be replaced.

    Raises:
        OSError: the directory cannot be written, or the target is not empty.
    """
    target = Path(os.path.realpath(target))
    with scratch_directory(target) as work:
        yield work
        work.chmod(_usual_mode(work))  # mkdtemp makes it private
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
def scratch_directory(target: Path) -> Iterator[Path]:
    """Yields an empty directory next to ``target``, on its file system, and removes it at the end.

    Raises:
        OSError: the directory or the parents of ``target`` cannot be created.
    """
    with contextlib.suppress(FileExistsError):  # if the parent is a file, mkdtemp raises
        target.parent.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    """Renames ``work`` to ``target``, and finally deletes the replaced directory."""
    old = tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent)
    os.replace(target, old)
    try:
        os.replace(work, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old)
