"""Submits requests of HTTP clients to the engine and waits for their results."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from longsum_jax.errors import InputError
from longsum_jax.serving.bodies import wait_for_disconnect
from longsum_jax.serving.engine import Engine, SummaryPart
from longsum_jax.summarization.summary import Request, Summary

Result = Summary | Exception


class Jobs:
    """Summarizes documents of HTTP requests with an engine.

    Args:
        engine: engine that summarizes.

    Attributes:
        engine: engine that summarizes.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def summarize(
        self,
        request: HttpRequest,
        documents: Sequence[Request],
        options: Mapping[str, Any],
    ) -> list[Result]:
        """Returns a summary or an error of every document.

        Raises:
            InputError: an option or a single document is invalid.
            QueueFullError: the queue has too little room.
            ClientDisconnect: the client closed the connection.
        """
        return await self._results(
            await self._submit(documents, options), request
        )

    async def _submit(
        self,
        documents: Sequence[Request],
        options: Mapping[str, Any],
        on_part: Callable[[SummaryPart], None] | None = None,
    ) -> "list[Future[Summary]]":
        """Queues documents; raises the error of a single invalid one."""
        # Tokenizing runs in a thread, which continues if this request is
        # cancelled meanwhile.
        submitted = asyncio.ensure_future(
            asyncio.to_thread(self.engine.submit, documents, options, on_part)
        )
        try:
            futures = await asyncio.shield(submitted)
        except asyncio.CancelledError:
            submitted.add_done_callback(_cancel_submitted)
            raise
        if (
            len(futures) == 1
            and futures[0].done()
            and not futures[0].cancelled()
        ):
            error = futures[0].exception()
            if isinstance(error, InputError):
                raise error
        return futures

    async def _results(
        self, futures: "Sequence[Future[Summary]]", request: HttpRequest
    ) -> list[Result]:
        """Returns summaries and errors; cancels them if the client closes the connection."""
        waiting = [asyncio.wrap_future(future) for future in futures]
        everything = asyncio.gather(*waiting, return_exceptions=True)
        gone = asyncio.ensure_future(wait_for_disconnect(request))
        events: list[asyncio.Future[Any]] = [everything, gone]
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
            if not everything.done():
                raise ClientDisconnect
            results: list[Any] = everything.result()
            return results
        finally:
            for future in futures:
                future.cancel()  # frees its row; without effect if it is done
            gone.cancel()
            everything.cancel()
            await asyncio.gather(gone, everything, return_exceptions=True)

    async def parts(
        self,
        request: HttpRequest,
        documents: Sequence[Request],
        options: Mapping[str, Any],
    ) -> AsyncGenerator[SummaryPart | list[Result], None]:
        """Yields [] when the documents are queued, parts of summaries, and the results.

        Raises:
            InputError, QueueFullError, ClientDisconnect: as ``summarize``.
        """
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[SummaryPart | None] = asyncio.Queue()

        def put(part: SummaryPart) -> None:
            loop.call_soon_threadsafe(queue.put_nowait, part)

        futures = await self._submit(documents, options, put)
        task = asyncio.create_task(self._results(futures, request))
        task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            yield []
            while (part := await queue.get()) is not None:
                yield part
            yield task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _cancel_submitted(
    submitted: "asyncio.Future[list[Future[Summary]]]",
) -> None:
    """Cancels the requests that were queued after their client had gone."""
    if not submitted.cancelled() and submitted.exception() is None:
        for future in submitted.result():
            future.cancel()
