"""Encodes sentences as vectors, and extracts the most important sentences of a document."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from longsum_jax.checkpoints.sentence_modules import SentenceModules
from longsum_jax.errors import InputError, check_whole
from longsum_jax.inference.arguments import listed, one_for_each
from longsum_jax.inference.model import LoadedModel
from longsum_jax.inference.padding import (
    batches_by_length,
    bucket_length,
    pad_rows,
)
from longsum_jax.layers.attention.global_tokens import without_globals
from longsum_jax.text.segmentation import SentenceEncoder
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.training.mesh import MeshJit
from longsum_jax.typing import Array, Params

THRESHOLD = 0.5  # probability above which a sentence is selected
TOP_K = 3  # number of sentences selected if none is above the threshold


def sentence_encoder(
    model: LoadedModel,
    *,
    max_sentence_length: int = 128,
    batch_size: int = 64,
) -> SentenceEncoder:
    """Returns a function from sentences to vectors float32 [n, size], for ``segment_document``.

    For models from directories of sentence-transformers, the vectors are made
    by their modules; otherwise they are means of encoder states, not
    normalized, and ``size`` is ``d_model``.

    Args:
        model: encoder, or encoder-decoder, of which the encoder is used.
        max_sentence_length: maximum tokens read of a sentence, including
            special tokens; the limit of the model's modules also applies.
        batch_size: sentences encoded together.

    Raises:
        InputError: the model has no tokenizer, or a number is out of range.
    """
    check_whole("max_sentence_length", max_sentence_length, 1)
    check_whole("batch_size", batch_size, 1)
    modules = model.sentence_modules or SentenceModules()
    if modules.max_length is not None:
        max_sentence_length = min(max_sentence_length, modules.max_length)
    return functools.partial(
        _sentence_vectors,
        model,
        model.tokenizer.plain,
        modules=modules,
        max_sentence_length=max_sentence_length,
        batch_size=batch_size,
    )


def extract(
    model: LoadedModel,
    documents: Sequence[str | Sequence[str]] | str,
    *,
    queries: Sequence[str | None] | None = None,
    threshold: float = THRESHOLD,
    top_k: int = TOP_K,
    batch_size: int = 64,
) -> list[list[int]]:
    """Returns the indices of each document's important sentences; see ``Model.extract``."""
    if model.config.head != "extraction":
        raise InputError(
            f"this {model.family.name} model has no head that chooses sentences; train one with "
            "configs/extractor.py"
        )
    tokenizer = model.tokenizer
    _check_choice(threshold, top_k)
    check_whole("batch_size", batch_size, 1)
    documents = listed(documents, "documents")
    queries = one_for_each(
        documents, queries, "queries", [None] * len(documents)
    )
    selected = []
    for number, (document, query) in enumerate(
        zip(documents, queries, strict=True), 1
    ):
        sentences = _sentences(document, f"document {number}")
        scores = _scores(model, tokenizer, sentences, query, batch_size)
        selected.append(
            taken_sentences(scores, threshold=threshold, top_k=top_k)
        )
    return selected


def _sentences(document: str | Sequence[str], name: str) -> list[str]:
    if isinstance(document, str):
        sentences = split_sentences(document)
    else:
        sentences = listed(document, name)
    if not sentences:
        raise InputError(f"{name} is empty; give it some text or leave it out")
    for sentence in sentences:
        if not isinstance(sentence, str):
            kind = type(sentence).__name__
            raise InputError(
                f"{name} holds a value of type {kind}; give a text, or a list of its sentences"
            )
    return sentences


def taken_sentences(
    scores: np.ndarray, *, threshold: float = THRESHOLD, top_k: int = TOP_K
) -> list[int]:
    """Selects sentences by an extractor's scores, and returns their indices in ascending order.

    Selects the sentences with a probability above ``threshold``, or the
    ``top_k`` best if there are none.

    Args:
        scores: float [sentences], logits.
        threshold: probability between 0 and 1.
        top_k: number of sentences, at least 1.

    Raises:
        InputError: an argument out of range.
    """
    _check_choice(threshold, top_k)
    # Compare logits instead of probabilities.
    above = np.flatnonzero(scores > np.log(threshold / (1 - threshold)))
    if len(above):
        return above.tolist()
    # None is above the threshold: select the best ones.
    best = np.argsort(-scores, kind="stable")[:top_k]
    return np.sort(best).tolist()


def _check_choice(threshold: float, top_k: int) -> None:
    if not 0 < threshold < 1:
        raise InputError(f"threshold={threshold} must lie between 0 and 1")
    check_whole("top_k", top_k, 1)


def _scores(
    model: LoadedModel,
    tokenizer: Tokenizer,
    sentences: list[str],
    query: str | None,
    batch_size: int,
) -> np.ndarray:
    """Returns logits of the sentences, float32 [sentences].

    A query is prepended as an additional sentence.
    """
    texts = [query, *sentences] if query else sentences
    vectors = _sentence_vectors(
        model,
        tokenizer,
        texts,
        modules=SentenceModules(prompt=model.summarization.get("prefix", "")),
        max_sentence_length=model.config.max_sentence_length,
        batch_size=batch_size,
    )
    # Pad the number of sentences, so that few programs are compiled.
    padding = bucket_length(len(texts)) - len(texts)
    mask = np.arange(len(texts) + padding) < len(texts)
    padded = np.pad(vectors, ((0, padding), (0, 0)))
    # One document per call: sentences are the tokens of the second encoder.
    scores = _compiled_scores(model.module)(
        model.params, padded[None], mask[None]
    )
    # Without the query and the padding.
    return np.asarray(scores)[0, len(texts) - len(sentences) : len(texts)]


@functools.lru_cache(maxsize=8)
def _compiled_scores(module: Any) -> Callable[..., Array]:
    def scores(params: Params, vectors: Array, mask: Array) -> Array:
        return module.apply(
            {"params": params}, vectors, mask, method="score_sentences"
        )

    return MeshJit(scores)


def _sentence_vectors(
    model: LoadedModel,
    tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    modules: SentenceModules,
    max_sentence_length: int,
    batch_size: int,
) -> np.ndarray:
    """Returns vectors of sentences, float32 [n, size].

    Sentences of similar length are encoded together.
    """
    texts = [modules.prepare(sentence) for sentence in sentences]
    ids = [
        tokenizer.add_special_tokens(row, max_sentence_length)
        for row in tokenizer.encode_batch(texts)
    ]
    vectors = np.zeros(
        (len(ids), modules.size(model.config.d_model)), np.float32
    )
    # Documents have few sentences each, so lengths are padded coarsely.
    lengths = [bucket_length(len(row)) for row in ids]
    for batch in batches_by_length(lengths, batch_size):
        padded, mask = pad_rows(
            [ids[i] for i in batch], batch_size, model.config.pad_token_id
        )
        # [rows, length, d_model] -> [rows, size]: pooled by the modules, by
        # default the mean over real tokens.
        states = without_globals(model.encode(padded, mask), padded.shape[1])
        vectors[batch] = modules.vectors(np.asarray(states), mask)[: len(batch)]
    return vectors
