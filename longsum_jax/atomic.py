"""Writes files and directories so that their final names only ever show complete content.

Everything is written beside its target under a hidden temporary name and renamed at the end, which
is one step within a file system. What fails on the way leaves no trace, and the target as it was.
Replacing a directory takes two renames, though: killed between them, a process leaves the old one
beside the target, as ".NAME.old-...".
"""

import contextlib
import gzip
import io
import lzma
import os
import shutil
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

    A path that ends in .gz or .xz is compressed, the same text always to the same bytes.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with contextlib.suppress(FileNotFoundError):  # of a process of this number that was killed
            temporary.unlink()
        with temporary.open("xb") as file:  # not through a link
            with _compressed(file, path.suffix) as stream:
                text = io.TextIOWrapper(stream, encoding="utf-8")
                try:
                    yield text
                finally:
                    text.detach()
            # Without this a power failure soon after the rename could leave an empty file.
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk names no file
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
    """Yields a directory to fill, which takes the name ``target`` when the block ends.

    Args:
        target: does not exist, or is an empty directory; its parents are made. A link stays, and
            what it names is written.
        overwrite: replaces a directory with content too.

    Raises:
        OSError: the directory cannot be written, or the target holds files.
    """
    target = Path(os.path.realpath(target))
    with scratch_directory(target) as work:
        yield work
        work.chmod(0o755)  # mkdtemp makes it private, but clusters share data directories
        if overwrite and target.exists() and any(target.iterdir()):
            _swap(work, target)
        else:
            os.replace(work, target)  # also onto an empty directory


@contextlib.contextmanager
def scratch_directory(target: Path) -> Iterator[Path]:
    """Yields an empty directory beside ``target``, on its file system, and removes it at the end.

    Raises:
        OSError: the directory or the parents of ``target`` cannot be made.
    """
    with contextlib.suppress(FileExistsError):  # of a file in its place the next line tells better
        target.parent.mkdir(parents=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _swap(work: Path, target: Path) -> None:
    """Renames ``work`` to ``target``; what it replaces goes away last."""
    old = tempfile.mkdtemp(prefix=f".{target.name}.old-", dir=target.parent)
    os.replace(target, old)
    try:
        os.replace(work, target)
    except BaseException:
        os.replace(old, target)
        raise
    shutil.rmtree(old)
