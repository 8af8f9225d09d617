"""What holds for every decoding: limits, padding, independence of rows, randomness, laziness."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.decoding.decoder import CachedDecoder, TokenLimits
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import (
    Generated,
    advance,
    generate,
    restart,
    result,
    start,
    trim,
)
from longsum_jax.errors import InputError

_V, _EOS, _PAD, _LIMIT = 14, 1, 2, 9
_NEAR = 2.0 * np.random.default_rng(5).standard_normal((6, _V, _V)).astype(np.float32)
_NEAR[:, :, _EOS] += np.float32([4, 2, 1, 0, -1, -9])[:, None]
_NEAR[:, :, _PAD] -= 20.0

_GREEDY = {"no_repeat_ngram_size": 2}
_BEAM = {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True}
_SAMPLE = {
    "do_sample": True,
    "num_return_sequences": 2,
    "top_k": 6,
    "top_p": 0.9,
    "temperature": 0.8,
}


def _next_logits(documents, ids, length):
    return jnp.asarray(_NEAR)[documents, ids[:, :, length - 1]]


def _options(**changes):
    special = {"decoder_start_token_id": 0, "eos_token_id": _EOS, "pad_token_id": _PAD}
    return GenerationOptions(**({"max_new_tokens": _LIMIT} | special | changes))


@pytest.mark.parametrize("changes", [_GREEDY, _BEAM, _SAMPLE], ids=["greedy", "beam", "sample"])
def test_a_row_does_not_depend_on_its_batch_mates(decode, changes):
    options = _options(**changes)
    keys = jax.random.split(jax.random.key(0), 6) if options.do_sample else None
    together = decode(_next_logits, range(6), options, keys)
    each = options.num_return_sequences
    for document in range(6):
        alone = decode(
            _next_logits, [document], options, None if keys is None else keys[document, None]
        )
        for name in Generated._fields:
            rows = np.asarray(getattr(together, name))[document * each : (document + 1) * each]
            np.testing.assert_array_equal(rows, getattr(alone, name), err_msg=name)


@pytest.mark.parametrize("changes", [_GREEDY, _BEAM, _SAMPLE], ids=["greedy", "beam", "sample"])
def test_rows_that_are_done_at_the_start_have_no_token_and_change_no_other(decode, changes):
    options = _options(**changes)
    keys = jax.random.split(jax.random.key(0), 6) if options.do_sample else None
    is_done = np.array([False, True, False, False, True, True])
    whole = decode(_next_logits, range(6), options, keys)
    results = decode(_next_logits, range(6), options, keys, jnp.asarray(is_done))
    done = np.repeat(is_done, options.num_return_sequences)
    for name in Generated._fields:
        expected, values = np.asarray(getattr(whole, name)), np.asarray(getattr(results, name))
        np.testing.assert_array_equal(values[~done], expected[~done], err_msg=name)
    assert not results.lengths[done].any()
    assert (results.sequences[done][:, 1:] == _PAD).all()


@pytest.mark.parametrize("changes", [_GREEDY, _BEAM, _SAMPLE], ids=["greedy", "beam", "sample"])
def test_a_document_that_takes_the_place_of_another_changes_nothing(decode, changes):
    """Six documents pass through two places; the decoder reads document and newest token."""
    options = _options(**changes)
    keys = jnp.broadcast_to(jax.random.key(0), (6,)) if options.do_sample else None
    expected = decode(_next_logits, range(6), options, keys)
    decoder = CachedDecoder(
        lambda ids, documents: (jnp.asarray(_NEAR)[documents[:, None], ids], documents),
        lambda documents, _: documents,
    )

    @jax.jit
    def go_on(state, documents, rows, num_done):
        state = restart(state, rows, documents, options)
        rng = None if keys is None else keys[:2]
        state = advance(decoder, state, options=options, rng=rng, num_done=num_done)
        return state, result(state, options)

    places, waiting, left = [None, None], [0, 1, 2, 3, 4, 5], []
    state = start(jnp.zeros(2, jnp.int32), batch_size=2, options=options)
    state = state._replace(done=jnp.ones(2, bool))
    each = options.num_return_sequences
    while waiting or places != [None, None]:
        free = [i for i in range(2) if places[i] is None]
        for i in free[: len(waiting)]:
            places[i] = waiting.pop(0)
        rows = jnp.array([i in free and places[i] is not None for i in range(2)])
        documents = jnp.array([place or 0 for place in places])
        num_done = 1 if waiting else 2
        state, out = go_on(state, documents, rows, num_done)
        for i in np.flatnonzero(np.asarray(state.done)):
            if places[i] is None:
                continue
            left.append(places[i])
            for name in Generated._fields:
                values = np.asarray(getattr(out, name))[i * each : (i + 1) * each]
                wanted = getattr(expected, name)[left[-1] * each : (left[-1] + 1) * each]
                np.testing.assert_array_equal(values, wanted, err_msg=name)
            places[i] = None
    assert sorted(left) == list(range(6))


@pytest.mark.parametrize(
    "changes",
    [_GREEDY, {"num_beams": 3, "early_stopping": "never"}, _SAMPLE],
    ids=["greedy", "beam", "sample"],
)
def test_limits_of_rows_equal_options(decode, changes):
    """Rows of one program end where searches with these limits as options end."""
    changes |= {"forced_eos_token_id": 3}
    options = _options(**changes)
    documents, limits = [0, 4, 5], [(0, 4), (7, _LIMIT), (2, 3)]
    keys = jax.random.split(jax.random.key(0), 3) if options.do_sample else None
    decoder = CachedDecoder(
        lambda ids, rows: (jnp.asarray(_NEAR)[rows[:, None], ids], rows), lambda rows, _: rows
    )
    shortest, longest = jnp.transpose(jnp.array(limits))
    begun = start(
        jnp.array(documents),
        batch_size=3,
        options=options,
        limits=TokenLimits(shortest, longest),
    )
    out = result(advance(decoder, begun, options=options, rng=keys), options)
    each = options.num_return_sequences
    for row, (least, most) in enumerate(limits):
        alone = decode(
            _next_logits,
            documents[row : row + 1],
            _options(**changes, min_new_tokens=least, max_new_tokens=most),
            None if keys is None else keys[row, None],
        )
        for name in Generated._fields:
            values = np.asarray(getattr(out, name))[row * each : (row + 1) * each]
            if name == "sequences":
                assert (values[:, 1 + most :] == _PAD).all()
                values = values[:, : 1 + most]
            np.testing.assert_array_equal(values, getattr(alone, name), err_msg=name)
    assert not out.ended.all()


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 2])
def test_nobody_waits_for_rows_that_are_done(beams):
    """The first row says the end at once, with each of its beams; the second never."""
    steps = []
    first = jnp.zeros(_V).at[_EOS].set(20.0)
    second = jnp.zeros(_V).at[_EOS].set(-20.0)

    def step(ids, cache):
        steps.append(1)
        logits = jnp.broadcast_to(jnp.stack([first, second])[:, None], (2, beams, _V))
        return logits, cache

    decoder = CachedDecoder(step, lambda cache, _: cache)
    options = _options(num_beams=beams)
    with jax.disable_jit():
        for is_done, expected in ((None, _LIMIT), (jnp.array([False, True]), beams)):
            steps.clear()
            generate(decoder, (), batch_size=2, options=options, is_done=is_done)
            assert len(steps) == expected


@pytest.mark.parametrize("changes", [_GREEDY, _BEAM, _SAMPLE], ids=["greedy", "beam", "sample"])
def test_layout_lengths_and_padding(decode, changes):
    options = _options(min_new_tokens=3, **changes)
    generated = decode(
        _next_logits, range(6), options, jax.random.key(1) if options.do_sample else None
    )
    sequences, lengths, ended = map(
        np.asarray, (generated.sequences, generated.lengths, generated.ended)
    )
    assert sequences.shape == (6 * options.num_return_sequences, 1 + _LIMIT)
    assert sequences.dtype == np.int32
    for ids, length, end in zip(sequences, lengths, ended, strict=True):
        assert ids[0] == 0
        assert 3 <= length <= _LIMIT
        assert (_EOS in ids[1 : 1 + length]) == end
        assert _EOS not in ids[1:length]
        assert (ids[1 + length :] == _PAD).all()
    assert ended.any()
    assert not ended.all()
    assert trim(generated).shape[1] == 1 + lengths.max()


def test_a_forced_end_is_not_an_end_by_itself(decode):
    for changes in ({}, {"num_beams": 3}):
        generated = decode(_next_logits, [0, 5], _options(forced_eos_token_id=_EOS, **changes))
        assert generated.ended.tolist() == [True, False]
        assert generated.lengths[1] == _LIMIT
        assert generated.sequences[1, -1] == _EOS


def test_sampling_repeats_with_its_key_and_changes_with_another(decode):
    options = _options(do_sample=True, num_return_sequences=4)
    first, again, other, old_style = (
        decode(_next_logits, range(6), options, key).sequences.tolist()
        for key in (jax.random.key(7), jax.random.key(7), jax.random.key(8), jax.random.PRNGKey(7))
    )
    assert first == again == old_style
    assert first != other
    assert len({tuple(row) for row in first[20:]}) > 1  # the samples of one document differ


def test_sampled_frequencies_match_the_softmax(decode):
    temperature, count = 1.5, 20_000
    options = _options(
        max_new_tokens=1,
        do_sample=True,
        num_return_sequences=count,
        temperature=temperature,
        top_k=5,
    )
    drawn = decode(_next_logits, [3], options, jax.random.key(0)).sequences[:, 1]
    frequencies = np.bincount(drawn, minlength=_V) / count
    logits = _NEAR[3, 0].astype(np.float64) / temperature
    logits[np.argsort(logits)[:-5]] = -np.inf
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    standard_error = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(frequencies - expected) <= 4 * standard_error).all()


def _uniform_logits(documents, ids, length):
    return jnp.zeros((*ids.shape[:2], _V))


def test_samples_of_successive_steps_are_independent(decode):
    count = 20_000
    options = _options(
        max_new_tokens=2, do_sample=True, num_return_sequences=count, eos_token_id=None
    )
    first, second = np.asarray(
        decode(_uniform_logits, [0], options, jax.random.key(2)).sequences[:, 1:]
    ).T
    pairs = np.bincount(first * _V + second, minlength=_V * _V) / count
    standard_error = np.sqrt(1 / (_V * _V) / count)
    assert (np.abs(pairs - 1 / (_V * _V)) <= 5 * standard_error).all()


@pytest.mark.parametrize("changes", [_GREEDY, _BEAM], ids=["greedy", "beam"])
def test_the_loop_ends_with_its_last_row(decode, changes):
    steps = []

    def counted(documents, ids, length):
        jax.debug.callback(lambda: steps.append(1))
        return _next_logits(documents, ids, length)

    options = _options(max_new_tokens=40, **changes)
    generated = decode(counted, [0, 1], options)
    jax.effects_barrier()
    assert len(steps) < 40
    assert len(steps) >= int(generated.lengths.max())
    if options.num_beams == 1:
        assert len(steps) == int(generated.lengths.max())


def test_bfloat16_logits_are_scored_in_float32(decode):
    def half(documents, ids, length):
        return _next_logits(documents, ids, length).astype(jnp.bfloat16)

    rounded = np.asarray(jnp.asarray(_NEAR[4, 0]).astype(jnp.bfloat16)).astype(np.float64)
    expected = rounded.max() - np.log(np.exp(rounded).sum())
    for changes in ({}, {"num_beams": 2}):
        generated = decode(half, [4], _options(max_new_tokens=1, **changes))
        assert generated.scores.dtype == jnp.float32
        np.testing.assert_allclose(generated.scores[0], expected, rtol=1e-6)


def test_trim_of_an_empty_batch():
    empty = Generated(
        jnp.zeros((0, 5), jnp.int32), jnp.zeros(0, jnp.int32), jnp.zeros(0, bool), jnp.zeros(0)
    )
    assert trim(empty).shape == (0, 1)


def test_sampling_without_keys_says_so(decode):
    with pytest.raises(InputError, match="do_sample=True needs random keys"):
        decode(_next_logits, [0], _options(do_sample=True))
    with pytest.raises(InputError, match=r"rng holds keys of shape \(3,\); give one key, or 2"):
        decode(
            _next_logits, [0, 1], _options(do_sample=True), jax.random.split(jax.random.key(0), 3)
        )


def test_a_vocabulary_too_small_for_beams_says_so():
    decoder = CachedDecoder(
        lambda ids, cache: (jnp.zeros((*ids.shape, 2)), cache), lambda cache, beams: cache
    )
    options = _options(num_beams=2, eos_token_id=(0, 1))
    with pytest.raises(
        InputError, match="with 2 eos_token_id needs a vocabulary of at least 3, not 2"
    ):
        generate(decoder, (), batch_size=1, options=options)
