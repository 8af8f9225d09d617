"""Reads the bodies of requests; slow ones do not keep others out.

    new body  ->  room for ``max_uploads`` bodies  ->  read whole  ->  queue
                          |
                          +-- full: the slowest body of the client with the
                              most bodies is closed

A body takes no place in the queue of documents before it is read whole. A
client that opens many connections and sends nothing only competes with itself,
and a client that sends its body at once is never the slowest.
"""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest

_IDLE_SECONDS = 10.0  # without any data of a body
# Bytes that every body has in advance, so that a new one is not the slowest.
_CREDIT = 2**16


class _Upload:
    """A body that is being read.

    Args:
        client: address of the client.

    Attributes:
        client: address of the client.
        size: number of bytes so far.
        is_closed: True if the body had to leave to make room.
    """

    def __init__(self, client: str) -> None:
        self.client = client
        self.size = 0
        self.is_closed = False
        # of the current wait for data
        self._timer: asyncio.Timeout | None = None
        self._started = time.monotonic()

    @property
    def rate(self) -> float:
        """Bytes per second, including the credit."""
        seconds = time.monotonic() - self._started
        return (self.size + _CREDIT) / max(seconds, 1e-6)

    async def read(self, stream: AsyncIterator[bytes]) -> bytes:
        """Returns the next data.

        Raises:
            TimeoutError: no data arrive, or the body was closed.
            StopAsyncIteration: the body is complete.
        """
        seconds = 0.0 if self.is_closed else _IDLE_SECONDS
        try:
            async with asyncio.timeout(seconds) as self._timer:
                chunk = await anext(stream)
        finally:
            self._timer = None
        self.size += len(chunk)
        return chunk

    def close(self) -> None:
        """Ends the wait for data at once."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.reschedule(asyncio.get_running_loop().time())


class Uploads:
    """The bodies that are being read.

    Args:
        max_bytes: maximum size of a body.
        max_uploads: maximum number of bodies that are read at once.

    Attributes:
        max_bytes: maximum size of a body.
    """

    def __init__(self, max_bytes: int, max_uploads: int) -> None:
        self.max_bytes = max_bytes
        self._max_uploads = max_uploads
        self._uploads: list[_Upload] = []

    def __len__(self) -> int:
        """Returns the number of bodies that are not complete."""
        return len(self._uploads)

    async def chunks(self, request: HttpRequest) -> AsyncGenerator[bytes, None]:
        """Yields the body.

        Raises:
            HTTPException: 413 as soon as it exceeds the limit, 408 if no data
                arrive or others are waiting for a slow body, 415 for a
                compressed body.
        """
        too_large = HTTPException(
            413, f"the body has more than {self.max_bytes:,} bytes; send less"
        )
        encoding = request.headers.get("content-encoding", "identity")
        if encoding != "identity":
            raise HTTPException(
                415, "compressed bodies are not accepted; send it uncompressed"
            )
        length = request.headers.get("content-length", "0")
        is_number = length.isdecimal() and len(length) < 20
        if is_number and int(length) > self.max_bytes:
            raise too_large
        stream = request.stream()
        with self._entry(request) as upload:
            while True:
                try:
                    chunk = await upload.read(stream)
                except StopAsyncIteration:
                    return
                except TimeoutError:
                    raise _too_slow(upload) from None
                if upload.size > self.max_bytes:
                    raise too_large
                yield chunk

    @contextlib.contextmanager
    def _entry(self, request: HttpRequest) -> Iterator[_Upload]:
        """Yields a body with a place in the room, which it leaves at the end."""
        client = "" if request.client is None else request.client.host
        upload = _Upload(client)
        self._uploads.append(upload)
        self._make_room()
        try:
            yield upload
        finally:
            self._uploads.remove(upload)

    def _make_room(self) -> None:
        """Closes the slowest body of the client with most bodies if there are too many."""
        uploads = [upload for upload in self._uploads if not upload.is_closed]
        if len(uploads) <= self._max_uploads:
            return
        counts = Counter(upload.client for upload in uploads)
        most = max(counts.values())
        candidates = [
            upload for upload in uploads if counts[upload.client] == most
        ]
        min(candidates, key=lambda upload: upload.rate).close()


def _too_slow(upload: _Upload) -> HTTPException:
    """Returns the error of a body that did not arrive in time."""
    if upload.is_closed:
        return HTTPException(
            408,
            "the body arrived more slowly than others that were waiting; send "
            "it at once",
        )
    return HTTPException(
        408,
        f"no data of the body arrived for {_IDLE_SECONDS:g} s; send it at once",
    )
