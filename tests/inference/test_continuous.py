"""Documents that pass through a few slots, against one document at a time."""

import functools

import numpy as np
import pytest

from longsum_jax.layers import decoder_cache
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model

VOCABULARY = 96
T5 = {"d_model": 32, "num_heads": 4, "d_kv": 8, "d_ff": 32}
T5 |= {"num_layers": 1, "num_decoder_layers": 2}
BART = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "max_position_embeddings": 512,
    "init_std": 0.5,
}
FAMILIES = {
    "bart": ("bart", BART),
    "locost, Hepos": ("locost", T5 | {"d_state": 8, "cross_attention": "hepos"}),
    "bart, LSG": (
        "bart",
        BART
        | {
            "encoder_attention": "lsg",
            "block_size": 32,
            "pass_global_tokens_to_decoder": True,
        },
    ),
    "bart, pages": ("bart", BART | {"page_length": 64, "page_decoding": True}),
}
GREEDY = {"no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 2}
DRAFTS = {"no_repeat_ngram_size": 3, "prompt_lookup_num_tokens": 3}
BEAMS = {"num_beams": 3, "no_repeat_ngram_size": 1}
SAMPLES = {"do_sample": True, "temperature": 1.5, "seed": 3}
# Summaries of other lengths than their neighbours': one of many tokens ends them.
ENDS = {"eos_token_id": tuple(range(5, 30)), "forced_eos_token_id": None, "max_new_tokens": 9}
LENGTHS = (100, 90, 60, 50, 40, 33, 20)  # with room for 128 and for 64


@pytest.fixture(scope="module")
def make(draw_params):
    @functools.cache
    def make(name):
        family, options = FAMILIES[name]
        family = get_family(family)
        config = family.config({"vocab_size": VOCABULARY} | options)
        return Model(family, config, draw_params(family.init_params(config)))

    return make


def in_slots(model, documents, batch_size, seed=0, **options):
    options = model.generation_options(**ENDS | options)
    slots = model._runner.slots(
        model.padded_document, batch_size=batch_size, options=options, seed=seed
    )
    rows = [(np.asarray([ids], np.int32), np.ones((1, len(ids)), bool)) for ids in documents]
    return [(i, out.sequences[0].tolist()) for i, out in slots.decode(rows)]


def one_by_one(model, documents, **options):
    """All of the length of the longest, so that one program reads them."""
    padding = [model.generation_options(**ENDS).pad_token_id]
    longest = max(map(len, documents))
    result = []
    for document in documents:
        source = np.array([document + padding * (longest - len(document))])
        mask = np.arange(longest)[None] < len(document)
        ids = model.generate(source, mask, **ENDS | options)[0].tolist()
        result.append(ids + padding * (1 + ENDS["max_new_tokens"] - len(ids)))
    return result


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(0)
    return [rng.integers(20, VOCABULARY, length).tolist() for length in LENGTHS]


@pytest.mark.parametrize(
    ("name", "first", "options"),
    [
        pytest.param("bart", 0, GREEDY, id="room shrinks"),
        pytest.param("locost, Hepos", 2, SAMPLES, id="samples", marks=pytest.mark.slow),
        pytest.param("bart, LSG", 2, BEAMS, id="beams", marks=pytest.mark.slow),
        pytest.param("bart, pages", 0, GREEDY, id="pages", marks=pytest.mark.slow),
        pytest.param("bart", 2, DRAFTS, id="drafts", marks=pytest.mark.slow),
    ],
)
def test_ids_equal_those_of_one_document_at_a_time(make, name, first, options, documents):
    documents = documents[first:]
    model = make(name)
    result = in_slots(model, documents, 3, **options)
    places = [place for place, _ in result]
    assert sorted(places) == list(range(len(documents)))
    expected = one_by_one(model, documents, **options)
    assert [ids for _, ids in sorted(result)] == expected
    padding = model.generation_options(**ENDS).pad_token_id
    assert len({ids.count(padding) for ids in expected}) > 1  # lengths


@pytest.mark.slow
def test_documents_too_large_for_keys_and_values_leave_before_others_enter(
    make, documents, monkeypatch
):
    model = make("bart")
    expected = one_by_one(model, documents, **GREEDY)
    of_two_slots_of_64 = 2 * 64 * 2 * 32 * 4
    monkeypatch.setattr(decoder_cache, "MAX_CROSS_CACHE_BYTES", of_two_slots_of_64)
    model = Model(model.family, model.config, model.params)
    result = in_slots(model, documents, 2, **GREEDY)
    assert [ids for _, ids in sorted(result)] == expected
    slots = model._runner.slots(
        model.padded_document, batch_size=2, options=model.generation_options(**ENDS), seed=0
    )
    assert slots._stores_states(128)
    assert not slots._stores_states(64)
