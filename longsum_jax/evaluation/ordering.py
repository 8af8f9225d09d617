"""Concordance index of predicted orders, as defined by ZeroSCROLLS."""

import itertools
import re
from collections.abc import Sequence

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Metric, Scores

_OTHERS = re.compile(r"[^0-9,\s]")


class Ordering(Metric):
    """Concordance index of lists of numbers, from 0 to 100 (Shaham et al., 2023, section 3.3).

    The percentage of all pairs of numbers that are in the order of the
    reference: 50 for a random permutation. All characters except digits, commas
    and white space are removed from an answer, and the latter two separate its
    numbers; the score is 0 unless it is a permutation of the reference.
    """

    columns = ("concordance_index",)
    reads_sources = False

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        pairs = zip(predictions, references, strict=True)
        return [{"concordance_index": _concordance(*pair)} for pair in pairs]


def _concordance(prediction: str, reference: str) -> float:
    right = _numbers(reference)
    if len(set(right)) < max(len(right), 2):
        raise InputError(
            f'the right answer "{reference[:40]}" is not a list of numbers, such as 2, 1, 3; score '
            "it by another metric"
        )
    predicted = _numbers(prediction)
    if sorted(predicted) != sorted(right):
        return 0.0
    positions = {number: position for position, number in enumerate(predicted)}
    pairs = list(itertools.combinations(right, 2))
    return (
        100
        * sum(positions[first] < positions[second] for first, second in pairs)
        / len(pairs)
    )


def _numbers(answer: str) -> list[str]:
    """Returns the numbers separated by commas and white space, without leading zeros.

    They remain strings, because an answer may contain a number of arbitrary
    length.
    """
    numbers = _OTHERS.sub("", answer).replace(",", " ").split()
    return [number.lstrip("0") or "0" for number in numbers]
