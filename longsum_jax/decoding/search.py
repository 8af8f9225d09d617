"""Greedy, sampled and beam search, each as a ``lax.while_loop`` around a decoder with a cache.

Tokens are counted per row. The loop may therefore stop when some rows are done,
and continue with other documents in their place in the same compiled program:

    state = start(cache)
    state = advance(decoder, state)         until the requested number of rows is done
    result(state)                           of the rows that are done
    state = restart(state, rows)            with other documents

Ids and scores equal the results of transformers 5's generate for
encoder-decoder models, with two intentional differences. Rows of a batch finish
independently: the result of a row does not depend on the other rows, not even
in the additional hypotheses that num_return_sequences returns. The end of a
sequence is always followed by ``pad_token_id``; transformers' beam search uses
the end-of-sequence id if the padding id is 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.decoding.beams import Beams, extend_beams, first_beams
from longsum_jax.decoding.decoder import (
    Cache,
    CachedDecoder,
    TokenLimits,
    is_eos,
    max_tokens,
)
from longsum_jax.decoding.drafts import extend_by_draft
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.sampling import (
    RandomKeys,
    Samples,
    extend_samples,
    first_samples,
    row_keys,
)
from longsum_jax.typing import AnyArray

SearchState = Samples | Beams


class Generated(NamedTuple):
    """Decoded sequences, ``batch_size * num_return_sequences``; sequences of a document are
    adjacent.

    Attributes:
        sequences: int32 ids, beginning with the start token, padded after the
            end; positions is 1 + max_new_tokens.
        lengths: number of new tokens of each sequence, int32; it includes the
            end-of-sequence token but not the start token.
        ended: True if the sequence ended with an end-of-sequence token, False
            if it reached the limit (even if ``forced_eos_token_id`` then wrote
            an end-of-sequence token).
        scores: float32 scores; in beam search the sum of log-probabilities over
            length ** length_penalty, else the sum of the tokens'
            log-probabilities under the distributions they were chosen from.
    """

    sequences: Int[Array, "sequences positions"]
    lengths: Int[Array, " sequences"]
    ended: Bool[Array, " sequences"]
    scores: Float[Array, " sequences"]


def generate(
    decoder: CachedDecoder,
    cache: Cache,
    *,
    batch_size: int,
    options: GenerationOptions,
    rng: RandomKeys | None = None,
    is_done: Bool[Array, " batch"] | None = None,
    limits: TokenLimits | None = None,
) -> Generated:
    """Decodes a batch.

    It can be traced, and is meant to be called inside ``jax.jit`` with
    ``options`` static.

    Args:
        decoder: step and reorder functions of the model.
        cache: new cache with ``options.decoder_beams`` beams and capacity for
            ``max_new_tokens`` positions.
        batch_size: number of documents.
        options: generation options; every combination is compiled once.
        rng: PRNG key for ``do_sample``: one key, from which each row derives
            its key by its index, or keys [batch], one per row (the samples of a
            row then do not depend on its batch).
        is_done: True for rows without a document: their sequences have no
            tokens, and the search does not wait for them. None if all rows have
            documents.
        limits: numbers of tokens of each row; None for the options' limits.

    Raises:
        InputError: sampling without keys, token ids outside the vocabulary, or
            a vocabulary that is too small for the number of end-of-sequence
            ids.
    """
    state = start(cache, batch_size=batch_size, options=options, limits=limits)
    if is_done is not None:
        state = state._replace(done=is_done)
    return result(advance(decoder, state, options=options, rng=rng), options)


def start(
    cache: Cache,
    *,
    batch_size: int,
    options: GenerationOptions,
    limits: TokenLimits | None = None,
) -> SearchState:
    """Returns the state of a search before its first token.

    Args:
        cache, batch_size, options: see ``generate``.
        limits: numbers of tokens of each row; None for the options' limits.
    """
    first = first_samples if _is_sampled(options) else first_beams
    return first(cache, batch_size, options, limits)


def restart(
    state: SearchState,
    rows: Bool[Array, " batch"],
    cache: Cache,
    options: GenerationOptions,
    limits: TokenLimits | None = None,
) -> SearchState:
    """Returns a state in which ``rows`` are reset to before their first token.

    Args:
        state: state of a search.
        rows: True for rows that begin another document.
        cache: cache with these documents.
        options: generation options.
        limits: numbers of tokens of these rows, if the search began with
            limits.
    """

    def choose(fresh: AnyArray, old: AnyArray) -> Array:
        return jnp.where(rows.reshape(-1, *(1,) * (old.ndim - 1)), fresh, old)

    fresh = start((), batch_size=len(rows), options=options, limits=limits)
    return jax.tree.map(choose, fresh, state._replace(cache=()))._replace(
        cache=cache
    )


def advance(
    decoder: CachedDecoder,
    state: SearchState,
    *,
    options: GenerationOptions,
    rng: RandomKeys | None = None,
    num_done: Int[AnyArray, ""] | None = None,
    max_steps: Int[AnyArray, ""] | None = None,
) -> SearchState:
    """Decodes until ``num_done`` rows are done, or for ``max_steps`` steps.

    Args:
        decoder: step and reorder functions of the model.
        state: state of a search; rows that are done do not change.
        options: generation options.
        rng: PRNG keys, see ``generate``.
        num_done: number of done rows to wait for, including rows that were done
            before; None for all rows.
        max_steps: maximum number of steps; None for no limit.
    """
    batch_size = len(state.done)
    target_count = batch_size if num_done is None else num_done
    step: Callable[..., SearchState]
    if options.prompt_lookup_num_tokens:
        step = partial(extend_by_draft, decoder, options=options)
    elif _is_sampled(options):
        keys = None
        if options.do_sample:
            keys = row_keys(rng, batch_size, options.decoder_beams)
        step = partial(extend_samples, decoder, options=options, keys=keys)
    else:
        step = partial(extend_beams, decoder, options=options)

    def is_running(state: SearchState) -> Array:
        return jnp.sum(state.done) < target_count

    if max_steps is None:
        return jax.lax.while_loop(is_running, step, state)
    limit = max_steps
    # mypy takes the union of the states for the argument of each function
    extend: Any = step

    def extend_counted(
        carry: tuple[SearchState, Array],
    ) -> tuple[SearchState, Array]:
        state, num_steps = carry
        return extend(state), num_steps + 1

    state, _ = jax.lax.while_loop(
        lambda carry: is_running(carry[0]) & (carry[1] < limit),
        extend_counted,
        (state, jnp.int32(0)),
    )
    return state


def result(state: SearchState, options: GenerationOptions) -> Generated:
    """Returns the sequences of a state; sequences of rows that are not done may still change."""
    best = state if isinstance(state, Samples) else state.finished
    count = options.num_return_sequences
    sequences = best.sequences[:, :count].reshape(-1, best.sequences.shape[-1])
    lengths = best.lengths[:, :count].reshape(-1)
    last = jnp.take_along_axis(sequences, lengths[:, None], axis=1)[:, 0]
    longest = max_tokens(state.limits, options)
    # of each sequence instead of each row
    if state.limits is not None:
        longest = jnp.repeat(longest, count)
    forced = bool(options.forced_eos_ids) & (lengths == longest)
    ended = is_eos(last, options) & ~forced
    return Generated(
        sequences, lengths, ended, best.scores[:, :count].reshape(-1)
    )


def _is_sampled(options: GenerationOptions) -> bool:
    """Returns True if the beams of a row are independent of each other."""
    return options.do_sample or options.num_beams == 1


def trim(generated: Generated) -> Int[np.ndarray, "sequences positions"]:
    """Returns ``sequences`` on the host, cut after the longest row like in transformers."""
    longest = int(np.max(generated.lengths, initial=0))
    return np.asarray(generated.sequences)[:, : 1 + longest]
