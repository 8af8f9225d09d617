"""Runs the strategies of many documents together.

    document 0    5 segments  ->  2 segments  ->  1 input  ->  summary
    document 1    1 input     ->  summary
    document 2    9 segments  ->  3 segments  ->  1 input  ->  summary
                  round 0         round 1         round 2

The inputs of a round are decoded together, whatever document they are from.
"""

import itertools
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import NamedTuple

from longsum_jax.inference.documents import TokenizedDocument
from longsum_jax.inference.strategies import Piece
from longsum_jax.inference.summary import Summary

# (inputs, max_new_tokens or None) -> places of inputs with their summaries, as they are done
Decode = Callable[[Iterable[TokenizedDocument], int | None], Iterator[tuple[int, Summary]]]


class Plan:
    """The strategy of one document on its way.

    Args:
        steps: of the strategy, which begins at once.

    Attributes:
        pieces: inputs of the round that comes.
    """

    def __init__(self, steps: Generator[list[Piece], list[Summary], Summary]) -> None:
        self._steps = steps
        self.pieces = next(steps)
        self._found: dict[int, Summary] = {}

    @property
    def num_tokens(self) -> int:
        """Tokens of the round that comes."""
        return sum(len(piece.document.ids) for piece in self.pieces)

    def take(self, number: int, summary: Summary) -> bool:
        """Takes the summary of a piece; returns whether the round is complete."""
        self._found[number] = summary
        return len(self._found) == len(self.pieces)

    def advance(self) -> Summary | None:
        """Begins the next round; returns the document's summary where there is none."""
        found = [self._found[number] for number in range(len(self.pieces))]
        self._found = {}
        try:
            self.pieces = self._steps.send(found)
        except StopIteration as end:
            return end.value
        return None


class _Asked(NamedTuple):
    """A piece, whose it is, and which of its plan's."""

    place: int
    plan: Plan
    number: int
    piece: Piece


def run_plans(plans: Iterable[Plan], decode: Decode) -> Iterator[tuple[int, Summary]]:
    """Yields the places of documents among ``plans`` with their summaries, as they are done.

    Args:
        plans: may be made on the way, while the first of them are decoded.
        decode: summarizes inputs.
    """
    waiting: Iterable[_Asked] = _asked(enumerate(plans))
    while True:
        following: list[tuple[int, Plan]] = []
        for asked, summary in _decoded(waiting, decode):
            if not asked.plan.take(asked.number, summary):
                continue
            done = asked.plan.advance()
            if done is None:
                following.append((asked.place, asked.plan))
            else:
                yield asked.place, done
        if not following:
            return
        waiting = sorted(_asked(following), key=lambda each: each.piece.max_new_tokens or 0)


def _asked(plans: Iterable[tuple[int, Plan]]) -> Iterator[_Asked]:
    for place, plan in plans:
        for number, piece in enumerate(plan.pieces):
            yield _Asked(place, plan, number, piece)


def _decoded(asked: Iterable[_Asked], decode: Decode) -> Iterator[tuple[_Asked, Summary]]:
    """Yields summaries of pieces; those that follow one another with one limit go together."""
    for limit, alike in itertools.groupby(asked, lambda each: each.piece.max_new_tokens):
        taken: list[_Asked] = []
        for place, summary in decode(_documents(alike, taken), limit):
            yield taken[place], summary


def _documents(asked: Iterable[_Asked], taken: list[_Asked]) -> Iterator[TokenizedDocument]:
    for each in asked:
        taken.append(each)
        yield each.piece.document
