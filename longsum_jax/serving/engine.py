"""One thread that owns the model, with a bounded queue of requests.

Requests with equal generation options and lengths, rounded up to a power of
two, share the running batch: a new one enters as soon as a row is free. Other
requests wait until the running batch is finished. Once one has waited for
``_PATIENCE`` seconds, no later request enters. All batches of a length run the
same compiled programs, row by row, so that a result does not depend on others.
"""

import dataclasses
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import MAX_SLOTS, num_slots
from longsum_jax.inference.documents import TokenizedDocument
from longsum_jax.inference.extracts import summarize_stream
from longsum_jax.inference.memory_engine import MemoryEngine
from longsum_jax.inference.rounds import Plan
from longsum_jax.inference.strategy_engine import StrategyEngine
from longsum_jax.inference.summarizer import make_engine
from longsum_jax.inference.summary import Request, Summary, check_text
from longsum_jax.inference.summary_options import (
    SummaryOptions,
    check_arguments,
)
from longsum_jax.models.registry import max_input_length
from longsum_jax.ranking.ranker import DEFAULT_LENGTH
from longsum_jax.ranking.selection import parse_length
from longsum_jax.serving.text_stream import TextStream

if TYPE_CHECKING:
    from longsum_jax.inference.model import Model

# Options for reading documents; the server sets batch_size.
READING_OPTIONS = tuple(
    field.name
    for field in dataclasses.fields(SummaryOptions)
    if field.name != "batch_size"
)
_PATIENCE = 2.0  # seconds
_SHORTEST_SLOTS = 256  # tokens; few lengths have few compiled programs
_MAX_BEAMS = 16
_LOG = logging.getLogger(__name__)


class QueueFullError(Exception):
    """The queue holds as many requests as it may."""


class TooLongError(InputError):
    """A document has more tokens than the server reads."""


class SummaryPart(NamedTuple):
    """A part of a summary that is streamed.

    Attributes:
        document: index of the document in its request.
        text: text to append to the earlier parts.
        is_segment: True if the text is the summary of a segment.
    """

    document: int
    text: str
    is_segment: bool


@dataclasses.dataclass
class Statistics:
    """Counts since the start of the engine.

    Attributes:
        read_tokens: tokens of finished documents that were read.
        written_tokens: tokens of finished summaries.
        running_rows: rows of the running batch that decode a document.
        num_rows: rows of the running batch; 0 if no batch is running.
    """

    read_tokens: int = 0
    written_tokens: int = 0
    running_rows: int = 0
    num_rows: int = 0


class _Job(NamedTuple):
    """A request whose inputs share batches with other requests."""

    future: "Future[Summary]"
    request: Request
    engine: StrategyEngine
    plan: Plan
    stream: TextStream | None


class _Piece(NamedTuple):
    """An input of a request, see ``Engine._run_batch``.

    Attributes:
        job: request of the input.
        number: index of the input in its round.
        document: tokens of the input.
        options: generation options.
        slot_length: length of the rows that the input can enter.
        is_final: True if its text is the summary of the request.
        queued: time of queueing.
        is_alone: True for an input of a batch that failed, which shares none.
        is_warm_up: True to cancel the input after the first steps.
    """

    job: _Job
    number: int
    document: TokenizedDocument
    options: GenerationOptions
    slot_length: int
    is_final: bool
    queued: float
    is_alone: bool = False
    is_warm_up: bool = False

    @property
    def future(self) -> "Future[Summary]":
        """The result of the request."""
        return self.job.future


class _Whole(NamedTuple):
    """A request that does not share a batch, and its summarizing function."""

    future: "Future[Summary]"
    summarize: Callable[[], Summary]
    stream: TextStream | None
    queued: float


class Engine:
    """Summarizes requests of many threads in a thread of its own.

    Args:
        model: loaded model; None for the ranker bundled with the package.
        max_queue: maximum number of unfinished requests.
        max_tokens: maximum number of tokens read of a document, words without
            a model.
        max_new_tokens: maximum number of tokens of a summary.
        batch_size: maximum number of inputs that are decoded together.

    Attributes:
        model: loaded model or None.
        max_queue: maximum number of unfinished requests.
        statistics: counts for monitoring.
    """

    def __init__(
        self,
        model: "Model | None" = None,
        *,
        max_queue: int = 64,
        max_tokens: int = 2**18,
        max_new_tokens: int = 2**12,
        batch_size: int = MAX_SLOTS,
    ) -> None:
        self.model = model
        self.max_queue = max_queue
        self.statistics = Statistics()
        self._max_tokens = max_tokens
        self._max_new_tokens = max_new_tokens
        self._batch_size = batch_size
        self._waiting: deque[_Piece | _Whole] = deque()
        self._changed = threading.Condition()
        self._num_open = 0
        self._is_closed = False
        self._thread = threading.Thread(
            target=self._run, name="engine", daemon=True
        )
        self._thread.start()

    @property
    def num_open(self) -> int:
        """The number of requests that are waiting or being decoded."""
        return self._num_open

    @property
    def num_waiting(self) -> int:
        """The number of inputs in the queue."""
        return len(self._waiting)

    def submit(
        self,
        requests: Sequence[Request],
        options: Mapping[str, Any],
        on_part: Callable[[SummaryPart], None] | None = None,
    ) -> "list[Future[Summary]]":
        """Queues some requests; cancelling a future frees its place or its row.

        Args:
            requests: documents to summarize.
            options: arguments of ``Model.summaries`` except batch_size; without
                a model only ``length``.
            on_part: callback with the parts of summaries as they are decoded,
                in the thread of the engine. Token by token, if the text of one
                input is the summary; segment by segment with strategies
                "segments" and "memory"; else once at the end.

        Returns:
            Futures of the summaries. The future of an invalid document raises
            InputError; the others are not affected.

        Raises:
            InputError: an option is invalid, or there are more documents than
                the queue can hold.
            QueueFullError: the queue has too little room now.
        """
        count = len(requests)
        if count > self.max_queue:
            raise InputError(
                f"{count} documents in a request; send at most {self.max_queue} at a time"
            )
        # Before tokenizing; checked again below.
        if self._num_open + count > self.max_queue:
            raise QueueFullError
        prepare = self._preparation(options)
        futures: list[Future[Summary]] = []
        pieces: list[_Piece | _Whole] = []
        for index, request in enumerate(requests):
            future: Future[Summary] = Future()
            futures.append(future)
            stream = None if on_part is None else _stream(on_part, index)
            try:
                check_text(request)
                pieces += prepare(future, request, stream)
            except InputError as error:
                future.set_exception(error)
        with self._changed:
            if self._is_closed or self._num_open + count > self.max_queue:
                raise QueueFullError
            self._num_open += count
            self._waiting.extend(pieces)
            self._changed.notify()
        for future in futures:
            future.add_done_callback(self._close_request)
        return futures

    def warm_up(self, max_tokens: int) -> "Iterator[Future[Summary]]":
        """Queues inputs that compile the programs of the default options.

        The futures are cancelled as soon as the programs are compiled. A model
        that does not share batches summarizes a sentence instead.

        Args:
            max_tokens: length up to which programs are compiled.

        Yields:
            Futures, one for each length of rows, the longest first.
        """
        request = Request(
            "The server reads this sentence.", "the warm-up", None
        )
        engine = None
        if self.model is not None:
            engine = make_engine(self.model, SummaryOptions(), {})
        if not isinstance(engine, StrategyEngine):
            yield from self.submit([request], {})
            return
        for length in self._warm_up_lengths(max_tokens):
            job = _Job(Future(), request, engine, engine.plan(request), None)
            [piece] = self._round(job)
            ids = (piece.document.ids * length)[:length]
            piece = piece._replace(
                document=TokenizedDocument(ids, length),
                slot_length=length,
                is_alone=True,
                is_warm_up=True,
            )
            with self._changed:
                self._waiting.append(piece)
                self._changed.notify()
            yield job.future

    def close(self) -> None:
        """Finishes the requests in the queue and ends the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _close_request(self, future: "Future[Summary]") -> None:
        with self._changed:
            self._num_open -= 1

    def _warm_up_lengths(self, max_tokens: int) -> list[int]:
        longest = self._slot_length(min(max_tokens, self._max_tokens))
        powers = (_SHORTEST_SLOTS << i for i in itertools.count())
        shorter = itertools.takewhile(lambda length: length < longest, powers)
        return [longest, *reversed(list(shorter))]

    def _preparation(
        self, options: Mapping[str, Any]
    ) -> Callable[..., Sequence[_Piece | _Whole]]:
        """Returns the function that makes the inputs of a request."""
        if self.model is None:
            unknown = next((name for name in options if name != "length"), None)
            if unknown is not None:
                raise InputError(
                    f"{unknown} is for a model, and this server has none; leave it out"
                )
            length = parse_length(options.get("length", DEFAULT_LENGTH))
            return partial(self._extract, length)
        if "batch_size" in options:
            raise InputError("batch_size is set by the server; leave it out")
        reading = {
            name: options[name] for name in READING_OPTIONS if name in options
        }
        generation = {
            name: options[name] for name in options if name not in reading
        }
        check_arguments(generation)
        call = SummaryOptions(**reading)
        make_engine(self.model, call, generation)  # checks the options
        self._check_generation(self.model.summary_options(**generation))
        return partial(self._summarize, call, generation)

    def _check_generation(self, options: GenerationOptions) -> None:
        """Raises InputError for options that need too much memory."""
        if options.max_new_tokens > self._max_new_tokens:
            raise InputError(
                f"a summary may have {options.max_new_tokens:,} tokens, more than "
                f"{self._max_new_tokens:,}; set max_new_tokens or a shorter length"
            )
        if options.num_beams > _MAX_BEAMS:
            raise InputError(
                f"num_beams={options.num_beams} must be at most {_MAX_BEAMS} on this server"
            )

    def _extract(
        self,
        length: Any,
        future: "Future[Summary]",
        request: Request,
        stream: TextStream | None,
    ) -> list[_Whole]:
        self._check_length(request, len(request.text.split()), "words")
        summarize = partial(_extract, request, length)
        return [_Whole(future, summarize, stream, time.monotonic())]

    def _summarize(
        self,
        call: SummaryOptions,
        generation: Mapping[str, Any],
        future: "Future[Summary]",
        request: Request,
        stream: TextStream | None,
    ) -> Sequence[_Piece | _Whole]:
        assert self.model is not None
        strategy = call.strategy
        if strategy == "auto":
            strategy = self.model.trained_strategy
        on_segment = None
        if stream is not None and strategy in ("segments", "memory"):
            on_segment = stream.add_segment
            call = dataclasses.replace(call, strategy=strategy)
        engine = make_engine(self.model, call, generation, on_segment)
        if isinstance(engine, StrategyEngine):
            plan = engine.plan(request)
            self._check_length(request, plan.num_tokens, "tokens")
            return self._round(_Job(future, request, engine, plan, stream))
        num_tokens = len(self.model.tokenizer.encode(request.text))
        limit = call.max_source_length
        read = num_tokens if limit is None else min(limit, num_tokens)
        self._check_length(request, read, "tokens")
        summarize = partial(_summarize_whole, engine, request)
        return [_Whole(future, summarize, stream, time.monotonic())]

    def _check_length(self, request: Request, length: int, unit: str) -> None:
        if length > self._max_tokens:
            remedy = " or set max_source_length" if unit == "tokens" else ""
            raise TooLongError(
                f"{request.name} has {length:,} {unit} to read; send at most "
                f"{self._max_tokens:,}{remedy}"
            )

    def _round(self, job: _Job) -> list[_Piece]:
        """Returns the inputs of a request's next round."""
        pieces = []
        for number, piece in enumerate(job.plan.pieces):
            options = job.engine.generation(piece.max_new_tokens)
            self._check_generation(options)
            pieces.append(
                _Piece(
                    job,
                    number,
                    piece.document,
                    options,
                    self._slot_length(len(piece.document.ids)),
                    piece.is_final,
                    time.monotonic(),
                )
            )
        return pieces

    def _slot_length(self, length: int) -> int:
        """Returns a length rounded up to a power of two that the model can read."""
        assert self.model is not None
        power = max(_SHORTEST_SLOTS, 1 << (length - 1).bit_length())
        limit = max_input_length(self.model.config)
        return power if limit is None else min(power, limit)

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
                self._finish(first, first.summarize())
            except Exception as error:
                _fail(first.future, error)

    def _run_batch(self, first: _Piece) -> None:
        """Decodes the first input of the queue, with all that can share its batch."""
        assert self.model is not None
        # the inputs that are being decoded, by number
        pieces: dict[int, _Piece] = {}
        num_pieces = 0

        def arrivals(
            inside: Sequence[int], size: int
        ) -> tuple[set[int], list[TokenizedDocument]]:
            nonlocal num_pieces
            for index in inside:
                if pieces[index].is_warm_up:
                    pieces[index].future.cancel()
            cancelled = {
                index for index in inside if pieces[index].future.done()
            }
            for index in cancelled:
                del pieces[index]
            documents = []
            for piece in self._take_sharing(
                first, size - len(inside) + len(cancelled)
            ):
                pieces[num_pieces] = piece
                num_pieces += 1
                documents.append(piece.document)
            self.statistics.running_rows = len(pieces)
            return cancelled, documents

        def on_text(index: int, decode: Callable[[], str]) -> None:
            piece = pieces[index]
            if piece.job.stream is None or not piece.is_final:
                return
            try:
                piece.job.stream.update(decode())
            except Exception as error:  # of this stream only
                _fail(piece.future, error)

        num_rows = num_slots(
            self.model.config, [first.slot_length] * self._batch_size
        )
        self.statistics.num_rows = num_rows
        try:
            for index, summary in first.job.engine.documents.decode_arriving(
                arrivals,
                slot_length=first.slot_length,
                batch_size=num_rows,
                options=first.options,
                seed=first.job.engine.seed,
                on_text=on_text,
            ):
                self._take(pieces.pop(index), summary)
        except Exception as error:
            self._fail_batch(first, list(pieces.values()), error)
        self.statistics.running_rows = self.statistics.num_rows = 0

    def _fail_batch(
        self, first: _Piece, pieces: Sequence[_Piece], error: Exception
    ) -> None:
        """Fails a single input; decodes several again, one by one.

        The error may be due to one of them, for example to its memory.
        """
        # The message may quote a document.
        _LOG.error("a batch failed: %s", type(error).__name__)
        if not pieces:  # before any input entered
            with self._changed:
                if self._waiting and self._waiting[0] is first:
                    self._waiting.popleft()
            _fail(first.future, error)
        elif len(pieces) == 1:
            _fail(pieces[0].future, error)
        else:
            repeated = [piece._replace(is_alone=True) for piece in pieces]
            with self._changed:
                self._waiting.extendleft(reversed(repeated))

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
        job = piece.job
        try:
            if not job.plan.take(piece.number, summary):
                return
            result = job.plan.advance()
            if result is not None:
                self._finish(job, result.of(job.request))
                return
            pieces = self._round(job)
        except Exception as error:
            _fail(piece.future, error)
            return
        with self._changed:
            self._waiting.extendleft(reversed(pieces))

    def _finish(self, job: _Job | _Whole, summary: Summary) -> None:
        if job.stream is not None:
            job.stream.finish(summary.text)
        if job.future.set_running_or_notify_cancel():
            self.statistics.read_tokens += summary.read_tokens
            self.statistics.written_tokens += summary.summary_tokens
            job.future.set_result(summary)


def _stream(on_part: Callable[[SummaryPart], None], index: int) -> TextStream:
    return TextStream(
        lambda text, is_segment: on_part(SummaryPart(index, text, is_segment))
    )


def _shares(piece: _Piece, first: _Piece) -> bool:
    """Returns True if an input can be decoded in the batch of another one."""
    if piece is first:
        return True
    same_seed = piece.job.engine.seed == first.job.engine.seed
    return (
        not (piece.is_alone or first.is_alone)
        and piece.options == first.options
        and (same_seed or not piece.options.do_sample)
        and piece.slot_length == first.slot_length
    )


def _summarize_whole(engine: MemoryEngine, request: Request) -> Summary:
    return engine.summaries([request])[0].of(request)


def _extract(request: Request, length: Any) -> Summary:
    [[(_, result)]] = summarize_stream([request], length=length)
    if isinstance(result, InputError):
        raise result
    return result


def _fail(future: "Future[Summary]", error: Exception) -> None:
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
