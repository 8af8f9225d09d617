"""The engine of the server, which turns requests of many clients into summaries.

    request  ->  pieces  ->  queue  ->  batches of a replica  ->  summary
              (pieces.py) (fair_queue.py) (worker.py, batch.py)

1. In the caller's thread, the options are checked, and the document is
   tokenized and cut into pieces, the inputs of the model.
2. The pieces wait in a queue, in which requests take turns.
3. Each replica, a copy of the model on its devices, has a thread. It opens a
   few batches, which take turns, and decodes pieces of several requests in the
   rows of a batch.
4. The summaries of a round's pieces become the pieces of the next round (with
   "hierarchical" or "refine"), or the summary of the document.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from longsum_jax.decoding.decoder import with_room
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.inference.continuous import MAX_SLOTS
from longsum_jax.ranking.ranker import DEFAULT_LENGTH
from longsum_jax.serving.batch import WARM_UP_PIECES
from longsum_jax.serving.fair_queue import FairQueue
from longsum_jax.serving.lengths import (
    read_lengths,
    row_length,
    summary_room,
)
from longsum_jax.serving.pieces import (
    BatchKind,
    Job,
    JobPiece,
    WholeJob,
    Work,
)
from longsum_jax.serving.replicas import Replica
from longsum_jax.serving.statistics import ReplicaStatistics
from longsum_jax.serving.text_stream import TextStream
from longsum_jax.serving.worker import Worker
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.extracts import summarize_stream
from longsum_jax.summarization.model import make_engine
from longsum_jax.summarization.strategy_engine import StrategyEngine
from longsum_jax.summarization.summary import Request, Summary, check_text
from longsum_jax.summarization.summary_options import (
    SummaryOptions,
    make_options,
)
from longsum_jax.text.lengths import parse_length

if TYPE_CHECKING:
    from longsum_jax.summarization.model import Model

BUILT_IN = "built-in"  # name of the bundled ranker
_MAX_BEAMS = 16
_WARM_UP = Request("The server reads this sentence.", "the warm-up", None)


class QueueFullError(Exception):
    """The queue has no room for the documents of a request."""


class TooLongError(InputError):
    """A document has more tokens than the server accepts."""


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


class Engine:
    """Summarizes requests from many threads; each replica has a worker thread.

    Args:
        model: loaded model; None for the ranker bundled with the package.
        name: name of the model in requests and responses.
        replicas: copies of the model, see ``make_replicas``; () for a single
            one, ``model`` on its current devices.
        max_queue: maximum number of unfinished documents.
        max_tokens: maximum number of tokens to read of a document, or of words
            without a model; longer documents are rejected.
        max_new_tokens: maximum number of tokens that a request may ask of a
            summary.
        batch_size: maximum number of inputs that are decoded together in a
            batch.

    Attributes:
        name: name of the model in requests and responses.
        model: model of the first replica; None for the bundled ranker.
        max_queue: maximum number of unfinished documents.
    """

    def __init__(
        self,
        model: "Model | None" = None,
        *,
        name: str = BUILT_IN,
        replicas: Sequence[Replica] = (),
        max_queue: int = 64,
        max_tokens: int = 2**18,
        max_new_tokens: int = 2**12,
        batch_size: int = MAX_SLOTS,
    ) -> None:
        replicas = replicas or [Replica(model)]
        self.name = name
        self.model: Model | None = replicas[0].model
        self.max_queue = max_queue
        self._max_tokens = max_tokens
        self._max_new_tokens = max_new_tokens
        self._queue = FairQueue()
        self._lock = threading.Lock()  # for the two fields below
        self._num_open = 0
        self._is_closed = False
        self._workers = [
            Worker(
                replica,
                self._queue,
                self._round,
                batch_size,
                thread_name=f"{name} {replica.name}",
            )
            for replica in replicas
        ]
        for worker in self._workers:
            worker.start()

    @property
    def num_open(self) -> int:
        """The number of documents that are waiting or being decoded."""
        return self._num_open

    @property
    def num_waiting(self) -> int:
        """The number of pieces in the queue."""
        return len(self._queue)

    @property
    def statistics(self) -> Mapping[str, ReplicaStatistics]:
        """The statistics of every replica, by its name."""
        return {
            worker.replica.name: worker.statistics for worker in self._workers
        }

    @property
    def thread_names(self) -> Mapping[str, str]:
        """The name of each replica by the name of its thread."""
        return {
            worker.thread_name: worker.replica.name for worker in self._workers
        }

    def submit(
        self,
        requests: Sequence[Request],
        options: Mapping[str, Any],
        on_part: Callable[[SummaryPart], None] | None = None,
    ) -> "list[Future[Summary]]":
        """Queues documents; cancelling a future frees its place in the queue or its row.

        Args:
            requests: documents to summarize.
            options: fields of ``SummaryOptions`` except ``batch_size`` and
                ``generation``, and options of ``Model.generate``, by name;
                without a model only ``length``.
            on_part: callback for the parts of summaries as they are decoded,
                called in the thread of a replica: token by token if the summary
                is the output for a single piece, segment by segment with the
                strategies "segments" and "memory", otherwise once at the end.

        Returns:
            Futures of the summaries, in the order of ``requests``. The future
            of an invalid document raises InputError, of a document that is too
            long TooLongError; the others are not affected.

        Raises:
            InputError: an option is invalid, or there are more than
                ``max_queue`` documents.
            QueueFullError: the queue has no room for them at the moment, or the
                engine is closed.
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
        works: list[Work] = []
        for index, request in enumerate(requests):
            future: Future[Summary] = Future()
            futures.append(future)
            stream = None if on_part is None else _stream(on_part, index)
            try:
                check_text(request)
                works += prepare(future, request, stream)
            except InputError as error:
                future.set_exception(error)
        with self._lock:
            if self._is_closed or self._num_open + count > self.max_queue:
                raise QueueFullError
            self._num_open += count
            # Within the lock, because a closed queue accepts nothing.
            self._queue.put(works)
        for future in futures:
            future.add_done_callback(self._close_request)
        return futures

    def warm_up(self, max_tokens: int) -> "Iterator[Future[Summary]]":
        """Queues pieces that compile the programs of the default options on all replicas.

        The futures are cancelled as soon as the programs are compiled. If the
        model decodes whole documents instead of pieces, it summarizes a
        sentence.

        Args:
            max_tokens: length up to which programs are compiled.

        Yields:
            Futures, one for each replica and length, the longest first.
        """
        model, engine = self.model, None
        if model is not None:
            engine = make_engine(model, SummaryOptions())
        if model is None or engine is None or engine.reads_segments:
            for number in range(len(self._workers)):
                yield self._warm_up_whole(number)
            return
        longest = min(max_tokens, self._max_tokens)
        for length in read_lengths(model.config, longest):
            # The replicas compile at the same time.
            yield from [
                self._warm_up_length(engine, length, number)
                for number in range(len(self._workers))
            ]

    def _warm_up_whole(self, number: int) -> "Future[Summary]":
        prepare = self._preparation({})
        [job] = prepare(Future(), _WARM_UP, None)
        self._queue.put([job._replace(replica=number)])
        return job.future

    def _warm_up_length(
        self, engine: StrategyEngine, length: int, number: int
    ) -> "Future[Summary]":
        assert self.model is not None
        job = Job(Future(), _WARM_UP, engine, engine.plan(_WARM_UP), None)
        [piece] = self._round(job)
        ids = (piece.document.ids * length)[:length]
        kind = piece.kind._replace(
            row_length=row_length(self.model.config, length)
        )
        piece = piece._replace(
            document=TokenizedDocument(ids, length),
            kind=kind,
            replica=number,
            is_warm_up=True,
        ).single()
        self._queue.put(piece._replace(number=i) for i in range(WARM_UP_PIECES))
        return job.future

    def close(self) -> None:
        """Finishes the requests in the queue and ends the threads."""
        with self._lock:
            self._is_closed = True
        self._queue.close()
        for worker in self._workers:
            worker.join()

    def _close_request(self, future: "Future[Summary]") -> None:
        with self._lock:
            self._num_open -= 1

    def _preparation(
        self, options: Mapping[str, Any]
    ) -> Callable[..., Sequence[Work]]:
        """Returns a function that makes the work of a request: its pieces, or a whole job."""
        if self.model is None:
            unknown = next((name for name in options if name != "length"), None)
            if unknown is not None:
                raise InputError(
                    f"{unknown} is for a model, not for the ranker {self.name}; "
                    "leave it out"
                )
            length = options.get("length")
            length = parse_length(DEFAULT_LENGTH if length is None else length)
            return partial(self._extract, length)
        if "batch_size" in options:
            raise InputError("batch_size is set by the server; leave it out")
        call = make_options(**options)
        make_engine(self.model, call)  # checks the options
        self._check_generation(self.model.summary_options(**call.generation))
        return partial(self._summarize, call)

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
    ) -> list[WholeJob]:
        self._check_length(request, len(request.text.split()), "words")
        summarize = partial(_extract, request, length)
        return [WholeJob(future, summarize, stream, time.monotonic())]

    def _summarize(
        self,
        call: SummaryOptions,
        future: "Future[Summary]",
        request: Request,
        stream: TextStream | None,
    ) -> Sequence[Work]:
        assert self.model is not None
        strategy = call.strategy
        if strategy == "auto":
            strategy = self.model.trained_strategy
        on_segment = None
        if stream is not None and strategy in ("segments", "memory"):
            on_segment = stream.add_segment
            call = dataclasses.replace(call, strategy=strategy)
        engine = make_engine(self.model, call, on_segment)
        if not engine.reads_segments:
            plan = engine.plan(request)
            self._check_length(request, plan.num_tokens, "tokens")
            return self._round(Job(future, request, engine, plan, stream))
        num_tokens = len(self.model.tokenizer.encode(request.text))
        limit = call.max_source_length
        read = num_tokens if limit is None else min(limit, num_tokens)
        self._check_length(request, read, "tokens")
        room = self._room(self.model.summary_options(**call.generation))

        def continue_unless_cancelled(text: str) -> None:
            if future.done():
                raise CancelledError  # ends the decoding
            if on_segment is not None:
                on_segment(text)

        summarize = partial(
            _summarize_whole, call, continue_unless_cancelled, room, request
        )
        return [WholeJob(future, summarize, stream, time.monotonic())]

    def _check_length(self, request: Request, length: int, unit: str) -> None:
        if length > self._max_tokens:
            remedy = " or set max_source_length" if unit == "tokens" else ""
            raise TooLongError(
                f"{request.name} has {length:,} {unit} to read; send at most "
                f"{self._max_tokens:,}{remedy}"
            )

    def _round(self, job: Job) -> list[JobPiece]:
        """Returns the pieces of a job's next round."""
        assert self.model is not None
        pieces = []
        for number, piece in enumerate(job.plan.pieces):
            options = job.engine.generation(piece.max_new_tokens)
            self._check_generation(options)
            # The limits are values of the row, not of the compiled program.
            options, limits = with_room(options, self._room(options))
            kind = BatchKind(
                options,
                job.engine.seed if options.do_sample else None,
                row_length(self.model.config, len(piece.document.ids)),
            )
            pieces.append(
                JobPiece(
                    job,
                    number,
                    piece.document,
                    limits,
                    kind,
                    piece.is_final,
                    time.monotonic(),
                )
            )
        return pieces

    def _room(self, options: GenerationOptions) -> int:
        """Returns the number of tokens for which a program with these options is compiled."""
        assert self.model is not None
        default = self.model.summary_options().max_new_tokens
        return summary_room(self.model.config, options.max_new_tokens, default)


def _stream(on_part: Callable[[SummaryPart], None], index: int) -> TextStream:
    return TextStream(
        lambda text, is_segment: on_part(SummaryPart(index, text, is_segment))
    )


def _summarize_whole(
    call: SummaryOptions,
    on_segment: Callable[[str], None],
    room: int,
    request: Request,
    model: "Model",
) -> Summary:
    engine = make_engine(model, call, on_segment, room)
    return engine.summaries([request])[0].of(request)


def _extract(request: Request, length: Any, model: None) -> Summary:
    [[(_, result)]] = summarize_stream([request], length=length)
    if isinstance(result, InputError):
        raise result
    return result
