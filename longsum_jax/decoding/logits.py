"""Pure functions that forbid, force or reweight next tokens.

Throughout, ``scores`` are logits, or log-probabilities in beam search; the
first ``length`` ids of each row of ``history`` are set (the start token
counts), and the others are unspecified. Forbidden tokens get -inf. Options and
their order follow transformers 5's generate.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.decoding.decoder import TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray

Scores = Float[Array, "batch beams vocab"]
History = Int[Array, "batch beams history"]
Lengths = Int[Array, " batch"]
# see ``decoder.CachedDecoder``
Documents = Int[AnyArray, "batch document_length"]


def process_scores(
    scores: Scores,
    history: History,
    length: Lengths,
    options: GenerationOptions,
    documents: Documents | None = None,
    earlier: Documents | None = None,
    limits: TokenLimits | None = None,
) -> Scores:
    """Applies all ``options`` except the sampling options.

    Args:
        scores, history, length: see the module's docstring.
        options: generation options.
        documents, earlier: texts whose n-grams may be forbidden, see
            ``decoder.CachedDecoder``; None for none.
        limits: numbers of tokens of each row; None for the options' limits.

    Raises:
        InputError: a forced or forbidden token id outside the vocabulary, or
            options that need documents or segments without any.
    """
    _check_vocabulary(options, scores.shape[-1])
    new_tokens = length[:, None, None] - 1
    if options.repetition_penalty != 1.0:
        scores = penalize_repetition(
            scores, history, length, options.repetition_penalty
        )
    if options.no_repeat_ngram_size > 0:
        scores = forbid_repeated_ngrams(
            scores, history, length, options.no_repeat_ngram_size
        )
    looked_up = (
        ("encoder_no_repeat_ngram_size", documents, "documents"),
        (
            "segments_no_repeat_ngram_size",
            earlier,
            "summaries of earlier segments",
        ),
    )
    for name, texts, what in looked_up:
        size: int = getattr(options, name)
        if size == 0:
            continue
        if texts is None:
            raise InputError(
                f"{name}={size}, but the decoder was given no {what}; give them, or 0"
            )
        scores = forbid_document_ngrams(scores, history, length, texts, size)
    # An end-of-sequence token is never a bad word.
    ends = {(token,) for token in options.eos_ids}
    words = [word for word in options.bad_words_ids if tuple(word) not in ends]
    if words:
        scores = forbid_sequences(scores, history, length, words)
    shortest: Int[AnyArray, "*batch one one"] | int = options.min_new_tokens
    longest: Int[AnyArray, "*batch one one"] | int = options.max_new_tokens
    if limits is not None:
        shortest = limits.shortest[:, None, None]
        longest = limits.longest[:, None, None]
    has_minimum = limits is not None or options.min_new_tokens > 0
    if has_minimum and options.eos_ids:
        too_short = new_tokens < shortest
        scores = jnp.where(
            too_short, forbid_tokens(scores, options.eos_ids), scores
        )
    if options.forced_bos_token_id is not None:
        forced = force_tokens(scores, (options.forced_bos_token_id,))
        scores = jnp.where(new_tokens == 0, forced, scores)
    if options.forced_eos_ids:
        forced = force_tokens(scores, options.forced_eos_ids)
        scores = jnp.where(new_tokens == longest - 1, forced, scores)
    if options.suppress_tokens:
        scores = forbid_tokens(scores, options.suppress_tokens)
    return scores


def warp_scores(scores: Scores, options: GenerationOptions) -> Scores:
    """Applies temperature, top-k and top-p, in this order, before sampling."""
    if options.temperature != 1.0:
        scores = scores / options.temperature
    if options.top_k > 0:
        scores = keep_top_k(scores, options.top_k)
    if options.top_p < 1.0:
        scores = keep_top_p(scores, options.top_p)
    return scores


def penalize_repetition(
    scores: Scores, history: History, length: Lengths, penalty: float
) -> Scores:
    """Divides positive and multiplies negative scores of tokens in the history by ``penalty``.

    Source: Keskar et al. 2019, section 4.1, with the handling of signs in
        transformers.
    """
    is_set = jnp.arange(history.shape[-1]) < length[:, None, None]
    repeats = _token_mask(history, is_set, scores.shape[-1])
    penalized = jnp.where(scores < 0, scores * penalty, scores / penalty)
    return jnp.where(repeats, penalized, scores)


def forbid_repeated_ngrams(
    scores: Scores, history: History, length: Lengths, size: int
) -> Scores:
    """Forbids every token that would complete an n-gram of ``size`` already in the history.

    Linear in the length of the history: each window of ``size`` ids is compared
    once with the ids before the next token.
    """
    windows = history.shape[-1] - size + 1
    if windows < 1:
        return scores
    # match[w]: the ids of window w before its last one equal the newest ids of
    # the history.
    match = jnp.arange(windows) <= length[:, None, None] - size
    for offset in range(size - 1):
        suffix = _at(history, length - size + 1 + offset)
        match = match & (history[..., offset : offset + windows] == suffix)
    banned = _token_mask(history[..., size - 1 :], match, scores.shape[-1])
    return jnp.where(banned, -jnp.inf, scores)


def forbid_document_ngrams(
    scores: Scores,
    history: History,
    length: Lengths,
    documents: Documents,
    size: int,
) -> Scores:
    """Forbids every token that would complete an n-gram of ``size`` in the document.

    Linear in the length of the document.
    """
    windows = documents.shape[-1] - size + 1
    if windows < 1:
        return scores
    documents = documents[:, None]
    completing = documents[..., size - 1 :]
    match = (completing >= 0) & (length[:, None, None] >= size - 1)
    for offset in range(size - 1):
        suffix = _at(history, length - size + 1 + offset)
        match = match & (documents[..., offset : offset + windows] == suffix)
    shape = (*scores.shape[:2], windows)
    completing = jnp.broadcast_to(completing, shape)
    banned = _token_mask(
        completing, jnp.broadcast_to(match, shape), scores.shape[-1]
    )
    return jnp.where(banned, -jnp.inf, scores)


def forbid_sequences(
    scores: Scores,
    history: History,
    length: Lengths,
    words: Sequence[Sequence[int]],
) -> Scores:
    """Forbids the last id of each word of which the history ends with the ids before it.

    All words are compared at once: lists have hundreds of them, and operations
    for each would take longer than a step of a decoder.
    """
    sizes = np.array([len(word) - 1 for word in words])
    # Ids before the last of each word, aligned at the end; -1 fits any.
    before = np.full((len(words), sizes.max()), -1, np.int32)
    for row, word, size in zip(before, words, sizes, strict=True):
        row[len(row) - size :] = word[:-1]
    index = length[:, None, None] - np.arange(sizes.max(), 0, -1)
    newest = jnp.take_along_axis(history, index, axis=-1, mode="clip")
    fits = (newest[:, :, None] == before) | (before < 0)
    match = fits.all(-1) & (sizes <= length[:, None, None])
    last = np.array([word[-1] for word in words], np.int32)
    banned = _token_mask(
        jnp.broadcast_to(last, match.shape), match, scores.shape[-1]
    )
    return jnp.where(banned, -jnp.inf, scores)


def forbid_tokens(scores: Scores, tokens: Sequence[int]) -> Scores:
    """Forbids ``tokens`` everywhere."""
    return jnp.where(
        _vocabulary_mask(tokens, scores.shape[-1]), -jnp.inf, scores
    )


def force_tokens(scores: Scores, tokens: Sequence[int]) -> Scores:
    """Scores ``tokens`` 0 and forbids all others."""
    forced = jnp.where(
        _vocabulary_mask(tokens, scores.shape[-1]), 0.0, -jnp.inf
    )
    return jnp.broadcast_to(forced.astype(scores.dtype), scores.shape)


def keep_top_k(scores: Scores, k: int) -> Scores:
    """Forbids all except the ``k`` highest scores; ties with the k-th are kept."""
    smallest = jax.lax.top_k(scores, min(k, scores.shape[-1]))[0][..., -1:]
    return jnp.where(scores < smallest, -jnp.inf, scores)


def keep_top_p(scores: Scores, p: float) -> Scores:
    """Keeps the smallest set of most likely tokens whose probabilities sum to at least ``p``.

    Ties with the least likely token of the set are kept, so that the result
    does not depend on the sorting of ties. Source: nucleus sampling, Holtzman
    et al. 2020, section 3.1.
    """
    ascending = jnp.sort(scores, axis=-1)
    below = jnp.cumsum(jax.nn.softmax(ascending, axis=-1), axis=-1)
    # The tail below 1 - p is outside the nucleus; the most likely token is
    # always inside.
    nucleus = (below > np.float32(1.0 - p)).at[..., -1].set(True)
    smallest = jnp.min(
        jnp.where(nucleus, ascending, jnp.inf), axis=-1, keepdims=True
    )
    return jnp.where(scores < smallest, -jnp.inf, scores)


def _at(history: History, index: Lengths) -> Int[Array, "batch beams 1"]:
    """Returns the id at ``index`` of each row; an index out of bounds is clipped."""
    return jnp.take_along_axis(
        history, index[:, None, None], axis=-1, mode="clip"
    )


def _vocabulary_mask(
    tokens: Sequence[int], vocab_size: int
) -> Bool[np.ndarray, " vocab"]:
    """Returns a vocabulary mask, True for ``tokens``."""
    return np.isin(np.arange(vocab_size), tokens)


def _token_mask(
    ids: Int[AnyArray, "batch beams positions"],
    where: Bool[AnyArray, "batch one_or_beams positions"],
    vocab_size: int,
) -> Bool[Array, "batch beams vocab"]:
    """Returns a vocabulary mask, True for tokens that occur in ``ids`` where ``where`` is True."""
    batch, beams, _ = ids.shape
    # an out-of-bounds id, which the scatter drops
    ids = jnp.where(where, ids, vocab_size)
    rows = jnp.arange(batch)[:, None, None]
    columns = jnp.arange(beams)[:, None]
    mask = jnp.zeros((batch, beams, vocab_size), bool)
    return mask.at[rows, columns, ids].set(True, mode="drop")


def _check_vocabulary(options: GenerationOptions, vocab_size: int) -> None:
    forced_bos = (
        ()
        if options.forced_bos_token_id is None
        else (options.forced_bos_token_id,)
    )
    named: dict[str, Sequence[int]] = {
        "decoder_start_token_id": (options.decoder_start_token_id,),
        "eos_token_id": options.eos_ids,
        "forced_bos_token_id": forced_bos,
        "forced_eos_token_id": options.forced_eos_ids,
        "bad_words_ids": [
            token for word in options.bad_words_ids for token in word
        ],
    }
    for name, tokens in named.items():
        if tokens and max(tokens) >= vocab_size:
            raise InputError(
                f"{name}: token id {max(tokens)} is outside the model's vocabulary of "
                f"{vocab_size}; give an id below {vocab_size}"
            )
