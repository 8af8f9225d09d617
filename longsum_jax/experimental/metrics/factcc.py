"""FactCC: a classifier of whether the document supports each sentence of a summary."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

from longsum_jax.data.derived import ClaimOptions
from longsum_jax.errors import check_whole
from longsum_jax.evaluation.metric import Scores
from longsum_jax.evaluation.model_metric import (
    SUPPORTED,
    ModelMetric,
    Requirement,
    label_number,
    longest_text,
)
from longsum_jax.text.gap_sentences import cut_text
from longsum_jax.text.sentences import split_sentences, splitter_name
from longsum_jax.tokenizers.special_tokens import TokenPair

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# index of the label CORRECT in published weights, whose labels are not named
_PUBLISHED = 0

EXAMPLES_AT_ONCE = 64


class _Read(NamedTuple):
    """The sentences of a summary, each paired with the pieces of its document.

    Attributes:
        pairs: pairs of every sentence with every piece.
        num_claims, num_pieces: numbers of sentences and pieces.
        unread: percentage of their tokens that were not read.
    """

    pairs: Sequence[TokenPair]
    num_claims: int
    num_pieces: int
    unread: float


class FactCC(ModelMetric):
    """Probability that a summary sentence is correct, and the share of correct sentences.

    Kryscinski et al. (2020): a classifier reads the document and one sentence.
    Both values are percentages averaged over sentences, 0 for a summary without
    sentences. factcc_unread is the percentage of tokens that did not fit into
    the model.
    """

    @dataclasses.dataclass(frozen=True)
    class Options(ModelMetric.Options):
        """Options of FactCC.

        Attributes:
            reads: "beginning" truncates the document to the model's positions,
                as published; "pieces" reads the whole document in pieces, and
                uses the piece that best supports the sentence.
            piece_words: words of a piece; together with the sentence, they
                should fit into the model.
            correct: name of the model's label for correct sentences; "" to
                infer it from the names, or for the first of two unnamed labels.
        """

        reads: Literal["beginning", "pieces"] = "beginning"
        piece_words: int = ClaimOptions.piece_words
        correct: str = ""

        def __post_init__(self) -> None:
            check_whole("metrics.factcc.piece_words", self.piece_words, 1)

    name = "factcc"
    columns = ("factcc", "factcc_correct", "factcc_unread")
    reads_references = False
    requirement: ClassVar = Requirement(
        "a classifier of pairs, as configs/factcc.py trains it",
        heads=("classification",),
    )
    options: Options

    def __init__(
        self, options: Options | None = None, model: "LoadedModel | None" = None
    ) -> None:
        super().__init__(options, model)
        config: Any = self.user_model.config
        name = self.options.correct
        if not name and not config.id2label and config.num_labels == 2:
            self._correct = _PUBLISHED
        else:
            self._correct = label_number(
                config, "metrics.factcc.correct", name, SUPPORTED
            )

    def score_with(
        self,
        model: "LoadedModel",
        predictions: Sequence[str],
        references: Sequence[str],
        sources: Sequence[str],
    ) -> list[Scores]:
        del references
        from longsum_jax.inference.rows import pair_probabilities

        scores = []
        for start in range(0, len(predictions), EXAMPLES_AT_ONCE):
            some = slice(start, start + EXAMPLES_AT_ONCE)
            texts = zip(predictions[some], sources[some], strict=True)
            read = [self._read(model, *pair) for pair in texts]
            size = self.options.batch_size
            probabilities = pair_probabilities(
                model, [text.pairs for text in read], batch_size=size
            )
            scores += [
                self._scores(*text)
                for text in zip(read, probabilities, strict=True)
            ]
        return scores

    def describe(self) -> dict[str, Any]:
        signature = (
            f"factcc|model:{self.user_model.label}|reads:{self.options.reads}"
            f"|split:{splitter_name().replace(' ', '-')}"
        )
        return {"signature": signature} | super().describe()

    def _read(self, model: "LoadedModel", summary: str, source: str) -> _Read:
        claims = split_sentences(summary)
        in_pieces = self.options.reads == "pieces"
        if in_pieces:
            pieces = cut_text(source, self.options.piece_words)
        else:
            pieces = [source]
        if not claims:
            return _Read([], 0, len(pieces), 0.0)
        tokenizer, prefix = (
            model.tokenizer,
            model.summarization.get("prefix", ""),
        )
        claim_ids = tokenizer.encode_batch(claims)
        piece_ids = tokenizer.encode_batch([prefix + piece for piece in pieces])
        limit = longest_text(model)
        pairs = [
            tokenizer.join_pair(ids, claim, limit)
            for claim in claim_ids
            for ids in piece_ids
        ]
        whole = [
            len(tokenizer.join_pair(ids, claim).ids)
            for claim in claim_ids
            for ids in piece_ids
        ]
        unread = 1 - sum(len(pair.ids) for pair in pairs) / sum(whole)
        return _Read(pairs, len(claims), len(pieces), 100 * unread)

    def _scores(self, read: _Read, probabilities: np.ndarray) -> Scores:
        """Returns the scores of a summary; ``probabilities`` are [pairs, labels]."""
        if not read.num_claims:
            return dict.fromkeys(self.columns, 0.0)
        # [claims, pieces, labels]; the best piece is chosen for each claim.
        by_piece = probabilities.reshape(read.num_claims, read.num_pieces, -1)
        best_pieces = by_piece[..., self._correct].argmax(1)
        best = by_piece[np.arange(read.num_claims), best_pieces]
        return {
            "factcc": 100 * float(best[:, self._correct].mean()),
            "factcc_correct": 100
            * float((best.argmax(-1) == self._correct).mean()),
            "factcc_unread": read.unread,
        }
