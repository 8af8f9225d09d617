"""The HTTP application over an engine."""

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import logging
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import jax.monitoring
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route

from longsum_jax.errors import InputError
from longsum_jax.inference.summary import Request, Summary
from longsum_jax.readers import ReadOptions
from longsum_jax.serving.bodies import boolean, read_documents, read_json
from longsum_jax.serving.engine import Engine, QueueFullError
from longsum_jax.serving.page import make_page

_RETRY_SECONDS = 5
_LOG = logging.getLogger(__name__)
_COMPILATION = "/jax/core/compile/backend_compile_duration"  # name of the event in JAX
_WARM_UP = "The server reads this sentence. It then answers requests."


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one request.

    Attributes:
        max_bytes: maximum size of the body.
        max_seconds: maximum time from the first byte to the answer, in seconds.
        api_keys: accepted keys; () to accept every request.
    """

    max_bytes: int = 2**25
    max_seconds: float = 300.0
    api_keys: Sequence[str] = ()


class _Server:
    """The endpoints, with the counts that /metrics reports."""

    def __init__(self, engine: Engine, name: str, limits: Limits, options: ReadOptions) -> None:
        self._engine = engine
        self._name = name
        self._limits = limits
        self._options = dataclasses.replace(options, sandbox=True)
        self._keys = [hashlib.sha256(key.encode()).digest() for key in limits.api_keys]
        self._counts: Counter[int] = Counter()
        self._seconds = 0.0
        self._num_compilations = 0
        self._is_ready = False
        self._page = make_page(has_model=engine.model is not None, max_bytes=limits.max_bytes)
        jax.monitoring.register_event_duration_secs_listener(self._count_compilation)

    def _count_compilation(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        self._num_compilations += event == _COMPILATION

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Warms up in the background; at shutdown finishes the queue."""

        async def warm_up() -> None:
            try:
                await self._summarize([Request(_WARM_UP, "the warm-up", None)], {})
            except Exception:
                _LOG.exception("the warm-up failed; /health/ready remains 503")
            else:
                self._is_ready = True

        task = asyncio.create_task(warm_up())
        yield
        self._is_ready = False
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
        await asyncio.to_thread(self._engine.close)

    def endpoint(
        self, answer: Callable[[HttpRequest], Awaitable[Response]]
    ) -> Callable[[HttpRequest], Awaitable[Response]]:
        """Returns an endpoint with authorization, time limit, errors and counts."""

        async def run(request: HttpRequest) -> Response:
            began = time.monotonic()
            response = await self._answer(request, answer)
            seconds = time.monotonic() - began
            self._counts[response.status_code] += 1
            self._seconds += seconds
            # No text and no name of a document.
            _LOG.info("%s %d %.3f s", request.url.path, response.status_code, seconds)
            return response

        return run

    async def _answer(
        self, request: HttpRequest, answer: Callable[[HttpRequest], Awaitable[Response]]
    ) -> Response:
        try:
            self._authorize(request)
            async with asyncio.timeout(self._limits.max_seconds):
                return await answer(request)
        except HTTPException as error:
            return _error(error.status_code, error.detail)
        except InputError as error:
            return _error(422, str(error))
        except QueueFullError:
            headers = {"Retry-After": str(_RETRY_SECONDS)}
            return _error(429, "the queue is full; try again later", headers)
        except TimeoutError:
            seconds = self._limits.max_seconds
            return _error(504, f"the request took more than {seconds:g} s; send less text")
        except ClientDisconnect:
            return _error(499, "the client closed the connection")
        except Exception as error:
            # The message may quote the document, so that only the type is logged.
            _LOG.error("%s failed: %s", request.url.path, type(error).__name__)
            return _error(500, "the server failed to summarize; see its log")

    def _authorize(self, request: HttpRequest) -> None:
        if not self._keys:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        digest = hashlib.sha256(key.strip().encode()).digest()
        matches = [hmac.compare_digest(digest, accepted) for accepted in self._keys]
        if scheme.lower() != "bearer" or not any(matches):
            raise HTTPException(
                401, "the API key is missing or wrong; send Authorization: Bearer KEY"
            )

    async def _summarize(
        self,
        documents: Sequence[Request],
        options: Mapping[str, Any],
        http: HttpRequest | None = None,
    ) -> list[Summary]:
        """Returns the summaries; cancels them if the client closes the connection."""
        gone: asyncio.Future[Any] | None = None
        if http is not None:
            gone = asyncio.ensure_future(http.receive())
        # Tokenizing runs in a thread, which continues if this request is cancelled meanwhile.
        submitted = asyncio.ensure_future(
            asyncio.to_thread(self._engine.submit, documents, options)
        )
        futures: list[asyncio.Future[Summary]] = []
        try:
            futures += [asyncio.wrap_future(future) for future in await asyncio.shield(submitted)]
            everything = asyncio.gather(*futures)
            waits: list[asyncio.Future[Any]] = [everything, *([] if gone is None else [gone])]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                raise ClientDisconnect
            return list(everything.result())
        finally:
            if gone is not None:
                gone.cancel()
            if not submitted.done():
                submitted.add_done_callback(_cancel_submitted)
            for waiting in futures:
                waiting.cancel()  # frees its row; without effect if it is done

    async def summaries(self, request: HttpRequest) -> Response:
        """Answers ``POST /v1/summaries``."""
        began = time.monotonic()
        body = await read_documents(request, self._limits.max_bytes, self._options)
        with_sources = boolean(body.fields, "sources")
        with_text = boolean(body.fields, "document_text")
        options = dict(body.fields)
        for name in ("sources", "document_text"):
            options.pop(name, None)
        read = time.monotonic()
        results = await self._summarize(body.documents, options, request)
        done = time.monotonic()
        answers = []
        for document, summary in zip(body.documents, results, strict=True):
            answer = {"document": document.name, "summary": summary.text, **summary.report()}
            if with_sources:
                statements = await asyncio.to_thread(getattr, summary, "sources")
                answer["sources"] = [statement.report() for statement in statements]
            if with_text:  # positions of sources refer to it
                answer["document_text"] = document.text
            answers.append(answer)
        seconds = {"read": round(read - began, 4), "summarize": round(done - read, 4)}
        return JSONResponse({"model": self._name, "summaries": answers, "seconds": seconds})

    async def summarization(self, request: HttpRequest) -> Response:
        """Answers ``POST /summarization``, the format of the Hub's inference API."""
        fields = await read_json(request, self._limits.max_bytes)
        inputs, options = fields.get("inputs"), fields.get("parameters") or {}
        texts = inputs if isinstance(inputs, list) else [inputs]
        if not texts or not isinstance(options, dict):
            raise HTTPException(422, "give inputs, a string or a list, and parameters, an object")
        documents = [Request(text, f"input {i}", None) for i, text in enumerate(texts, 1)]
        results = await self._summarize(documents, options, request)
        return JSONResponse([{"summary_text": summary.text} for summary in results])

    async def models(self, request: HttpRequest) -> Response:
        """Answers ``GET /v1/models``."""
        model = {"id": self._name, "object": "model", "created": 0, "owned_by": "longsum"}
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, request: HttpRequest) -> Response:
        """Answers ``POST /v1/chat/completions``: the last user message is the document.

        With ``stream`` the whole summary is one event, sent when it is finished.
        """
        fields = await read_json(request, self._limits.max_bytes)
        messages = fields.get("messages")
        if not isinstance(messages, list) or not all(isinstance(item, dict) for item in messages):
            raise HTTPException(422, "messages must be a list of objects")
        texts = [item.get("content") for item in messages if item.get("role") == "user"]
        if len(texts) != 1:
            raise HTTPException(422, "messages must hold one user message, the document")
        streams = boolean(fields, "stream")
        limit = fields.get("max_completion_tokens", fields.get("max_tokens"))
        options = {} if limit is None else {"max_new_tokens": limit}
        document = Request(texts[0], "the user message", None)
        (summary,) = await self._summarize([document], options, request)
        reason = "stop" if summary.ended == "eos" else "length"
        kind = "chat.completion.chunk" if streams else "chat.completion"
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self._name,
        }
        message = {"role": "assistant", "content": summary.text}
        part = "delta" if streams else "message"
        answer["choices"] = [{"index": 0, part: message, "finish_reason": reason}]
        if streams:
            events = f"data: {json.dumps(answer)}\n\ndata: [DONE]\n\n"
            return Response(events, media_type="text/event-stream")
        answer["usage"] = {
            "prompt_tokens": summary.read_tokens,
            "completion_tokens": summary.summary_tokens,
            "total_tokens": summary.read_tokens + summary.summary_tokens,
        }
        return JSONResponse(answer)

    async def page(self, request: HttpRequest) -> Response:
        """Answers ``GET /``, without a key: the page contains no data."""
        return HTMLResponse(self._page.text, headers=self._page.headers)

    async def live(self, request: HttpRequest) -> Response:
        """Answers ``GET /health/live``."""
        return PlainTextResponse("live\n")

    async def ready(self, request: HttpRequest) -> Response:
        """Answers ``GET /health/ready``: 503 before the warm-up is finished."""
        if self._is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", 503)

    async def metrics(self, request: HttpRequest) -> Response:
        """Answers ``GET /metrics`` in the text format of Prometheus."""
        lines = ["# TYPE longsum_requests_total counter"]
        for status, count in sorted(self._counts.items()):
            lines.append(f'longsum_requests_total{{status="{status}"}} {count}')
        lines += [
            "# TYPE longsum_request_seconds summary",
            f"longsum_request_seconds_sum {self._seconds:.6f}",
            f"longsum_request_seconds_count {self._counts.total()}",
            "# TYPE longsum_open_documents gauge",
            f"longsum_open_documents {self._engine.num_open}",
            "# TYPE longsum_compilations_total counter",
            f"longsum_compilations_total {self._num_compilations}",
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _cancel_submitted(submitted: "asyncio.Future[list[Future[Summary]]]") -> None:
    """Cancels the requests that were queued after their client had gone."""
    if not submitted.cancelled() and submitted.exception() is None:
        for future in submitted.result():
            future.cancel()


def _error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"message": message}}, status, headers)


def make_app(
    engine: Engine,
    *,
    name: str = "longsum",
    limits: Limits | None = None,
    options: ReadOptions | None = None,
) -> Starlette:
    """Returns the application; it closes the engine when it shuts down.

    Args:
        engine: engine that summarizes.
        name: name of the model in answers.
        limits: limits of one request.
        options: limits of reading uploaded files.
    """
    server = _Server(engine, name, limits or Limits(), options or ReadOptions())
    routes = [
        Route("/v1/summaries", server.endpoint(server.summaries), methods=["POST"]),
        Route("/summarization", server.endpoint(server.summarization), methods=["POST"]),
        Route("/v1/chat/completions", server.endpoint(server.chat), methods=["POST"]),
        Route("/v1/models", server.endpoint(server.models)),
        Route("/", server.page),
        Route("/health/live", server.live),
        Route("/health/ready", server.ready),
        Route("/metrics", server.metrics),
    ]
    return Starlette(routes=routes, lifespan=server.lifespan)
