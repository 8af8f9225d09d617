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

from longsum_jax.inference.documents import TokenizedDocument
from longsum_jax.inference.strategies import Piece
from longsum_jax.inference.summary import Summary

# (inputs, max_new_tokens or None) -> indices of inputs with their summaries, as they finish
Decode = Callable[[Iterable[TokenizedDocument], int | None], Iterator[tuple[int, Summary]]]


class Plan:
    """A partially executed strategy for one document.

    Args:
        steps: strategy of the document, started at once.

    Attributes:
        pieces: inputs of the next round.
    """

    def __init__(self, steps: Generator[list[Piece], list[Summary], Summary]) -> None:
        self._steps = steps
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
        found = [self._found[number] for number in range(len(self.pieces))]
        self._found = {}
        try:
            self.pieces = self._steps.send(found)
        # The strategy has returned the document's summary.
        except StopIteration as end:
            return end.value
        return None


class _Asked(NamedTuple):
    """An input with its document's index, its plan, and its index within the plan's round."""

    place: int
    plan: Plan
    number: int
    piece: Piece


def run_plans(plans: Iterable[Plan], decode: Decode) -> Iterator[tuple[int, Summary]]:
    """Yields document indices in ``plans`` with their summaries, in order of completion.

    Args:
        plans: plans of the documents; may be a generator, which is consumed during the first round.
        decode: function that summarizes inputs.
    """
    waiting: Iterable[_Asked] = _asked(enumerate(plans))
    while True:
        following: list[tuple[int, Plan]] = []
        for asked, summary in _decoded(waiting, decode):
            if not asked.plan.take(asked.number, summary):
                continue
            done = asked.plan.advance()
            # Not finished: its next round is decoded with the rounds of other documents.
            if done is None:
                following.append((asked.place, asked.plan))
            else:
                yield asked.place, done
        if not following:
            return
        # Inputs with the same limit must be adjacent to be batched together.
        waiting = sorted(_asked(following), key=lambda each: each.piece.max_new_tokens or 0)


def _asked(plans: Iterable[tuple[int, Plan]]) -> Iterator[_Asked]:
    for place, plan in plans:
        for number, piece in enumerate(plan.pieces):
            yield _Asked(place, plan, number, piece)


def _decoded(asked: Iterable[_Asked], decode: Decode) -> Iterator[tuple[_Asked, Summary]]:
    """Yields summaries of inputs; consecutive inputs with the same limit are decoded together."""
    for limit, alike in itertools.groupby(asked, lambda each: each.piece.max_new_tokens):
        # Filled while decode consumes the inputs; maps its indices back to them.
        taken: list[_Asked] = []
        for place, summary in decode(_documents(alike, taken), limit):
            yield taken[place], summary


def _documents(asked: Iterable[_Asked], taken: list[_Asked]) -> Iterator[TokenizedDocument]:
    for each in asked:
        taken.append(each)
        yield each.piece.document
