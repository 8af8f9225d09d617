"""Explains sentence scores: the contribution of each group of features, in words."""

import re
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from longsum_jax.text.statements import Explanation, Reason

NUM_REASONS = 3
_DIGITS = 3  # decimal places of every number

# Name of a reason -> its features. Features with similar meaning form one
# reason.
_FEATURES = {
    "position in the document": (
        "position log_position log_words_before log_from_end paragraph section"
    ),
    "position in its paragraph": (
        "breaks in_paragraph to_paragraph_end paragraph_sentences paragraph_words"
    ),
    "headings": "heading since_heading opening closing like_headings",
    "turns of speakers": "turn",
    "length": "words words_relative",
    "length of the sentences around": "words_before words_after near_words",
    "kinds of words": "word_length stop_words distinct",
    "names": "upper names names_share",
    "numbers": "digits numbers",
    "punctuation": "marks symbols question",
    "frequent words": (
        "probability probability_sum log_frequency log_frequency_sum highest_frequency top_10 "
        "top_30 top_30_share inverse_frequency bigrams content_bigrams"
    ),
    "words at their first place": "first_mentions first_place spread early_words",
    "similarity to the document": "centroid lexrank textrank lsa",
    "similarity to its beginning": "like_beginning like_first",
    "similarity to its end": "like_end",
    "similarity to the sentences around": "like_block like_previous like_next",
    "importance of the sentences around": "near_centroid near_log_frequency_sum",
}
_REASONS = {
    feature: name
    for name, text in _FEATURES.items()
    for feature in text.split()
}
_REASON_OF_KIND = {
    "cue": "cue words",
    "document": "properties of the document",
    "query": "words of the query",
}
# Prefixes of derived features, such as "near_3_rank_words", and the name of the
# feature.
_SCALE = re.compile(r"(near)?(?:_\d+_)?(?:rank_|standard_)?(.*)")


def reason_name(feature: str) -> str:
    """Returns the reason that a feature belongs to; an unknown feature is its own reason."""
    near, name = re.fullmatch(_SCALE, feature).groups()  # type: ignore[union-attr]
    kind = name.partition("_")[0]
    if kind in _REASON_OF_KIND:
        return _REASON_OF_KIND[kind]
    return _REASONS.get(
        f"near_{name}" if near else name, feature.replace("_", " ")
    )


def explain(
    names: Sequence[str],
    contributions: np.ndarray,
    scores: np.ndarray,
    rows: Sequence[int],
) -> list[Explanation]:
    """Explains the difference of k sentence scores from the mean score of the document.

    Args:
        names: names of f features.
        contributions: float [k, f], contribution of each feature to the score
            of each sentence.
        scores: float [n], scores of all sentences of the document.
        rows: indices of the k sentences to explain.
    """
    reasons = [reason_name(name) for name in names]
    result = []
    for row, values in zip(rows, contributions, strict=True):
        totals: defaultdict[str, float] = defaultdict(float)
        for reason, value in zip(reasons, values.tolist(), strict=True):
            totals[reason] += value
        result.append(
            _explanation(float(scores[row]), float(scores.mean()), totals)
        )
    return result


def _explanation(
    score: float, mean: float, totals: dict[str, float]
) -> Explanation:
    """Returns rounded numbers that still add up."""
    # Adding 0.0 turns -0.0 into 0.0.
    score, mean = round(score, _DIGITS), round(mean, _DIGITS) + 0.0
    largest = sorted(totals.items(), key=lambda item: -abs(item[1]))[
        :NUM_REASONS
    ]
    rounded = [Reason(name, round(value, _DIGITS)) for name, value in largest]
    reasons = tuple(reason for reason in rounded if reason.contribution)
    others = score - mean - sum(reason.contribution for reason in reasons)
    return Explanation(score, mean, reasons, round(others, _DIGITS) + 0.0)
