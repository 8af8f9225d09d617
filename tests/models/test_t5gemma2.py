"""The config.json of T5Gemma 2, what it refuses, and the parts of a checkpoint that read images."""

import json

import numpy as np
import pytest

from longsum_jax.checkpoints.state_dict import to_params, to_state_dict
from longsum_jax.errors import InputError
from longsum_jax.models.registry import get_family

FAMILY = get_family("t5gemma2")
SIZES = {"hidden_size": 16, "num_hidden_layers": 7, "num_attention_heads": 4, "head_dim": 4}
SIZES |= {"intermediate_size": 8, "vocab_size": 30}


def read(encoder=None, decoder=None, **entries):
    sections = {
        "encoder": {"text_config": SIZES | (encoder or {}), "eoi_token_index": 9},
        "decoder": SIZES | (decoder or {}),
    }
    return FAMILY.config_of_json({"model_type": "t5gemma2", **sections, **entries}, "config.json")


@pytest.mark.parametrize(
    ("name", "heads", "kv_heads"), [("270m", 4, 1), ("1b", 4, 1), ("4b", 8, 4)]
)
def test_heads_of_the_published_sizes(name, heads, kv_heads):
    for stack in (FAMILY.presets[name].encoder, FAMILY.presets[name].decoder):
        assert (stack.num_attention_heads, stack.num_key_value_heads) == (heads, kv_heads)


@pytest.mark.parametrize(
    ("window", "radius", "is_even"), [(512, 256, True), (9, 4, False)], ids=["even", "odd"]
)
def test_every_sixth_layer_has_no_window(window, radius, is_even):
    config = read({"sliding_window": window}, {"sliding_window": window})
    assert config.encoder_attention == "local,local,local,local,local,full,local"
    assert (config.option("local_radius"), config.option("local_even")) == (radius, is_even)
    assert config.decoder.windows == (*[window] * 5, 0, window)
    raw = json.loads(json.dumps(FAMILY.config_json(config)))
    assert raw["encoder"]["text_config"]["sliding_window"] == window
    assert "local_even" not in raw
    assert FAMILY.config_of_json(raw, "config.json") == config


def test_rotary_positions_of_old_and_new_files():
    full = {"rope_type": "linear", "rope_theta": 5.0, "factor": 2.0}
    local = {"rope_type": "default", "rope_theta": 3.0}
    new = {"rope_parameters": {"full_attention": full, "sliding_attention": local}}
    old = {"rope_theta": 5.0, "rope_local_base_freq": 3.0}
    old |= {"rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    for section in (new, old):
        config = read(section, section)
        for stack in (config.encoder_stack, config.decoder_stack):
            assert stack.rotary[4:] == ((3.0, 1.0), (5.0, 2.0), (3.0, 1.0))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"encoder": {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}},
            'encoder.text_config: rope_type "yarn" is not supported; supported: default, linear',
        ),
        (
            {"decoder": {"rope_parameters": {"rope_type": "yarn"}}},
            'decoder: rope_parameters have an unknown entry "rope_type"; give one mapping for each',
        ),
        (
            {"decoder": {"rope_parameters": {"full_attention": "linear"}}},
            "decoder: rope_parameters are 'linear'; give a mapping with rope_type",
        ),
        (
            {"decoder": {"attn_logit_softcapping": 50.0}},
            "decoder.attn_logit_softcapping is 50.0, but T5Gemma 2 has no soft cap",
        ),
        (
            {"decoder": {"vocab_size": 31}},
            "encoder.text_config.vocab_size is 30, decoder.vocab_size 31; only",
        ),
        (
            {"decoder": {"hidden_size": 8}},
            "encoder.hidden_size is 16, decoder.hidden_size 8; T5Gemma 2 has states of one size",
        ),
        (
            {"architectures": ["T5Gemma2ForSequenceClassification"]},
            'architecture "T5Gemma2ForSequenceClassification" has a head that is not supported',
        ),
        (
            {"encoder": {"layer_types": ["chunked_attention"] * 7}},
            "encoder.text_config.layer_types",
        ),
    ],
)
def test_refused(changes, problem):
    with pytest.raises(InputError) as error:
        read(**changes)
    assert str(error.value).startswith(f"config.json: {problem}")


def test_image_parts_are_named_and_left_out(draw_params, caplog):
    config = read({"num_hidden_layers": 1}, {"num_hidden_layers": 1})
    params = draw_params(FAMILY.init_params(config))
    weight_map, shapes = FAMILY.weight_map(config), FAMILY.parameter_shapes(config)
    state = to_state_dict(params, weight_map)
    # Keys of the class, among them image parts, in place of keys of files.
    state = {key.replace("encoder.", "encoder.text_model."): x for key, x in state.items()}
    for part in ("vision_tower.head.probe", "multi_modal_projector.mm_soft_emb_norm.weight"):
        state[f"model.encoder.{part}"] = np.zeros(3, np.float32)
    for buffer in ("rotary_emb.full_attention_inv_freq", "embed_tokens.embed_scale"):
        state[f"model.decoder.{buffer}"] = np.zeros(3, np.float32)
    inferred = FAMILY.infer_from_weights(config, state)
    assert inferred == config
    assert "image parts (multi_modal_projector, vision_tower, 2 arrays)" in caplog.text
    again = to_params(state, weight_map, shapes, "file")
    np.testing.assert_array_equal(again["image_end"], params["image_end"])
    del state["model.encoder.text_model.embed_tokens.eoi_embedding"]
    again = to_params(state, weight_map, shapes, "file")
    np.testing.assert_array_equal(again["image_end"], np.zeros(16))
