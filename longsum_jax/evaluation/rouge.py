"""ROUGE by the rouge-score package, with our sentence splitter for ROUGE-Lsum."""

import functools
from collections.abc import Iterable
from importlib import metadata
from typing import Any

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.text.sentences import split_sentences, splitter_name

ROUGE_TYPES = ("rouge1", "rouge2", "rougeLsum")


def rouge(prediction: str, reference: str, *, stemmer: bool = False) -> dict[str, float]:
    """Returns the F-measures of ROUGE-1, ROUGE-2 and ROUGE-Lsum, and their mean, from 0 to 100.

    ROUGE-Lsum compares sentence by sentence (Lin, 2004, section 3.2): every line of either text is
    split into sentences. LOCOST reports the values without stemming and their mean; Hepos, LSG and
    AWESOME stem.

    Args:
        prediction: the generated summary; may be empty.
        reference: the summary to compare with.
        stemmer: whether words are stemmed (Porter) first.

    Returns:
        Keys rouge1, rouge2, rougeLsum, mean_rouge.
    """
    scores = _scorer(stemmer).score(
        _one_sentence_a_line(reference), _one_sentence_a_line(prediction)
    )
    values = {name: 100 * scores[name].fmeasure for name in ROUGE_TYPES}
    return values | {"mean_rouge": float(np.mean(list(values.values())))}


def corpus_rouge(pairs: Iterable[tuple[str, str]], *, stemmer: bool = False) -> dict[str, float]:
    """Returns the mean of `rouge` over pairs of (prediction, reference).

    Raises:
        InputError: there are no pairs.
    """
    return mean_scores(
        [rouge(prediction, reference, stemmer=stemmer) for prediction, reference in pairs]
    )


def mean_scores(scores: list[dict[str, float]]) -> dict[str, float]:
    """Returns the mean of each value over examples that all have the same keys.

    Raises:
        InputError: there are no examples.
    """
    if not scores:
        raise InputError("ROUGE of no examples: give at least one pair of prediction and reference")
    return {name: float(np.mean([score[name] for score in scores])) for name in scores[0]}


def describe(stemmer: bool = False) -> dict[str, Any]:
    """Returns what the values depend on, for reports: package, sentence splitter, stemmer."""
    package = f"rouge-score {metadata.version('rouge_score')}"
    return {"package": package, "splitter": splitter_name(), "stemmer": stemmer}


@functools.cache
def _scorer(stemmer: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(ROUGE_TYPES, use_stemmer=stemmer)


def _one_sentence_a_line(text: str) -> str:
    return "\n".join(sentence for line in text.splitlines() for sentence in split_sentences(line))
