"""ROUGE by the rouge-score package, with our sentence splitter for ROUGE-Lsum."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from longsum_jax.evaluation.metric import Metric, Scores, mean_scores
from longsum_jax.text.sentences import split_sentences, splitter_name

ROUGE_TYPES = ("rouge1", "rouge2", "rougeLsum")


class Rouge(Metric):
    """F-measures of ROUGE-1, ROUGE-2 and ROUGE-Lsum, and their mean; see ``rouge``."""

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Attributes: stemmer: stems words (Porter) first."""

        stemmer: bool = False

    columns = (*ROUGE_TYPES, "mean_rouge")

    def score(
        self, predictions: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> list[Scores]:
        del sources
        stemmer = self.options.stemmer
        pairs = zip(predictions, references, strict=True)
        return [rouge(prediction, reference, stemmer=stemmer) for prediction, reference in pairs]

    def describe(self) -> dict[str, Any]:
        return describe(self.options.stemmer)


def rouge(prediction: str, reference: str, *, stemmer: bool = False) -> Scores:
    """Returns the F-measures of ROUGE-1, ROUGE-2 and ROUGE-Lsum, and their mean, from 0 to 100.

    ROUGE-Lsum compares sentence by sentence (Lin, 2004, section 3.2): every line of either text is
    split into sentences. LOCOST reports the values without stemming and their mean; Hepos, LSG and
    AWESOME stem.

    Args:
        prediction: the generated summary; may be empty.
        reference: the summary to compare with.
        stemmer: stems words (Porter) first.

    Returns:
        Keys rouge1, rouge2, rougeLsum, mean_rouge.
    """
    scores = _scorer(stemmer).score(
        _one_sentence_a_line(reference), _one_sentence_a_line(prediction)
    )
    values = {name: 100 * scores[name].fmeasure for name in ROUGE_TYPES}
    return values | {"mean_rouge": float(np.mean(list(values.values())))}


def corpus_rouge(pairs: Iterable[tuple[str, str]], *, stemmer: bool = False) -> Scores:
    """Returns the mean of ``rouge`` over pairs of (prediction, reference).

    Raises:
        InputError: there are no pairs.
    """
    scores = [rouge(prediction, reference, stemmer=stemmer) for prediction, reference in pairs]
    return mean_scores(scores)


def describe(stemmer: bool = False) -> dict[str, Any]:
    """Returns what the values depend on, for reports: package, sentence splitter, stemmer."""
    package = f"rouge-score {metadata.version('rouge_score')}"
    return {"package": package, "splitter": splitter_name(), "stemmer": stemmer}


@functools.cache
def _scorer(stemmer: bool) -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(ROUGE_TYPES, use_stemmer=stemmer)


def _one_sentence_a_line(text: str) -> str:
    sentences = [sentence for line in text.splitlines() for sentence in split_sentences(line)]
    return "\n".join(sentences)
