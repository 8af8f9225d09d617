"""Reads files in a child process with limits of memory and time.

A small file can be made to need any amount of memory or time, or to crash the
library that parses it. The operating system limits the memory (``RLIMIT_DATA``)
and the processor time (``RLIMIT_CPU``) of the child process, and this process
kills it when a document takes too long. Windows has neither of the first two
limits, macOS does not enforce the first. The child process is started at the
first file and reads the following ones; after it was killed, another one is
started.

The limits protect the machine. They do not separate users: the child process
has the rights of its parent.
"""

import atexit
import contextlib
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import IO, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.readers.document import Document, Failure, Heading
from longsum_jax.readers.processes import kill, time_limit
from longsum_jax.readers.source import ReadOptions, Source, too_large, too_slow

_START_SECONDS = 60.0
_FINISH_SECONDS = 0.2
# the reader itself notices most exceeded limits, and can continue afterwards
_GRACE_SECONDS = 1.0
_LENGTH = struct.Struct(">Q")  # before each message
_SEQUENCES = ("headings", "pages", "notes", "borders")  # fields of a document
_START = """
import sys
sys.path[:] = sys.argv[1:]
from longsum_jax.readers.worker import main
main()
"""
_workers: list["_Worker"] = []  # all started processes
_idle: list["_Worker"] = []  # processes that read nothing now


class FileRequest(NamedTuple):
    """A file to be read by a child process; its content follows, see ``read``.

    Attributes:
        name: name of the file in errors.
        path: path of the file.
        options: options of reading.
        directory: working directory, if the file is a folder, else None.
    """

    name: str
    path: str
    options: ReadOptions
    directory: str | None


def start() -> None:
    """Starts a child process unless there is one, so that the first file does not wait for it."""
    if not _idle:
        with contextlib.suppress(InputError):  # reported when a file is read
            _idle.append(_Worker())


def read(source: Source, *, is_folder: bool) -> Iterator[Document | Failure]:
    """Yields the documents of a file, and failures for unreadable parts.

    Args:
        source: file to read.
        is_folder: True if the file is a folder with a Slack export.
    """
    try:
        worker = _take_idle() or _Worker()
        directory = os.getcwd() if is_folder else None
    except (InputError, OSError) as error:
        yield Failure.of(source.name, f"{source.name}: {error}")
        return
    request = FileRequest(source.name, source.path, source.options, directory)
    try:
        yield from worker.read(request, source.content)
    except _EndedError as error:
        yield Failure.of(source.name, error)
    finally:  # also if the caller needs no more documents
        # At the end of Python, ``_stop_all`` has stopped the process, and no
        # thread can be started.
        if not sys.is_finalizing():
            _release(worker)


def _take_idle() -> "_Worker | None":
    """Returns a process that reads nothing now; None if there is none that still runs."""
    while _idle:
        worker = _idle.pop()
        if worker.is_running():
            return worker
        worker.stop()
    return None


def _release(worker: "_Worker") -> None:
    """Keeps a process for the next file if it is not busy and there is no other, or stops it."""
    if not _idle and worker.finish():
        _idle.append(worker)
    else:
        worker.stop()


def send(stream: IO[bytes], message: bytes) -> None:
    """Writes a message to the other process."""
    stream.write(_LENGTH.pack(len(message)))
    stream.write(message)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Returns the next message of the other process; None if the process has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    message = stream.read(length)
    return message if len(message) == length else None


def as_message(result: Document | Failure | None) -> bytes:
    """Returns a result as JSON; None is the end of a file.

    Unlike a pickle, JSON cannot run code in the process that reads it.
    """
    if result is None:
        kind = None
    else:
        kind = type(result).__name__
    fields = None if result is None else result._asdict()
    return json.dumps([kind, fields], ensure_ascii=False).encode(
        "utf-8", "surrogatepass"
    )


def _result(message: bytes) -> Document | Failure | None:
    """Returns the result in a message."""
    kind, fields = json.loads(message.decode("utf-8", "surrogatepass"))
    if kind is None:
        return None
    if kind == Failure.__name__:
        return Failure(**fields)
    fields["headings"] = [Heading(*heading) for heading in fields["headings"]]
    # JSON has lists for tuples.
    return Document(**fields | {key: tuple(fields[key]) for key in _SEQUENCES})


class _EndedError(Exception):
    """The child process ended before the file was read; the message is the reason."""


class _Worker:
    """A child process that reads files.

    Raises:
        InputError: the process cannot be started.
    """

    def __init__(self) -> None:
        # Without -P, Python would import modules from the current folder.
        flags = ["-P", f"-Xutf8={sys.flags.utf8_mode}", "-c", _START]
        path = [entry for entry in sys.path if isinstance(entry, str)]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, *path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # for ``kill``, and without Ctrl-C, which this process gets
                start_new_session=True,
            )
        except OSError as error:
            raise _not_started(error.strerror or str(error)) from None
        self._is_ready = False
        self._is_reading = False
        _workers.append(self)

    def read(
        self, request: FileRequest, content: bytes
    ) -> Iterator[Document | Failure]:
        """Yields the documents of a file, and failures for unreadable parts.

        Args:
            request: file to read.
            content: content of the file.

        Raises:
            _EndedError: the process crashed, or was killed for exceeding a
                limit.
        """
        if not self._is_ready:
            self._wait_until_ready(request.name)
        self._is_reading = True
        for message in self._messages(request, content):
            result = _result(message)
            if result is None:
                self._is_reading = False
                return
            yield result

    def _wait_until_ready(self, name: str) -> None:
        assert self._process.stdout is not None
        with time_limit(self._process, _START_SECONDS):
            self._is_ready = receive(self._process.stdout) is not None
        if not self._is_ready:
            reason = _describe_end(self._process.wait())
            raise _EndedError(f"{name}: {_not_started(reason)}")

    def _messages(
        self, request: FileRequest, content: bytes
    ) -> Iterator[bytes]:
        """Yields the messages about a file, each of which is waited for within the time limit."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        seconds = request.options.max_seconds + _GRACE_SECONDS
        is_sent = False
        while True:
            message = None
            # An OSError is the end of the process.
            with (
                time_limit(self._process, seconds) as expired,
                contextlib.suppress(OSError),
            ):
                if not is_sent:
                    send(self._process.stdin, pickle.dumps(request))
                    send(self._process.stdin, content)
                    is_sent = True
                message = receive(self._process.stdout)
            if message is None:
                raise _EndedError(
                    self._reason(request, is_expired=expired.is_set())
                )
            yield message

    def _reason(self, request: FileRequest, *, is_expired: bool) -> str:
        """Returns the error message after the end of the process."""
        kill(self._process)
        status = self._process.wait()
        options = request.options
        if is_expired or (os.name == "posix" and -status == signal.SIGXCPU):
            return too_slow(request.name, options.max_seconds)
        # Libraries in C and C++ crash if they get no memory.
        return f"{too_large(request.name, options)} ({_describe_end(status)})"

    def is_running(self) -> bool:
        """Returns False if the process has ended, for example killed by the system."""
        return self._process.poll() is None

    def finish(self) -> bool:
        """Waits for the end of a file that is almost read; returns True if it was reached."""
        if self._is_ready and self._is_reading and self.is_running():
            assert self._process.stdout is not None
            with time_limit(self._process, _FINISH_SECONDS):
                message = receive(self._process.stdout)
            self._is_reading = message is None or _result(message) is not None
        return self._is_ready and not self._is_reading

    def stop(self) -> None:
        """Kills the process and closes its streams."""
        with contextlib.suppress(ValueError):  # in a forked process
            _workers.remove(self)
        kill(self._process)
        # An OSError is from unsent content, a ValueError from streams that are
        # closed already.
        with contextlib.suppress(OSError, ValueError):
            self._process.communicate()


def _not_started(reason: str) -> InputError:
    return InputError(
        f"the process that reads files cannot be started ({reason}); install the package again, or "
        "read files that you trust without it (sandbox=False, --no_sandbox)"
    )


def _describe_end(status: int) -> str:
    """Returns the description of the exit status of a child process."""
    if status >= 0:
        return f"the reader ended with status {status}"
    with contextlib.suppress(ValueError):
        return f"the reader ended with {signal.Signals(-status).name}"
    return f"the reader ended with signal {-status}"


@atexit.register
def _stop_all() -> None:
    _idle.clear()
    while _workers:
        _workers[-1].stop()


def _forget_all() -> None:
    """Forgets the child processes of the parent in a forked process, which starts its own."""
    _idle.clear()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
