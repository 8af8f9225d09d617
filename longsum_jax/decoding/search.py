"""Greedy, sampled and beam search, each one ``lax.while_loop`` around a decoder with a cache.

Every row counts its own tokens. So the loop may stop when some rows are done, other documents take
their places, and it goes on in the same compiled program:

    state = start(cache)
    state = advance(decoder, state)         until as many rows are done as are asked for
    result(state)                           of the rows that are done
    state = restart(state, rows)            with other documents

Ids and scores are those of transformers 5's generate for encoder-decoder models, with two
differences on purpose. Rows of a batch finish independently: nothing of a row depends on its batch
mates, not even the spare hypotheses that num_return_sequences returns. The end of a sequence is
always followed by ``pad_token_id``, where transformers' beam search puts the end-of-sequence id if
the padding id is 0.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Shaped, UInt

from longsum_jax.decoding.logits import process_scores, warp_scores
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError
from longsum_jax.typing import AnyArray

Cache = Any  # any pytree of arrays
# The score of hypotheses that do not exist; finite, so that differences of scores stay numbers.
_NEVER = -1e9

Tokens = Int[Array, "batch beams"]
Sequences = Int[Array, "batch beams positions"]  # positions = 1 + max_new_tokens
Scalar = Int[Array, ""]
RandomKeys = Key[Array, "..."] | UInt[Array, "..."]


class Decoder(NamedTuple):
    """Functions of a model over a cache that holds the position of every row.

    Attributes:
        step: (ids [batch, beams] int32, cache) -> (logits [batch, beams, vocab], cache); reads one
            token for every beam.
        reorder: (cache, beams [batch, beams] int32) -> cache; row b, beam r continues from old beam
            ``beams[b, r]``. Only self-attention entries move: encoder-side keys and values are
            stored once per batch row.
        keep: (cache, counts [batch] int32) -> cache; of the tokens of a row that the last step has
            read one after the other, the first ``counts`` stay. For searches with drafts, whose
            ``step`` reads a newest token and a draft behind it in place of beams.
        documents: ids of the documents, in which drafts are looked up too.
    """

    step: Callable[[Tokens, Cache], tuple[Float[Array, "batch beams vocab"], Cache]]
    reorder: Callable[[Cache, Tokens], Cache]
    keep: Callable[[Cache, Int[Array, " batch"]], Cache] | None = None
    documents: Int[AnyArray, "batch length"] | None = None


class Generated(NamedTuple):
    """Decoded sequences, ``batch_size * num_return_sequences``; those of a document are adjacent.

    Attributes:
        sequences: int32, beginning with the start token, padded after the end; positions is 1 +
            max_new_tokens.
        lengths: int32, new tokens of each sequence; the end-of-sequence token counts, the start
            does not.
        ended: True where the sequence ended by itself, False where it hit the limit (also when
            ``forced_eos_token_id`` then wrote an end-of-sequence token).
        scores: float32; in beam search the sum of log-probabilities over length **
            length_penalty, else the sum of the tokens' log-probabilities under the distributions
            they were chosen from.
    """

    sequences: Int[Array, "sequences positions"]
    lengths: Int[Array, " sequences"]
    ended: Bool[Array, " sequences"]
    scores: Float[Array, " sequences"]


def generate(
    decoder: Decoder,
    cache: Cache,
    *,
    batch_size: int,
    options: GenerationOptions,
    rng: RandomKeys | None = None,
    is_done: Bool[Array, " batch"] | None = None,
) -> Generated:
    """Decodes a batch.

    It can be traced, and is meant to be called inside ``jax.jit`` with ``options`` static.

    Args:
        decoder: the model's step and reorder functions.
        cache: a fresh cache with ``options.decoder_beams`` beams and room for ``max_new_tokens``
            positions.
        batch_size: number of documents.
        options: of the search; every combination compiles once.
        rng: for ``do_sample``: one key, from which each row derives its own by its index, or keys
            [batch], one for every row (then a row draws the same whichever batch it is in).
        is_done: True for rows that hold no document: their sequences have no token, and the search
            does not wait for them. None for none.

    Raises:
        InputError: sampling without keys, token ids outside the vocabulary, or a vocabulary too
            small for the number of end-of-sequence ids.
    """
    state = start(cache, batch_size=batch_size, options=options)
    if is_done is not None:
        state = state._replace(done=is_done)
    return result(advance(decoder, state, options=options, rng=rng), options)


def start(cache: Cache, *, batch_size: int, options: GenerationOptions) -> "SearchState":
    """Returns the state of a search before its first token; arguments as for ``generate``."""
    first = _first_samples if _is_sampled(options) else _first_beams
    return first(cache, batch_size, options)


def restart(
    state: "SearchState", rows: Bool[Array, " batch"], cache: Cache, options: GenerationOptions
) -> "SearchState":
    """Returns a state whose ``rows`` are before their first token again.

    Args:
        state: of a search.
        rows: True for those that begin with another document.
        cache: with these documents.
        options: of the search.
    """

    def choose(fresh: AnyArray, old: AnyArray) -> Array:
        return jnp.where(rows.reshape(-1, *(1,) * (old.ndim - 1)), fresh, old)

    fresh = start((), batch_size=len(rows), options=options)
    return jax.tree.map(choose, fresh, state._replace(cache=()))._replace(cache=cache)


def advance(
    decoder: Decoder,
    state: "SearchState",
    *,
    options: GenerationOptions,
    rng: RandomKeys | None = None,
    num_done: Int[AnyArray, ""] | None = None,
) -> "SearchState":
    """Decodes until ``num_done`` rows are done; None for all.

    Args:
        decoder: the model's step and reorder functions.
        state: of a search; rows that are done stay as they are.
        options: of the search.
        rng: as for ``generate``.
        num_done: number of rows, those counted that were done before.
    """
    batch_size = len(state.done)
    num_done = batch_size if num_done is None else num_done
    if options.prompt_lookup_num_tokens:
        step = partial(_verify_draft, decoder, options=options)
    elif _is_sampled(options):
        keys = _row_keys(rng, batch_size, options.decoder_beams) if options.do_sample else None
        step = partial(_sample, decoder, options=options, keys=keys)
    else:
        step = partial(_extend_beams, decoder, options=options)
    return jax.lax.while_loop(lambda state: jnp.sum(state.done) < num_done, step, state)


def result(state: "SearchState", options: GenerationOptions) -> Generated:
    """Returns the sequences of a state; those of rows that are not done may still change."""
    best = state if isinstance(state, _Samples) else state.finished
    count = options.num_return_sequences
    sequences = best.sequences[:, :count].reshape(-1, best.sequences.shape[-1])
    lengths = best.lengths[:, :count].reshape(-1)
    last = jnp.take_along_axis(sequences, lengths[:, None], axis=1)[:, 0]
    forced = bool(options.forced_eos_token_id) & (lengths == options.max_new_tokens)
    ended = _is_eos(last, options) & ~forced
    return Generated(sequences, lengths, ended, best.scores[:, :count].reshape(-1))


def _is_sampled(options: GenerationOptions) -> bool:
    """Tells whether the beams of a row are independent of each other."""
    return options.do_sample or options.num_beams == 1


def trim(generated: Generated) -> Int[np.ndarray, "sequences positions"]:
    """Returns ``sequences`` on the host, cut after the longest row as transformers does."""
    longest = int(np.max(generated.lengths, initial=0))
    return np.asarray(generated.sequences)[:, : 1 + longest]


# Greedy search and sampling: the beams of a row are independent samples.


class _Samples(NamedTuple):
    step: Int[Array, " batch"]  # new tokens so far
    sequences: Sequences
    lengths: Int[Array, "batch beams"]
    finished: Bool[Array, "batch beams"]
    scores: Float[Array, "batch beams"]
    done: Bool[Array, " batch"]  # nothing of the row changes any more
    cache: Cache


def _first_samples(cache: Cache, batch_size: int, options: GenerationOptions) -> _Samples:
    shape = (batch_size, options.decoder_beams)
    return _Samples(
        step=jnp.zeros(batch_size, jnp.int32),
        sequences=_empty_sequences(*shape, options),
        lengths=jnp.zeros(shape, jnp.int32),
        finished=jnp.zeros(shape, bool),
        scores=jnp.zeros(shape, jnp.float32),
        done=jnp.zeros(batch_size, bool),
        cache=cache,
    )


def _sample(
    decoder: Decoder,
    state: _Samples,
    *,
    options: GenerationOptions,
    keys: Key[Array, "batch beams"] | None,
) -> _Samples:
    """Adds a token to every row."""
    logits, cache = decoder.step(_newest(state), state.cache)
    step = _next_step(state)
    logits = process_scores(logits.astype(jnp.float32), state.sequences, step, options)
    if keys is None:
        tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    else:
        logits = warp_scores(logits, options)
        tokens = _draw(keys, state.step, logits)
    gained = _pick(jax.nn.log_softmax(logits), tokens)
    over = state.finished | state.done[:, None]
    tokens = jnp.where(over, options.pad_token_id, tokens)
    finished = over | _is_eos(tokens, options)
    return _Samples(
        step=step,
        sequences=_write(state.sequences, tokens, state.step + 1),
        lengths=jnp.where(over, state.lengths, step[:, None]),
        finished=finished,
        scores=jnp.where(over, state.scores, state.scores + gained),
        done=jnp.all(finished, axis=1) | (step == options.max_new_tokens),
        cache=cache,
    )


def _row_keys(rng: RandomKeys | None, batch_size: int, beams: int) -> Key[Array, "batch beams"]:
    """Returns a typed key for every beam of every row."""
    if rng is None:
        raise InputError("do_sample=True needs random keys; give generate rng=jax.random.key(seed)")
    if not jnp.issubdtype(rng.dtype, jax.dtypes.prng_key):
        rng = jax.random.wrap_key_data(rng)
    fold_in = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    if rng.ndim == 0:
        rng = fold_in(rng, jnp.arange(batch_size))
    if rng.shape != (batch_size,):
        raise InputError(
            f"rng holds keys of shape {rng.shape}; give one key, or {batch_size}, one for every row"
        )
    return jax.vmap(fold_in, in_axes=(0, None))(rng, jnp.arange(beams))


def _draw(
    keys: Key[Array, "batch beams"],
    step: Int[Array, " batch"],
    logits: Float[AnyArray, "batch beams vocab"],
) -> Tokens:
    """Draws one token for every beam."""

    def draw(key: Key[Array, ""], step: Scalar, row: Float[AnyArray, " vocab"]) -> Scalar:
        return jax.random.categorical(jax.random.fold_in(key, step), row)

    of_row = jax.vmap(draw, in_axes=(0, None, 0))
    return jax.vmap(of_row)(keys, step, logits).astype(jnp.int32)


# Greedy search with drafts: a step reads the newest token and a guess of what follows it. The guess
# is right as far as each of its tokens is the one that the search chooses after those before it:
#
#     newest token, draft       the  cat  sat  on  a
#     chosen after each         cat  sat  by   a   mat        kept: cat sat by
#
# Source: prompt lookup decoding (Saxena 2023), which needs no second model for what Leviathan et
# al. 2023, section 2, call speculative decoding.


def _verify_draft(decoder: Decoder, state: _Samples, *, options: GenerationOptions) -> _Samples:
    """Adds to every row the tokens of a draft that are right, and the one after them."""
    count = options.prompt_lookup_num_tokens
    sequences = state.sequences[:, 0]
    draft = look_up(
        decoder.documents, sequences, state.step, count, options.max_matching_ngram_size
    )
    logits, cache = decoder.step(jnp.concatenate([_newest(state), draft], 1), state.cache)
    # Every choice is made as if the draft before it were chosen already.
    drafted = _write_from(sequences, draft, state.step + 1)
    steps = _next_step(state)[:, None] + jnp.arange(1 + count)
    process = partial(process_scores, options=options)
    process = jax.vmap(process, in_axes=(1, None, 1), out_axes=1)
    logits = process(logits.astype(jnp.float32)[:, :, None], drafted[:, None], steps)[:, :, 0]
    tokens = jnp.argmax(logits, axis=-1).astype(jnp.int32)
    gained = _pick(jax.nn.log_softmax(logits), tokens)
    is_right = _begins_with(draft == tokens[:, :-1])
    is_open = _begins_with(~_is_eos(tokens[:, :-1], options))
    within = steps <= options.max_new_tokens
    over = state.finished | state.done[:, None]
    is_kept = jnp.pad(is_right & is_open, ((0, 0), (1, 0)), constant_values=True) & within & ~over
    step = state.step + is_kept.sum(1)
    finished = state.finished | (is_kept & _is_eos(tokens, options)).any(1, keepdims=True)
    return _Samples(
        step=step,
        sequences=_write_from(sequences, tokens, state.step + 1, is_kept)[:, None],
        lengths=jnp.where(over, state.lengths, step[:, None]),
        finished=finished,
        scores=state.scores + jnp.sum(gained * is_kept, axis=1, keepdims=True),
        done=state.done | finished[:, 0] | (step == options.max_new_tokens),
        cache=decoder.keep(cache, is_kept.sum(1)),
    )


def look_up(
    documents: Int[AnyArray, "batch length"] | None,
    sequences: Int[AnyArray, "batch positions"],
    step: Int[AnyArray, " batch"],
    count: int,
    longest: int,
) -> Int[Array, "batch count"]:
    """Drafts the tokens after the newest ones of sequences.

    They are those that follow the place, in the document or the sequence itself, whose last tokens
    agree with the newest ones of the sequence: as many as possible of at most ``longest``, at the
    first such place. The start token agrees with none. Where nothing agrees, the draft is anything.

    Args:
        documents: ids, or None.
        sequences: the start token and ``step`` new tokens, then anything.
        step: new tokens of each sequence.
        count: tokens of a draft.
        longest: most tokens that are compared.
    """
    texts = sequences if documents is None else jnp.concatenate([documents, sequences], 1)
    places = jnp.arange(texts.shape[1])
    start = texts.shape[1] - sequences.shape[1]
    # In a sequence only tokens before the newest are followed by something.
    is_place = (places < start) | ((places > start) & (places < start + step[:, None]))
    length = jnp.zeros(texts.shape, jnp.int32)
    agrees = is_place
    for back in range(longest):
        newest = jnp.take_along_axis(sequences, jnp.maximum(step - back, 0)[:, None], axis=1)
        before = jnp.pad(texts, ((0, 0), (back, 0)), constant_values=-1)[:, : texts.shape[1]]
        agrees = agrees & (before == newest) & (step > back)[:, None]
        length = length + agrees
    place = jnp.argmax(length, axis=1)
    following = jnp.minimum(place[:, None] + 1 + jnp.arange(count), texts.shape[1] - 1)
    return jnp.take_along_axis(texts, following, axis=1).astype(jnp.int32)


def _begins_with(flags: Bool[AnyArray, "batch count"]) -> Bool[Array, "batch count"]:
    """Returns True as far as all flags from the first one on are True."""
    return jnp.cumprod(flags, axis=1).astype(bool)


def _write_from(
    sequences: Int[AnyArray, "batch positions"],
    tokens: Int[AnyArray, "batch count"],
    position: Int[Array, " batch"],
    is_written: Bool[AnyArray, "batch count"] | bool = True,
) -> Int[Array, "batch positions"]:
    """Sets sequences[b, position[b] + i] to tokens[b, i] where ``is_written[b, i]``."""
    index = jnp.arange(sequences.shape[1]) - position[:, None]
    is_new = (index >= 0) & (index < tokens.shape[1])
    index = jnp.clip(index, 0, tokens.shape[1] - 1)
    is_written = jnp.broadcast_to(is_written, tokens.shape)
    is_new = is_new & jnp.take_along_axis(is_written, index, axis=1)
    return jnp.where(is_new, jnp.take_along_axis(tokens, index, axis=1), sequences)


# Beam search: the running beams beside as many best finished hypotheses. Every step ranks more
# candidates than beams, so many that they refill the running beams even if the likeliest
# continuations of each are all end-of-sequence tokens.


class _Hypotheses(NamedTuple):
    sequences: Sequences
    scores: Float[Array, "batch beams"]  # best first
    lengths: Int[Array, "batch beams"]
    exists: Bool[Array, "batch beams"]  # False in slots that no finished sequence has taken yet


class _Beams(NamedTuple):
    step: Int[Array, " batch"]  # new tokens so far
    sequences: Sequences  # still running
    scores: Float[Array, "batch beams"]  # sums of log-probabilities, best first
    finished: _Hypotheses
    done: Bool[Array, " batch"]  # nothing of the row changes any more
    cache: Cache


class _Candidates(NamedTuple):
    beams: Int[Array, "batch candidates"]  # the running beam that each continues
    tokens: Int[Array, "batch candidates"]
    scores: Float[Array, "batch candidates"]  # sums of log-probabilities, best first
    sequences: Int[Array, "batch candidates positions"]  # the new token included
    # The token is an end-of-sequence token, or the last that the limit allows.
    ends: Bool[Array, "batch candidates"]


SearchState = _Samples | _Beams


def _extend_beams(decoder: Decoder, state: _Beams, *, options: GenerationOptions) -> _Beams:
    """Adds a token to the running beams of every row."""
    logits, cache = decoder.step(_newest(state), state.cache)
    step = _next_step(state)
    candidates = _rank_continuations(logits, state, step, options)
    finished = _keep_best_finished(candidates, state, step, options)
    # Candidates that ended sink to the bottom, below every one that can be continued.
    scores, best = jax.lax.top_k(candidates.scores + candidates.ends * _NEVER, options.num_beams)
    full = jnp.all(finished.exists, axis=1) & (options.early_stopping is True)
    hopeless = ~_can_improve(scores[:, :1], finished, step, options)
    return _Beams(
        step=step,
        sequences=_take(candidates.sequences, best),
        scores=scores,
        finished=finished,
        done=state.done | full | hopeless | (step == options.max_new_tokens),
        cache=decoder.reorder(cache, _take(candidates.beams, best)),
    )


def _first_beams(cache: Cache, batch_size: int, options: GenerationOptions) -> _Beams:
    shape = (batch_size, options.num_beams)
    sequences = _empty_sequences(*shape, options)
    nothing = jnp.full(shape, _NEVER, jnp.float32)
    return _Beams(
        step=jnp.zeros(batch_size, jnp.int32),
        sequences=sequences,
        # All beams hold the same start: only one of them may be continued.
        scores=nothing.at[:, 0].set(0.0),
        finished=_Hypotheses(
            sequences, nothing, jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
        ),
        done=jnp.zeros(batch_size, bool),
        cache=cache,
    )


def _rank_continuations(
    logits: Float[AnyArray, "batch beams vocab"],
    state: _Beams,
    step: Int[Array, " batch"],
    options: GenerationOptions,
) -> _Candidates:
    """Ranks the continuations of all beams of a row by accumulated log-probability, best first.

    Args:
        logits: of the next token.
        state: before it.
        step: new tokens with it.
        options: of the search.
    """
    batch_size, beams, vocab_size = logits.shape
    count = max(2, 1 + len(options.eos_token_id)) * beams
    if count > beams * vocab_size:
        raise InputError(
            f"beam search with {len(options.eos_token_id)} eos_token_id needs a vocabulary of at "
            f"least {count // beams}, not {vocab_size}"
        )
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32))
    log_probs = process_scores(log_probs, state.sequences, step, options)
    accumulated = (log_probs + state.scores[:, :, None]).reshape(batch_size, beams * vocab_size)
    scores, flat = jax.lax.top_k(accumulated, count)
    parents = flat // vocab_size
    tokens = flat % vocab_size
    return _Candidates(
        beams=parents,
        tokens=tokens,
        scores=scores,
        sequences=_write(_take(state.sequences, parents), tokens, step),
        ends=_is_eos(tokens, options) | (step == options.max_new_tokens)[:, None],
    )


def _keep_best_finished(
    candidates: _Candidates,
    state: _Beams,
    step: Int[Array, " batch"],
    options: GenerationOptions,
) -> _Hypotheses:
    """Merges candidates that end into the best finished hypotheses of rows that are not done."""
    old = state.finished
    # A candidate ranked below the number of beams is there to refill them, and may not finish.
    ends = candidates.ends & (jnp.arange(candidates.ends.shape[1]) < options.num_beams)
    divisors = _length_divisors(options)[step][:, None]
    scores = candidates.scores / divisors + ~ends * _NEVER
    lengths = jnp.broadcast_to(step[:, None], ends.shape)
    new = _Hypotheses(candidates.sequences, scores, lengths, ends)
    merged = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), old, new)
    best = jax.lax.top_k(merged.scores, options.num_beams)[1]

    def choose(before: AnyArray, after: AnyArray) -> Array:
        done = state.done.reshape((-1,) + (1,) * (before.ndim - 1))
        return jnp.where(done, before, _take(after, best))

    return jax.tree.map(choose, old, merged)


def _can_improve(
    best_running: Float[AnyArray, "batch one"],
    finished: _Hypotheses,
    step: Int[Array, " batch"],
    options: GenerationOptions,
) -> Bool[Array, " batch"]:
    """Returns True for rows whose best running beam may still beat their worst finished one.

    A running beam is judged by the length it has now; with early_stopping="never" and a length
    penalty that favors long outputs, by the length it could reach.
    """
    divisors = _length_divisors(options)
    hopeful = options.early_stopping == "never" and options.length_penalty > 0
    best_possible = best_running / (divisors[-1] if hopeful else divisors[step][:, None])
    worst = jnp.where(finished.exists, jnp.min(finished.scores, axis=1, keepdims=True), _NEVER)
    return jnp.any(best_possible > worst, axis=1)


def _length_divisors(options: GenerationOptions) -> Float[Array, " positions"]:
    """Returns length ** length_penalty for every length; powers are taken in float64."""
    lengths = np.arange(1 + options.max_new_tokens, dtype=np.float64)
    lengths[0] = 1.0  # no hypothesis has length 0
    with np.errstate(over="ignore"):
        return jnp.asarray((lengths**options.length_penalty).astype(np.float32))


# Shared by both loops.


def _newest(state: SearchState) -> Tokens:
    """Returns the newest token of every beam."""
    index = state.step[:, None, None]
    return jnp.take_along_axis(state.sequences, index, axis=2, mode="promise_in_bounds")[..., 0]


def _next_step(state: SearchState) -> Int[Array, " batch"]:
    """Counts one more token in rows that are not done."""
    return state.step + ~state.done


def _empty_sequences(batch_size: int, beams: int, options: GenerationOptions) -> Sequences:
    shape = (batch_size, beams, 1 + options.max_new_tokens)
    padding = jnp.full(shape, options.pad_token_id, jnp.int32)
    return padding.at[:, :, 0].set(options.decoder_start_token_id)


def _is_eos(tokens: Int[AnyArray, "*any"], options: GenerationOptions) -> Bool[Array, "*any"]:
    return jnp.isin(tokens, np.asarray(options.eos_token_id, np.int32))


def _write(
    sequences: Int[AnyArray, "batch rows positions"],
    tokens: Int[AnyArray, "batch rows"],
    position: Int[Array, " batch"],
) -> Int[Array, "batch rows positions"]:
    """Sets sequences[b, :, position[b]] to tokens[b]."""
    is_new = jnp.arange(sequences.shape[-1]) == position[:, None, None]
    return jnp.where(is_new, tokens[:, :, None], sequences)


def _pick(
    values: Float[AnyArray, "batch beams vocab"], index: Tokens
) -> Float[Array, "batch beams"]:
    """Returns values[..., index]."""
    return jnp.take_along_axis(values, index[..., None], axis=-1, mode="promise_in_bounds")[..., 0]


def _take(
    values: Shaped[AnyArray, "batch rows *rest"], index: Int[AnyArray, "batch taken"]
) -> Shaped[Array, "batch taken *rest"]:
    """Selects along axis 1."""
    index = index.reshape(index.shape + (1,) * (values.ndim - 2))
    return jnp.take_along_axis(values, index, axis=1, mode="promise_in_bounds")
