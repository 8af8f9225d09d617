"""Ranks and extracts the sentences of documents with trained trees."""

import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.dependence import depend_on_previous
from longsum_jax.ranking.explanations import explain
from longsum_jax.ranking.fallback import Fallback, load_fallback
from longsum_jax.ranking.features import (
    Features,
    feature_table,
    sentence_features,
)
from longsum_jax.ranking.fragments import (
    are_fragments,
    are_notes,
)
from longsum_jax.ranking.parsing import (
    ParsedDocument,
    name_before_colon,
    parse_document,
    speakers,
)
from longsum_jax.ranking.selection import Length, parse_length, select_sentences
from longsum_jax.ranking.trees import BoostedTrees, load_trees, same_features
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import join_wrapped_lines
from longsum_jax.text.statements import NO_OUTLINE, Outline, Statement
from longsum_jax.text.support import PlacedSentences

WEIGHTS = Path(__file__).with_name("builtin_extractor.npz")
DEFAULT_LENGTH = "medium"
_CELLS = " | "  # separator of table cells in the output of readers


class Extract(NamedTuple):
    """Sentences of a document that form its summary, in document order.

    Attributes:
        text: text of the summary, one sentence per line.
        statements: sentences of the summary, each with its source in the
            document; in talk the sentence is prefixed with the speaker's name.
        document_words, document_sentences: length of the document, which is
            always read completely.
        summary_words: length of the summary in words.
    """

    text: str
    statements: list[Statement]
    document_words: int
    document_sentences: int
    summary_words: int


class Ranker:
    """Scores sentences by their features.

    Args:
        trees: trees that map features to scores.
        fallback: ranker for documents unlike the training data of the trees;
            None to use the trees for all documents.

    Raises:
        InputError: the trees or the fallback use unknown features.
    """

    def __init__(
        self, trees: BoostedTrees, fallback: Fallback | None = None
    ) -> None:
        names = list(sentence_features(parse_document("One sentence.")))
        same_features(trees.names, names)
        if fallback is not None:
            same_features([*fallback.names, *fallback.document_names], names)
        self.trees = trees
        self.fallback = fallback

    def scores(
        self, document: ParsedDocument, query: str | None = None
    ) -> np.ndarray:
        """Returns the expected share of a summary in each of n sentences, float64 [n].

        Args:
            document: document of n sentences.
            query: topic of the summary; None for the whole document.
        """
        return self.feature_scores(sentence_features(document, query))

    def feature_scores(self, features: Features) -> np.ndarray:
        """Returns the scores of n sentences by their features, float64 [n]."""
        return self._mixed(
            features,
            self.trees.predict(feature_table(features, self.trees.names)),
        )

    def _mixed(self, features: Features, scores: np.ndarray) -> np.ndarray:
        """Returns the scores of the trees, mixed with the scores of the fallback if needed."""
        if self.fallback is None:
            return scores
        return self.fallback.mix(features, scores)

    def _contributions(
        self,
        features: Features,
        reached: np.ndarray,
        tree_scores: np.ndarray,
        rows: Sequence[int],
    ) -> tuple[list[str], np.ndarray]:
        """Returns the contribution of each feature to the scores of k sentences.

        Args:
            features: features of all sentences.
            reached: int16 [trees, sentences], leaves of all sentences.
            tree_scores: float64 [sentences], sums of these leaves.
            rows: indices of the k sentences.

        Returns:
            Names of f features and their contributions, float64 [k, f]; the
            contributions to a sentence sum to its score minus the mean score of
            all sentences.
        """
        names, values = (
            self.trees.names,
            self.trees.contributions(reached, rows),
        )
        if self.fallback is None:
            return names, values
        values = self.fallback.mix_contributions(
            features, tree_scores, values, rows
        )
        return [*names, *self.fallback.names], values

    @property
    def fingerprint(self) -> str:
        """A short hash of the weights."""
        digest = hashlib.blake2b(
            " ".join(self.trees.names).encode(), digest_size=8
        )
        for array in (
            self.trees.features,
            self.trees.thresholds,
            self.trees.leaves,
        ):
            digest.update(array.tobytes())
        if self.fallback is not None:
            for array in self.fallback.arrays().values():
                digest.update(array.tobytes())
        return digest.hexdigest()

    def save(self, path: str | Path) -> None:
        """Writes an .npz file, see ``load_ranker``."""
        self.trees.save(
            path, self.fallback.arrays() if self.fallback is not None else None
        )

    def summarize(
        self,
        text: str,
        *,
        length: str | int | Length = DEFAULT_LENGTH,
        query: str | None = None,
        outline: Outline = NO_OUTLINE,
    ) -> Extract:
        """Extracts the best sentences of a document without near-duplicates, in document order.

        Args:
            text: document of any length.
            length: "short", "medium", "long", "150 words", "7 sentences" or
                "5%" of the words; a number counts words. At least one sentence
                is selected.
            query: topic of the summary; None for the whole document.
            outline: outline of the document; if it has no headings, they are
                detected.

        Raises:
            InputError: the document is empty, the query is blank, or the length
                is invalid.
        """
        parsed_length = parse_length(length)
        if query is not None and not query.strip():
            raise InputError(
                "the query is blank; give a question or leave it out"
            )
        document = parse_document(join_wrapped_lines(text))
        features = sentence_features(document, query)
        reached = self.trees.reached(feature_table(features, self.trees.names))
        tree_scores = self.trees.sums(reached)
        mixed = self._mixed(features, tree_scores)
        scores = without_fragments(document, mixed)
        scores[_is_layout(document, outline)] = -np.inf
        labels = _labels(document)
        selected = select_sentences(
            document,
            scores,
            parsed_length,
            dependent=depend_on_previous(document),
            label_words=np.array([num_words(label) for label in labels]),
        )
        names, contributions = self._contributions(
            features, reached, tree_scores, selected
        )
        explanations = explain(names, contributions, mixed, selected)
        placed = _placed(text, document, outline)
        unexplained = _statements(placed, selected, labels)
        statements = [
            statement._replace(explanation=explanation)
            for statement, explanation in zip(
                unexplained, explanations, strict=True
            )
        ]
        summary = "\n".join(statement.text for statement in statements)
        return Extract(
            text=summary,
            statements=statements,
            document_words=num_words(text),
            document_sentences=len(document.sentences),
            summary_words=num_words(summary),
        )


def without_fragments(
    document: ParsedDocument, scores: np.ndarray
) -> np.ndarray:
    """Returns scores with minus infinity for fragments, see ``are_fragments``.

    Lines of notes, see ``are_notes``, come after all sentences.
    """
    finished = np.where(are_fragments(document), -np.inf, scores)
    notes = are_notes(document)
    return np.where(notes, scores - np.ptp(scores) - 1, finished)


def _is_layout(document: ParsedDocument, outline: Outline) -> np.ndarray:
    """Returns bool [n], True for sentences that are part of a known heading or table rows."""
    rows = np.array([_CELLS in sentence for sentence in document.sentences])
    if not outline.headings:
        return rows
    bounds = np.array([heading[:2] for heading in outline.headings])
    heading = np.searchsorted(bounds[:, 0], document.starts, side="right") - 1
    return rows | ((heading >= 0) & (document.starts < bounds[heading, 1]))


def _placed(
    text: str, document: ParsedDocument, outline: Outline
) -> PlacedSentences:
    if not outline.headings:
        rows = np.flatnonzero(document.headings)
        spans = zip(
            document.starts[rows].tolist(),
            document.ends[rows].tolist(),
            strict=True,
        )
        outline = outline._replace(headings=list(spans))
    return PlacedSentences(
        text, document.sentences, document.starts, document.ends, outline
    )


def _labels(document: ParsedDocument) -> list[str]:
    """Returns a label with the speaker for each sentence of talk that lacks it; "" for others."""
    return [
        f"{name}: " if name and name_before_colon(sentence) != name else ""
        for name, sentence in zip(
            speakers(document), document.sentences, strict=True
        )
    ]


def _statements(
    placed: PlacedSentences, selected: Sequence[int], labels: Sequence[str]
) -> list[Statement]:
    """Returns sentences of a document as sentences of its summary, one per line.

    Args:
        placed: sentences of the document.
        selected: indices of the selected sentences.
        labels: text before each sentence of the document.
    """
    statements = []
    start = 0
    for number in selected:
        source = placed.source(number, 1.0)
        text = labels[number] + source.text
        end = start + len(text)
        statements.append(Statement(text, start, end, (source,), 1.0, True))
        start = end + 1
    return statements


@functools.cache
def builtin_ranker() -> Ranker:
    """Returns the ranker bundled with the package; see model_card.md next to its weights."""
    return load_ranker(WEIGHTS)


def load_ranker(path: str | Path) -> Ranker:
    """Loads a ranker from a file written by ``Ranker.save`` or ``BoostedTrees.save``.

    Raises:
        InputError: the file is missing or damaged, or uses unknown features.
    """
    return Ranker(load_trees(path), load_fallback(path))


def selected_sentences(document, scores, length):
    scores = without_fragments(document, scores)
    return select_sentences(document, scores, length, dependent=depend_on_previous(document), closeness=0.6)
