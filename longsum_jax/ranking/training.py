"""Trains rankers: rows of features and gains from documents with summaries."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.ranking.boosting import BoostingOptions, fit_trees
from longsum_jax.ranking.fallback import Fallback, fit_linear, kind_profiles
from longsum_jax.ranking.features import (
    feature_table,
    is_relative,
    sentence_features,
)
from longsum_jax.ranking.gains import reference_gains
from longsum_jax.ranking.lexicon import STOP_WORDS, light_stem
from longsum_jax.ranking.parsing import parse_document
from longsum_jax.ranking.trees import BoostedTrees
from longsum_jax.text.documents import DataRow
from longsum_jax.text.ngrams import unicode_words
from longsum_jax.text.sentences import join_wrapped_lines, split_sentences

RIDGE = 0.01  # regularization of the linear ranker


@dataclasses.dataclass(frozen=True)
class RowOptions:
    """Options of sampling the rows of one data set.

    Attributes:
        rows: total number of sentences, equally many of each document, fewer
            for short documents.
        query_share: share of the documents without a query that are repeated
            with one, see ``asked``.
        query_words: maximum words of such a query.
        seed: random seed of the sampling.
    """

    rows: int = 40_000
    query_share: float = 0.5
    query_words: int = 4
    seed: int = 0


class Rows(NamedTuple):
    """Training sentences: features float32 [rows, names], gains [rows], weights [rows]."""

    names: list[str]
    table: np.ndarray
    gains: np.ndarray
    weights: np.ndarray


def draw_rows(
    documents: Sequence[DataRow], options: RowOptions = RowOptions()
) -> Rows:
    """Returns random sentences of the documents of one data set; their weights sum to ``rows``.

    Args:
        documents: documents with one or several summaries; rows of the same
            text should be adjacent, because it is parsed once for them.
        options: options of the sampling.

    Raises:
        InputError: there are no documents, or one has no summary.
    """
    if not documents:
        raise InputError("no documents to train a ranker on")
    rng = np.random.default_rng(options.seed)
    examples = list(_with_queries(documents, options, rng))
    most = max(1, options.rows // len(examples))
    tables, gains = [], []
    text, parsed = None, None
    for example in examples:
        if example.summary is None:
            raise InputError(
                f'document "{example.id}" has no summary to learn from'
            )
        if parsed is None or example.document != text:
            text, parsed = (
                example.document,
                parse_document(join_wrapped_lines(example.document)),
            )
        features = sentence_features(parsed, example.query)
        names = list(features)
        count = len(parsed.sentences)
        drawn = np.sort(rng.choice(count, min(most, count), replace=False))
        tables.append(feature_table(features, names)[drawn])
        gains.append(_mean_gains(parsed.sentences, _summaries(example))[drawn])
    table = np.concatenate(tables)
    weights = np.full(len(table), options.rows / len(table))
    return Rows(names, table, np.concatenate(gains), weights)


def _summaries(document: DataRow) -> tuple[str, ...]:
    """Returns the summaries of a document that has one or several."""
    several = isinstance(document.summary, tuple)
    if several:
        return cast(tuple[str, ...], document.summary)
    return (document.only_summary,)


def _mean_gains(
    sentences: Sequence[str], references: Sequence[str]
) -> np.ndarray:
    """Returns the mean over references of ``reference_gains``, of deviation 1 or zeros, [n]."""
    gains = np.mean(
        [reference_gains(sentences, reference) for reference in references], 0
    )
    deviation = gains.std()
    return gains / deviation if deviation > 0 else gains


def train_trees(sets: Iterable[Rows], options: BoostingOptions) -> BoostedTrees:
    """Fits trees to the rows of several data sets, with their weights.

    Args:
        sets: rows of each data set, see ``draw_rows``.
        options: options of boosting.
    """
    rows = _joined(sets)
    # Trees do not need standardized features: they split ranks and raw
    # features.
    names = [name for name in rows.names if not name.startswith("standard_")]
    return fit_trees(
        _columns(rows, names), rows.gains, rows.weights, names, options
    )


def train_fallback(kinds: Iterable[Rows], seen: Iterable[Rows]) -> Fallback:
    """Fits the ranker for documents unlike the training data of the trees.

    Args:
        kinds: training rows of each kind of text.
        seen: rows of each kind that the trees were trained on.
    """
    rows = _joined(kinds)
    names = [name for name in rows.names if is_relative(name)]
    asks = _columns(rows, ["query_known"])[:, 0] > 0
    linear = fit_linear(
        _columns(rows, names), rows.gains, rows.weights, asks, RIDGE
    )
    of_documents = [name for name in rows.names if name.startswith("document_")]
    profiles = kind_profiles([_columns(kind, of_documents) for kind in seen])
    return Fallback(names, *linear, of_documents, *profiles)


def _joined(sets: Iterable[Rows]) -> Rows:
    sets = list(sets)
    table = np.concatenate([rows.table for rows in sets])
    gains = np.concatenate([rows.gains for rows in sets])
    weights = np.concatenate([rows.weights for rows in sets])
    return Rows(sets[0].names, table, gains, weights)


def _columns(rows: Rows, names: Sequence[str]) -> np.ndarray:
    """Returns float32 [rows, names], features by name."""
    return rows.table[:, [rows.names.index(name) for name in names]]


def asked(
    document: DataRow, most: int, rng: np.random.Generator
) -> DataRow | None:
    """Draws a query about a part of a document's summary, which replaces the summary.

    The part is a random sentence of the summary that shares at least two
    content words with the document; the query is a sample of these words. In
    this way a ranker learns queries from data sets without any.

    Args:
        document: document with a summary.
        most: maximum words of the query.
        rng: random generator.

    Returns:
        The document with query and new summary; None if no sentence of the
        summary qualifies.
    """
    stems = set(map(light_stem, unicode_words(document.document))) - STOP_WORDS
    shared = []
    for sentence in split_sentences(_summaries(document)[0]):
        distinct = dict.fromkeys(unicode_words(sentence))
        words = [word for word in distinct if light_stem(word) in stems]
        if len(words) >= 2:
            shared.append((sentence, words))
    if not shared:
        return None
    sentence, words = shared[rng.integers(len(shared))]
    count = min(len(words), int(rng.integers(1, most + 1)))
    query = " ".join(rng.choice(words, count, replace=False).tolist())
    return document._replace(summary=sentence, query=query)


def _with_queries(
    documents: Sequence[DataRow], options: RowOptions, rng: np.random.Generator
) -> Iterator[DataRow]:
    for document in documents:
        yield document
        if document.query is None and rng.random() < options.query_share:
            with_query = asked(document, options.query_words, rng)
            if with_query is not None:
                yield with_query
