"""Features of the sentences of a document: position, form, word frequencies, similarity.

All features take time linear in the document (except for sorting); whole books
take a second.
"""

import functools
from collections.abc import Callable, Mapping

import numpy as np

from longsum_jax.ranking.lexicon import (
    CLOSING,
    CUES,
    OPENING,
    STOP_WORDS,
    light_stem,
)
from longsum_jax.ranking.parsing import ParsedDocument, class_counts
from longsum_jax.text.ngrams import unicode_words

Features = dict[str, np.ndarray]

# steps of the power iteration; scores are then stable to a percent
LEXRANK_STEPS = 8
_FAR = 200  # distance in sentences to a heading that is absent or further away
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_QUOTATION_MARKS = "\"'\u201d\u2019\u00bb )"
_EDGE = 10  # minimum sentences in the beginning or end of a document
_RANKED = (
    "centroid",
    "lexrank",
    "log_frequency",
    "log_frequency_sum",
    "probability",
    "probability_sum",
    "top_30",
    "inverse_frequency",
    "bigrams",
    "first_mentions",
    "like_beginning",
    "like_block",
    "stop_words",
    "words",
    "query_expanded",
    "query_near_8",
    "textrank",
    "lsa",
    "digits",
    "names",
    "numbers",
)
# Features that are standardized within a document, for comparability across
# kinds.
_STANDARDIZED = (
    *(
        "centroid",
        "lexrank",
        "textrank",
        "lsa",
        "log_frequency",
        "log_frequency_sum",
    ),
    *(
        "probability",
        "probability_sum",
        "words",
        "digits",
        "names",
        "names_share",
        "stop_words",
    ),
    *(
        "numbers",
        "upper",
        "inverse_frequency",
        "bigrams",
        "content_bigrams",
        "first_mentions",
    ),
    *(
        "first_place",
        "spread",
        "early_words",
        "like_beginning",
        "like_end",
        "like_block",
    ),
    *(
        "like_previous",
        "like_next",
        "word_length",
        "distinct",
        "marks",
        "query_cosine",
    ),
    *(
        "query_covered",
        "query_near_2",
        "query_near_8",
        "query_near_30",
        "query_expanded",
    ),
)
_RELATIVE_PREFIXES = ("rank_", "near_", "standard_", "cue_")
_RELATIVE = frozenset(
    (
        *(
            "position",
            "log_position",
            "in_paragraph",
            "to_paragraph_end",
            "heading",
        ),
        *("since_heading", "opening", "closing", "turn", "question"),
    )
)
_MOST_DEVIATIONS = 4.0  # bound to which standardized features are clipped
# 1 / x for x from 1 to 10 as a sum of weights times exp(-rate x), within 4 %.
_RATES = np.array([0.05, 0.2, 0.5, 1.0, 2.0])
_TEXTRANK_STEPS, _DAMPING = 10, 0.85
_TOPICS, _LSA_STEPS = 10, 4
_SMOOTHED = ("rank_centroid", "rank_log_frequency_sum", "rank_words")


def sentence_features(
    document: ParsedDocument, query: str | None = None
) -> Features:
    """Returns features of n sentences, float64 [n] each, by name.

    "rank_*" is the share of sentences with a smaller value of a feature and
    "standard_*" is the feature with mean 0 and deviation 1, so both are
    comparable across documents; "near_*" is the mean over neighboring
    sentences.

    Args:
        document: document of n sentences.
        query: topic of the summary; None for the whole document.
    """
    features: Features = {}
    features |= _layout(document)
    features |= _form(document)
    features |= _frequencies(document)
    features |= _centrality(document)
    features |= _of_query(document, query)
    features |= _of_document(document, features)
    for name in _RANKED:
        features[f"rank_{name}"] = _ranks(features[name])
    for name in _SMOOTHED:
        for width in (3, 10):
            features[f"near_{width}_{name}"] = _window_mean(
                features[name], width
            )
    for name in _STANDARDIZED:
        features[f"standard_{name}"] = _standardized(features[name])
    return features


def is_relative(name: str) -> bool:
    """Returns True for features that are comparable across documents of all kinds and lengths."""
    return name.startswith(_RELATIVE_PREFIXES) or name in _RELATIVE


def feature_table(
    features: Mapping[str, np.ndarray], names: list[str]
) -> np.ndarray:
    """Returns float32 [n, names], the features with these names."""
    return np.stack([features[name] for name in names], 1).astype(np.float32)


def _layout(document: ParsedDocument) -> Features:
    n = len(document.sentences)
    index = np.arange(n)
    paragraphs = document.paragraphs
    begins = np.searchsorted(paragraphs, np.arange(paragraphs[-1] + 1))
    sizes = np.bincount(paragraphs)
    heading_of = np.maximum.accumulate(np.where(document.headings, index, -1))
    since = np.where(heading_of >= 0, index - heading_of, _FAR)
    sections = document.headings.sum() + 1
    before = np.cumsum(document.lengths) - document.lengths
    return {
        "position": index / max(n - 1, 1),
        "log_position": np.log1p(index),
        "log_words_before": np.log1p(before),
        "log_from_end": np.log1p(n - 1 - index),
        "breaks": document.breaks,
        "paragraph": paragraphs / max(paragraphs[-1], 1),
        "in_paragraph": index - begins[paragraphs],
        "to_paragraph_end": sizes[paragraphs]
        - 1
        - (index - begins[paragraphs]),
        "paragraph_sentences": sizes[paragraphs],
        "paragraph_words": np.bincount(paragraphs, document.lengths)[
            paragraphs
        ],
        "heading": document.headings,
        "since_heading": np.minimum(since, _FAR),
        "section": np.cumsum(document.headings) / sections,
        "opening": _under(document, heading_of, OPENING),
        "closing": _under(document, heading_of, CLOSING),
        "turn": document.turns,
    }


def _under(
    document: ParsedDocument, heading_of: np.ndarray, words: frozenset[str]
) -> np.ndarray:
    """Returns bool [n], sentences whose nearest preceding heading has one of some words."""
    # the last entry is for no heading
    has_word = np.zeros(len(heading_of) + 1, bool)
    for number in np.flatnonzero(document.headings):
        stems = map(light_stem, unicode_words(document.sentences[number]))
        has_word[number] = not words.isdisjoint(stems)
    return has_word[heading_of]


def _form(document: ParsedDocument) -> Features:
    """Returns features of characters and of words."""
    words, classes = document.words, document.characters
    length = np.bincount(words.rows, minlength=words.num_sentences)
    chars = np.maximum(document.ends - document.starts, 1)
    # capitals after a lowercase letter and a space: names
    inside = classes.upper.copy()
    letter = ~classes.space & ~classes.mark & ~classes.upper
    inside[2:] &= classes.space[1:-1] & letter[:-2]
    inside[:2] = False
    names = class_counts(document, inside)
    stops = ~document.content
    features = {
        "words": length,
        "words_relative": length / max(length.mean(), 1),
        "words_before": np.concatenate([[0], length[:-1]]),
        "words_after": np.append(length[1:], 0),
        "word_length": np.minimum(chars / np.maximum(length, 1), 30),
        "upper": class_counts(document, classes.upper) / chars,
        "digits": class_counts(document, classes.digit) / chars,
        "marks": class_counts(document, classes.mark) / chars,
        "symbols": class_counts(document, classes.symbol) / chars,
        "names": names,
        "names_share": names / np.maximum(length, 1),
        "stop_words": words.by_sentence(words.counts * stops[words.word])
        / np.maximum(length, 1),
        "distinct": words.by_sentence(np.ones_like(words.counts))
        / np.maximum(length, 1),
        "numbers": words.by_sentence(
            words.counts * _is_word(words.names, str.isdigit)[words.word]
        ),
        "question": np.array(
            [_asks(sentence) for sentence in document.sentences], np.float64
        ),
    }
    for cue, stems in CUES.items():
        is_cue = _is_word(words.names, stems.__contains__)
        features[f"cue_{cue}"] = words.by_sentence(is_cue[words.word])
    return features


def _asks(sentence: str) -> bool:
    return sentence.rstrip(_QUOTATION_MARKS).endswith(_QUESTION_MARKS)


def _is_word(names: list[str], test: Callable[[str], bool]) -> np.ndarray:
    result = np.zeros(max(len(names), 1), bool)
    result[: len(names)] = [test(name) for name in names]
    return result


def _frequencies(document: ParsedDocument) -> Features:
    """Returns features of the count, first and last position of the words of a sentence."""
    words, n = document.words, len(document.sentences)
    content = document.content
    is_content = content[words.word].astype(np.float64)
    # distinct content words
    kinds = np.maximum(words.by_sentence(is_content), 1)

    def mean(values: np.ndarray) -> np.ndarray:
        return words.by_sentence(is_content * values[words.word]) / kinds

    total = words.by_word(words.counts) * content
    probability = total / max(total.sum(), 1)
    log_total = np.log1p(total)
    first, last = np.full(words.size, n), np.zeros(words.size, np.int64)
    np.minimum.at(first, words.word, words.row)
    np.maximum.at(last, words.word, words.row)
    order = np.argsort(-total, kind="stable")
    is_new = first[words.word] == words.row
    running = np.maximum(words.by_sentence(is_content * words.counts), 1)
    highest = np.zeros(n)
    np.maximum.at(highest, words.row, log_total[words.word])
    top_30 = words.by_sentence(
        np.isin(words.word, order[:30]) & (is_content > 0)
    )
    bigrams, content_bigrams = _bigrams(document)
    return {
        "probability": words.by_sentence(words.counts * probability[words.word])
        / running,
        "probability_sum": words.by_sentence(probability[words.word]),
        "log_frequency": mean(log_total),
        "log_frequency_sum": words.by_sentence(
            is_content * log_total[words.word]
        ),
        "highest_frequency": highest,
        "top_10": words.by_sentence(
            np.isin(words.word, order[:10]) & (is_content > 0)
        ),
        "top_30": top_30,
        "top_30_share": top_30 / np.maximum(document.lengths, 1),
        "inverse_frequency": mean(document.inverse),
        "first_mentions": words.by_sentence(is_content * is_new) / kinds,
        "first_place": mean(first / n),
        "spread": mean((last - first) / n),
        "early_words": mean(first < max(5, 0.03 * n)),
        "bigrams": bigrams,
        "content_bigrams": content_bigrams,
    }


def _bigrams(document: ParsedDocument) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean log count of bigrams: of all, and only of two content words."""
    words, n = document.words, len(document.sentences)
    inside = words.rows[1:] == words.rows[:-1]
    first, second = words.ids[:-1][inside], words.ids[1:][inside]
    rows = words.rows[1:][inside]
    _, number, count = np.unique(
        first * words.size + second, return_inverse=True, return_counts=True
    )
    logs = np.log(count)[number]
    both = document.content[first] & document.content[second]
    num_bigrams = np.maximum(np.bincount(rows, minlength=n), 1)
    return np.bincount(rows, logs, n) / num_bigrams, np.bincount(
        rows, logs * both, n
    ) / num_bigrams


def _centrality(document: ParsedDocument) -> Features:
    """Returns features of the similarity of a sentence to others."""
    words, weights, n = (
        document.words,
        document.weights,
        len(document.sentences),
    )
    row = words.row
    edge = max(_EDGE, n // 20)

    def like(selected: np.ndarray) -> np.ndarray:
        """Returns the cosine with the sum of the chosen sentences."""
        return _cosine(document, words.by_word(weights * selected[row]))

    index = np.arange(n)
    return {
        "centroid": like(np.ones(n)),
        "like_beginning": like(index < edge),
        "like_end": like(index >= n - edge),
        "like_headings": like(document.headings),
        "like_first": like(index == 0),
        "like_block": _like_block(document),
        "like_previous": _like_neighbor(document, -1),
        "like_next": _like_neighbor(document, 1),
        "lexrank": np.log(lexrank(document) * n + 1e-3),
        "textrank": textrank(document) * n,
        "lsa": topic_lengths(document),
    }


def lexrank(document: ParsedDocument) -> np.ndarray:
    """Returns continuous LexRank (Erkan & Radev, 2004, section 3.3) without damping, [n], sum 1.

    The matrix of cosines is never built: its product with a vector is two
    sparse products.
    """
    words, weights = document.words, document.weights
    n = len(document.sentences)
    rank = np.full(n, 1 / n)
    for _ in range(LEXRANK_STEPS):
        center = words.by_word(weights * rank[words.row])
        rank = words.by_sentence(weights * center[words.word])
        rank /= max(rank.sum(), 1e-12)
    return rank


def textrank(
    document: ParsedDocument, steps: int = _TEXTRANK_STEPS
) -> np.ndarray:
    """Returns TextRank (Mihalcea & Tarau, 2004, section 4.1), [n].

    Two sentences of a and b words are linked by the number of distinct content
    words in common, divided by log a + log b. With 1 / x as a sum of
    exponentials the product of these links with a vector is a few sparse
    products, and the matrix of links is never built.
    """
    words, n = document.words, len(document.sentences)
    has = document.content[words.word].astype(np.float64)
    length = np.bincount(words.rows, minlength=n)
    logs = np.maximum(np.log(np.maximum(length, 1)), 0.5)
    scales = np.exp(-_RATES[:, None] * logs)
    # Links of sentences to themselves, which are subtracted below.
    loops = (_inverse_weights() @ scales**2) * words.by_sentence(has)

    def links(values: np.ndarray) -> np.ndarray:
        total = -loops * values
        for weight, scale in zip(_inverse_weights(), scales, strict=True):
            holders = words.by_word(has * (scale * values)[words.row])
            total += (
                weight * scale * words.by_sentence(has * holders[words.word])
            )
        return total

    degree = np.maximum(links(np.ones(n)), 1e-9)
    rank = np.full(n, 1 / n)
    for _ in range(steps):
        rank = (1 - _DAMPING) / n + _DAMPING * np.maximum(
            links(rank / degree), 0
        )
    return rank


@functools.cache
def _inverse_weights() -> np.ndarray:
    """Returns the weights of the exponentials whose sum approximates 1 / x, [rates]."""
    x = np.linspace(1, 10, 200)
    return np.linalg.lstsq(np.exp(-np.outer(x, _RATES)), 1 / x, rcond=None)[0]


def topic_lengths(
    document: ParsedDocument, steps: int = _LSA_STEPS
) -> np.ndarray:
    """Returns the length of each sentence in the strongest topics (Steinberger & Jezek, 2004), [n].

    Topics are singular vectors of the TF-IDF vectors, by subspace iteration;
    only topics with at least half of the largest singular value count.
    """
    words, weights, n = (
        document.words,
        document.weights,
        len(document.sentences),
    )
    count = min(_TOPICS, n - 1, words.size - 1)
    if count < 1:
        return np.zeros(n)

    def by_sentence(topics: np.ndarray) -> np.ndarray:
        return np.stack(
            [
                words.by_sentence(weights * topic[words.word])
                for topic in topics.T
            ],
            1,
        )

    topics = np.random.default_rng(0).normal(size=(words.size, count))
    for _ in range(steps):
        sentences = by_sentence(topics)
        columns = [
            words.by_word(weights * column[words.row]) for column in sentences.T
        ]
        topics, _ = np.linalg.qr(np.stack(columns, 1))
    sentences = by_sentence(topics)
    strengths = (sentences**2).sum(0)
    # Strengths are squared singular values, so a quarter is half of the largest
    # singular value.
    strong = strengths >= strengths.max() / 4
    return np.sqrt((sentences[:, strong] ** 2).sum(1))


def _cosine(document: ParsedDocument, vector: np.ndarray) -> np.ndarray:
    """Returns the cosine of every sentence with a vector over words; 0 if the vector is zero."""
    products = document.words.by_sentence(
        document.weights * vector[document.words.word]
    )
    return products / max(np.linalg.norm(vector), 1e-12)


def _like_block(document: ParsedDocument) -> np.ndarray:
    """Returns the cosine with the sum of a block of about 2 sqrt(n) neighboring sentences."""
    words, n = document.words, len(document.sentences)
    block = np.arange(n) // max(10, int(2 * np.sqrt(n)))
    keys, number = np.unique(
        block[words.row] * words.size + words.word, return_inverse=True
    )
    sums = np.bincount(number, document.weights, len(keys))
    norms = np.sqrt(np.bincount(keys // words.size, sums**2, block[-1] + 1))
    products = words.by_sentence(document.weights * sums[number])
    return products / np.maximum(norms, 1e-12)[block]


def _like_neighbor(document: ParsedDocument, offset: int) -> np.ndarray:
    """Returns the cosine with the sentence at a relative position."""
    words, weights = document.words, document.weights
    keys = words.row * words.size + words.word  # ascending
    if not len(keys):
        return np.zeros(words.num_sentences)
    neighbor_keys = keys + offset * words.size
    index = np.minimum(np.searchsorted(keys, neighbor_keys), len(keys) - 1)
    return words.by_sentence(
        weights * weights[index] * (keys[index] == neighbor_keys)
    )


def _of_query(document: ParsedDocument, query: str | None) -> Features:
    """Returns features of a query; zeros without one, or if the document has none of its words."""
    words, n = document.words, len(document.sentences)
    stems = dict.fromkeys(map(light_stem, unicode_words(query or "")))
    query_stems = [stem for stem in stems if stem not in STOP_WORDS]
    is_in_query = _is_word(words.names, set(query_stems).__contains__)
    vector = document.inverse * is_in_query
    covered = words.by_sentence(vector[words.word]) / max(vector.sum(), 1e-12)
    near = _window_mean(covered, 8)
    weight = (near / max(near.max(), 1e-12)) ** 2
    around = words.by_word(document.weights * weight[words.row])
    return {
        "query_cosine": _cosine(document, vector),
        "query_covered": covered,
        "query_near_2": _window_mean(covered, 2),
        "query_near_8": near,
        "query_near_30": _window_mean(covered, 30),
        "query_highest": _window_max(covered, 4),
        "query_expanded": _cosine(document, around),
        "query_words": np.full(n, len(query_stems)),
        "query_known": np.full(n, is_in_query.any()),
    }


def _of_document(document: ParsedDocument, features: Features) -> Features:
    """Returns features of the whole document, the same for all sentences."""
    words, n = document.words, len(document.sentences)
    repeated = np.bincount(words.word, minlength=words.size) > 1
    values = {
        "document_sentences": np.log(n),
        "document_words": features["words"].mean(),
        "document_upper": features["upper"].mean(),
        "document_headings": document.headings.mean(),
        "document_turns": document.turns.mean(),
        "document_vocabulary": len(words.names) / max(len(words.ids), 1),
        "document_repeated": repeated.mean(),
    }
    return {name: np.full(n, value) for name, value in values.items()}


def _standardized(values: np.ndarray) -> np.ndarray:
    """Returns values with mean 0 and deviation 1, clipped; zeros if all are equal."""
    values = np.asarray(values, np.float64)
    deviation = values.std()
    if deviation < 1e-9:
        return np.zeros(len(values))
    return np.clip(
        (values - values.mean()) / deviation,
        -_MOST_DEVIATIONS,
        _MOST_DEVIATIONS,
    )


def _ranks(values: np.ndarray) -> np.ndarray:
    """Returns the share of other entries below each entry; equal entries count half."""
    _, number, count = np.unique(
        values, return_inverse=True, return_counts=True
    )
    below = np.cumsum(count) - count + (count - 1) / 2
    return below[number] / max(len(values) - 1, 1)


def _window_mean(values: np.ndarray, reach: int) -> np.ndarray:
    """Returns means over each entry and up to ``reach`` neighbors on both sides."""
    index = np.arange(len(values))
    low = np.maximum(index - reach, 0)
    high = np.minimum(index + reach + 1, len(values))
    totals = np.concatenate([[0], np.cumsum(values)])
    return (totals[high] - totals[low]) / (high - low)


def _window_max(values: np.ndarray, reach: int) -> np.ndarray:
    padded = np.pad(values, reach, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * reach + 1)
    return windows.max(1)
