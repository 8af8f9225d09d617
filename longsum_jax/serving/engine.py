"""One thread that owns the model, with a bounded queue of requests.

Requests with equal generation options share the running batch: a new one enters as soon as a row is
free. A request with other options, or with a longer document than the rows hold, waits until the
running batch is finished. Once it has waited for ``_PATIENCE`` seconds, no later request enters.
"""

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import MAX_SLOTS, num_slots
from longsum_jax.inference.documents import TokenizedDocument
from longsum_jax.inference.extracts import summarize_stream
from longsum_jax.inference.rounds import Plan
from longsum_jax.inference.strategy_engine import StrategyEngine
from longsum_jax.inference.summarizer import make_engine
from longsum_jax.inference.summary import Request, Summary, check_text
from longsum_jax.inference.summary_options import SummaryOptions, check_arguments
from longsum_jax.models.registry import max_input_length
from longsum_jax.ranking.ranker import DEFAULT_LENGTH
from longsum_jax.ranking.selection import parse_length

if TYPE_CHECKING:
    from longsum_jax.inference.model import Model

READING_OPTIONS = (
    *("strategy", "length", "max_source_length", "segment_length", "on_overflow", "seed"),
)
_PATIENCE = 2.0  # seconds


class QueueFullError(Exception):
    """The queue holds as many requests as it may."""


class _Piece(NamedTuple):
    """An input of a request, see ``Engine._run_batch``; ``number`` is its index in the round."""

    future: "Future[Summary]"
    request: Request
    engine: StrategyEngine
    plan: Plan
    number: int
    document: TokenizedDocument
    options: GenerationOptions
    slot_length: int
    queued: float  # time


class _Whole(NamedTuple):
    """A request that does not share a batch, and the function that summarizes it."""

    future: "Future[Summary]"
    summarize: Any
    queued: float


class Engine:
    """Summarizes requests of many threads in a thread of its own.

    Args:
        model: loaded model; None for the ranker bundled with the package.
        max_queue: maximum number of unfinished requests.
        batch_size: maximum number of inputs that are decoded together.
    """

    def __init__(
        self, model: "Model | None" = None, *, max_queue: int = 64, batch_size: int = MAX_SLOTS
    ) -> None:
        self.model = model
        self._max_queue = max_queue
        self._batch_size = batch_size
        self._waiting: deque[_Piece | _Whole] = deque()
        self._changed = threading.Condition()
        self._num_open = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        """The number of requests that are waiting or being decoded."""
        return self._num_open

    def submit(
        self, requests: Sequence[Request], options: Mapping[str, Any]
    ) -> "list[Future[Summary]]":
        """Queues all of some requests, or none; cancelling a future frees its place or its row.

        Args:
            requests: documents to summarize.
            options: arguments of ``Model.summaries``; without a model only ``length``.

        Raises:
            InputError: a document or an option is invalid, or there are more documents than the
                queue can hold.
            QueueFullError: the queue has too little room now.
        """
        count = len(requests)
        if count > self._max_queue:
            raise InputError(
                f"{count} documents in a request; send at most {self._max_queue} at a time"
            )
        if self._num_open + count > self._max_queue:  # before tokenizing; checked again below
            raise QueueFullError
        futures: list[Future[Summary]] = []
        pieces: list[_Piece | _Whole] = []
        for request in requests:
            check_text(request)
            futures.append(Future())
            pieces += self._pieces(futures[-1], request, options)
        with self._changed:
            if self._is_closed or self._num_open + count > self._max_queue:
                raise QueueFullError
            self._num_open += count
            for future in futures:
                future.add_done_callback(self._close_request)
            self._waiting.extend(pieces)
            self._changed.notify()
        return futures

    def close(self) -> None:
        """Finishes the requests in the queue and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _close_request(self, future: "Future[Summary]") -> None:
        with self._changed:
            self._num_open -= 1

    def _pieces(
        self, future: "Future[Summary]", request: Request, options: Mapping[str, Any]
    ) -> Sequence[_Piece | _Whole]:
        if self.model is None:
            unknown = next((name for name in options if name != "length"), None)
            if unknown is not None:
                raise InputError(
                    f"{unknown} is for a model, and this server has none; leave it out"
                )
            length = parse_length(options.get("length", DEFAULT_LENGTH))
            return [_Whole(future, partial(_extract, request, length), time.monotonic())]
        reading = {name: options[name] for name in READING_OPTIONS if name in options}
        generation = {name: options[name] for name in options if name not in reading}
        check_arguments(generation)
        engine = make_engine(self.model, SummaryOptions(**reading), generation)
        if not isinstance(engine, StrategyEngine):
            return [_Whole(future, partial(_summarize, engine, request), time.monotonic())]
        return self._round(future, request, engine, engine.plan(request))

    def _round(
        self, future: "Future[Summary]", request: Request, engine: StrategyEngine, plan: Plan
    ) -> list[_Piece]:
        """Returns the inputs of the plan's next round."""
        return [
            _Piece(
                future,
                request,
                engine,
                plan,
                number,
                piece.document,
                engine.generation(piece.max_new_tokens),
                self._slot_length(len(piece.document.ids)),
                time.monotonic(),
            )
            for number, piece in enumerate(plan.pieces)
        ]

    def _slot_length(self, length: int) -> int:
        """Returns the padded length rounded up to a power of two, if the model can read it."""
        assert self.model is not None
        ids = np.ones((1, length), np.int32)
        padded = self.model.padded_document(ids, ids == 1).ids.shape[1]
        power = 1 << (padded - 1).bit_length()
        limit = max_input_length(self.model.config)
        return padded if limit is not None and power > limit else power

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if not self._waiting:
                    return
                first = self._waiting[0]
                if isinstance(first, _Whole) or first.future.done():
                    self._waiting.popleft()
            if first.future.done():
                continue
            if isinstance(first, _Piece):
                self._run_batch(first)
                continue
            try:
                _finish(first.future, first.summarize())
            except Exception as error:
                _fail(first.future, error)

    def _run_batch(self, first: _Piece) -> None:
        """Decodes the first input of the queue, with all that can share its batch."""
        assert self.model is not None
        pieces: dict[int, _Piece] = {}  # the inputs that are being decoded, by number
        num_pieces = 0

        def arrivals(inside: Sequence[int], size: int) -> tuple[set[int], list[TokenizedDocument]]:
            nonlocal num_pieces
            cancelled = {index for index in inside if pieces[index].future.done()}
            for index in cancelled:
                del pieces[index]
            documents = []
            for piece in self._take_sharing(first, size - len(inside) + len(cancelled)):
                pieces[num_pieces] = piece
                num_pieces += 1
                documents.append(piece.document)
            return cancelled, documents

        try:
            lengths = [first.slot_length] * self._batch_size
            for index, summary in first.engine.documents.decode_arriving(
                arrivals,
                slot_length=first.slot_length,
                batch_size=num_slots(self.model.config, lengths),
                options=first.options,
                seed=first.engine.seed,
            ):
                self._take(pieces.pop(index), summary)
        except Exception as error:  # of the device: it ends the whole batch
            for piece in pieces.values():
                _fail(piece.future, error)

    def _take_sharing(self, first: _Piece, count: int) -> list[_Piece]:
        """Removes up to ``count`` inputs from the queue that can share the batch of ``first``."""
        selected: list[_Piece] = []
        passed: list[_Piece | _Whole] = []
        latest = time.monotonic() - _PATIENCE
        with self._changed:
            while len(selected) < count and self._waiting:
                piece = self._waiting.popleft()
                if piece.future.done():
                    continue
                if isinstance(piece, _Piece) and _shares(piece, first):
                    selected.append(piece)
                    continue
                passed.append(piece)
                if piece.queued < latest:
                    break
            self._waiting.extendleft(reversed(passed))
        return selected

    def _take(self, piece: _Piece, summary: Summary) -> None:
        """Stores the summary of an input, and starts the next round of its request if complete."""
        try:
            if not piece.plan.take(piece.number, summary):
                return
            result = piece.plan.advance()
            if result is not None:
                _finish(piece.future, result.of(piece.request))
                return
            pieces = self._round(piece.future, piece.request, piece.engine, piece.plan)
        except Exception as error:
            _fail(piece.future, error)
            return
        with self._changed:
            self._waiting.extendleft(reversed(pieces))


def _shares(piece: _Piece, first: _Piece) -> bool:
    """Returns True if an input can be decoded in the batch of another one."""
    return (
        piece.options == first.options
        and piece.engine.seed == first.engine.seed
        and piece.slot_length <= first.slot_length
    )


def _summarize(engine: Any, request: Request) -> Summary:
    result: Summary = engine.summaries([request])[0].of(request)
    return result


def _extract(request: Request, length: Any) -> Summary:
    [[(_, result)]] = summarize_stream([request], length=length)
    if isinstance(result, InputError):
        raise result
    return result


def _finish(future: "Future[Summary]", summary: Summary) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(summary)


def _fail(future: "Future[Summary]", error: Exception) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
