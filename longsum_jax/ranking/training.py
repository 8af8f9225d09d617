"""Trains rankers: rows of features and gains from documents with summaries."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.boosting import BoostingOptions, fit_trees
from longsum_jax.ranking.features import feature_table, sentence_features
from longsum_jax.ranking.gains import reference_gains
from longsum_jax.ranking.lexicon import STOP_WORDS, light_stem
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.trees import BoostedTrees
from longsum_jax.text.documents import Document
from longsum_jax.text.ngrams import unicode_words
from longsum_jax.text.sentences import split_sentences


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """Options of drawing the rows of one data set.

    Attributes:
        rows: sentences in all, as many of each document, fewer where documents are short.
        query_share: share of the documents without a query that appear a second time with one, see
            ``asked``.
        query_words: words of such a query, at most.
        seed: of what is drawn.
    """

    rows: int = 40_000
    query_share: float = 0.5
    query_words: int = 4
    seed: int = 0


class Rows(NamedTuple):
    """Sentences to learn from: features float32 [rows, names], gains [rows], weights [rows]."""

    names: list[str]
    table: np.ndarray
    gains: np.ndarray
    weights: np.ndarray


def draw_rows(documents: Sequence[Document], options: RowOptions = RowOptions()) -> Rows:
    """Returns random sentences of the documents of one data set; their weights sum to ``rows``.

    Raises:
        InputError: no documents, or one without a summary.
    """
    if not documents:
        raise InputError("no documents to train a ranker on")
    rng = np.random.default_rng(options.seed)
    examples = list(_with_queries(documents, options, rng))
    most = max(1, options.rows // len(examples))
    tables, gains = [], []
    for example in examples:
        if example.summary is None:
            raise InputError(f'document "{example.id}" has no summary to learn from')
        parsed = parse_document(example.document)
        features = sentence_features(parsed, example.query)
        names = list(features)
        count = len(parsed.sentences)
        drawn = np.sort(rng.choice(count, min(most, count), replace=False))
        tables.append(feature_table(features, names)[drawn])
        gains.append(reference_gains(parsed.sentences, example.only_summary)[drawn])
    table = np.concatenate(tables)
    weights = np.full(len(table), options.rows / len(table))
    return Rows(names, table, np.concatenate(gains), weights)


def train_trees(sets: Iterable[Rows], options: BoostingOptions) -> BoostedTrees:
    """Fits trees to the rows of several data sets, with their weights."""
    sets = list(sets)
    names = sets[0].names
    table = np.concatenate([rows.table for rows in sets])
    gains = np.concatenate([rows.gains for rows in sets])
    weights = np.concatenate([rows.weights for rows in sets])
    return fit_trees(table, gains, weights, names, options)


def asked(document: Document, most: int, rng: np.random.Generator) -> Document | None:
    """Draws a query about a part of a document's summary, which becomes the summary.

    The part is a sentence of the summary, drawn among those that share at least two content words
    with the document; the query is a draw of these words. So a ranker learns what a query is on
    data sets without any.

    Args:
        document: with a summary.
        most: words of the query.
        rng: of the draws.

    Returns:
        None where no sentence of the summary fits.
    """
    known = set(map(light_stem, unicode_words(document.document))) - STOP_WORDS
    shared = []
    for sentence in split_sentences(document.only_summary):
        distinct = dict.fromkeys(unicode_words(sentence))
        words = [word for word in distinct if light_stem(word) in known]
        if len(words) >= 2:
            shared.append((sentence, words))
    if not shared:
        return None
    sentence, words = shared[rng.integers(len(shared))]
    count = min(len(words), int(rng.integers(1, most + 1)))
    query = " ".join(rng.choice(words, count, replace=False).tolist())
    return document._replace(summary=sentence, query=query)


def _with_queries(
    documents: Sequence[Document], options: RowOptions, rng: np.random.Generator
) -> Iterator[Document]:
    for document in documents:
        yield document
        if document.query is None and rng.random() < options.query_share:
            with_query = asked(document, options.query_words, rng)
            if with_query is not None:
                yield with_query
