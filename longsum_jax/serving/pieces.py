"""The parts of the work of a request.

    request  ->  Job  ->  JobPiece, JobPiece, ...  ->  rows of batches
                  |            (a round)
                  +---- next round, until the summary is finished

    request  ->  WholeJob, which shares no batch

A document that the model reads in one input is a job of one piece. Strategies
that read segments make several pieces, and several rounds of them.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from longsum_jax.decoding.decoder import TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.serving.text_stream import TextStream
from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.rounds import Plan
from longsum_jax.summarization.strategy_engine import StrategyEngine
from longsum_jax.summarization.summary import Request, Summary


class Job(NamedTuple):
    """A request whose inputs share batches with other requests.

    Attributes:
        future: result of the request.
        request: document to summarize.
        engine: strategies and options of the request.
        plan: partially executed strategy.
        stream: receiver of the text while it is decoded, or None.
    """

    future: "Future[Summary]"
    request: Request
    engine: StrategyEngine
    plan: Plan
    stream: TextStream | None


class BatchKind(NamedTuple):
    """Pieces of equal kinds share batches.

    Attributes:
        options: generation options; their ``max_new_tokens`` is the capacity of
            the rows, and they have no minimum: both are ``JobPiece.limits``.
        seed: random seed for sampling; None without sampling.
        row_length: length of the rows of the batch.
        single: piece (job, number) that shares no batch; None if it does.
    """

    options: GenerationOptions
    seed: int | None
    row_length: int
    single: tuple[int, int] | None = None


class JobPiece(NamedTuple):
    """An input of a job.

    Attributes:
        job: request of the input.
        number: index of the input in its round.
        document: tokens of the input.
        limits: numbers of tokens of its summary.
        kind: kind of the batches that it can enter.
        is_final: True if its text is the summary of the request.
        queued: time of queueing.
        replica: number of the only replica that decodes it; None for any.
        is_warm_up: True for an input that only compiles programs.
    """

    job: Job
    number: int
    document: TokenizedDocument
    limits: TokenLimits
    kind: BatchKind
    is_final: bool
    queued: float
    replica: int | None = None
    is_warm_up: bool = False

    @property
    def future(self) -> "Future[Summary]":
        """The result of the request."""
        return self.job.future

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the input."""
        return len(self.document.ids)

    def single(self) -> "JobPiece":
        """Returns this piece for a batch that it shares with no other."""
        kind = self.kind._replace(single=(id(self.job), self.number))
        return self._replace(kind=kind)


class WholeJob(NamedTuple):
    """A request that does not share a batch.

    Attributes:
        future: result of the request.
        summarize: function from the model of a replica to the summary.
        stream: receiver of the text while it is decoded, or None.
        queued: time of queueing.
        replica: number of the only replica that runs it; None for any.
    """

    future: "Future[Summary]"
    summarize: Callable[[Any], Summary]
    stream: TextStream | None
    queued: float
    replica: int | None = None

    @property
    def kind(self) -> None:
        """None: the request enters no batch."""
        return None

    @property
    def number(self) -> int:
        """Index of the part: always 0, because the request has only one."""
        return 0

    @property
    def num_tokens(self) -> int:
        """0: whole jobs are taken in the order of their arrival."""
        return 0


Work = JobPiece | WholeJob


def finish(job: Job | WholeJob, summary: Summary) -> bool:
    """Ends a request with its summary; returns False if it was cancelled."""
    if job.stream is not None:
        job.stream.finish(summary.text)
    is_running = job.future.set_running_or_notify_cancel()
    if is_running:
        job.future.set_result(summary)
    return is_running


def fail(future: "Future[Summary]", error: Exception) -> None:
    """Ends a request with an error, unless it has ended."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)
