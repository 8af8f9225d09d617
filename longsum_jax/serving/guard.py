"""Authorization, limits, errors and counts of all endpoints."""

import asyncio
import dataclasses
import hashlib
import hmac
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from longsum_jax.errors import InputError
from longsum_jax.serving.engine import QueueFullError, SummaryPart, TooLongError
from longsum_jax.serving.events import EventStream, event
from longsum_jax.serving.jobs import Result
from longsum_jax.serving.metrics import Metrics

_RETRY_SECONDS = 5
_LOG = logging.getLogger(__name__)

Answer = Callable[[HttpRequest], Awaitable[Response]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request.

    Attributes:
        max_bytes: maximum size of the body.
        max_seconds: maximum time from the first byte to the answer, in seconds.
        api_keys: accepted keys; () to accept every request.
        origins: origins of web pages that may send requests (CORS).
        warm_up_tokens: length up to which programs are compiled at the start.
    """

    max_bytes: int = 2**25
    max_seconds: float = 300.0
    api_keys: Sequence[str] = ()
    origins: Sequence[str] = ()
    warm_up_tokens: int = 2**12


class Guard:
    """Runs endpoints within the limits.

    Args:
        limits: limits of one request.
        max_requests: maximum number of requests whose bodies are read at once.
        metrics: counts of requests.
    """

    def __init__(
        self, limits: Limits, max_requests: int, metrics: Metrics
    ) -> None:
        self._limits = limits
        self._keys = [
            hashlib.sha256(key.encode()).digest() for key in limits.api_keys
        ]
        self._max_requests = max_requests
        self._metrics = metrics
        self._num_requests = 0

    def endpoint(self, answer: Answer) -> Answer:
        """Returns an endpoint with authorization, time limit, errors and counts."""

        async def run(request: HttpRequest) -> Response:
            started = time.monotonic()
            response = await self._answer(request, answer)
            # a stream counts at its end
            if not isinstance(response, EventStream):
                self._count(request, response.status_code, started)
            return response

        return run

    def _count(self, request: HttpRequest, status: int, started: float) -> None:
        seconds = time.monotonic() - started
        self._metrics.count(status, seconds)
        # No text and no name of a document.
        _LOG.info("%s %d %.3f s", request.url.path, status, seconds)

    async def _answer(self, request: HttpRequest, answer: Answer) -> Response:
        self._num_requests += 1
        try:
            self._authorize(request)
            # Before the body is read: many bodies would fill the memory.
            if self._num_requests > self._max_requests:
                raise QueueFullError
            async with asyncio.timeout(self._limits.max_seconds):
                return await answer(request)
        except Exception as error:
            status, message = self.problem(error)
            headers = None
            if status == 429:
                headers = {"Retry-After": str(_RETRY_SECONDS)}
            return JSONResponse(error_body(message), status, headers)
        finally:
            self._num_requests -= 1

    def problem(self, error: Exception) -> tuple[int, str]:
        """Returns the status of an error and its message in a sentence."""
        match error:
            case HTTPException():
                return error.status_code, error.detail
            case TooLongError():
                return 413, str(error)
            case InputError():
                return 422, str(error)
            case QueueFullError():
                return 429, "the queue is full; try again later"
            case TimeoutError():
                seconds = self._limits.max_seconds
                return (
                    504,
                    f"the request took more than {seconds:g} s; send less text",
                )
            case ClientDisconnect():
                return 499, "the client closed the connection"
        # The message may quote the document, so that only the type is logged.
        _LOG.error("a request failed: %s", type(error).__name__)
        return 500, "the server failed to summarize; see its log"

    def _authorize(self, request: HttpRequest) -> None:
        if not self._keys:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        matches = [
            hmac.compare_digest(digest, accepted) for accepted in self._keys
        ]
        if scheme.lower() != "bearer" or not any(matches):
            raise HTTPException(
                401,
                "the API key is missing or wrong; send Authorization: Bearer KEY",
            )

    async def stream(
        self,
        request: HttpRequest,
        parts: AsyncGenerator[SummaryPart | list[Result], None],
        part_event: Callable[[SummaryPart], str],
        end_events: Callable[[list[Result]], Awaitable[str]],
    ) -> Response:
        """Returns a response with events for parts, and at the end for the results.

        An error during the stream is a single event, the last one.

        Args:
            request: request of the client.
            parts: generator, see ``Jobs.parts``.
            part_event: function from a part to its event.
            end_events: function from the results to the last events.
        """
        started = time.monotonic()
        await anext(parts)  # raises the errors that have a status

        async def events() -> AsyncGenerator[str, None]:
            status = 499
            deadline = started + self._limits.max_seconds
            try:
                yield ""
                while True:
                    seconds = max(deadline - time.monotonic(), 0)
                    item = await asyncio.wait_for(anext(parts), seconds)
                    if isinstance(item, SummaryPart):
                        yield part_event(item)
                        continue
                    yield await end_events(item)
                    status = 200
                    return
            except Exception as error:
                status, message = self.problem(error)
                yield event({**error_body(message), "status": status}, "error")
            finally:
                await parts.aclose()
                self._count(request, status, started)

        stream = events()
        await anext(stream)  # started, so that closing it frees the rows
        return EventStream(stream)


def error_body(message: str) -> dict[str, Any]:
    """Returns the body of an error."""
    return {"error": {"message": message}}
