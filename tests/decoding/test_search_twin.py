"""Greedy and beam search against plain Python over lists; next-token scores depend on the whole
prefix."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.decoding.options import GenerationOptions

_V, _EOS, _PAD, _STATES, _LIMIT = 12, 1, 2, 211, 10
_TABLE = 1.5 * np.random.default_rng(3).standard_normal((_STATES, _V)).astype(np.float32)
_TABLE[:, _EOS] += 0.5
_MULTIPLIERS = [pow(2654435761, position + 1, 2**32) for position in range(64)]


def _next_logits(documents, ids, length):
    """Hashes the document and every id read so far into a row of the table."""
    count = ids.shape[-1]
    terms = (ids + 1).astype(jnp.uint32) * jnp.asarray(_MULTIPLIERS[:count], jnp.uint32)
    sums = jnp.sum(jnp.where(jnp.arange(count) < length, terms, 0), axis=-1, dtype=jnp.uint32)
    states = ((sums + documents.astype(jnp.uint32) * jnp.uint32(40503)) >> 8) % _STATES
    return jnp.asarray(_TABLE)[states]


def _log_probs(document, ids):
    total = sum((token + 1) * weight for token, weight in zip(ids, _MULTIPLIERS, strict=False))
    logits = _TABLE[(((total + document * 40503) % 2**32) >> 8) % _STATES].astype(np.float64)
    return logits - np.log(np.sum(np.exp(logits)))


def _allowed(ids, options):
    """Tokens that may follow ``ids``."""
    new_tokens, size = len(ids) - 1, options.no_repeat_ngram_size
    seen = {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)} if size else set()
    for token in range(_V):
        repeats = size and (*ids[len(ids) - size + 1 :], token) in seen
        if not repeats and not (token == _EOS and new_tokens < options.min_new_tokens):
            yield token


def _twin_beam_search(document, options):
    """Returns [(score, ids)], best first."""
    running, finished = [(0.0, [0])], []
    for length in range(1, options.max_new_tokens + 1):
        candidates = []
        for total, ids in running:
            log_probs = _log_probs(document, ids)
            candidates += [
                (total + log_probs[token], [*ids, token]) for token in _allowed(ids, options)
            ]
        candidates = sorted(candidates, reverse=True)[: 2 * options.num_beams]
        ended = [
            c
            for c in candidates[: options.num_beams]
            if c[1][-1] == _EOS or length == options.max_new_tokens
        ]
        finished += [(total / length**options.length_penalty, ids) for total, ids in ended]
        finished = sorted(finished, reverse=True)[: options.num_beams]
        running = [c for c in candidates if c[1][-1] != _EOS][: options.num_beams]
        if len(finished) == options.num_beams and _may_stop(
            running[0][0], finished, length, options
        ):
            break
    return finished


def _may_stop(best_running, finished, length, options):
    if options.early_stopping is True:
        return True
    if options.early_stopping == "never" and options.length_penalty > 0:
        length = options.max_new_tokens
    return best_running / length**options.length_penalty <= finished[-1][0]


def _options(**changes):
    special = {"decoder_start_token_id": 0, "eos_token_id": _EOS, "pad_token_id": _PAD}
    return GenerationOptions(**({"max_new_tokens": _LIMIT} | special | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"num_beams": 2},
        {"num_beams": 3, "early_stopping": True, "length_penalty": 2.0},
        {"num_beams": 3, "early_stopping": "never", "length_penalty": 1.5},
        {
            "num_beams": 3,
            "early_stopping": "never",
            "length_penalty": -0.3,
            "num_return_sequences": 3,
        },
        {"num_beams": 4, "no_repeat_ngram_size": 1, "min_new_tokens": 5},
        {
            "num_beams": 6,
            "no_repeat_ngram_size": 2,
            "length_penalty": 0.0,
            "num_return_sequences": 2,
        },
    ],
)
def test_beam_search_equals_its_twin(decode, changes):
    options, documents = _options(**changes), range(100)
    generated = decode(_next_logits, documents, options)
    expected = [
        h for d in documents for h in _twin_beam_search(d, options)[: options.num_return_sequences]
    ]
    for row, (score, ids) in enumerate(expected):
        padding = [_PAD] * (1 + _LIMIT - len(ids))
        assert generated.sequences[row].tolist() == ids + padding
        assert int(generated.lengths[row]) == len(ids) - 1
        assert bool(generated.ended[row]) == (ids[-1] == _EOS)
        np.testing.assert_allclose(generated.scores[row], score, rtol=1e-5)
    assert len(expected) == len(generated.scores)


def test_greedy_search_equals_its_twin(decode):
    options = _options(no_repeat_ngram_size=2, min_new_tokens=3)
    generated = decode(_next_logits, range(8), options)
    for document in range(8):
        ids = [0]
        while len(ids) <= _LIMIT and ids[-1] != _EOS:
            log_probs = _log_probs(document, ids)
            ids.append(
                max(_allowed(ids, options), key=lambda token, scores=log_probs: scores[token])
            )
        assert generated.sequences[document, : len(ids)].tolist() == ids
        assert generated.sequences[document, len(ids) :].tolist() == [_PAD] * (
            1 + _LIMIT - len(ids)
        )
        assert bool(generated.ended[document]) == (ids[-1] == _EOS)


def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all_sequences(decode):
    """With four new tokens, every sequence of other tokens has at most 3 ** 3 unfinished
    prefixes."""
    suppress = tuple(token for token in range(_V) if token not in (_EOS, 5, 6, 7))
    limit = 4
    options = _options(
        num_beams=40,
        max_new_tokens=limit,
        length_penalty=0.0,
        early_stopping="never",
        suppress_tokens=suppress,
    )
    generated = decode(_next_logits, range(4), options)
    for document in range(4):
        best = max(_all_sequences(document, limit))
        assert generated.sequences[document].tolist() == best[1] + [_PAD] * (
            1 + limit - len(best[1])
        )
        np.testing.assert_allclose(generated.scores[document], best[0], rtol=1e-5)


def _all_sequences(document, limit):
    for count in range(limit + 1):
        for body in itertools.product((5, 6, 7), repeat=count):
            ids = [0, *body] if count == limit else [0, *body, _EOS]
            yield sum(_log_probs(document, ids[:i])[ids[i]] for i in range(1, len(ids))), ids
