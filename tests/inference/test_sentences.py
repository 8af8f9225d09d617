import functools

import jax
import numpy as np
import pytest

from longsum_jax import load
from longsum_jax.checkpoints.sentence_modules import SentenceModules, write_sentence_modules
from longsum_jax.errors import InputError
from longsum_jax.inference.sentences import sentence_encoder, taken_sentences
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.text.segmentation import SegmentOptions, segment_document
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.loading import load_tokenizer

SENTENCES = [
    "Cats sleep.",
    "It rained all day long, and the night too.",
    "Why?",
    "A dog barked at the moon.",
    "End.",
]
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
}


@pytest.fixture(scope="module")
def make(draw_params):
    @functools.cache
    def make(**changes):
        family = get_family("bert")
        sizes = SIZES | {"vocab_size": 300, "max_sentence_length": 24}
        config = family.presets["tiny"].replace(**sizes | changes)
        params = draw_params(family.init_params(config))
        return Model(family, config, params, load_tokenizer("bytes", vocab_size=300))

    return make


@pytest.fixture(scope="module")
def extractor(make):
    model = make(head="extraction")
    model.params["head"]["out"]["kernel"] *= 1000  # so that some sentences are taken and others not
    return model


@pytest.mark.slow
def test_sentence_vectors_are_means_of_states(make):
    model = make()
    vectors = sentence_encoder(model, max_sentence_length=20, batch_size=2)(SENTENCES)
    for sentence, result in zip(SENTENCES, vectors, strict=True):
        ids = model.tokenizer.add_special_tokens(model.tokenizer.encode(sentence), 20)
        states = np.asarray(model.encode(np.array([ids]), np.ones((1, len(ids)))))
        np.testing.assert_allclose(result, states[0].mean(0), atol=1e-5)
    text = " ".join(SENTENCES * 4)
    options = SegmentOptions(min_tokens=50, max_tokens=80)
    document = segment_document(text, model.tokenizer, options, sentence_encoder(model))
    assert "".join(document.segment_text(i) for i in range(len(document.segments))) == text


def test_modules_without_a_limit_read_as_many_tokens_as_the_encoder(make, tmp_path):
    model = make()
    assert model.config.max_source_length < 1900
    Model(model.family, model.config, model.params).save(tmp_path / "first")
    write_sentence_modules(tmp_path / "first", SentenceModules(("mean",)), 16)
    first = load(tmp_path / "first", tokenizer="bytes")
    vectors = sentence_encoder(first, max_sentence_length=2000)(["a" * 1900, "a" * 1950])
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    first.save(tmp_path / "second")
    again = load(tmp_path / "second")
    assert again.sentence_modules == first.sentence_modules
    assert again.text_fingerprint == first.text_fingerprint


def test_sentences_may_have_the_length_of_extended_positions(make):
    model = make(max_position_embeddings=64)
    model.sentence_modules = SentenceModules(max_length=24)
    lsg = model.to_lsg(128, block_size=16, sparse_block_size=8, first_id=3, mask_id=4)
    for longer in (model.extended(128), lsg):
        assert longer.sentence_modules.max_length == 128
        vectors = sentence_encoder(longer)(["a" * 80, "a" * 79 + "b"])
        assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    assert model.sentence_modules.max_length == 24
    assert lsg.with_lsg_options(num_global_tokens=2).sentence_modules == lsg.sentence_modules


def test_sentence_vectors_without_global_tokens(draw_params):
    """An encoder-decoder with LSG attention gives them in front of its states."""
    family = get_family("t5")
    sizes = {"num_layers": 1, "num_decoder_layers": 1, "vocab_size": 300}
    lsg = {"encoder_attention": "lsg", "block_size": 8, "sparse_block_size": 8}
    lsg |= {"num_global_tokens": 2}
    config = family.presets["tiny"].replace(**sizes | lsg)
    params = draw_params(family.init_params(config))
    model = Model(family, config, params, load_tokenizer("bytes", vocab_size=300))
    [result] = sentence_encoder(model)(SENTENCES[:1])
    ids = model.tokenizer.add_special_tokens(model.tokenizer.encode(SENTENCES[0]))
    states = np.asarray(model.encode([ids]))
    assert states.shape[1] == len(ids) + 2
    np.testing.assert_allclose(result, states[0, 2:].mean(0), atol=1e-5)


@pytest.mark.slow
def test_extract_is_what_the_module_scores(extractor, tmp_path):
    text = " ".join(SENTENCES)
    assert split_sentences(text) == SENTENCES
    result = extractor.extract([text, SENTENCES[:2]], batch_size=3)
    parts = [
        extractor.tokenizer.add_special_tokens(extractor.tokenizer.encode(s), 24) for s in SENTENCES
    ]
    mask = np.arange(24) < np.array(list(map(len, parts)))[:, None]
    ids = np.zeros(mask.shape, np.int32)
    ids[mask] = np.concatenate(parts)
    apply = jax.jit(extractor.module.apply)
    for selected, rows in zip(result, (slice(0, 5), slice(0, 2)), strict=True):
        scores = np.asarray(apply({"params": extractor.params}, ids[None, rows], mask[None, rows]))[
            0
        ]
        assert np.abs(scores).min() > 1e-3
        assert selected == (np.flatnonzero(scores > 0).tolist() or list(range(len(scores)))[:3])
    assert extractor.extract(text) == result[:1]
    extractor.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.config == extractor.config
    assert again.extract(text) == result[:1]


def test_a_query_counts_as_a_sentence_before_the_others(extractor):
    (plain,) = extractor.extract([["Which animals?", *SENTENCES]], threshold=0.4, top_k=6)
    (asked,) = extractor.extract([SENTENCES], queries=["Which animals?"], threshold=0.4, top_k=6)
    assert [i for i in plain if i] == [i + 1 for i in asked]


def test_the_best_are_taken_where_none_is_likely():
    scores = np.array([-1.0, -3.0, -0.5, -0.5, -2.0])
    assert taken_sentences(scores) == [0, 2, 3]
    assert taken_sentences(scores, top_k=9) == [0, 1, 2, 3, 4]
    assert taken_sentences(scores, threshold=0.3) == [2, 3]  # log(3 / 7) = -0.85


def test_bad_input(make, extractor):
    with pytest.raises(InputError, match="document 2 is empty; give it some text or leave it out"):
        extractor.extract([SENTENCES, " "])
    with pytest.raises(InputError, match="document 1 is empty; give it"):
        extractor.extract([[]])
    with pytest.raises(InputError, match="document 1 is of type NoneType; give a string, or a"):
        extractor.extract([None])
    with pytest.raises(InputError, match="document 1 holds a value of type int; give a text"):
        extractor.extract([[3]])
    with pytest.raises(InputError, match="queries has 1 item for 2 documents; give one for each"):
        extractor.extract([SENTENCES, SENTENCES], queries=["Why?"])
    with pytest.raises(InputError, match=r"threshold=1.5 must lie between 0 and 1"):
        extractor.extract(SENTENCES[0], threshold=1.5)
    with pytest.raises(InputError, match="top_k=0 must be at least 1"):
        extractor.extract(SENTENCES[0], top_k=0)
    with pytest.raises(InputError, match="batch_size=0 must be at least 1"):
        extractor.extract(SENTENCES[0], batch_size=0)
    with pytest.raises(InputError, match="batch_size=0 must be at least 1"):
        sentence_encoder(extractor, batch_size=0)
    with pytest.raises(InputError, match="max_sentence_length=0 must be at least 1"):
        sentence_encoder(extractor, max_sentence_length=0)
    with pytest.raises(
        InputError,
        match=r"this bert model has no head that chooses sentences; train one with configs",
    ):
        make().extract("Text.")
    with pytest.raises(
        InputError, match="this model gives a score to every sentence of a document; use extract"
    ):
        extractor.logits(np.ones((1, 3), np.int32))
    other = Model(extractor.family, extractor.config, extractor.params)
    for use in (other.extract, lambda text: sentence_encoder(other)):
        with pytest.raises(
            InputError, match="the model directory holds no tokenizer; load it with tokenizer=PATH"
        ):
            use("Text.")


def test_a_tokenizer_of_another_vocabulary(extractor, tiny_tokenizer, tmp_path):
    extractor.save(tmp_path / "model")
    tiny_tokenizer.save(tmp_path / "tokenizer")
    with pytest.raises(InputError, match="300"):
        load(tmp_path / "model", tokenizer=tmp_path / "tokenizer")
    other = Model(extractor.family, extractor.config, extractor.params, tiny_tokenizer)
    with pytest.raises(
        InputError, match=r"outside the vocabulary of 300; was it made with another tokenizer\?"
    ):
        other.extract(SENTENCES[1])
