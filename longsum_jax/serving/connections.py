"""HTTP connections with a time limit for the headers of a request."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

_HEADER_SECONDS = 10.0


class TimedProtocol(H11Protocol):
    """A connection that is closed if the headers of a request take too long.

    uvicorn itself only limits the time between two requests. Here the time of
    the headers is limited as well: it starts when the client connects or, after
    a response, with the first byte of the next request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(  # type: ignore[override]
        self, transport: asyncio.Transport
    ) -> None:
        """Starts the timer of the first request."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Stops the timer once the headers are complete; other bytes do not restart it."""
        super().data_received(data)
        if self._has_request():
            self._stop_timer()
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def _has_request(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_HEADER_SECONDS, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if not self._has_request() and not self.transport.is_closing():
            self.transport.close()
