"""Each processor against a few plain lines over Python lists or numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.decoding import logits as processors
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.errors import InputError

_B, _R, _T, _V = 2, 3, 14, 9
_LENGTHS = [(1, 2), (2, 8), (3, 3), (_T, 1)]  # of the two rows


@pytest.fixture(scope="module")
def scores():
    return np.random.default_rng(0).standard_normal((_B, _R, _V)).astype(np.float32)


@pytest.fixture(scope="module")
def history():
    """Few different ids, so that n-grams repeat; junk stands after the length in every test."""
    return np.random.default_rng(1).integers(0, 4, (_B, _R, _T)).astype(np.int32)


def _attend_on_cpu(function, scores, history, lengths):
    out = scores.copy()
    for b, r in np.ndindex(_B, _R):
        function(out[b, r], history[b, r, : lengths[b]].tolist())
    return out


@pytest.mark.parametrize("lengths", _LENGTHS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_no_repeat_ngram(scores, history, lengths, size):
    def twin(row, ids):
        seen = {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}
        for token in range(_V):
            if len(ids) >= size - 1 and (*ids[len(ids) - size + 1 :], token) in seen:
                row[token] = -np.inf

    expected = _attend_on_cpu(twin, scores, history, lengths)
    assert max(lengths) < 8 or size > 3 or np.isinf(expected).any()
    got = processors.forbid_repeated_ngrams(
        jnp.asarray(scores), jnp.asarray(history), jnp.array(lengths), size
    )
    np.testing.assert_array_equal(got, expected)


def test_ngrams_longer_than_the_history_are_never_repeated(scores, history):
    got = processors.forbid_repeated_ngrams(
        jnp.asarray(scores), jnp.asarray(history), jnp.full(_B, _T), _T + 1
    )
    np.testing.assert_array_equal(got, scores)


@pytest.mark.parametrize("lengths", _LENGTHS)
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_ngrams_of_documents(scores, history, lengths, size):
    documents = np.random.default_rng(2).integers(0, 4, (_B, 8)).astype(np.int32)
    documents[1, 5:] = -1
    documents[1, 1] = -1  # the last id of the vocabulary, were it an index
    expected = scores.copy()
    for b, r in np.ndindex(_B, _R):
        ids = history[b, r, : lengths[b]].tolist()
        ngrams = [documents[b, i : i + size].tolist() for i in range(8 - size + 1)]
        for *before, token in ngrams:
            fits = len(ids) >= size - 1 and ids[len(ids) - size + 1 :] == before
            if token >= 0 and (size == 1 or fits):
                expected[b, r, token] = -np.inf
    assert np.isinf(expected).any() == (size < 3 or (size == 3 and max(lengths) > 2))
    got = processors.forbid_document_ngrams(
        jnp.asarray(scores), jnp.asarray(history), jnp.array(lengths), documents, size
    )
    np.testing.assert_array_equal(got, expected)


def test_ngrams_of_earlier_segments(scores, history):
    earlier = np.array([[1, 2, 3, -1, 0, 1, -1], [3, 1, -1, 0, 2, 0, 1]], np.int32)
    given = jnp.asarray(scores), jnp.asarray(history), jnp.array([4, 5])
    options = GenerationOptions(
        max_new_tokens=_T - 1, decoder_start_token_id=0, segments_no_repeat_ngram_size=2
    )
    got = processors.process_scores(*given, options, None, jnp.asarray(earlier))
    expected = processors.forbid_document_ngrams(*given, earlier, 2)
    assert np.isinf(expected).any()
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("encoder_no_repeat_ngram_size", "=3, but the decoder was given no documents"),
        ("segments_no_repeat_ngram_size", "=3, but the decoder was given no summaries of earlier"),
    ],
)
def test_ngrams_of_no_documents(scores, history, option, message):
    options = GenerationOptions(max_new_tokens=_T - 1, decoder_start_token_id=0, **{option: 3})
    with pytest.raises(InputError, match=option + message):
        processors.process_scores(
            jnp.asarray(scores), jnp.asarray(history), jnp.full(_B, 1), options
        )


@pytest.mark.parametrize("lengths", _LENGTHS)
@pytest.mark.parametrize("penalty", [1.5, 0.5])
def test_repetition_penalty(scores, history, lengths, penalty):
    def twin(row, ids):
        for token in set(ids):
            row[token] = row[token] * penalty if row[token] < 0 else row[token] / penalty

    expected = _attend_on_cpu(twin, scores, history, lengths)
    got = processors.penalize_repetition(
        jnp.asarray(scores), jnp.asarray(history), jnp.array(lengths), penalty
    )
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_ids_outside_the_vocabulary_repeat_nothing(scores):
    history = jnp.full((_B, _R, 4), _V + 3, jnp.int32)
    penalised = processors.penalize_repetition(jnp.asarray(scores), history, jnp.full(_B, 4), 2.0)
    np.testing.assert_array_equal(penalised, scores)
    forbidden = processors.forbid_repeated_ngrams(jnp.asarray(scores), history, jnp.full(_B, 4), 1)
    np.testing.assert_array_equal(forbidden, scores)


@pytest.mark.parametrize("lengths", _LENGTHS)
@pytest.mark.parametrize("words", [[[5]], [[2, 5]], [[1, 0, 3]], [[3, 3]], "several"])
def test_bad_words(scores, history, lengths, words):
    if words == "several":
        pairs = ([a, b, 6] for a in range(3) for b in range(3))
        words = [[5], *pairs, [2, 7], [0, 7], [1, 0, 2, 8]]

    def twin(row, ids):
        for word in words:
            if ids[len(ids) - len(word) + 1 :] == word[:-1] and len(ids) >= len(word) - 1:
                row[word[-1]] = -np.inf

    expected = _attend_on_cpu(twin, scores, history, lengths)
    got = processors.forbid_sequences(
        jnp.asarray(scores), jnp.asarray(history), jnp.array(lengths), words
    )
    np.testing.assert_array_equal(got, expected)


def test_a_list_of_bad_words_takes_no_more_operations_than_two(scores, history):
    """With operations for each word, 400 took 46 ms of every step and 11 s to compile."""

    def operations(count):
        words = [[1, token % _V, token // _V % _V] for token in range(count)]
        program = jax.make_jaxpr(processors.forbid_sequences, static_argnums=3)
        words = tuple(map(tuple, words))
        return len(program(scores, jnp.asarray(history), jnp.full(_B, 4), words).eqns)

    assert operations(80) == operations(2)


@pytest.mark.parametrize("words", [((2,), (4,)), [[2], [4]]])
def test_end_tokens_are_not_bad_words(scores, history, words):
    options = GenerationOptions(
        max_new_tokens=_T - 1,
        decoder_start_token_id=0,
        eos_token_id=2,
        bad_words_ids=words,
    )
    got = processors.process_scores(
        jnp.asarray(scores), jnp.asarray(history), jnp.full(_B, 1), options
    )
    assert np.isfinite(got[..., 2]).all()
    assert np.isneginf(got[..., 4]).all()


def test_suppressed_and_forced_tokens(scores):
    suppressed = np.asarray(processors.forbid_tokens(jnp.asarray(scores), [2, 4, -1, 99]))
    assert np.isinf(suppressed[..., [2, 4]]).all()
    np.testing.assert_array_equal(np.delete(suppressed, [2, 4], -1), np.delete(scores, [2, 4], -1))
    forced = np.asarray(processors.force_tokens(jnp.asarray(scores), [7]))
    assert (forced[..., 7] == 0).all()
    assert np.isneginf(np.delete(forced, 7, -1)).all()


@pytest.mark.parametrize("k", [1, 3, 8, 50])
def test_top_k_keeps_the_k_highest(scores, k):
    expected = scores.copy()
    for row in expected.reshape(-1, _V):
        row[np.argsort(row)[: max(_V - k, 0)]] = -np.inf
    np.testing.assert_array_equal(processors.keep_top_k(jnp.asarray(scores), k), expected)


@pytest.mark.parametrize("p", [1e-6, 0.2, 0.5, 0.8, 0.999])
def test_top_p_keeps_the_smallest_likeliest_set(scores, p):
    expected = scores.copy()
    for row in expected.reshape(-1, _V):
        probabilities = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
        order = np.argsort(-row)
        needed = int(np.searchsorted(np.cumsum(probabilities[order]), p)) + 1
        row[order[needed:]] = -np.inf
    np.testing.assert_array_equal(processors.keep_top_p(jnp.asarray(scores), p), expected)


def test_warping_scales_before_it_cuts(scores):
    options = GenerationOptions(
        max_new_tokens=4,
        decoder_start_token_id=0,
        temperature=0.5,
        top_k=4,
        top_p=0.7,
        do_sample=True,
    )
    expected = processors.keep_top_p(processors.keep_top_k(jnp.asarray(scores) * 2, 4), 0.7)
    np.testing.assert_array_equal(processors.warp_scores(jnp.asarray(scores), options), expected)


@pytest.mark.parametrize(
    "name",
    [
        "decoder_start_token_id",
        "forced_bos_token_id",
        "forced_eos_token_id",
        "eos_token_id",
        "bad_words_ids",
    ],
)
def test_ids_outside_the_vocabulary_are_named(scores, history, name):
    value = ((3, _V),) if name == "bad_words_ids" else _V
    values = {"max_new_tokens": _T - 1, "decoder_start_token_id": 0, name: value}
    options = GenerationOptions(**values)
    with pytest.raises(
        InputError, match=f"{name}: token id 9 is outside the model's vocabulary of 9"
    ):
        processors.process_scores(
            jnp.asarray(scores), jnp.asarray(history), jnp.full(_B, 1), options
        )
