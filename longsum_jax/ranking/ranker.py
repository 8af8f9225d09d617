"""Ranks and extracts the sentences of documents with trained trees."""

import bisect
import functools
import hashlib
import re
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.aims import with_aims
from longsum_jax.ranking.asides import are_asides, are_rejections
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
    is_story,
    name_before_colon,
    parse_document,
)
from longsum_jax.ranking.passages import (
    num_passages,
    num_story_parts,
    select_passages,
    without_dialogue,
)
from longsum_jax.ranking.pointers import (
    body,
    numbers_paragraphs,
    without_references,
)
from longsum_jax.ranking.selection import select_sentences
from longsum_jax.ranking.trees import BoostedTrees, load_trees, same_features
from longsum_jax.ranking.wording import (
    capitalized,
    connective_end,
    fluent,
    is_hyphenated,
    plain,
    whole_words,
    without_line_hyphens,
)
from longsum_jax.text.lengths import Length, parse_length
from longsum_jax.text.ngrams import num_words
from longsum_jax.text.sentences import join_wrapped_lines
from longsum_jax.text.statements import (
    NO_OUTLINE,
    Outline,
    Statement,
    in_line,
)
from longsum_jax.text.support import PlacedSentences

WEIGHTS = Path(__file__).with_name("builtin_extractor.npz")
DEFAULT_LENGTH = "auto"
# standard deviations by which a neighbor of a selected sentence is better
CLOSENESS = 0.6
_CLOSENESS_IN_STORIES = 1.5
# Summaries below these lengths select no neighbors.
_SHORT_WORDS, _SHORT_SENTENCES = 100, 6
_CELLS = " | "  # separator of table cells in the output of readers


class Extract(NamedTuple):
    """Sentences of a document that form its summary, in document order.

    Attributes:
        text: text of the summary, one sentence per line; passages of a long
            text are separated by empty lines and lines with chapters.
        statements: sentences of the summary, each with its source in the
            document; in talk the sentence is prefixed with the speaker's name.
            Its text is the sentence without marks, hesitations and loose
            connectives, see ``wording``.
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
            length: "auto", "short", "medium", "long", "150 words",
                "7 sentences" or "5%" of the words; a number counts words. At least one sentence
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
        selected, is_by_parts = summary_sentences(
            document,
            scores,
            parsed_length,
            has_query=query is not None,
            label_words=np.array([num_words(label) for label in labels]),
        )
        names, contributions = self._contributions(
            features, reached, tree_scores, selected
        )
        explanations = explain(names, contributions, mixed, selected)
        placed = _placed(text, document, outline)
        is_talk = any(document.speakers)
        texts = _texts(document, placed, selected, labels, is_talk)
        headings = _part_headings(placed, selected, is_by_parts)
        summary, unexplained = _statements(placed, selected, texts, headings)
        statements = [
            statement._replace(explanation=explanation)
            for statement, explanation in zip(
                unexplained, explanations, strict=True
            )
        ]
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
    """Returns scores with minus infinity for fragments and asides, see ``are_fragments``.

    Lines of notes, see ``are_notes``, come after all sentences, and the notice
    of a rejection, see ``are_rejections``, comes before them.
    """
    excluded = are_fragments(document) | are_asides(document)
    finished = np.where(excluded, -np.inf, scores)
    notes = are_notes(document)
    finished = np.where(notes, scores - np.ptp(scores) - 1, finished)
    return np.where(are_rejections(document), scores.max() + 1, finished)


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


def summary_sentences(
    document: ParsedDocument,
    scores: np.ndarray,
    length: Length,
    *,
    has_query: bool = False,
    label_words: np.ndarray | None = None,
) -> tuple[list[int], bool]:
    """Returns the sentences of a summary, and True if they are passages by parts.

    Args:
        document: document of n sentences.
        scores: float [n]; minus infinity for fragments.
        length: length of the summary.
        has_query: True if the scores are for a topic.
        label_words: int [n], words of the label of a sentence; None for no
            labels.
    """
    dependent = depend_on_previous(document)
    num_words = int(document.lengths.sum())
    limit = length.limit(num_words)
    is_talk = any(document.speakers)
    num_parts = None
    if length.unit != "sentences" and not has_query:
        count = num_passages(num_words, limit)
        costs = document.lengths
        if label_words is not None:
            costs = costs + label_words
        if count:
            selected = select_passages(
                document,
                scores,
                costs,
                limit,
                dependent=dependent,
                is_talk=is_talk,
                count=count,
            )
            if selected:
                return selected, True
        if not is_talk:
            num_parts = num_story_parts(document, limit)
            if num_parts == 1:
                num_parts = None
                scores = with_aims(document, scores)
    if has_query and length.unit == "sentences" and limit < 2:
        # The answer counts more than what it begins with: "Then ...".
        dependent[:] = False
    if has_query and is_story(document):
        # Answers may be in a dialogue, where every line is a paragraph.
        dependent &= np.diff(document.paragraphs, prepend=-1) == 0
    # Neighbors would leave no room for the rest of the document.
    is_short = limit < (
        _SHORT_SENTENCES if length.unit == "sentences" else _SHORT_WORDS
    )
    closeness = 0.0 if is_short else CLOSENESS
    if num_parts is not None:
        closeness = _CLOSENESS_IN_STORIES
        scores = without_dialogue(document, scores)
    selected = select_sentences(
        document,
        scores,
        length,
        dependent=dependent,
        label_words=label_words,
        closeness=closeness,
        num_parts=num_parts,
    )
    return selected, num_parts is not None


def _labels(document: ParsedDocument) -> list[str]:
    """Returns a label with the speaker for each sentence of talk that lacks it; "" for others."""
    return [
        f"{name}: " if name and name_before_colon(sentence) != name else ""
        for name, sentence in zip(
            document.speakers, document.sentences, strict=True
        )
    ]


def _texts(
    document: ParsedDocument,
    placed: PlacedSentences,
    selected: Sequence[int],
    labels: Sequence[str],
    is_talk: bool,
) -> list[str]:
    """Returns the words of the selected sentences for a reader, see ``wording``."""
    texts = []
    document_words: Set[str] | None = None
    is_numbered = numbers_paragraphs(placed.text)
    for number in selected:
        passage = placed.source(number, 1.0).text
        if document.breaks[number] and not is_talk:
            start, end = document.starts[number], document.ends[number]
            whole = body(placed.text[start:end], is_numbered=is_numbered)
            passage = _with_same_case(whole, passage)
        text = without_references(plain(passage))
        # In talk, hyphens end words that break off.
        if not is_talk and is_hyphenated(text):
            if document_words is None:
                document_words = whole_words(placed.text)
            text = without_line_hyphens(text, document_words)
        label = labels[number]
        if is_talk:
            name = name_before_colon(text)
            if name and not label:
                label = f"{name}: "
                text = text[len(label) :]
            spoken = fluent(text)
            if spoken != text.lstrip():
                text = _with_same_case(spoken, text)
        elif document.language in ("en", "") and number - 1 not in selected:
            end = connective_end(text)
            if end:
                text = _with_same_case(text[end:], text)
        texts.append(label + text)
    return texts


def _with_same_case(words: str, sentence: str) -> str:
    """Returns words with a capital, unless the sentence that they are from had none."""
    if sentence.lstrip()[:1].islower():
        return words
    return capitalized(words)


_DIVISION = re.compile(
    r"(?:chapter|book|part|volume|canto|act|scene|letter|section|episode|act|stave|kapitel|"
    r"chapitre|cap[\u00edi]tulo)\b|(?-i:[IVXLC]{1,7})(?=[.:\u2014-]|\Z)|\d{1,3}(?=[.:]|\Z)",
    re.IGNORECASE,
)
_LONGEST_DIVISION = 80  # characters
# headings so close together are a table of contents
_RUN, _RUN_CHARACTERS = 3, 200


def _part_headings(
    placed: PlacedSentences, selected: Sequence[int], is_by_parts: bool
) -> dict[int, str]:
    """Returns the line before each passage: its chapter, or an empty line.

    Keys are the first sentences of passages.
    """
    if not is_by_parts:
        return {}
    lines: dict[int, str] = {}
    previous: str | None = None
    headings = placed.outline.headings
    divisions = [
        span
        for number, span in enumerate(headings)
        if span[1] - span[0] <= _LONGEST_DIVISION
        and not (
            number >= _RUN
            and span[0] - headings[number - _RUN][1] < _RUN_CHARACTERS
        )
        and _DIVISION.match(placed.text[span[0] : span[1]].lstrip("#*_ "))
    ]
    for number in selected:
        if number - 1 in selected:
            continue
        heading = _division(placed, divisions, number)
        is_new = heading is not None and heading != previous
        lines[number] = f"[{heading}]" if is_new else ""
        if is_new:
            previous = heading
    return lines


def _division(
    placed: PlacedSentences, divisions: Sequence[tuple[int, int]], number: int
) -> str | None:
    """Returns the last heading of a chapter or other division before a sentence."""
    count = bisect.bisect_right(
        divisions, int(placed.starts[number]), key=lambda span: span[1]
    )
    if not count:
        return None
    start, end = divisions[count - 1]
    return in_line(placed.text[start:end]).strip("#*_[] ")


def _statements(
    placed: PlacedSentences,
    selected: Sequence[int],
    texts: Sequence[str],
    headings: Mapping[int, str],
) -> tuple[str, list[Statement]]:
    """Returns a summary and its statements: sentences of a document, one per line.

    Args:
        placed: sentences of the document.
        selected: indices of the selected sentences.
        texts: words of these sentences in the summary.
        headings: line before a sentence that begins a passage.
    """
    lines: list[str] = []
    statements = []
    start = 0
    for number, text in zip(selected, texts, strict=True):
        if number in headings:
            before = [""] if lines else []
            before += [headings[number]] if headings[number] else []
            lines += before
            start += sum(len(line) + 1 for line in before)
        source = placed.source(number, 1.0)
        end = start + len(text)
        statements.append(Statement(text, start, end, (source,), 1.0, True))
        lines.append(text)
        start = end + 1
    return "\n".join(lines), statements


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
