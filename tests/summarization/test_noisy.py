"""Noisy summaries of a loaded model: whose probabilities they have, and what they depend on."""

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.noisy import NoisySummarizer

TEXTS = ["One thing is said. Then another.", "A dog came in and slept.", "It rained all day long."]


@pytest.fixture(scope="module")
def model(small_model):
    return load(small_model)


@pytest.mark.slow
def test_summaries_depend_on_document_and_seed_only(model, topics):
    noisy = NoisySummarizer(model, noise=0.5)
    options = {"max_new_tokens": 8, "min_new_tokens": 8}
    together = [summary.text for summary in noisy.summaries(TEXTS, batch_size=4, **options)]
    each = [noisy.summaries(text, **options)[0].text for text in TEXTS]
    assert together == each
    assert len(set(together)) == len(TEXTS)
    assert noisy.summaries(TEXTS[0], seed=1, **options)[0].text != each[0]


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_probabilities_are_those_of_one_model(model, draw_params, noise):
    """Without noise those of the document, with noise only those of the empty document under the
    unconditional model."""
    unconditional = model.with_params(draw_params(model.family.init_params(model.config), seed=1))
    noisy = NoisySummarizer(model, unconditional, noise=noise)
    document = noisy.tokenizer.add_special_tokens(noisy.tokenizer.encode(TEXTS[0]))
    ids = np.array([document], np.int32)
    options = noisy.summary_options(max_new_tokens=5, top_k=None)
    out = noisy._generate(ids, np.ones(ids.shape, bool), options, seed=3)
    targets = np.asarray(out.sequences)[:, 1 : 1 + int(out.lengths[0])]
    read = [(model, ids), (unconditional, np.array([noisy._empty_ids], np.int32))][int(noise)]
    expected = np.asarray(read[0].log_probs(read[1], None, targets)).sum()
    np.testing.assert_allclose(out.scores[0], expected, rtol=1e-4)


def test_what_does_not_fit_is_refused(model):
    for noise in (-0.1, 1.5, float("nan")):
        with pytest.raises(InputError, match=r"noise=.* is a probability; give a number between"):
            NoisySummarizer(model, noise=noise)
    other = load_other_tokenizer(model)
    with pytest.raises(InputError, match="the unconditional model has the tokenizer "):
        NoisySummarizer(model, other, noise=0.5)
    with pytest.raises(InputError, match="num_beams=4 is not supported; set num_beams=1"):
        NoisySummarizer(model, noise=0.5).summaries(TEXTS, num_beams=4)
    with pytest.raises(InputError, match='strategy="refine", but noisy decoding reads documents'):
        NoisySummarizer(model, noise=0.5).summaries(TEXTS, strategy="refine")
    with pytest.raises(InputError, match="do_sample=False, but noisy decoding samples"):
        NoisySummarizer(model, noise=0.5).summaries(TEXTS, do_sample=False)
    reads_segments = model.with_params(model.params)
    reads_segments.summarization = {"segments": {}}
    with pytest.raises(InputError, match="the model reads documents segment by segment, but"):
        NoisySummarizer(reads_segments, noise=0.5)


def load_other_tokenizer(model):
    from longsum_jax.tokenizers.loading import load_tokenizer

    other = model.with_params(model.params)
    other.tokenizer = load_tokenizer("bytes", vocab_size=model.config.vocab_size)
    return other


@pytest.mark.slow
def test_a_copy_reads_with_its_own_parameters(model, draw_params):
    noisy = NoisySummarizer(model, noise=0.5)
    params = draw_params(model.family.init_params(model.config), seed=1)
    options = {"max_new_tokens": 6, "min_new_tokens": 6}
    expected = NoisySummarizer(model.with_params(params), noise=0.5).summaries(TEXTS, **options)
    assert noisy.with_params(params).summaries(TEXTS, **options) == expected
    with noisy.on_all_devices() as parallel:
        assert parallel.summaries(TEXTS, **options) == noisy.summaries(TEXTS, **options)
