"""The config.json of T5Gemma, and what it refuses."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers import encoder
from longsum_jax.models.registry import get_family

FAMILY = get_family("t5gemma")
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 4}


def read(encoder=None, decoder=None, **entries):
    sections = {"encoder": SIZES | (encoder or {}), "decoder": SIZES | (decoder or {})}
    return FAMILY.config_of_json({"model_type": "t5gemma", **sections, **entries}, "config.json")


def test_layer_types_become_the_encoder_attention():
    alternating = read()
    assert alternating.tie_word_embeddings
    assert alternating.encoder_attention == "local,full"
    assert alternating.option("local_radius") == 4096
    assert alternating.decoder.windows == (4096, 0)
    kinds = {"layer_types": ["full_attention"] * 2, "sliding_window": 8}
    assert read(kinds, kinds).encoder_attention == "full"
    kinds = {"layer_types": ["sliding_attention"] * 2, "sliding_window": 8}
    sliding = read(kinds, kinds)
    assert (sliding.encoder_attention, sliding.attention.local_radius) == ("local", 8)
    assert sliding.decoder.windows == (8, 8)


def test_rotary_positions_of_old_and_new_files():
    new = {"rope_parameters": {"rope_type": "linear", "rope_theta": 5.0, "factor": 2.0}}
    old = {"rope_theta": 5.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    for section in (new, old):
        (rotary,) = read(encoder=section).encoder_stack.rotary
        assert rotary == (5.0, 2.0)


def test_config_json_is_read_back():
    config = read({"attn_logit_softcapping": None}, {"final_logit_softcapping": None})
    raw = json.loads(json.dumps(FAMILY.config_json(config)))
    assert raw["encoder"]["attn_logit_softcapping"] is None  # the default is a cap
    assert "encoder_attention" not in raw
    assert FAMILY.config_of_json(raw, "config.json") == config
    # Radius and windows of the replaced attention make no difference.
    config = config.replace(encoder_attention="global")
    raw = json.loads(json.dumps(FAMILY.config_json(config)))
    assert FAMILY.config_of_json(raw, "config.json") == config


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"encoder": {"layer_types": ["chunked_attention"] * 2}},
            'encoder.layer_types: "chunked_attention" is unknown',
        ),
        (
            {"decoder": {"layer_types": ["full_attention"]}},
            "decoder.layer_types names 1 layers, num_hidden_layers is 2",
        ),
        (
            {"decoder": {"rope_parameters": {"rope_type": "yarn"}}},
            'decoder: rope_type "yarn" is not supported; supported: default, linear',
        ),
        (
            {"decoder": {"rope_parameters": {"rope_type": "linear"}}},
            'decoder: rope_type "linear" has no factor; add "factor" to rope_parameters',
        ),
        (
            {"decoder": {"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}},
            'decoder: rope_parameters have an entry "full_attention" for some of the layers; ',
        ),
        ({"encoder": {"rope_parameters": 3}}, "encoder.rope_parameters: expected Mapping, got 3"),
        ({"decoder": {"layer_types": 3}}, "decoder.layer_types: expected tuple, got 3"),
        (
            {"encoder": {"vocab_size": 7}, "decoder": {"vocab_size": 8}},
            "encoder.vocab_size is 7, decoder.vocab_size 8; only",
        ),
        ({"encoder": {"num_key_value_heads": 3}}, "encoder.num_attention_heads 4 is not divisible"),
        ({"encoder": {"head_dim": 5}}, "encoder.head_dim is 5, but rotary positions"),
        ({"encoder": {"hidden_activation": "gelu"}}, 'encoder.hidden_activation "gelu" is unknown'),
        (
            {"architectures": ["T5GemmaForSequenceClassification"]},
            'architecture "T5GemmaForSequenceClassification" has a head that is not supported',
        ),
    ],
)
def test_refused(changes, problem):
    with pytest.raises(InputError) as error:
        read(**changes)
    assert str(error.value).startswith(f"config.json: {problem}")


def test_encoders_on_tpus_keep_xla_from_adding_up_all_layers_at_the_end(monkeypatch):
    config = read(encoder={"num_hidden_layers": 4})  # four groups of one layer
    module = FAMILY.module_class(config)
    params = FAMILY.init_params(config)(jax.random.key(0))
    ids = jnp.arange(12).reshape(2, 6) + 3

    def encode(params):
        return module.apply({"params": params}, ids, ids > 0, method="encode")

    expected, text = jax.jit(encode)(params), str(jax.make_jaxpr(encode)(params))
    assert "optimization_barrier" not in text
    monkeypatch.setattr(encoder, "target_platform", lambda: "tpu")
    encode = functools.partial(encode)  # traced again
    assert str(jax.make_jaxpr(encode)(params)).count("optimization_barrier") == 4
    np.testing.assert_array_equal(jax.jit(encode)(params), expected)
