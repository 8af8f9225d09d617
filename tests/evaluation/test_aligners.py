"""What sentences rest on, by vectors."""

import itertools

import numpy as np
import pytest

import longsum_jax
from longsum_jax.errors import InputError
from longsum_jax.evaluation.aligners import FALSE_SUPPORT, VectorAligner, nearest_sentences
from longsum_jax.inference.sentences import sentence_encoder
from longsum_jax.text.alignment import MAX_SOURCES, MIN_GAIN


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def cosine_with_span(vector, chosen):
    """Of a unit vector with the nearest one among linear combinations, by least squares."""
    weights, *_ = np.linalg.lstsq(chosen.T, vector, rcond=None)
    return float(np.linalg.norm(chosen.T @ weights))


@pytest.mark.parametrize("seed", range(3))
def test_every_step_is_the_best_one(seed):
    rng = np.random.default_rng(seed)
    source, summary = unit(rng.normal(size=(9, 6))), unit(rng.normal(size=(20, 6)))
    result = nearest_sentences(summary, source)
    assert {len(support.indices) for support in result} >= {1, 2}
    for vector, support in zip(summary, result, strict=True):
        assert support.scores[0] == pytest.approx((source @ vector).max())
        assert support.indices[0] == (source @ vector).argmax()
        totals = list(itertools.accumulate(support.scores))
        for count, total in enumerate(totals, 1):
            selected = source[support.indices[:count]]
            assert total == pytest.approx(cosine_with_span(vector, selected))
        assert all(score >= MIN_GAIN for score in support.scores[1:])
        assert len(support.indices) <= MAX_SOURCES


def test_what_is_orthogonal_or_opposite_supports_nothing():
    source = np.eye(3)[:2]
    rows = np.array([[0, 0, 1.0], [-1.0, 0, 0]])
    assert [support.indices for support in nearest_sentences(rows, source)] == [[], []]
    assert nearest_sentences(rows[:1], np.zeros((0, 3)))[0].indices == []
    [twice] = nearest_sentences(np.eye(3)[:1], np.array([[1.0, 0, 0], [1.0, 0, 0]]))
    assert (twice.indices, twice.scores) == ([0], [1.0])


@pytest.fixture
def aligner(tiny_bert):
    return VectorAligner(str(tiny_bert))


def test_sentences_are_compared_by_the_models_vectors(aligner, tiny_bert, sentences):
    model = longsum_jax.load(tiny_bert)
    vectors = unit(sentence_encoder(model, max_sentence_length=40)(sentences))
    with aligner.on_device():
        result = aligner.align([sentences[2], sentences[0]], sentences)
        assert [support.indices[0] for support in result] == [2, 0]
        assert result[0].total == pytest.approx(1, abs=1e-5)
        [support] = aligner.align([sentences[4]], sentences[:3])
    similarity = vectors[:3] @ vectors[4]
    assert support.indices[0] == similarity.argmax()
    assert support.scores[0] == pytest.approx(similarity.max(), abs=1e-5)
    assert aligner.describe()["weights"] == model.fingerprint


def test_the_threshold_is_what_few_sentences_about_other_documents_reach(aligner, sentences):
    first, second, third = sentences[:2], sentences[2:4], sentences[1:]
    with aligner.on_device():
        aligner.align(["Rain fell.", "A dam."], first)
        aligner.align(["Boats."], first)  # the same document, with another query
        aligner.align(["Rivers rose."], second)
        aligner.align([], third)
        texts = [["Rain fell.", "A dam."], ["Rivers rose."]]
        totals = [
            support.total
            for written, source in zip(texts, [second, third], strict=True)
            for support in VectorAligner(model=aligner._model.model).align(written, source)
        ]
    assert aligner.threshold() == pytest.approx(np.quantile(totals, 1 - FALSE_SUPPORT), abs=1e-5)


def test_one_document_alone_tells_no_threshold(aligner, sentences):
    aligner.align(["A dam."], sentences)
    with pytest.raises(InputError, match=r"--align_model=.* needs at least two documents, to see"):
        aligner.threshold()


def test_models_that_do_not_exist():
    with pytest.raises(InputError, match="no/such/place/at/all"):
        VectorAligner("no/such/place/at/all")
