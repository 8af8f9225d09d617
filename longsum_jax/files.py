"""Reads untrusted files within bounds: only regular files, and only up to a maximum size.

A file of a model may be a link to a device, a pipe without a writer, or expand
to gigabytes when it is decompressed or parsed. All readers of such files use
these functions.
"""

import contextlib
import gzip
import io
import json
import lzma
import os
import re
import stat
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from longsum_jax.errors import InputError

ARROW_SUFFIXES = (".arrow", ".feather")
# size of a config or index; published ones have a few megabytes at most
MAX_JSON_BYTES = 2**24
# objects and lists in one JSON text, each of which takes 100 bytes
MAX_CONTAINERS = 2**21
# size of a row file written by this library: metrics, predictions
MAX_ROWS_BYTES = 2**34
MAX_LINE_BYTES = 2**26  # size of a document on one line: fifty long novels
_MAX_BLANK_LINES = 2**19  # consecutive blank lines
# open files of a process other than the ones that are counted
_OTHER_FILES = 256
# Texts compress to 1/100 at best; beyond RATIO_FROM bytes, a ratio above
# MAX_RATIO is a bomb.
MAX_RATIO = 200
RATIO_FROM = 2**24
# Errors of decompressing a damaged file.
DAMAGED = (
    EOFError,
    gzip.BadGzipFile,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
# Additional errors of zip archives: RuntimeError for a password and (its
# subclass NotImplementedError) for an unknown method, UnicodeDecodeError for a
# name that is not UTF-8.
DAMAGED_ZIP = (*DAMAGED, RuntimeError, UnicodeDecodeError)
# Characters that JSON allows in strings and terminals obey, see
# ``errors.terminal_text``, and surrogates, which files in UTF-8 cannot hold.
_OBEYED = re.compile(
    "[\ud800-\udfff\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


def open_regular(path: str | Path) -> io.BufferedReader:
    """Opens a regular file for reading bytes, without ever blocking.

    Raises:
        InputError: a directory, a pipe or a device.
        OSError: the file cannot be opened.
    """
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except ValueError as error:  # a NUL character or a lone surrogate
        raise InputError(
            f"{path}: not a valid file name ({error}); check it"
        ) from None
    if not is_directory:
        # Without O_NONBLOCK, opening a pipe blocks until there is a writer.
        flags = (
            os.O_RDONLY
            | getattr(os, "O_NONBLOCK", 0)
            | getattr(os, "O_BINARY", 0)
        )
        file = os.fdopen(os.open(path, flags), "rb")
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    raise InputError(
        f"{path}: is a directory, pipe or device; give a regular file"
    )


def check_not_named_pipe(path: str | Path, name: str) -> None:
    """Raises InputError for a pipe in the file system, but not for one that a shell opened.

    Args:
        path: path of the file.
        name: name of the file, for the error.
    """
    try:
        is_pipe = stat.S_ISFIFO(os.stat(path).st_mode)
        is_named = is_pipe and os.path.exists(os.path.realpath(path))
    except (OSError, ValueError):  # reported when the file is opened
        return
    if is_named:
        raise InputError(
            f"{name}: a named pipe, which may never be written to; give a regular file, or "
            "<(cat PIPE) in a shell"
        )


def read_bytes(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Returns the content of a file.

    Raises:
        InputError: not a regular file, or more than ``max_bytes``.
        OSError: the file cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InputError(
            f"{path}: more than {max_bytes} bytes; check that it is the right file"
        )
    return content


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Returns the parsed content of a JSON text.

    Args:
        text: JSON text of a file or a line.
        **options: options of ``json.loads``.

    Raises:
        ValueError: invalid JSON, more than ``MAX_CONTAINERS`` objects and
            lists, or nested too deeply.
    """
    if isinstance(text, str):
        containers = text.count("[") + text.count("{")
    else:
        containers = text.count(b"[") + text.count(b"{")
    if containers > MAX_CONTAINERS:
        raise ValueError(f"more than {MAX_CONTAINERS} objects and lists")
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("objects or lists nested too deeply") from None


def check_utf8_name(path: str | Path) -> None:
    """Raises InputError for a path that libraries in C++ would not find.

    They take its text for UTF-8, while Python encodes it as the locale has it.
    """
    try:
        is_utf8 = os.fsencode(path) == str(path).encode()
    except UnicodeEncodeError:  # bytes that the locale cannot decode
        is_utf8 = False
    if not is_utf8:
        raise InputError(
            f"{path}: names of checkpoints and shards must be UTF-8, and the locale has "
            f"{sys.getfilesystemencoding()}; set PYTHONUTF8=1, or give an ASCII name"
        )


def json_text(value: Any, **options: Any) -> str:
    """Returns a value as JSON that any terminal shows, with letters of all scripts unescaped.

    Args:
        value: anything that ``json.dumps`` takes.
        **options: options of ``json.dumps``.
    """
    text = json.dumps(value, ensure_ascii=False, **options)
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def read_json(
    path: str | Path, max_bytes: int = MAX_JSON_BYTES
) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        InputError: the file cannot be read, is too large or does not contain a
            JSON object.
    """
    try:
        value = parse_json(read_bytes(path, max_bytes))
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); check the path"
        ) from error
    except ValueError as error:
        raise InputError(
            f"{path}: not valid JSON ({error}); copy the file again"
        ) from error
    if not isinstance(value, dict):
        raise InputError(
            f"{path}: expected a JSON object, got {type(value).__name__}"
        )
    return value


def bounded_lines(
    stream: BinaryIO,
    name: str,
    *,
    max_bytes: int,
    packed: int | None = None,
    skip_blank: bool = True,
) -> Iterator[tuple[int, bytes]]:
    """Yields the number, from 1, and the bytes of every line that is not blank.

    Args:
        stream: stream of the decompressed file.
        name: name of the file, for errors.
        max_bytes: maximum size of the decompressed file.
        packed: bytes of the compressed file on disk; None if it is not
            compressed.
        skip_blank: False to yield blank lines as well.

    Raises:
        InputError: a damaged file; a file or line that is too large; a file
            that expands to more than ``MAX_RATIO`` times its size or has too
            many blank lines.
    """
    if packed is None:
        limit = max_bytes
    else:
        limit = min(max_bytes, max(RATIO_FROM, MAX_RATIO * packed))
    number = size = blank = 0
    while True:
        number += 1
        try:
            line = stream.readline(min(limit - size, MAX_LINE_BYTES) + 1)
        except DAMAGED as error:
            raise InputError(damaged(f"{name}:{number}", error)) from None
        if not line:
            return
        size += len(line)
        if size > max_bytes:
            raise InputError(beyond(name, max_bytes))
        if size > limit:
            raise InputError(expands(name))
        if len(line) > MAX_LINE_BYTES:
            raise InputError(
                f"{name}:{number}: the line exceeds {MAX_LINE_BYTES} bytes; split the document"
            )
        blank = 0 if line.strip() else blank + 1
        if blank > _MAX_BLANK_LINES:
            raise InputError(
                f"{name}:{number}: more than {_MAX_BLANK_LINES} blank lines in a row; remove them"
            )
        if not blank or not skip_blank:
            yield number, line


def allow_open_files(count: int, where: str, remedy: str) -> None:
    """Raises the process's limit of open files so that ``count`` more can be opened.

    Systems begin with low limits, such as 1,024, that processes may raise.

    Args:
        count: number of files.
        where, remedy: beginning and end of the error message.

    Raises:
        InputError: the system allows fewer files.
    """
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + _OTHER_FILES
    if limit == resource.RLIM_INFINITY or limit >= needed:
        return
    if highest != resource.RLIM_INFINITY:
        needed = min(needed, highest)
    # macOS allows less than its highest limit
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, highest))
        limit = needed
    if limit <= count:
        raise InputError(
            f"{where}: needs more than {count:,} open files, the system allows {limit:,}; {remedy}"
            ", or raise the limit (ulimit -n)"
        )


def damaged(where: str, error: Exception) -> str:
    """Returns the error message for a compressed file that cannot be decompressed."""
    return f"{where}: the compressed file is damaged or cut short ({error}); copy it again"


def beyond(name: str, max_bytes: int) -> str:
    """Returns the error message for a file that is too large."""
    return (
        f"{name}: the file holds or expands to more than {max_bytes} bytes; "
        "raise max_bytes (--max_bytes) if it is genuine"
    )


def expands(name: str) -> str:
    """Returns the error message for a compressed file that may be a decompression bomb."""
    return (
        f"{name}: expands to more than {MAX_RATIO} times its size, perhaps to fill the memory; "
        "decompress it first if it is genuine"
    )
