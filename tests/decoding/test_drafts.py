"""Greedy search that reads drafts, against greedy search that reads one token at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.decoding.decoder import CachedDecoder
from longsum_jax.decoding.drafts import look_up
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import Generated, advance, result, start
from longsum_jax.errors import InputError

_V, _EOS, _PAD, _LIMIT, _START = 12, 1, 2, 11, 0
_ROWS = 5
_RNG = np.random.default_rng(3)
_DOCUMENTS = _RNG.integers(3, _V, (_ROWS, 20)).astype(np.int32)
_OF_LAST = 2.0 * _RNG.standard_normal((_ROWS, _V, _V)).astype(np.float32)
_OF_SUM = _RNG.standard_normal((_V, _V)).astype(np.float32)
_OF_SUM[:, _EOS] += 2.0


def _logits(read):
    """Logits after every token of ``read`` [batch, tokens]: they depend on all tokens up to it, and
    prefer what follows the last one in the document."""
    rows = np.arange(_ROWS)[:, None]
    follows = np.zeros((_ROWS, _V, _V), np.float32)
    for row, document in enumerate(_DOCUMENTS):
        follows[row, document[:-1], document[1:]] = 4.0
    sums = jnp.cumsum(read, axis=1) % _V
    return jnp.asarray(_OF_LAST + follows)[rows, read] + jnp.asarray(_OF_SUM)[sums]


class _Cache:
    """The tokens read so far, [batch, positions]; ``kept`` of each row stay."""

    @staticmethod
    def empty(room):
        zeros = jnp.zeros(_ROWS, jnp.int32)
        return {"ids": jnp.zeros((_ROWS, room), jnp.int32), "kept": zeros, "steps": zeros}

    @staticmethod
    def step(ids, cache):
        write = jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice(row, new, (at,)))
        read = write(cache["ids"], ids, cache["kept"])
        index = cache["kept"][:, None] + jnp.arange(ids.shape[1])
        logits = jnp.take_along_axis(_logits(read), index[..., None], axis=1)
        return logits, cache | {"ids": read, "steps": cache["steps"] + 1}

    @staticmethod
    def keep(cache, counts):
        return cache | {"kept": cache["kept"] + counts}


def _decode(**changes):
    """What the search gives, and its number of steps."""
    special = {"decoder_start_token_id": _START, "eos_token_id": _EOS, "pad_token_id": _PAD}
    options = GenerationOptions(max_new_tokens=_LIMIT, **special, **changes)
    drafted = options.prompt_lookup_num_tokens

    def step(ids, cache):
        logits, cache = _Cache.step(ids, cache)
        return logits, cache if drafted else _Cache.keep(cache, 1)

    decoder = CachedDecoder(step, None, _Cache.keep, jnp.asarray(_DOCUMENTS))
    state = start(_Cache.empty(_LIMIT + 1 + drafted), batch_size=_ROWS, options=options)
    run = jax.jit(lambda state: advance(decoder, state, options=options))
    state = run(state)
    return jax.device_get(result(state, options)), int(state.cache["steps"][0])


_NUM_DRAFTED = 4


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"no_repeat_ngram_size": 2, "encoder_no_repeat_ngram_size": 4, "min_new_tokens": 4},
        {"forced_eos_token_id": 5},
    ],
    ids=["plain", "processed", "forced end"],
)
def test_drafts_change_no_sequence(changes):
    expected, _ = _decode(**changes)
    results, _ = _decode(prompt_lookup_num_tokens=_NUM_DRAFTED, **changes)
    for name in ("sequences", "lengths", "ended"):
        np.testing.assert_array_equal(getattr(results, name), getattr(expected, name), name)
    np.testing.assert_allclose(results.scores, expected.scores, rtol=1e-5)
    assert len(Generated._fields) == 4
    assert len(set(expected.lengths.tolist())) > 1


def test_what_copies_takes_fewer_steps():
    _, steps = _decode()
    _, with_drafts = _decode(prompt_lookup_num_tokens=_NUM_DRAFTED)
    assert steps == _LIMIT
    assert with_drafts < steps


def _slow_draft(document, sequence, count, longest):
    """The same by comparing texts; ``sequence`` without the start token."""
    best, draft = 0, None
    for text, places in ((document, len(document)), (sequence, len(sequence) - 1)):
        for place in range(places):
            length = 0
            while length < min(longest, len(sequence), place + 1):
                if text[place - length] != sequence[-1 - length]:
                    break
                length += 1
            if length > best:
                best, draft = length, text[place + 1 : place + 1 + count]
    return draft


@pytest.mark.parametrize("longest", [1, 3])
def test_drafts_are_what_follows_the_longest_match(longest):
    rng = np.random.default_rng(1)
    rows, room, count = 40, 12, 3
    documents = rng.integers(3, 8, (rows, 15)).astype(np.int32)
    sequences = rng.integers(3, 8, (rows, 1 + room)).astype(np.int32)
    sequences[:, 0] = _START
    steps = rng.integers(0, room + 1, rows).astype(np.int32)
    results = np.asarray(look_up(documents, sequences, steps, count, longest))
    compared = 0
    for row, step in enumerate(steps):
        sequence = sequences[row, 1 : 1 + step].tolist()
        draft = _slow_draft(documents[row].tolist(), sequence, count, longest)
        if draft:
            compared += 1
            assert results[row, : len(draft)].tolist() == draft
    assert compared > rows // 2
    alone = np.asarray(look_up(None, sequences, steps, count, longest))
    assert alone.shape == (rows, count)


def test_beams_and_samples_have_no_drafts():
    required = {"max_new_tokens": 4, "decoder_start_token_id": 0}
    cases = ({"num_beams": 2}, "num_beams=1"), ({"do_sample": True}, "do_sample=False")
    for changes, remedy in cases:
        problem = f"prompt_lookup_num_tokens=8 is for greedy search, .*; set it to 0, or {remedy}$"
        with pytest.raises(InputError, match=problem):
            GenerationOptions(prompt_lookup_num_tokens=8, **required, **changes)
