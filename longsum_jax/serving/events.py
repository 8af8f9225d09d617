"""Server-sent events: the parts of an answer while it is computed."""

import json
from collections.abc import AsyncGenerator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send


def event(data: Any, name: str | None = None) -> str:
    """Returns an event with data as JSON."""
    lines = "" if name is None else f"event: {name}\n"
    return f"{lines}data: {json.dumps(data, ensure_ascii=False)}\n\n"


class EventStream(Response):
    """A response that sends events as they are generated.

    Args:
        events: generator of events; closed when the response ends, also if the
            client closes the connection.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[str, None]) -> None:
        super().__init__(
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        )
        del self.headers["content-length"]
        self._events = events

    async def __call__(
        self, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Sends the events; a client that goes away ends them."""
        try:
            start = {"type": "http.response.start", "status": self.status_code}
            await send({**start, "headers": self.raw_headers})
            async for text in self._events:
                body = {"type": "http.response.body", "body": text.encode()}
                await send({**body, "more_body": True})
            await send(
                {"type": "http.response.body", "body": b"", "more_body": False}
            )
        except OSError:  # the client closed the connection
            pass
        finally:
            await self._events.aclose()
