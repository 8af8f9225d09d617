"""Assigns the sentences of a summary to the segments of its document (AWESOME, appendix A.2)."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.text.ngrams import count_ngrams, stem, unicode_words
from longsum_jax.text.sentences import split_sentences

TargetMetric = Literal["precision", "f1"]


def segment_targets(
    segments: Sequence[str],
    summary: str,
    *,
    metric: TargetMetric = "precision",
    stemmer: bool = True,
) -> list[str]:
    """Returns the target of each segment: the sentences of the summary that it covers best.

    Args:
        segments: texts of a document's segments.
        summary: summary of the document. Sentences keep their order and are
            joined by spaces.
        metric, stemmer: see ``assign_sentences``.

    Returns:
        A text for each segment; "" if no sentence is assigned to it.
    """
    sentences = split_sentences(summary)
    assignment = assign_sentences(
        segments, sentences, metric=metric, stemmer=stemmer
    )
    targets: list[list[str]] = [[] for _ in segments]
    for sentence, segment in zip(sentences, assignment.tolist(), strict=True):
        targets[segment].append(sentence)
    return [" ".join(target) for target in targets]


def assign_sentences(
    segments: Sequence[str],
    sentences: Sequence[str],
    *,
    metric: TargetMetric = "precision",
    stemmer: bool = True,
) -> np.ndarray:
    """Returns int [R]: for each sentence the segment with the largest ROUGE-1 + ROUGE-2.

    Ties go to the earliest segment. Words are ``unicode_words``, in any script.

    Args:
        segments: S texts, the references.
        sentences: R sentences of a summary, the predictions.
        metric: "precision" is the fraction of the sentence that the segment
            covers; "f1" favors short segments.
        stemmer: True to compare words by their stems (Porter), as in Se3
            (Moro & Ragazzi 2022), which introduced this assignment.

    Raises:
        InputError: there are no segments, or the metric is unknown.
    """
    if not segments:
        raise InputError(
            "there are no segments to give the sentences of a summary to; cut the document first"
        )
    if metric not in get_args(TargetMetric):
        suggestion = did_you_mean(metric, get_args(TargetMetric))
        raise InputError(
            f'segments.target_metric: "{metric}" is not allowed; {suggestion}'
        )
    scores = np.sum(
        [_rouge_n(segments, sentences, n, metric, stemmer) for n in (1, 2)],
        axis=0,
    )
    # Equal fractions may differ in the last digit.
    return scores.round(12).argmax(0)


def _rouge_n(
    segments: Sequence[str],
    sentences: Sequence[str],
    n: int,
    metric: TargetMetric,
    stemmer: bool,
) -> np.ndarray:
    """Returns ROUGE-n of each sentence against each segment, float64 [S, R]."""
    tokenize = _stemmed_words if stemmer else unicode_words
    segment_counts, sentence_counts = count_ngrams(
        segments, sentences, n, tokenize=tokenize
    )
    # [S, P]: count of each of the P n-grams of the sentences in the segment,
    # clipped to its count in the sentence. Sums over the n-grams of one
    # sentence are differences of running sums.
    shared = np.minimum(
        segment_counts.dense()[:, sentence_counts.ngram], sentence_counts.counts
    )
    starts = np.searchsorted(
        sentence_counts.text, np.arange(len(sentences) + 1)
    )
    sums = np.concatenate(
        [np.zeros((len(segments), 1)), shared.cumsum(1)], axis=1
    )
    overlap = sums[:, starts[1:]] - sums[:, starts[:-1]]
    if metric == "precision":
        return overlap / np.maximum(sentence_counts.total, 1)
    return (
        2
        * overlap
        / np.maximum(segment_counts.total[:, None] + sentence_counts.total, 1)
    )


def _stemmed_words(text: str) -> list[str]:
    """Returns words; words of more than three letters are stemmed, as in rouge-score."""
    return [
        stem(word) if len(word) > 3 else word for word in unicode_words(text)
    ]
