"""The child process that reads files, see ``readers.sandbox``."""

import contextlib
import math
import os
import pickle
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from longsum_jax.errors import first_line
from longsum_jax.files import beyond
from longsum_jax.readers.contents import read_folder, read_source
from longsum_jax.readers.document import Document, Failure
from longsum_jax.readers.sandbox import FileRequest, as_message, receive, send
from longsum_jax.readers.source import Source, Unpacked, too_large

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_GRACE_SECONDS = 2.0  # more than the parent's, whose message is better
_LARGEST_SECONDS = 2**31


def main() -> None:
    """Reads files until the parent process ends."""
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # Messages of libraries must not be mixed with the answers.
    empty = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(empty, descriptor)
    _limit_once()
    send(answers, b"ready")
    while (request := _receive_request(requests)) is not None:
        content = receive(requests)
        if content is None:
            return
        limits = _Limits(request, len(content))
        for result in _results(request, content, limits):
            send(answers, _bounded(result, request))
            limits.set_time()
        del content
        send(answers, as_message(None))


def _receive_request(stream: IO[bytes]) -> FileRequest | None:
    """Returns the next file to be read, whose content follows; None if the parent process has
    ended.
    """
    message = receive(stream)
    if message is None:
        return None
    request: FileRequest = pickle.loads(message)
    # The limit of the previous file may be too low for this content.
    _limit_memory(request.options.max_memory)
    return request


def _limit_once() -> None:
    """Sets the limits that are the same for all files."""
    # If the machine has no memory left, Linux ends this process and not another
    # one.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    if resource is not None:
        _set_limit(resource.RLIMIT_CORE, 0)
    # pyarrow's own allocator reserves a GiB, which counts as memory in use.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"


class _Limits(Unpacked):
    """The limits of the process for one file; the memory grows with what is unpacked.

    Args:
        request: file to be read.
        size: size of the file in bytes.
    """

    def __init__(self, request: FileRequest, size: int) -> None:
        super().__init__()
        self._options = request.options
        self._size = size
        self._held = _held_bytes()
        # The files in a folder are not counted.
        self._is_folder = request.directory is not None
        self._set_memory()
        self.set_time()

    def add_bytes(self, num_bytes: int) -> None:
        super().add_bytes(num_bytes)
        self._set_memory()

    def set_time(self) -> None:
        """Limits the processor time for the next document."""
        if resource is not None:
            allowed = self._options.max_seconds + _GRACE_SECONDS
            seconds = min(time.process_time() + allowed, _LARGEST_SECONDS)
            _set_limit(resource.RLIMIT_CPU, math.ceil(seconds))

    def _set_memory(self) -> None:
        memory = self._options.max_memory
        if not self._is_folder:
            size = self._size + self.num_bytes
            needed = self._held + self._options.memory_for(size)
            memory = min(needed, memory)
        _limit_memory(memory)


def _held_bytes() -> int:
    """Returns the memory that earlier files have left in this process; 0 except on Linux."""
    try:
        sizes = Path("/proc/self/statm").read_text(encoding="ascii").split()
        return int(sizes[5]) * resource.getpagesize()
    except OSError:
        return 0


def _limit_memory(num_bytes: int) -> None:
    if resource is not None:
        _set_limit(resource.RLIMIT_DATA, num_bytes)


def _set_limit(which: int, value: int) -> None:
    """Sets a soft limit of the operating system, at most to the hard limit."""
    hard = resource.getrlimit(which)[1]
    if hard == resource.RLIM_INFINITY:
        soft = value
    else:
        soft = min(value, hard)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses some values
        resource.setrlimit(which, (soft, hard))


def _results(
    request: FileRequest, content: bytes, limits: _Limits
) -> Iterator[Document | Failure]:
    source = Source(
        request.name, request.path, content, request.options, unpacked=limits
    )
    try:
        if request.directory is None:
            yield from read_source(source)
        else:
            os.chdir(request.directory)
            yield from read_folder(source)
    except MemoryError:
        yield Failure.of(request.name, too_large(request.name, request.options))
    except Exception as error:
        reason = f"{type(error).__name__}: {first_line(error)}"
        yield Failure.of(
            request.name,
            f"{request.name}: the reader fails ({reason}); please report this, with the file and "
            "the output of --no_sandbox",
        )


def _bounded(result: Document | Failure, request: FileRequest) -> bytes:
    """Returns a result as a message, or the failure of a document that is too large for one."""
    try:
        message = as_message(result)
    except MemoryError:
        return as_message(
            Failure.of(result.name, too_large(result.name, request.options))
        )
    # UTF-8 may double the size of other encodings, and headings and pages take
    # some space.
    if len(message) > 2 * request.options.max_bytes + 2**20:
        return as_message(
            Failure.of(
                result.name, beyond(result.name, request.options.max_bytes)
            )
        )
    return message
