"""Entity precision: the share of a summary's entities that occur in its document."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.experimental.metrics.model_tagger import ModelTagger
from longsum_jax.experimental.metrics.taggers import (
    Tagger,
    describe_tagger,
    entity_tagger,
    tag,
)
from longsum_jax.text.ngrams import unicode_words


class EntityPrecision(Metric):
    """Entities of a summary, and the percentage that occurs in the document (Nan et al., 2021).

    Each distinct entity counts once; it occurs in the document if its words do
    so consecutively, in any case. The percentage of a data set is computed over
    the entities of all summaries.

    Args:
        options: options of the metric.
        tagger: tagger that finds entities; None for the tagger in the options.
    """

    @dataclasses.dataclass(frozen=True)
    class Options:
        """Options of entity precision.

        Attributes:
            tagger: name in ``taggers.ENTITY_TAGGERS``, or a token
                classification model: a directory, a training workdir or a name
                on the Hub.
        """

        tagger: str = "rules"

    columns = ("entity_precision", "entities", "found_entities")
    reads_references = False
    options: Options

    def __init__(
        self, options: Options | None = None, tagger: Tagger | None = None
    ) -> None:
        super().__init__(options)
        self._tagger_name = self.options.tagger if tagger is None else None
        self._tagger = tagger or entity_tagger(
            self.options.tagger, "metrics.entities"
        )
        self.scored_last = isinstance(self._tagger, ModelTagger)

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        tags = tag(self._tagger, predictions)
        return [
            self._shares(names, source)
            for names, source in zip(tags, sources, strict=True)
        ]

    def from_means(self, means: Mapping[str, Any]) -> dict[str, Any]:
        count = means["entities"]
        precision = (
            100 * means["found_entities"] / np.where(count > 0, count, 1)
        )
        return dict(means) | {"entity_precision": precision}

    def describe(self) -> dict[str, Any]:
        return describe_tagger("entities", self._tagger_name, self._tagger)

    def _shares(self, entities: Sequence[str], source: str) -> Scores:
        distinct = {tuple(unicode_words(entity)) for entity in entities} - {()}
        text = _spaced(unicode_words(source))
        present = sum(_spaced(words) in text for words in distinct)
        return {
            "entity_precision": 100 * present / max(len(distinct), 1),
            "entities": float(len(distinct)),
            "found_entities": float(present),
        }


def _spaced(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "
