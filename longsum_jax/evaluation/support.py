"""Support: how much of a summary's sentences its document contains, and what it lacks."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.text.statements import Statement
from longsum_jax.text.support import find_statements


class Support(Metric):
    """Support of the sentences of a summary by its document, measured by shared n-grams.

    supported_sentences is the percentage of sentences of which the document holds enough,
    held_by_document the mean percentage that it holds (``text.alignment``), missing_entities the
    number of names, numbers and dates that the document lacks (``text.support.find_flags``). A
    summary without sentences has 0 of each.
    """

    columns = ("supported_sentences", "held_by_document", "missing_entities")
    reads_references = False

    def score(
        self, predictions: Sequence[str], references: Sequence[str], sources: Sequence[str]
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [self._scores(find_statements(*pair)) for pair in pairs]

    def _scores(self, statements: Sequence[Statement]) -> Scores:
        if not statements:
            return dict.fromkeys(self.columns, 0.0)
        missing = [flag for each in statements for flag in each.flags if flag.missing == "document"]
        return {
            "supported_sentences": 100 * float(np.mean([each.is_supported for each in statements])),
            "held_by_document": 100 * float(np.mean([each.support for each in statements])),
            "missing_entities": float(len(missing)),
        }
