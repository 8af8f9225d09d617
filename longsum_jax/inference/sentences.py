"""Encoders over sentences: their vectors for the segmenter, and which of them an extractor
takes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.inference.loading import load
from longsum_jax.inference.model import Model
from longsum_jax.inference.padding import bucket_length
from longsum_jax.models.extraction_head import mean_state
from longsum_jax.text.segment_inputs import central_sentences
from longsum_jax.text.segmentation import SentenceEncoder
from longsum_jax.text.sentences import split_sentences
from longsum_jax.text.tfidf import tfidf_vectors
from longsum_jax.typing import Array

THRESHOLD = 0.5  # probability above which a sentence is taken
TOP_K = 3  # sentences taken where none is above it


def sentence_encoder(
    model: Model, *, max_sentence_length: int = 128, batch_size: int = 64
) -> SentenceEncoder:
    """Returns a function from sentences to vectors float32 [n, D]: means of a model's encoder
    states.

    What sentence transformers with mean pooling compute, before their normalisation. For
    ``segment_document``.

    Args:
        model: an encoder, or an encoder-decoder whose encoder is used.
        max_sentence_length: tokens read of a sentence, special ones included.
        batch_size: sentences encoded together.

    Raises:
        InputError: the model has no tokenizer.
    """
    if model.tokenizer is None:
        raise InputError("the model directory holds no tokenizer; load it with tokenizer=PATH")
    return functools.partial(
        _sentence_vectors,
        model,
        prefix="",
        max_sentence_length=max_sentence_length,
        batch_size=batch_size,
    )


@functools.cache
def encoder_at(path: str) -> SentenceEncoder:
    """The ``sentence_encoder`` of a model directory, loaded once; TF-IDF without a path."""
    return sentence_encoder(load(path)) if path else tfidf_vectors


@functools.cache
def extractor_at(path: str) -> Callable[..., list[int]]:
    """``extract`` of a model directory, loaded once, for a document's sentences and ``query``.

    Without a path ``text.segment_inputs.central_sentences``, which heeds no query.
    """
    if not path:
        return lambda sentences, query=None: central_sentences(sentences)
    model = load(path)
    return lambda sentences, query=None: extract(model, [sentences], queries=[query])[0]


def extract(
    model: Model,
    documents: Sequence[str | Sequence[str]] | str,
    *,
    queries: Sequence[str | None] | None = None,
    threshold: float = THRESHOLD,
    top_k: int = TOP_K,
    batch_size: int = 64,
) -> list[list[int]]:
    """Returns which sentences of each document an extractor takes, as ascending numbers; see
    ``Model.extract``."""
    if model.config.head != "extraction":
        raise InputError(
            f"this {model.family.name} model has no head that chooses sentences; train one with configs/extractor.py"
        )
    if model.tokenizer is None:
        raise InputError("the model directory holds no tokenizer; load it with tokenizer=PATH")
    _check_choice(threshold, top_k)
    documents = [documents] if isinstance(documents, str) else documents
    chosen = []
    for number, (document, query) in enumerate(
        zip(documents, queries or [None] * len(documents), strict=True), 1
    ):
        sentences = split_sentences(document) if isinstance(document, str) else list(document)
        if not sentences:
            raise InputError(f"document {number} is empty; give it some text or leave it out")
        scores = _scores(model, sentences, query, batch_size)
        chosen.append(taken_sentences(scores, threshold=threshold, top_k=top_k))
    return chosen


def taken_sentences(
    scores: np.ndarray, *, threshold: float = THRESHOLD, top_k: int = TOP_K
) -> list[int]:
    """Returns the sentences whose probability is above ``threshold``, or the ``top_k`` best where
    none is.

    Args:
        scores: float [S], logits.
        threshold: between 0 and 1.
        top_k: at least 1.

    Raises:
        InputError: an argument out of range.
    """
    _check_choice(threshold, top_k)
    above = np.flatnonzero(scores > np.log(threshold / (1 - threshold)))
    return (above if len(above) else np.sort(np.argsort(-scores, kind="stable")[:top_k])).tolist()


def _check_choice(threshold: float, top_k: int) -> None:
    if not 0 < threshold < 1 or top_k < 1:
        raise InputError(
            f"threshold={threshold} must lie between 0 and 1, and top_k={top_k} must be at least 1"
        )


def _scores(model: Model, sentences: list[str], query: str | None, batch_size: int) -> np.ndarray:
    """Logits of the sentences, float32 [S]; the query is a further sentence before them."""
    read = [query, *sentences] if query else sentences
    vectors = _sentence_vectors(
        model,
        read,
        prefix=model.summarization.get("prefix", ""),
        max_sentence_length=model.config.max_sentence_length,
        batch_size=batch_size,
    )
    room = bucket_length(len(read)) - len(read)
    there = np.arange(len(read) + room) < len(read)
    padded = np.pad(vectors, ((0, room), (0, 0)))
    scores = _compiled_scores(model.module)(model.params, padded[None], there[None])
    return np.asarray(scores)[0, len(read) - len(sentences) : len(read)]


@functools.lru_cache(maxsize=8)
def _compiled_scores(module: Any) -> Callable[..., Array]:
    return jax.jit(
        lambda params, vectors, mask: module.apply(
            {"params": params}, vectors, mask, method="score_sentences"
        )
    )


def _sentence_vectors(
    model: Model,
    sentences: Sequence[str],
    *,
    prefix: str,
    max_sentence_length: int,
    batch_size: int,
) -> np.ndarray:
    """Mean states float32 [n, D]; sentences of like length go through the model together."""
    tokenizer = model.tokenizer
    ids = [
        tokenizer.add_special_tokens(found, max_sentence_length)
        for found in tokenizer.encode_batch([prefix + sentence for sentence in sentences])
    ]
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    vectors = np.zeros((len(ids), model.config.d_model), np.float32)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        lengths = np.ones(
            batch_size, np.int64
        )  # a batch that is not full goes through the same compiled program
        lengths[: len(rows)] = [len(ids[row]) for row in rows]
        mask = np.arange(lengths.max()) < lengths[:, None]
        table = np.full(mask.shape, model.config.pad_token_id, np.int32)
        for row, i in enumerate(rows):
            table[row, : len(ids[i])] = ids[i]
        vectors[rows] = mean_state(model.encode(table, mask), mask)[: len(rows)]
    return vectors
