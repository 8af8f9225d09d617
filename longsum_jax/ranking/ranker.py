"""Ranks and extracts the sentences of documents with trained trees."""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.features import feature_table, sentence_features
from longsum_jax.ranking.parsing import ParsedDocument, parse_document
from longsum_jax.ranking.selection import Length, parse_length, select_sentences
from longsum_jax.ranking.trees import BoostedTrees, load_trees, same_features
from longsum_jax.text.sentences import join_wrapped_lines

WEIGHTS = Path(__file__).with_name("builtin_extractor.npz")
DEFAULT_LENGTH = "medium"


class ExtractedSentence(NamedTuple):
    """A sentence of an extract, and where it is from.

    Attributes:
        text: the sentence, white space in it as single spaces.
        number: of the sentence in the document, from 0 on.
        start, end: its characters in the document.
        heading: the last heading before it, or None.
        score: of the ranker; 0 is an average sentence of the document.
    """

    text: str
    number: int
    start: int
    end: int
    heading: str | None
    score: float


class Extract(NamedTuple):
    """A summary that consists of sentences of its document, in their order.

    Attributes:
        text: the summary, one sentence a line.
        sources: its sentences, with their places.
        document_words, document_sentences: length of the document, all of which was read.
        summary_words: length of the summary.
        length: that was asked for.
    """

    text: str
    sources: list[ExtractedSentence]
    document_words: int
    document_sentences: int
    summary_words: int
    length: Length

    def with_sources(self) -> str:
        """Returns the summary with a line after each sentence that says where it stands."""
        lines = []
        for source in self.sources:
            place = f"sentence {source.number + 1:,} of {self.document_sentences:,}"
            under = f', under "{source.heading}"' if source.heading else ""
            lines += [source.text, f"    [{place}{under}]"]
        return "\n".join(lines)

    def report(self) -> dict[str, Any]:
        """Returns everything but the text, ready for JSON."""
        fields = self._asdict()
        del fields["text"]
        fields["length"] = str(self.length)
        fields["sources"] = [source._asdict() for source in self.sources]
        for source in fields["sources"]:
            del source["text"]
        return fields


class Ranker:
    """Scores sentences by their features.

    Args:
        trees: from features to scores.

    Raises:
        InputError: the trees ask for features that do not exist.
    """

    def __init__(self, trees: BoostedTrees) -> None:
        known = sentence_features(parse_document("One sentence."))
        same_features(trees.names, list(known))
        self.trees = trees

    def scores(self, document: ParsedDocument, query: str | None = None) -> np.ndarray:
        """Returns how much of a summary each of n sentences is expected to hold, float64 [n].

        Args:
            document: of n sentences.
            query: what the summary should tell about; None for the whole document.
        """
        features = sentence_features(document, query)
        return self.trees.predict(feature_table(features, self.trees.names))

    def summarize(
        self, text: str, *, length: str | int | Length = DEFAULT_LENGTH, query: str | None = None
    ) -> Extract:
        """Returns the best sentences of a document that are not alike, in their order.

        Args:
            text: a document of any length.
            length: "short", "medium", "long", "150 words", "7 sentences" or "5%" of the words; a
                number is of words. At least one sentence is taken.
            query: what the summary should tell about; None for the whole document.

        Raises:
            InputError: an empty document, a blank query, or a length that is none.
        """
        wanted = parse_length(length)
        if query is not None and not query.strip():
            raise InputError("the query is blank; give a question or leave it out")
        document = parse_document(join_wrapped_lines(text))
        scores = self.scores(document, query)
        chosen = select_sentences(document, without_headings(document, scores), wanted)
        sources = [_source(document, scores, number) for number in chosen]
        return Extract(
            text="\n".join(source.text for source in sources),
            sources=sources,
            document_words=int(document.lengths.sum()),
            document_sentences=len(document.sentences),
            summary_words=int(document.lengths[chosen].sum()),
            length=wanted,
        )


def without_headings(document: ParsedDocument, scores: np.ndarray) -> np.ndarray:
    """Returns scores that keep headings out: they say what a section is about and nothing of it."""
    return np.where(document.headings, -np.inf, scores)


def _source(document: ParsedDocument, scores: np.ndarray, number: int) -> ExtractedSentence:
    headings = np.flatnonzero(document.headings[:number])
    return ExtractedSentence(
        text=" ".join(document.sentences[number].split()),
        number=number,
        start=int(document.starts[number]),
        end=int(document.ends[number]),
        heading=_plain(document.sentences[headings[-1]]) if len(headings) else None,
        score=round(float(scores[number]), 4),
    )


def _plain(heading: str) -> str:
    """Returns a heading without the marks of Markdown and reStructuredText."""
    return heading.strip("#=-~^*|: ")


@functools.cache
def builtin_ranker() -> Ranker:
    """Returns the ranker that comes with the package; see model_card.md beside its weights."""
    return Ranker(load_trees(WEIGHTS))


def summarize(
    text: str, *, length: str | int | Length = DEFAULT_LENGTH, query: str | None = None
) -> Extract:
    """Summarizes a document by its own sentences, with the ranker that comes with the package.

    No model is loaded and nothing is fetched. For summaries in new words see ``load``.

    Args:
        text: a document of any length, English.
        length: "short" (75 words), "medium" (150), "long" (400), "250 words", "7 sentences" or
            "5%" of the document's words; a number is of words.
        query: what the summary should tell about; None for the whole document.

    Returns:
        The summary, the sentences it is made of and where they stand.

    Raises:
        InputError: an empty document, a blank query, or a length that is none.
    """
    return builtin_ranker().summarize(text, length=length, query=query)
