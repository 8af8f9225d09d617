"""Finds the sentences that tell what a document is for."""

import re

import numpy as np

from longsum_jax.ranking.parsing import ParsedDocument

# standard deviations of the scores by which these sentences are better
_BONUS = 1.0
_TEXT = (
    r"(?:paper|pep|eip|kep|rfc|proposal|article|study|work|document|report|thesis|specification|"
    r"research|investigation)"
)
_DOES = (
    r"(?:propos|present|introduc|describ|add|defin|allow|aim|investigat|examin|address|sought|seek|"
    r"report|explor|evaluat|was undertaken|is to\b|suggest|specif|extend|consider|develop|show)"
)
_AIM_OF_TEXT = re.compile(
    rf"\b(?:this|the present|our) {_TEXT}\b.{{0,40}}\b{_DOES}|"
    r"\bwe (?:propose|present|introduce)\b|"
    r"\b(?:aim|goal|purpose|objective)s? of (?:this|the present|our)\b",
    re.IGNORECASE,
)


def with_aims(document: ParsedDocument, scores: np.ndarray) -> np.ndarray:
    """Returns higher scores for sentences such as "This paper presents".

    Args:
        document: document of n sentences, neither talk nor a story.
        scores: float [n]; minus infinity for fragments.
    """
    usable = np.flatnonzero(np.isfinite(scores))
    if not len(usable):
        return scores
    deviation = scores[usable].std()
    raised = scores.copy()
    for number in usable.tolist():
        if _AIM_OF_TEXT.search(document.sentences[number]):
            raised[number] += _BONUS * deviation
    return raised
