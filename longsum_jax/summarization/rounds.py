"""Runs the strategies of many documents together.

    document 0    5 segments  ->  2 segments  ->  1 input  ->  summary
    document 1    1 input     ->  summary
    document 2    9 segments  ->  3 segments  ->  1 input  ->  summary
                  round 0         round 1         round 2

The inputs of a round are decoded together, regardless of their document.
"""

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from longsum_jax.summarization.documents import TokenizedDocument
from longsum_jax.summarization.strategies import StepInput
from longsum_jax.summarization.summary import Summary
from longsum_jax.text.segment_inputs import SegmentInputs

# (inputs, max_new_tokens or None) -> indices of inputs with their summaries, as
# they finish
Decode = Callable[
    [Iterable[TokenizedDocument], int | None], Iterator[tuple[int, Summary]]
]


class Plan:
    """A partially executed strategy for one document.

    Args:
        steps: strategy of the document, started at once.
        segments: inputs of strategy "memory".

    Attributes:
        pieces: inputs of the next round.
        segments: the argument of this name.
    """

    def __init__(
        self,
        steps: Generator[list[StepInput], list[Summary], Summary],
        segments: SegmentInputs | None = None,
    ) -> None:
        self._steps = steps
        self.segments = segments
        self.pieces = next(steps)
        self._found: dict[int, Summary] = {}

    @property
    def num_tokens(self) -> int:
        """Total tokens of the next round."""
        return sum(len(piece.document.ids) for piece in self.pieces)

    def take(self, number: int, summary: Summary) -> bool:
        """Stores the summary of an input; returns True if the round is complete."""
        self._found[number] = summary
        return len(self._found) == len(self.pieces)

    def advance(self) -> Summary | None:
        """Starts the next round; returns the document's summary if there are no more rounds."""
        # In the order of the inputs, although they finish in any order.
        summaries = [self._found[number] for number in range(len(self.pieces))]
        self._found = {}
        try:
            self.pieces = self._steps.send(summaries)
        # The strategy has returned the document's summary.
        except StopIteration as end:
            return end.value
        return None


class _PendingInput(NamedTuple):
    """An input with its document's index, its plan, and its index within the plan's round."""

    document: int
    plan: Plan
    number: int
    piece: StepInput

    @property
    def limit(self) -> int | None:
        """Maximum tokens of the input's summary; None for the model's setting."""
        return self.piece.max_new_tokens


def run_plans(
    plans: Iterable[Plan], decode: Decode
) -> Iterator[tuple[int, Summary]]:
    """Yields document indices in ``plans`` with their summaries, in order of completion.

    Args:
        plans: plans of the documents; may be a generator, which is consumed
            during the first round.
        decode: function that summarizes inputs.
    """
    waiting: Iterable[_PendingInput] = _pending_inputs(enumerate(plans))
    while True:
        following: list[tuple[int, Plan]] = []
        for pending, summary in _decoded(waiting, decode):
            if not pending.plan.take(pending.number, summary):
                continue
            done = pending.plan.advance()
            # Not finished: its next round is decoded with the rounds of other
            # documents.
            if done is None:
                following.append((pending.document, pending.plan))
            else:
                yield pending.document, done
        if not following:
            return
        # Inputs with the same limit must be adjacent to be batched together.
        waiting = sorted(
            _pending_inputs(following), key=lambda pending: pending.limit or 0
        )


def _pending_inputs(
    plans: Iterable[tuple[int, Plan]],
) -> Iterator[_PendingInput]:
    for document, plan in plans:
        for number, piece in enumerate(plan.pieces):
            yield _PendingInput(document, plan, number, piece)


def _decoded(
    inputs: Iterable[_PendingInput], decode: Decode
) -> Iterator[tuple[_PendingInput, Summary]]:
    """Yields summaries of inputs; consecutive inputs with the same limit are decoded together."""
    for limit, alike in itertools.groupby(
        inputs, lambda pending: pending.limit
    ):
        # Filled while decode consumes the inputs; maps its indices back to
        # them.
        decoded: list[_PendingInput] = []
        for index, summary in decode(_documents(alike, decoded), limit):
            yield decoded[index], summary


def _documents(
    inputs: Iterable[_PendingInput], decoded: list[_PendingInput]
) -> Iterator[TokenizedDocument]:
    for pending in inputs:
        decoded.append(pending)
        yield pending.piece.document
