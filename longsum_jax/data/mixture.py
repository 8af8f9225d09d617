"""Weighted mixtures of documents, in an order that depends only on the rates.

A mixture is written "mix:RATE*SOURCE+RATE*SOURCE". The rates are converted to
integer weights with the sum S. A schedule of S positions repeats, in which each
part has as many positions as its weight, spread evenly:

    mix:2*A+1*B       A B A   A B A   A B A ...

The number of documents that each part contributes before a position is
therefore known without reading them, so that reading can start at any position.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.text.documents import DataRow

SCHEME = "mix"
_RATE = re.compile(r"(?P<rate>\d+(\.\d*)?|\.\d+)\*(?P<source>.+)")
# A "+" in a file name is followed by neither a rate nor a scheme.
_PLUS = re.compile(r"\+(?=(?:\d+\.?\d*|\.\d+)\*|[a-z]+:)")
_EXAMPLE = "mix:0.7*json:reports.jsonl+0.3*tfds:billsum"
# Maximum length of a schedule; rates that need a longer one are rounded.
_LONGEST_PERIOD = 10**6

# Function that yields the documents of a part from a position to its end.
Reader = Callable[[int], Iterator[DataRow]]


class MixturePart(NamedTuple):
    """A source of a mixture, with its rate relative to the others."""

    rate: Fraction
    source: str


def parse_mixture(source: str) -> tuple[MixturePart, ...]:
    """Returns the parts of a source "mix:RATE*SOURCE+RATE*SOURCE".

    Raises:
        InputError: a part has no rate, a rate of 0, or no source.
    """
    parts = []
    for text in _PLUS.split(source.removeprefix(f"{SCHEME}:")):
        match = _RATE.fullmatch(text)
        if match is None:
            raise InputError(
                f'source "{source}": "{text}" has no rate; give RATE*SOURCE for every part, such '
                f"as {_EXAMPLE}"
            )
        rate = Fraction(match["rate"])
        if not rate:
            raise InputError(
                f'source "{source}": the rate of "{text}" is 0; leave the part out, or give a '
                "rate above 0"
            )
        if match["source"].startswith(f"{SCHEME}:"):
            raise InputError(
                f'source "{source}": a mixture in a mixture; write its parts with their own rates'
            )
        parts.append(MixturePart(rate, match["source"]))
    return tuple(parts)


def mixed_sources(source: str) -> tuple[str, ...]:
    """Returns the sources of a mixture, or the only source.

    Raises:
        InputError: a mixture without rates.
    """
    if not source.startswith(f"{SCHEME}:"):
        return (source,)
    return tuple(part.source for part in parse_mixture(source))


def whole_weights(rates: Sequence[Fraction]) -> tuple[int, ...]:
    """Returns positive integer weights in the proportions of the rates.

    The weights are rounded if their sum would exceed a million.
    """
    denominator = lcm(*(rate.denominator for rate in rates))
    weights = [int(rate * denominator) for rate in rates]
    divisor = gcd(*weights)
    weights = [weight // divisor for weight in weights]
    total = sum(weights)
    if total > _LONGEST_PERIOD:
        weights = [
            max(1, round(Fraction(weight, total) * _LONGEST_PERIOD))
            for weight in weights
        ]
    return tuple(weights)


def mixing_order(weights: Sequence[int]) -> Iterator[int]:
    """Yields the part of every position, endlessly, with the period sum(weights).

    At each position, the weight of every part is added to its balance. The part
    with the largest balance (the first of several) is next, and the sum of the
    weights is subtracted from its balance.
    """
    total = sum(weights)
    balances = [0] * len(weights)
    while True:
        for part, weight in enumerate(weights):
            balances[part] += weight
        largest = balances.index(max(balances))
        balances[largest] -= total
        yield largest


def counts_before(position: int, weights: Sequence[int]) -> list[int]:
    """Returns the number of positions of each part before ``position`` of the schedule."""
    periods, rest = divmod(position, sum(weights))
    counts = [periods * weight for weight in weights]
    for _, part in zip(range(rest), mixing_order(weights), strict=False):
        counts[part] += 1
    return counts


def mix(
    readers: Sequence[Reader],
    rates: Sequence[Fraction],
    *,
    start: int = 0,
    repeats: bool,
) -> Iterator[DataRow]:
    """Yields the documents of several parts at their rates.

    The id of a document begins with the number of its part, "1/ID"; from the
    second reading of the part on, also with the number of the reading,
    "1.2/ID".

    Args:
        readers: functions that read the parts.
        rates: positive rates of the parts.
        start: number of documents to skip, without reading them if ``repeats``.
        repeats: True to read a part that has ended again, until each part has
            been read once; False to continue with the other parts.

    Raises:
        InputError: a part that is read again has no documents.
    """
    weights = whole_weights(rates)
    if not repeats:
        yield from _once(readers, weights, start)
        return
    counts = counts_before(start, weights)
    parts = [
        _Repeated(reader, number, count)
        for number, (reader, count) in enumerate(
            zip(readers, counts, strict=True), start=1
        )
    ]
    order = mixing_order(weights)
    for _ in range(start % sum(weights)):
        next(order)
    for part in order:
        if all(one.has_ended for one in parts):
            return
        yield parts[part].next()


def _once(
    readers: Sequence[Reader], weights: Sequence[int], start: int
) -> Iterator[DataRow]:
    """Yields every document once; a part that has ended loses its positions."""
    sources = [reader(0) for reader in readers]
    has_ended = [False] * len(sources)
    for part in mixing_order(weights):
        if all(has_ended):
            return
        document = next(sources[part], None)
        if document is None:
            has_ended[part] = True
        elif start:
            start -= 1
        else:
            yield _named(document, part + 1, 1)


class _Repeated:
    """A part that is read repeatedly, beginning at any position.

    Attributes:
        has_ended: True if all documents have been returned at least once.
    """

    def __init__(self, reader: Reader, number: int, start: int) -> None:
        self._reader = reader
        self._number = number
        self._reading = 1
        self._open(start)
        self.has_ended = self._next is None
        size = sum(1 for _ in reader(0)) if self.has_ended else 0
        if start > size > 0:
            readings, last = divmod(start - 1, size)
            self._reading += readings
            self._open(last + 1)

    def next(self) -> DataRow:
        """Returns the next document; the first one follows the last."""
        if self._next is None:
            self._reading += 1
            self._open(0)
        if self._next is None:
            raise InputError(
                f"part {self._number} of the mixture has no documents; leave it out, or check its "
                "split"
            )
        document = _named(self._next, self._number, self._reading)
        self._advance()
        return document

    def _open(self, start: int) -> None:
        self._documents = self._reader(start)
        self._next: DataRow | None = next(self._documents, None)

    def _advance(self) -> None:
        self._next = next(self._documents, None)
        self.has_ended |= self._next is None


def _named(document: DataRow, number: int, reading: int) -> DataRow:
    prefix = f"{number}" if reading == 1 else f"{number}.{reading}"
    return document._replace(id=f"{prefix}/{document.id}")
