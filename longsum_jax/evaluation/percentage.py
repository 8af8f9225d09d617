"""Similarity of a predicted percentage to the correct one, as defined by ZeroSCROLLS."""

import re
from collections.abc import Sequence

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import Metric, Scores

_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?)%")
HALVING = 10.0  # percentage points by which the score halves


class Percentage(Metric):
    """Exponential similarity, from 0 to 100 (Shaham et al., 2023, section 3.3).

    100 * 2 ** (-10 * |p - q|) for the first percentages p and q, as fractions,
    in the answer and the reference: halved for every 10 points. An answer
    without a percentage scores 0.
    """

    columns = ("exp_similarity",)
    reads_sources = False

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del sources
        pairs = zip(predictions, references, strict=True)
        return [{"exp_similarity": _similarity(*pair)} for pair in pairs]


def _similarity(prediction: str, reference: str) -> float:
    right = _percentage(reference)
    if right is None:
        raise InputError(
            f'the right answer "{reference[:40]}" has no percentage, such as 40%; score it by '
            "another metric"
        )
    predicted = _percentage(prediction)
    if predicted is None:
        return 0.0
    return 100 * 0.5 ** (abs(predicted - right) / HALVING)


def _percentage(answer: str) -> float | None:
    match = _PERCENTAGE.search(answer)
    return float(match[1]) if match else None
