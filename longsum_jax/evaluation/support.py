"""Support: the share of a summary's sentences that its document supports."""

from collections.abc import Sequence

import numpy as np

from longsum_jax.evaluation.metric import Metric, Scores
from longsum_jax.text.statements import Statement
from longsum_jax.text.support import find_statements


class SupportMetric(Metric):
    """Support of the sentences of a summary by its document, measured by shared n-grams.

    supported_sentences is the percentage of sentences that the document
    sufficiently supports, held_by_document the mean percentage of their words
    in the document (``text.alignment``), and missing_entities the number of
    names, numbers and dates that are not in the document
    (``text.support.find_flags``). A summary without sentences has 0 for each.
    """

    columns = ("supported_sentences", "held_by_document", "missing_entities")
    reads_references = False

    def score(
        self,
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        pairs = zip(predictions, sources, strict=True)
        return [self._scores(find_statements(*pair)) for pair in pairs]

    def _scores(self, statements: Sequence[Statement]) -> Scores:
        if not statements:
            return dict.fromkeys(self.columns, 0.0)
        missing = [
            flag
            for statement in statements
            for flag in statement.flags
            if flag.missing == "document"
        ]
        supported = [statement.is_supported for statement in statements]
        support = [statement.support for statement in statements]
        return {
            "supported_sentences": 100 * float(np.mean(supported)),
            "held_by_document": 100 * float(np.mean(support)),
            "missing_entities": float(len(missing)),
        }
