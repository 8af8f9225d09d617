"""Noisy decoding beside a mixture that is computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.decoding.decoder import CachedDecoder
from longsum_jax.decoding.noise import noisy_cache, noisy_decoder
from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.sampling import row_keys
from longsum_jax.decoding.search import generate

VOCAB, EOS, LIMIT = 5, 4, 3
LOGITS = np.random.default_rng(3).normal(size=(2, VOCAB, VOCAB)).astype(np.float32)
LOGITS[:, :, EOS] = -20.0  # sequences end at the limit
CRITICAL = 31.5  # chi-square of 9 degrees of freedom is above this once in 4,000


def decoder(logits):
    """A decoder whose next token depends on the newest one and on the number of tokens read."""

    def step(ids, cache):
        return jnp.asarray(logits)[ids] + 0.1 * cache[:, None, None], cache + 1

    return CachedDecoder(step, lambda cache, beams: cache)


def sample(noise, seeds, temperature=1.0):
    """Sequences [rows, 1 + LIMIT] and their scores, a row for each seed."""
    options = GenerationOptions(
        max_new_tokens=LIMIT,
        decoder_start_token_id=0,
        eos_token_id=EOS,
        pad_token_id=0,
        do_sample=True,
        temperature=temperature,
    )
    rows = len(seeds)
    keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))

    @jax.jit
    def run(keys, noise):
        mixed = noisy_decoder(
            *map(decoder, LOGITS), noise=noise, keys=row_keys(keys, rows, options.decoder_beams)
        )
        start = jnp.zeros(rows, jnp.int32)
        cache = noisy_cache(start, start, rows)
        return generate(mixed, cache, batch_size=rows, options=options, rng=keys)

    out = run(keys, jnp.float32(noise))
    return np.asarray(out.sequences), np.asarray(out.scores)


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def chi_square(observed, expected):
    return ((observed - expected) ** 2 / expected).sum()


def test_tokens_have_the_distribution_of_the_mixture():
    noise, rows, temperature = 0.3, 20_000, 0.7
    sequences, _ = sample(noise, np.arange(rows), temperature)
    conditional, unconditional = softmax(LOGITS / temperature)
    mixture = (1 - noise) * conditional + noise * unconditional
    # The first two tokens together: the choice of the decoder is drawn at every step.
    pairs = mixture[0][:, None] * mixture
    observed = np.zeros((VOCAB, VOCAB))
    np.add.at(observed, (sequences[:, 1], sequences[:, 2]), 1)
    expected = rows * pairs[:EOS, :EOS]
    assert expected.min() > 50
    assert chi_square(observed[:EOS, :EOS], expected) < CRITICAL + 12  # 15 degrees of freedom
    # Neither of the decoders, nor their choice by sequences in place of tokens, has it.
    for other in (conditional, unconditional):
        wrong = rows * (other[0][:, None] * other)[:EOS, :EOS]
        assert chi_square(observed[:EOS, :EOS], wrong) > 500
    by_sequence = sum(
        share * decoder[0][:, None] * decoder
        for share, decoder in ((1 - noise, conditional), (noise, unconditional))
    )
    assert chi_square(observed[:EOS, :EOS], rows * by_sequence[:EOS, :EOS]) > 100


def test_without_noise_and_with_noise_alone_one_decoder_writes():
    for noise, logits in zip((0.0, 1.0), LOGITS, strict=True):
        sequences, scores = sample(noise, np.arange(50))
        log_probs = np.log(softmax(logits))
        previous, following = sequences[:, :-1], sequences[:, 1:]
        np.testing.assert_allclose(scores, log_probs[previous, following].sum(1), rtol=1e-5)


def test_a_row_depends_on_its_key_only():
    together, _ = sample(0.5, [7, 8, 9, 10])
    np.testing.assert_array_equal(sample(0.5, [9])[0][0], together[2])
    np.testing.assert_array_equal(sample(0.5, [10, 7])[0], together[[3, 0]])
    assert len(np.unique(sample(0.5, np.arange(30))[0], axis=0)) > 10
