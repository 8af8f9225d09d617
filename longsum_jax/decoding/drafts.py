"""Greedy search with drafts: a step reads the newest token and a guess of the next ones.

A token of the guess is accepted if it and all tokens before it equal the tokens
that the search chooses:

    newest token, draft       the  cat  sat  on  a
    chosen after each         cat  sat  by   a   mat        accepted: cat sat by

Source: prompt lookup decoding (Saxena 2023), a form of speculative decoding
(Leviathan et al. 2023, section 2) that needs no second model.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from longsum_jax.decoding.decoder import (
    CachedDecoder,
    is_eos,
    max_tokens,
    newest,
    next_step,
    pick,
    write_several,
)
from longsum_jax.decoding.logits import process_scores
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.sampling import Samples
from longsum_jax.typing import AnyArray


def extend_by_draft(
    decoder: CachedDecoder, state: Samples, *, options: GenerationOptions
) -> Samples:
    """Adds to every row the accepted tokens of a draft, and the next token after them."""
    count = options.prompt_lookup_num_tokens
    sequences = state.sequences[:, 0]
    draft = look_up(
        decoder.documents,
        sequences,
        state.step,
        count,
        options.max_matching_ngram_size,
    )
    read = jnp.concatenate([newest(state.sequences, state.step), draft], axis=1)
    logits, cache = decoder.step(read, state.cache)
    # Every token is chosen as if the draft before it had already been accepted.
    drafted = write_several(sequences, draft, state.step + 1)
    steps = next_step(state.step, state.done)[:, None] + jnp.arange(1 + count)
    process = partial(
        process_scores,
        options=options,
        documents=decoder.documents,
        earlier=decoder.earlier,
        limits=state.limits,
    )
    process = jax.vmap(process, in_axes=(1, None, 1), out_axes=1)
    logits = process(
        logits.astype(jnp.float32)[:, :, None], drafted[:, None], steps
    )[:, :, 0]
    tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    gained = pick(jax.nn.log_softmax(logits), tokens)
    # Accepted: a prefix of the draft that equals the chosen tokens and does not
    #     pass an end token.
    is_right = _begins_with(draft == tokens[:, :-1])
    is_open = _begins_with(~is_eos(tokens[:, :-1], options))
    longest = jnp.broadcast_to(
        max_tokens(state.limits, options), state.step.shape
    )
    within = steps <= longest[:, None]
    over = state.finished | state.done[:, None]
    is_kept = (
        jnp.pad(is_right & is_open, ((0, 0), (1, 0)), constant_values=True)
        & within
        & ~over
    )
    num_kept = is_kept.sum(1, dtype=jnp.int32)
    step = state.step + num_kept
    finished = state.finished | (is_kept & is_eos(tokens, options)).any(
        1, keepdims=True
    )
    assert decoder.keep is not None  # required for decoders that take drafts
    return Samples(
        step=step,
        sequences=write_several(sequences, tokens, state.step + 1, is_kept)[
            :, None
        ],
        lengths=jnp.where(over, state.lengths, step[:, None]),
        finished=finished,
        scores=state.scores + jnp.sum(gained * is_kept, axis=1, keepdims=True),
        done=state.done | finished[:, 0] | (step == longest),
        limits=state.limits,
        cache=decoder.keep(cache, num_kept),
    )


def look_up(
    documents: Int[AnyArray, "batch length"] | None,
    sequences: Int[AnyArray, "batch positions"],
    step: Int[AnyArray, " batch"],
    count: int,
    longest: int,
) -> Int[Array, "batch count"]:
    """Drafts the next tokens of sequences.

    The draft is the continuation of the position, in the document or the
    sequence itself, whose last tokens match the newest tokens of the sequence:
    the longest match of at most ``longest`` tokens, at the first such position.
    The start token does not match any. Without a match, the draft is arbitrary.

    Args:
        documents: ids of the documents, see ``decoder.CachedDecoder``; None for
            no documents.
        sequences: ids: the start token and ``step`` new tokens, followed by
            arbitrary values.
        step: number of new tokens of each sequence.
        count: number of tokens of a draft.
        longest: maximum number of tokens to compare.
    """
    if documents is None:
        texts = sequences
    else:
        texts = jnp.concatenate([documents, sequences], 1)
    columns = jnp.arange(texts.shape[1])
    start = texts.shape[1] - sequences.shape[1]
    # In a sequence only the tokens before the newest have a continuation.
    is_place = (columns < start) | (
        (columns > start) & (columns < start + step[:, None])
    )
    length = jnp.zeros(texts.shape, jnp.int32)
    agrees = is_place
    # Extends each match by one token backwards, as long as it has matched so
    # far.
    for back in range(longest):
        newest = jnp.take_along_axis(
            sequences, jnp.maximum(step - back, 0)[:, None], axis=1
        )
        before = jnp.pad(texts, ((0, 0), (back, 0)), constant_values=-1)[
            :, : texts.shape[1]
        ]
        agrees = agrees & (before == newest) & (step > back)[:, None]
        length = length + agrees
    match_index = jnp.argmax(length, axis=1)
    following = jnp.minimum(
        match_index[:, None] + 1 + jnp.arange(count), texts.shape[1] - 1
    )
    draft = jnp.take_along_axis(texts, following, axis=1).astype(jnp.int32)
    return jnp.maximum(draft, 0)  # a decoder needs valid ids


def _begins_with(
    flags: Bool[AnyArray, "batch count"],
) -> Bool[Array, "batch count"]:
    """Returns True up to the first False of each row."""
    return jnp.cumprod(flags, axis=1).astype(bool)
