import contextlib
import dataclasses
import math

import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.attention.options import LsgOptions
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.models import lsg_layout
from longsum_jax.models.locost import LocostConfig
from longsum_jax.models.registry import FAMILIES, family_of, get_family, model_config, preset


def test_every_preset_is_a_model_section():
    for name, family in FAMILIES.items():
        for preset_name, config in family.presets.items():
            assert model_config(preset(name, preset_name)) == (family, config)


def test_preset_with_replaced_keys():
    _, config = model_config(preset("locost", "tiny", d_ff=7))
    assert config == dataclasses.replace(get_family("locost").presets["tiny"], d_ff=7)


@pytest.mark.parametrize(("positions", "expected"), [(128, 129), (1024, 257)])
def test_the_default_limit_of_a_summary_is_one_that_the_decoder_has(positions, expected):
    family, config = model_config(preset("bart", "tiny", max_position_embeddings=positions))
    assert family.generation_config(config, {})["max_length"] == expected  # with the start token
    asked = family.generation_config(config, {"max_new_tokens": 999})
    assert asked["max_new_tokens"] == 999  # and is refused where it is used
    assert "max_length" not in asked


@pytest.mark.parametrize("family", ["t5", "longt5", "locost"])
def test_the_decoder_has_as_many_layers_as_the_encoder_unless_told(family):
    """So it is in transformers."""
    for values in ({"family": family}, preset(family, "tiny"), preset(family, "base")):
        _, config = model_config(values | {"num_layers": 3})
        assert config.num_decoder_layers == 3
        _, config = model_config(values | {"num_layers": 3, "num_decoder_layers": 1})
        assert config.num_decoder_layers == 1


@pytest.mark.parametrize(
    "raw",
    [
        {"model_type": "locost"},
        {"model_type": "", "architectures": ["LOCOSTForConditionalGeneration"]},
        {"model_type": None, "architectures": None, "d_state": 8, "num_ssm_heads": 1},
    ],
)
def test_family_of_a_config_json(raw):
    assert family_of(raw, "x").name == "locost"


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (
            lambda: get_family("lcost"),
            'unknown model family "lcost"; did you mean "locost"? known: albert, ',
        ),
        (
            lambda: model_config({"d_model": 3}),
            'unknown model family ""; known: albert, bart, bert, ',
        ),
        (
            lambda: preset("locost", "bigger"),
            'unknown locost preset "bigger"; known: base, base_hepos, ',
        ),
        (
            lambda: family_of({"model_type": "gpt2"}, "a.json"),
            'a.json: model_type "gpt2" is not supported; it is a decoder; this library reads ',
        ),
        (
            lambda: family_of(
                {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"]}, "a"
            ),
            'a: model_type "gemma3" is not supported; it is a decoder; this library reads ',
        ),
        (
            lambda: family_of({"model_type": "siglip_vision_model"}, "a"),
            'a: model_type "siglip_vision_model" is not supported; it is a vision model; this ',
        ),
        (
            lambda: family_of({"model_type": "dinov3_vit"}, "a"),
            'a: model_type "dinov3_vit" is not supported; it is a vision model; this ',
        ),
        (
            lambda: family_of({"model_type": "gptj", "architectures": ["GPTJModel"]}, "a"),
            'a: model_type "gptj" is not supported; it is a decoder; this ',
        ),
        (
            lambda: family_of({"model_type": "t5", "architectures": ["T5EncoderModel"]}, "a"),
            'a: architecture "T5EncoderModel" is the encoder of an encoder-decoder without its ',
        ),
        (
            lambda: family_of({"model_type": "whisper"}, "a"),
            'a: model_type "whisper" is not supported; it is a speech model; this ',
        ),
        (
            lambda: family_of({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, "a"),
            'a: model_type "llama" is a decoder; this library reads encoder-decoders and encoders ',
        ),
        (
            lambda: family_of(
                {"model_type": "vit", "architectures": ["ViTForImageClassification"]}, "a"
            ),
            'a: model_type "vit" is a vision model; this library reads ',
        ),
        (
            lambda: model_config(preset("umt5", "tiny", encoder_attention="window")),
            'model: encoder_attention is "window", but umT5 has a relative bias in every layer',
        ),
        (
            lambda: model_config(preset("deberta-v2", "tiny", encoder_attention="lsg")),
            'model: encoder_attention is "lsg", but DeBERTa has positions only in disentangled',
        ),
        (
            lambda: model_config(
                preset("bert", "tiny", encoder_attention="disentangled", max_relative_positions=9)
            ),
            "model: max_relative_positions is 9, but position_buckets=256 need at least 130",
        ),
        (
            lambda: model_config(preset("locost", "tiny", d_states=3), "config.model"),
            'config.model: unknown key "d_states"; did you mean "d_state"?',
        ),
        (
            lambda: model_config(preset("locost", "tiny", num_heads=5), "config.model"),
            "config.model: d_model 64 is not divisible by num_heads 5; change either",
        ),
        (
            lambda: model_config(preset("locost", "tiny", d_state=31), "config.model"),
            "config.model: d_state is 31; it must be even",
        ),
        (
            lambda: model_config(preset("locost", "tiny", dtype="float16"), "config.model"),
            'config.model.dtype: "float16" is not allowed; did you mean "bfloat16"?',
        ),
    ],
)
def test_unknown_names_and_values(call, problem):
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(problem)


# For every entry of config.json, at any depth.
WRONG_TYPES = (None, -1, "x", [None])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_entries_of_other_types_are_refused_in_one_sentence_or_harmless(name):
    family = get_family(name)
    raw = family.config_json(family.presets["tiny"])
    assert raw
    for change in changes_of(raw):
        with contextlib.suppress(InputError):
            family_of(change, "config.json").config_of_json(change, "config.json")


def changes_of(raw):
    """Yields copies of an object, one entry of which has a wrong type."""
    for key, value in raw.items():
        yield from (raw | {key: wrong} for wrong in WRONG_TYPES)
        if isinstance(value, dict):
            yield from (raw | {key: inner} for inner in changes_of(value))


def test_lsg_has_the_published_defaults():
    """Those of the code that converts checkpoints, not those that other attentions share."""
    values = {"family": "bart", "encoder_attention": "lsg", "encoder_layers": 3}
    values |= {"vocab_size": 300, "block_size": None}
    _, config = model_config(values)
    assert config.attention == LsgOptions(block_size=128, num_global_tokens=1)
    _, config = model_config(values | {"block_size": 64, "num_global_tokens": 32})
    assert (config.attention.block_size, config.attention.num_global_tokens) == (64, 32)
    _, config = model_config({"family": "pegasus_x", "block_size": None})
    assert (config.attention.block_size, config.attention.num_global_tokens) == (512, 32)


def test_lsg_of_a_preset_has_them_unless_something_else_is_asked_for():
    selected = preset("pegasus_x", "tiny", encoder_attention="lsg", sparsity_factor=4)
    expected = {**lsg_layout.DEFAULTS, "sparsity_factor": 4}
    assert {name: selected[name] for name in expected} == expected
    assert preset("pegasus_x", "tiny")["block_size"] != expected["block_size"]


def test_a_config_with_lsg_is_published_if_its_class_is():
    for name in FAMILIES.keys() - ONE_ATTENTION:
        family, config = model_config(preset(name, "tiny", encoder_attention="lsg"))
        saved = family.config_json(config)
        assert ("auto_map" in saved) == (saved["model_type"] == name)


def test_parameter_shapes_of_the_published_model():
    shapes = get_family("locost").parameter_shapes(LocostConfig())
    assert shapes["shared"] == (32100, 768)
    assert shapes["encoder/layers/self_attention/C"] == (12, 2, 768, 256, 2)
    total = 0
    for shape in shapes.values():
        size = 1
        for n in shape:
            size *= n
        total += size
    assert total == 234_724_224


@pytest.mark.parametrize(("family", "total"), [("t5", 222_903_552), ("longt5", 247_577_856)])
def test_base_presets_have_as_many_parameters_as_published(family, total):
    family = get_family(family)
    shapes = family.parameter_shapes(family.presets["base"])
    assert sum(map(math.prod, shapes.values())) == total


# Families whose encoder layers have the same names as another family's.
ALIKE = {"mt5", "xlm-roberta", "camembert", "electra", "big_bird", "mbart"}
ONE_ATTENTION = {"umt5", "deberta-v2"}
# Names of a family and names of an attention are independent, so that an eighth of all pairs is
# enough: every family has two attentions, and every attention two families.
PAIRS = [
    (family, kind)
    for row, family in enumerate(sorted(FAMILIES.keys() - ALIKE - ONE_ATTENTION))
    for column, kind in enumerate(ENCODER_ATTENTIONS)
    if (row + column) % 8 == 0
]


@pytest.mark.parametrize(("family", "kind"), PAIRS)
def test_every_family_has_names_for_every_attention(family, kind):
    family, config = model_config(preset(family, "tiny", encoder_attention=kind))
    rows = family.weight_map(config).rows
    assert {row.path for row in rows} == family.parameter_shapes(config).keys()
    assert len({(row.key, row.first) for row in rows}) == len(rows)
    raw = family.config_json(config)
    assert (raw["model_type"] == family.name) == (kind in family.attentions)
    assert family_of(raw, "config.json") is family
    # Options that this attention does not read are not kept.
    assert family.config_json(family.config_of_json(raw, "config.json")) == raw


def test_albert_has_one_attention():
    """Its layers share their parameters."""
    with pytest.raises(InputError, match=r'"window\*1,full" .* differs from layer'):
        model_config(preset("albert", "tiny", encoder_attention="window*1,full"))
