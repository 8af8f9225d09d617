"""Attributes that the library reads from every family's config."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.stack import StackConfig
from longsum_jax.models.bart_config import (
    BigBirdPegasusConfig,
    LedConfig,
    PegasusConfig,
    PegasusXConfig,
)
from longsum_jax.models.bert_config import BertConfig, BigBirdConfig, MpnetConfig, RobertaConfig
from longsum_jax.models.config import EncoderDecoderConfig, ModelConfig
from longsum_jax.models.modernbert import ModernBertConfig
from longsum_jax.models.registry import FAMILIES, get_family
from longsum_jax.models.t5 import T5Config


@pytest.mark.parametrize(
    ("name", "field", "ignored", "kept"),
    [("led", "scale_embedding", True, False), ("distilbert", "layer_norm_eps", 1e-3, 1e-12)],
)
def test_fields_that_transformers_does_not_read(name, field, ignored, kept):
    """Its LED never scales embeddings, its DistilBERT has one epsilon."""
    family = get_family(name)
    result = family.config_of_json({"model_type": name, field: ignored}, "config.json")
    assert getattr(result, field) == kept
    with pytest.raises(InputError, match=f"{field} is {ignored}, but .* have {kept}; leave it"):
        dataclasses.replace(result, **{field: ignored})


@pytest.mark.parametrize("name", ["bart", "t5", "roberta"])
def test_the_first_of_several_ends_is_that_of_the_model(name):
    """All of them end what is generated."""
    family, raw = get_family(name), {"model_type": name, "eos_token_id": [7, 5]}
    config = family.config_of_json(raw, "config.json")
    assert config.eos_token_id == 7
    if family.is_encoder_decoder:
        assert family.generation_config(config, raw)["eos_token_id"] == [7, 5]
    with pytest.raises(InputError, match=r"eos_token_id: expected int, got \[\]"):
        family.config_of_json(raw | {"eos_token_id": []}, "config.json")


@pytest.mark.parametrize("name", ["t5", "umt5", "longt5"])
@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
def test_heads_that_no_t5_has_here(name, head):
    raw = {"model_type": name, "architectures": [f"XFor{head}"]}
    problem = f'config.json: architecture "XFor{head}" has a head that is not supported; give'
    with pytest.raises(InputError, match=problem):
        get_family(name).config_of_json(raw, "config.json")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_config_has_the_attributes_that_the_library_reads(name):
    family = get_family(name)
    config = dataclasses.replace(family.presets["tiny"], dtype="bfloat16")
    assert isinstance(config, ModelConfig)
    assert isinstance(config, EncoderDecoderConfig) == family.is_encoder_decoder
    assert isinstance(config.encoder_stack, StackConfig)
    assert config.encoder_stack.d_model == config.d_model == 64
    assert config.encoder_stack.dtype == config.compute_dtype == jnp.bfloat16
    assert config.dropout_rate == 0
    assert 0 <= config.pad_token_id < config.vocab_size == 512
    assert config.head in config.heads
    assert (config.head == "language_model") == family.is_encoder_decoder
    if config.max_source_length is not None:
        longer = config.with_max_source_length(2048)
        assert longer.max_source_length == 2048
    if family.is_encoder_decoder:
        assert isinstance(config.decoder_stack, StackConfig)
        assert config.max_target_length is None or config.max_target_length >= 512
        assert not config.has_memory


def test_only_pegasus_stores_computed_positions():
    with pytest.raises(InputError, match="only PEGASUS stores a table of sinusoids"):
        PegasusXConfig(stored_positions=("encoder",))


def test_pegasus_computes_the_table_that_state_dicts_hold():
    config = get_family("pegasus").presets["tiny"]
    table = config.source_position_table()
    assert table.shape == (512, 64)
    assert get_family("bart").presets["tiny"].source_position_table() is None
    constants = get_family("pegasus").weight_map(config).constants
    assert all((compute() == table).all() for compute in constants.values())
    assert len(constants) == 2


def test_windows_are_one_or_one_for_each_layer():
    with pytest.raises(
        InputError, match="attention_window has 3 numbers for 2 layers; give one, or one each"
    ):
        LedConfig.of(encoder_layers=2, attention_window=(4, 8, 8))


WIDTH = {"d_model": 15, "encoder_attention_heads": 3, "decoder_attention_heads": 3}
SENTENCES = {"head": "extraction", "hidden_size": 9, "num_attention_heads": 3}
SENTENCES |= {"extraction_heads": 3}


@pytest.mark.parametrize(
    ("config", "values", "problem"),
    [
        (
            T5Config,
            {"relative_attention_num_buckets": 3},
            "relative_attention_num_buckets is 3 with relative_attention_max_distance 128; give",
        ),
        (
            T5Config,
            {"relative_attention_max_distance": 16},
            "relative_attention_num_buckets is 32 with relative_attention_max_distance 16; give",
        ),
        (PegasusConfig, WIDTH, "d_model is 15, but positions are pairs of sine and cosine"),
        (
            BertConfig,
            SENTENCES | {"sentence_positions": True},
            "hidden_size is 9, but sentence_positions are pairs of sine and cosine",
        ),
    ],
)
def test_positions_that_cannot_be_computed(config, values, problem):
    with pytest.raises(InputError) as caught:
        config(**values)
    assert str(caught.value).startswith(problem)


def test_positions_begin_behind_the_padding_token():
    with pytest.raises(InputError, match="position pad_token_id=50000; raise the one or lower"):
        RobertaConfig(pad_token_id=50000, max_position_embeddings=20)


def test_answers_of_big_bird_need_a_second_token_type():
    with pytest.raises(InputError, match="type_vocab_size is 1, but tokens after a question are"):
        BigBirdConfig(head="question_answering", type_vocab_size=1)
    assert BigBirdConfig(type_vocab_size=1).type_vocab_size == 1


def test_widths_without_computed_positions_may_be_odd():
    assert BertConfig(**SENTENCES).hidden_size == 9
    assert BigBirdPegasusConfig(**WIDTH).d_model == 15


@pytest.mark.parametrize(
    ("config", "values", "problem"),
    [
        (
            LedConfig,
            {"global_tokens": (50265,)},
            "global_tokens contains 50265, but ids",
        ),
        (LedConfig, {"query_end_token_id": 50265}, "query_end_token_id=50265, but ids are from 0"),
        (MpnetConfig, {"pad_token_id": 0}, "pad_token_id is 0, but MPNet supports only 1"),
        (
            ModernBertConfig,
            {"hidden_size": 9, "num_attention_heads": 3},
            "hidden_size 9 gives 3 heads of an odd size",
        ),
        (ModernBertConfig, {"num_hidden_layers": 2}, "encoder_attention .* describes 22 layers"),
    ],
)
def test_options_of_families_that_do_not_fit(config, values, problem):
    with pytest.raises(InputError, match=problem):
        config(**values)


def test_global_tokens_at_every_nth_position():
    options = {"global_every": 3, "global_tokens": (7,), "query_end_token_id": None}
    config = get_family("led").config({"pad_token_id": 1, **options})
    ids = np.array([[5, 5, 7, 5, 5, 5, 5, 1, 1, 1]])
    expected = [[True, False, True, True, False, False, True, False, False, False]]
    assert config.is_global_token(ids, np).tolist() == expected
