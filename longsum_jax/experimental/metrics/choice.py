"""Accuracy of multiple-choice letters, as in ZeroSCROLLS."""

import re
from collections.abc import Sequence

from longsum_jax.errors import InputError
from longsum_jax.evaluation.metric import PairMetric, Scores, max_scores

_LETTER = re.compile(r"\b[A-D]\b")


class Choice(PairMetric):
    """Percentage of answers with the correct letter (Shaham et al., 2023, section 3.3).

    The first A, B, C or D that is a separate word counts as the answer; an
    answer without one is wrong. With several correct answers, each of them is
    accepted.
    """

    columns = ("choice_accuracy",)
    reads_sources = False

    def compare(self, prediction: str, other: str) -> Scores:
        right = _letter(other)
        if right is None:
            raise InputError(
                f'the right answer "{other[:40]}" does not name A, B, C or D; score it by '
                "another metric"
            )
        return {"choice_accuracy": 100.0 * (_letter(prediction) == right)}

    def over_references(self, scores: Sequence[Scores]) -> Scores:
        return max_scores(scores)


def _letter(answer: str) -> str | None:
    match = _LETTER.search(answer)
    return match[0] if match else None
