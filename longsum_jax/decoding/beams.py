"""Beam search: the running beams, and an equal number of best finished hypotheses.

Every step ranks enough candidates to refill the running beams even if the most
likely continuations of each are all end-of-sequence tokens.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.decoding.decoder import (
    Cache,
    CachedDecoder,
    Sequences,
    TokenLimits,
    empty_sequences,
    is_eos,
    max_tokens,
    newest,
    next_step,
    take,
    write,
)
from longsum_jax.decoding.logits import process_scores
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray

# Score of hypotheses that do not exist; finite, so that differences of scores
# are not NaN.
_NEVER = -1e9


class _Hypotheses(NamedTuple):
    """The best finished sequences of every row."""

    sequences: Sequences
    scores: Float[Array, "batch beams"]  # best first
    lengths: Int[Array, "batch beams"]
    # False in slots without a finished sequence
    exists: Bool[Array, "batch beams"]


class Beams(NamedTuple):
    """The state of a beam search."""

    step: Int[Array, " batch"]  # number of new tokens so far
    sequences: Sequences  # still running
    scores: Float[Array, "batch beams"]  # sums of log-probabilities, best first
    finished: _Hypotheses
    done: Bool[Array, " batch"]  # the row does not change any more
    limits: TokenLimits | None  # None: the limits of the options
    cache: Cache


class _Candidates(NamedTuple):
    """Continuations of the running beams by a token."""

    # index of the running beam that is continued
    beams: Int[Array, "batch candidates"]
    tokens: Int[Array, "batch candidates"]
    # sums of log-probabilities, best first
    scores: Float[Array, "batch candidates"]
    # including the new token
    sequences: Int[Array, "batch candidates positions"]
    # True for an end-of-sequence token, and for the last token that the limit
    # allows.
    ends: Bool[Array, "batch candidates"]


def extend_beams(
    decoder: CachedDecoder, state: Beams, *, options: GenerationOptions
) -> Beams:
    """Adds a token to the running beams of every row."""
    logits, cache = decoder.step(
        newest(state.sequences, state.step), state.cache
    )
    step = next_step(state.step, state.done)
    candidates = _rank_continuations(logits, state, step, options, decoder)
    finished = _keep_best_finished(candidates, state, step, options)
    # Candidates that ended are ranked below every candidate that can be
    # continued.
    scores, best = jax.lax.top_k(
        candidates.scores + candidates.ends * _NEVER, options.num_beams
    )
    full = jnp.all(finished.exists, axis=1) & (options.early_stopping is True)
    longest = max_tokens(state.limits, options)
    hopeless = ~_can_improve(scores[:, :1], finished, step, longest, options)
    return Beams(
        step=step,
        sequences=take(candidates.sequences, best),
        scores=scores,
        finished=finished,
        done=state.done | full | hopeless | (step == longest),
        limits=state.limits,
        cache=decoder.reorder(cache, take(candidates.beams, best)),
    )


def first_beams(
    cache: Cache,
    batch_size: int,
    options: GenerationOptions,
    limits: TokenLimits | None = None,
) -> Beams:
    """Returns the state before the first token."""
    shape = (batch_size, options.num_beams)
    sequences = empty_sequences(*shape, options)
    nothing = jnp.full(shape, _NEVER, jnp.float32)
    return Beams(
        step=jnp.zeros(batch_size, jnp.int32),
        sequences=sequences,
        # All beams begin with the same tokens, so only one of them may be
        # continued.
        scores=nothing.at[:, 0].set(0.0),
        finished=_Hypotheses(
            sequences,
            nothing,
            jnp.zeros(shape, jnp.int32),
            jnp.zeros(shape, bool),
        ),
        done=jnp.zeros(batch_size, bool),
        limits=limits,
        cache=cache,
    )


def _rank_continuations(
    logits: Float[AnyArray, "batch beams vocab"],
    state: Beams,
    step: Int[Array, " batch"],
    options: GenerationOptions,
    decoder: CachedDecoder,
) -> _Candidates:
    """Ranks the continuations of all beams of a row by accumulated log-probability, best first.

    Args:
        logits: logits of the next token.
        state: state before it.
        step: number of new tokens including it.
        options: generation options.
        decoder: decoder with the texts whose n-grams may be forbidden.
    """
    batch_size, beams, vocab_size = logits.shape
    count = max(2, 1 + len(options.eos_ids)) * beams
    if count > beams * vocab_size:
        raise InputError(
            f"beam search with {len(options.eos_ids)} eos_token_id needs a vocabulary of at "
            f"least {count // beams}, not {vocab_size}"
        )
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    texts = decoder.documents, decoder.earlier
    log_probs = process_scores(
        log_probs, state.sequences, step, options, *texts, state.limits
    )
    accumulated = (log_probs + state.scores[:, :, None]).reshape(
        batch_size, beams * vocab_size
    )
    # flat index: beam * vocab_size + token
    scores, flat = jax.lax.top_k(accumulated, count)
    parents = flat // vocab_size
    tokens = flat % vocab_size
    return _Candidates(
        beams=parents,
        tokens=tokens,
        scores=scores,
        sequences=write(take(state.sequences, parents), tokens, step),
        ends=is_eos(tokens, options)
        | (step == max_tokens(state.limits, options))[:, None],
    )


def _keep_best_finished(
    candidates: _Candidates,
    state: Beams,
    step: Int[Array, " batch"],
    options: GenerationOptions,
) -> _Hypotheses:
    """Merges ended candidates into the best finished hypotheses, in rows that are not done."""
    old = state.finished
    # A candidate ranked below the number of beams only refills them, and may
    # not finish.
    ends = candidates.ends & (
        jnp.arange(candidates.ends.shape[1]) < options.num_beams
    )
    divisors = _length_divisors(options)[step][:, None]
    scores = candidates.scores / divisors + ~ends * _NEVER
    lengths = jnp.broadcast_to(step[:, None], ends.shape)
    new = _Hypotheses(candidates.sequences, scores, lengths, ends)
    merged = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b], axis=1), old, new
    )
    best = jax.lax.top_k(merged.scores, options.num_beams)[1]

    def choose(before: AnyArray, after: AnyArray) -> Array:
        done = state.done.reshape((-1,) + (1,) * (before.ndim - 1))
        return jnp.where(done, before, take(after, best))

    return jax.tree.map(choose, old, merged)


def _can_improve(
    best_running: Float[AnyArray, "batch one"],
    finished: _Hypotheses,
    step: Int[Array, " batch"],
    longest: Int[AnyArray, "*batch"] | int,
    options: GenerationOptions,
) -> Bool[Array, " batch"]:
    """Returns True for rows whose best running beam may still beat their worst finished hypothesis.

    A running beam is scored by its current length; with early_stopping="never"
    and a length penalty that favors long outputs, by the maximum length it
    could reach.
    """
    divisors = _length_divisors(options)
    hopeful = options.early_stopping == "never" and options.length_penalty > 0
    length = jnp.broadcast_to(longest, step.shape) if hopeful else step
    best_possible = best_running / divisors[length][:, None]
    worst = jnp.where(
        finished.exists, jnp.min(finished.scores, axis=1, keepdims=True), _NEVER
    )
    return jnp.any(best_possible > worst, axis=1)


def _length_divisors(options: GenerationOptions) -> Float[Array, " positions"]:
    """Returns length ** length_penalty for every length; powers are taken in float64."""
    lengths = np.arange(1 + options.max_new_tokens, dtype=np.float64)
    lengths[0] = 1.0  # no hypothesis has length 0
    with np.errstate(over="ignore"):
        return jnp.asarray((lengths**options.length_penalty).astype(np.float32))
