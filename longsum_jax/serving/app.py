"""The HTTP application over one or more engines."""

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
)
from starlette.routing import Route

from longsum_jax.readers import Failure, ReadOptions
from longsum_jax.serving.bodies import (
    as_requests,
    boolean,
    failure_error,
    read_documents,
    read_json,
)
from longsum_jax.serving.chat import ChatAnswer, ChatRequest, parse_chat
from longsum_jax.serving.engine import Engine, SummaryPart
from longsum_jax.serving.events import event
from longsum_jax.serving.guard import Guard, Limits, error_body
from longsum_jax.serving.jobs import Jobs, Result
from longsum_jax.serving.metrics import Metrics
from longsum_jax.serving.openapi import docs_page, openapi
from longsum_jax.serving.page import make_page
from longsum_jax.serving.served_models import ServedModels
from longsum_jax.serving.uploads import Uploads
from longsum_jax.summarization.pipeline import pipeline_options
from longsum_jax.summarization.summary import Request, Summary

_LOG = logging.getLogger(__name__)
# Options of ``/v1/summaries`` that are not options of ``Model.summaries``.
_ANSWER_OPTIONS = ("sources", "document_text", "stream")


class _Server:
    """The endpoints."""

    def __init__(
        self, models: ServedModels, limits: Limits, options: ReadOptions
    ) -> None:
        self._models = models
        self._limits = limits
        self._options = dataclasses.replace(options, sandbox=True)
        self._metrics = Metrics(*models)
        max_requests = 2 * max(engine.max_queue for engine in models)
        self._uploads = Uploads(limits.max_bytes, max_requests)
        self._guard = Guard(limits, max_requests, self._uploads, self._metrics)
        self.endpoint = self._guard.endpoint
        self._page = make_page(max_bytes=limits.max_bytes)
        self._is_ready = False

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Warms up in the background; at shutdown finishes the queue."""
        task = asyncio.create_task(self._warm_up())
        yield
        self._is_ready = False
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        for engine in self._models:
            await asyncio.to_thread(engine.close)

    async def _warm_up(self) -> None:
        try:
            for engine in self._models:
                await self._warm_up_engine(engine)
        except Exception as error:
            _LOG.error(
                "the warm-up failed, /health/ready remains 503: %s", error
            )
        else:
            self._metrics.is_warm = True
            self._is_ready = True

    async def _warm_up_engine(self, engine: Engine) -> None:
        for future in engine.warm_up(self._limits.warm_up_tokens):
            waiting = asyncio.wrap_future(future)
            await asyncio.wait([waiting])
            # cancelled when its programs are compiled
            if not waiting.cancelled():
                waiting.result()

    async def summaries(self, request: HttpRequest) -> Response:
        """Answers ``POST /v1/summaries``."""
        started = time.monotonic()
        body = await read_documents(request, self._uploads, self._options)
        jobs = self._models.take(body.fields)
        with_sources = boolean(body.fields, "sources")
        with_text = boolean(body.fields, "document_text")
        streams = boolean(body.fields, "stream")
        options = dict(body.fields)
        for name in _ANSWER_OPTIONS:
            options.pop(name, None)
        failures = [
            item for item in body.documents if isinstance(item, Failure)
        ]
        documents = [
            item for item in body.documents if isinstance(item, Request)
        ]
        if not documents:
            raise failure_error(failures[0])
        read = time.monotonic()

        async def answer(results: list[Result]) -> dict[str, Any]:
            done = time.monotonic()
            if all(isinstance(result, Exception) for result in results):
                raise results[0]  # type: ignore[misc]
            remaining = iter(results)
            answers = []
            for item in body.documents:
                result: Result = (
                    failure_error(item)
                    if isinstance(item, Failure)
                    else next(remaining)
                )
                fields = await self._document(item.name, result, with_sources)
                # Positions of sources refer to this text.
                if with_text and isinstance(item, Request):
                    fields["document_text"] = item.text
                answers.append(fields)
            seconds = {
                "read": round(read - started, 4),
                "summarize": round(done - read, 4),
            }
            return {
                "model": jobs.engine.name,
                "summaries": answers,
                "seconds": seconds,
            }

        if not streams:
            results = await jobs.summarize(request, documents, options)
            return JSONResponse(await answer(results))
        indices = [
            i
            for i, item in enumerate(body.documents)
            if isinstance(item, Request)
        ]

        def part_event(part: SummaryPart) -> str:
            if part.is_segment:
                kind = "segment"
            else:
                kind = "delta"
            return event(
                {"document": indices[part.document], "text": part.text}, kind
            )

        async def end_events(results: list[Result]) -> str:
            return event(await answer(results), "result")

        parts = jobs.parts(request, documents, options)
        return await self._guard.stream(request, parts, part_event, end_events)

    async def _document(
        self, name: str, result: Result, with_sources: bool
    ) -> dict[str, Any]:
        """Returns the answer for one document."""
        if isinstance(result, Exception):
            status, message = self._guard.problem(result)
            return {"document": name, **error_body(message), "status": status}
        answer = {"document": name, "summary": result.text, **result.report()}
        if with_sources:
            statements = await asyncio.to_thread(getattr, result, "sources")
            answer["sources"] = [statement.report() for statement in statements]
        return answer

    async def summarization(self, request: HttpRequest) -> Response:
        """Answers ``POST /summarization``, the format of the Hub's inference API."""
        fields = await read_json(request, self._uploads)
        jobs = self._models.take(fields)
        if "inputs" not in fields:
            raise HTTPException(422, "give inputs, a text or a list of texts")
        inputs = fields["inputs"]
        parameters = fields.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise HTTPException(422, "parameters must be an object")
        documents = as_requests(
            inputs if isinstance(inputs, list) else [inputs]
        )
        options = pipeline_options(parameters)
        results = await jobs.summarize(request, documents, options)
        return JSONResponse(
            [{"summary_text": item.text} for item in _successful(results)]
        )

    async def models(self, request: HttpRequest) -> Response:
        """Answers ``GET /v1/models``."""
        return JSONResponse({"object": "list", "data": self._models.entries()})

    async def model(self, request: HttpRequest) -> Response:
        """Answers ``GET /v1/models/NAME``."""
        return JSONResponse(self._models.entry(request.path_params["name"]))

    async def chat(self, request: HttpRequest) -> Response:
        """Answers ``POST /v1/chat/completions``: the user message is the document."""
        fields = await read_json(request, self._uploads)
        jobs = self._models.take(fields)
        has_model = jobs.engine.model is not None
        body = parse_chat(fields, has_model=has_model)
        if body.streams:
            return await self._stream_chat(request, jobs, body)
        results = await jobs.summarize(request, [body.document], body.options)
        [summary] = _successful(results)
        answer = ChatAnswer(jobs.engine.name, "chat.completion")
        return JSONResponse(answer.whole(summary))

    async def _stream_chat(
        self, request: HttpRequest, jobs: Jobs, body: ChatRequest
    ) -> Response:
        answer = ChatAnswer(jobs.engine.name, "chat.completion.chunk")
        # of the first chunk
        roles: Iterator[dict[str, Any]] = iter([{"role": "assistant"}])

        def part_event(part: SummaryPart) -> str:
            return event(answer.chunk(content=part.text, **next(roles, {})))

        async def end_events(results: list[Result]) -> str:
            [summary] = _successful(results)
            events = event(answer.chunk(summary, **next(roles, {})))
            if body.includes_usage:
                events += event(answer.usage(summary))
            return f"{events}data: [DONE]\n\n"

        parts = jobs.parts(request, [body.document], body.options)
        return await self._guard.stream(request, parts, part_event, end_events)

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
        return PlainTextResponse(
            self._metrics.text(), media_type="text/plain; version=0.0.4"
        )

    async def openapi(self, request: HttpRequest) -> Response:
        """Answers ``GET /openapi.json``."""
        return JSONResponse(openapi())

    async def docs(self, request: HttpRequest) -> Response:
        """Answers ``GET /docs``."""
        return HTMLResponse(docs_page())


def _successful(results: Sequence[Result]) -> list[Summary]:
    """Returns the summaries; raises the first error."""
    summaries = []
    for result in results:
        if isinstance(result, Exception):
            raise result
        summaries.append(result)
    return summaries


def _as_json(request: HttpRequest, error: Exception) -> Response:
    """Answers requests without an endpoint."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        message = "there is no such endpoint; see /docs"
    else:
        message = f"this endpoint does not accept {request.method}; see /docs for its methods"
    return JSONResponse(error_body(message), error.status_code, error.headers)


def make_app(
    *engines: Engine,
    limits: Limits | None = None,
    options: ReadOptions | None = None,
) -> Starlette:
    """Returns the ASGI application, whose endpoints ``/docs`` lists.

    At its start it compiles programs in the background, and ``/health/ready``
    answers 503 until they are ready. At its shutdown it closes the engines.

    Args:
        *engines: engines that summarize, at least one, with distinct names; the
            first one summarizes for requests that name no model.
        limits: limits of one request, keys and origins; None for the defaults.
        options: limits for reading uploaded files; None for the defaults. Files
            are read in a sandbox in any case.

    Raises:
        InputError: if there is no engine, or two have one name.
    """
    limits = limits or Limits()
    models = ServedModels(*engines)
    server = _Server(models, limits, options or ReadOptions())
    routes = [
        Route(
            "/v1/summaries", server.endpoint(server.summaries), methods=["POST"]
        ),
        Route(
            "/summarization",
            server.endpoint(server.summarization),
            methods=["POST"],
        ),
        Route(
            "/v1/chat/completions",
            server.endpoint(server.chat),
            methods=["POST"],
        ),
        Route("/v1/models", server.endpoint(server.models)),
        # not the model without a name
        Route("/v1/models/", server.endpoint(server.models)),
        Route("/v1/models/{name:path}", server.endpoint(server.model)),
        Route("/", server.page),
        Route("/health/live", server.live),
        Route("/health/ready", server.ready),
        Route("/metrics", server.metrics),
        Route("/openapi.json", server.openapi),
        Route("/docs", server.docs),
    ]
    middleware = []
    if limits.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(limits.origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
        )
        middleware.append(cors)
    return Starlette(
        routes=routes,
        lifespan=server.lifespan,
        middleware=middleware,
        exception_handlers={HTTPException: _as_json},
    )
