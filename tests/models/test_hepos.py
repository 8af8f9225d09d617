"""Hepos in a whole model: from a published decoder, in search, on disk, by the command."""

import json

import numpy as np
import pytest

import longsum_jax
from longsum_jax.commands import convert
from longsum_jax.errors import InputError
from longsum_jax.inference import programs
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model


@pytest.fixture(scope="module")
def directory(publish, golden, tmp_path_factory):
    """The published code's small LOCOST: 2 layers, 4 heads of 8; its generation_config asks for 9
    tokens."""
    path = tmp_path_factory.mktemp("hepos") / "model"
    return publish(path, "e_greedy", generation={"max_new_tokens": 9})


@pytest.fixture(scope="module")
def model(directory):
    return longsum_jax.load(directory)


@pytest.fixture(scope="module")
def ids(golden):
    arrays = golden("e_greedy")
    return arrays["input_ids"], arrays["attention_mask"].astype(bool)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_beams": 3}], ids=["greedy", "beam"])
def test_search_keeps_strided_keys_and_values(model, ids, options, monkeypatch):
    seen = []

    def spy(search, read, shapes, *arguments, **options):
        seen.append(shapes)
        return call(search, read, shapes, *arguments, **options)

    call = programs.Search.after_reading
    monkeypatch.setattr(programs.Search, "after_reading", spy)
    hepos = model.with_cross_attention("hepos", hepos_stride=3)
    result = hepos.generate(*ids, **options)
    (source,) = seen
    # 70 tokens go in at a padded length of 128.
    assert [(layer.cross_kv.k.shape, layer.cross_kv.v.shape) for layer in source.layers] == [
        ((3, 4, 8, 43),) * 2
    ] * 2
    assert source.mask.shape == (3, 4, 1, 43)
    assert source.states is None
    alone = hepos.generate(ids[0][1:2, :41], ids[1][1:2, :41], **options)[0]  # padded to 64
    np.testing.assert_array_equal(alone, result[1][: len(alone)])


@pytest.mark.slow
def test_the_parameters_stay_and_stride_1_is_the_model_itself(model, ids):
    assert model.with_cross_attention("hepos").config.cross.hepos_stride == 4
    same = model.with_cross_attention("hepos", hepos_stride=1)
    assert same.fingerprint == model.fingerprint
    target = np.array([[0, 46, 96]] * 3)
    expected = model.logits(*ids, target)
    np.testing.assert_allclose(same.logits(*ids, target), expected, atol=1e-5)
    strided = model.with_cross_attention("hepos", hepos_stride=4).logits(*ids, target)
    assert np.abs(np.subtract(strided, expected)).max() > 1e-3


@pytest.mark.slow
def test_saved_models_come_back_and_name_themselves_ours(model, ids, tmp_path):
    hepos = model.with_cross_attention("hepos", hepos_stride=2)
    hepos.save(tmp_path / "hepos")
    raw = json.loads((tmp_path / "hepos" / "config.json").read_text())
    assert (raw["model_type"], raw["cross_attention"], raw["hepos_stride"]) == (
        "longsum_jax/locost",
        "hepos",
        2,
    )
    assert "cross_linformer_size" not in raw
    back = longsum_jax.load(tmp_path / "hepos")
    assert (back.config, back.fingerprint) == (hepos.config, hepos.fingerprint)
    np.testing.assert_array_equal(back.generate(*ids), hepos.generate(*ids))
    plain = back.with_cross_attention("full")
    plain.save(tmp_path / "plain")
    raw = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert raw["model_type"] == "locost"
    assert not {"cross_attention", "hepos_stride"} & raw.keys()


def test_convert_makes_hepos_models(directory, model, tmp_path, capsys):
    convert.main(
        [str(directory), str(tmp_path / "out"), "--cross_attention=hepos", "--hepos_stride=2"]
    )
    assert "locost" in capsys.readouterr().out
    made = longsum_jax.load(tmp_path / "out")
    assert (made.config.cross_attention, made.config.cross.hepos_stride) == ("hepos", 2)
    assert made.fingerprint == model.fingerprint


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ["--hepos_stride=2"],
            "--hepos_stride=2 needs --cross_attention=hepos; give both or neither",
        ),
        (
            ["--cross_attention=hepos", "--hepos_stride=0"],
            "hepos_stride=0 must be at least 1",
        ),
        (
            ["--cross_attention=hepos", "--hepos_stride=5"],
            "hepos_stride is 5, but the decoder has 4 heads",
        ),
    ],
)
def test_convert_refuses(flags, problem, directory, tmp_path):
    with pytest.raises(InputError, match=problem):
        convert.main([str(directory), str(tmp_path / "out"), *flags])
    assert not (tmp_path / "out").exists()


def test_what_has_no_such_decoder(model):
    with pytest.raises(
        InputError, match="cross_attention=linformer: it needs other parameters than this model has"
    ):
        model.with_cross_attention("linformer")
    family = get_family("bert")
    encoder = Model(family, family.presets["tiny"], {})
    with pytest.raises(
        InputError, match="cross_attention=hepos: bert has no decoder; leave it out"
    ):
        encoder.with_cross_attention("hepos")


@pytest.mark.parametrize(
    "name", ["bart", "pegasus", "led", "t5", "longt5", "locost", "bigbird_pegasus", "pegasus_x"]
)
def test_every_encoder_decoder_has_names_for_linformer_cross_attention(name):
    family = get_family(name)
    config = family.config({**family.presets["tiny"].flat(), "cross_attention": "linformer"})
    rows = {row.path for row in family.weight_map(config).rows}
    assert rows == family.parameter_shapes(config).keys()
    assert "decoder/layers/cross_attention/length_projection" in rows
    raw = family.config_json(config)
    assert family.config_of_json(raw, "config.json").cross.cross_linformer_size == 256
