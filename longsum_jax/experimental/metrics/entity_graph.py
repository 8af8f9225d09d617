"""Entity graph: strength of the links between summary sentences by shared nouns."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.experimental.metrics.model_tagger import ModelTagger
from longsum_jax.experimental.metrics.taggers import (
    Tagger,
    describe_tagger,
    noun_tagger,
    tag,
)
from longsum_jax.text.sentences import split_sentences


class EntityGraph(Metric):
    """Coherence by entity graphs (Guinaudeau & Strube, 2013, as in DiscoScore, Zhao et al., 2023).

    Two sentences that share a noun are linked with weight 1 / distance, the
    distance being their difference in position. The score is the sum of weights
    over the number of sentences.

    Args:
        options: options of the metric.
        tagger: tagger that returns the nouns of each sentence of a text, which
            are compared as strings; None for the tagger in the options.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of entity graphs.

        Attributes:
            tagger: name in ``taggers.NOUN_TAGGERS``, or a token classification
                model: a directory, a training workdir or a name on the Hub.
        """

        tagger: str = "rules"

    columns = ("entity_graph",)
    reads_references = False
    reads_sources = False
    options: Options

    def __init__(
        self, options: Options | None = None, tagger: Tagger | None = None
    ) -> None:
        super().__init__(options)
        self._tagger_name = self.options.tagger if tagger is None else None
        self._tagger = tagger or noun_tagger(
            self.options.tagger, "metrics.entity_graph"
        )
        self.scored_last = isinstance(self._tagger, ModelTagger)

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references, sources
        return [
            {"entity_graph": self._coherence(prediction)}
            for prediction in predictions
        ]

    def describe(self) -> dict[str, Any]:
        return describe_tagger("entity_graph", self._tagger_name, self._tagger)

    def _coherence(self, text: str) -> float:
        sentences = split_sentences(text)
        if not sentences:
            return 0.0
        return float(
            entity_graph(tag(self._tagger, sentences)).sum() / len(sentences)
        )


def entity_graph(nouns: Sequence[Sequence[str]]) -> np.ndarray:
    """Returns the edge weights of sentences, float64 [sentences, sentences], upper triangular.

    Args:
        nouns: nouns of every sentence.
    """
    numbers = {
        noun: number for number, noun in enumerate(sorted(set().union(*nouns)))
    }
    occurs = np.zeros((len(nouns), len(numbers)))
    for sentence, entities in enumerate(nouns):
        occurs[sentence, [numbers[noun] for noun in entities]] = 1
    # [sentences, sentences], True for each later sentence with a common noun.
    tied = np.triu(occurs @ occurs.T > 0, 1)
    indices = np.arange(len(nouns))
    distance = np.maximum(indices - indices[:, None], 1)
    return tied / distance
