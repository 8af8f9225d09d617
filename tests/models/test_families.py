"""Every family against stored outputs of transformers' PyTorch classes; see
golden/make_families.py."""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from longsum_jax.checkpoints.state_dict import to_params, to_state_dict
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS
from longsum_jax.models.registry import FAMILIES, family_of, get_family
from longsum_jax.summarization.model import Model

WORKER = Path(__file__).parents[1] / "inference" / "devices_worker.py"
FILES = sorted((Path(__file__).parents[1] / "golden" / "families").glob("*.npz"))
BEAM = {"num_beams": 4, "length_penalty": 2.0, "no_repeat_ngram_size": 3}


def read(path):
    """Our model with the stored weights, the stored arrays, and the weights by their names."""
    with np.load(path) as file:
        arrays = dict(file)
    raw = json.loads(str(arrays.pop("config")))
    state = {
        key.removeprefix("state/"): value
        for key, value in arrays.items()
        if key.startswith("state/")
    }
    family = family_of(raw, path.name)
    config = family.infer_from_weights(family.config_of_json(raw, path.name), state)
    params = to_params(state, family.weight_map(config), family.parameter_shapes(config), path.name)
    return Model(family, config, params, generation_config=generation(raw)), arrays, state


def generation(raw):
    return {
        name: raw[name]
        for name in ("forced_bos_token_id", "forced_eos_token_id")
        if raw.get(name) is not None
    }


def assert_close(found, wanted):
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


def turn(ids, mask):
    """Other tokens in the padding, and the rows in the other order."""
    assert not mask.all()
    return np.where(mask, ids, 11)[::-1], mask[::-1]


def test_there_is_a_file_for_every_family():
    assert len(FILES) == 23


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_outputs(path):
    model, arrays, _ = read(path)
    ids, mask = arrays["input_ids"], arrays["attention_mask"]
    if "states" in arrays:
        assert_close(np.asarray(model.encode(ids, mask))[mask], arrays["states"][mask])
        targets = arrays["decoder_input_ids"]
        assert_close(np.asarray(model.logits(ids, mask, targets)), arrays["logits"])
        # Neither the order of the rows nor what stands in the padding counts.
        turned = np.asarray(model.logits(*turn(ids, mask), targets[::-1]))
        assert_close(turned[::-1], arrays["logits"])
        return
    apply = jax.jit(model.module.apply)
    expected = arrays["output"]
    result = np.asarray(apply({"params": model.params}, ids, mask))
    turned = np.asarray(apply({"params": model.params}, *turn(ids, mask)))[::-1]
    retained = mask if expected.ndim > 2 else ...
    assert_close(result[retained], expected[retained])
    assert_close(turned[retained], expected[retained])


def drawn_model(name, draw, **options):
    """A tiny model of a family of the registry, its parameters drawn at random."""
    family = get_family(name)
    config = family.presets["tiny"].replace(**options)
    if hasattr(config, "init_std"):  # smaller ones write the same of every text
        config = dataclasses.replace(config, init_std=0.5)
    return Model(family, config, draw(family.init_params(config)))


# Modules that others share, and those whose rows `test_outputs` turns and pads.
WEEKLY = {"albert", "bigbird_pegasus", "camembert", "distilbert", "electra", "longformer", "mbart"}
WEEKLY |= {"mt5", "pegasus", "pegasus_x", "roberta", "t5gemma", "xlm-roberta"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.weekly] * (x in WEEKLY)) for x in sorted(FAMILIES)],
)
def test_batch_mates_order_padding_and_bucket_change_nothing(name, draw_params):
    """Every family of the registry. A row alone is padded to another length; the shortest one is
    read by the search, or by encoders as it is."""
    model = drawn_model(name, draw_params)
    lengths = np.array([[150], [90], [9]])
    mask = np.arange(150) < lengths
    ids = np.random.default_rng(0).integers(5, 300, mask.shape)
    order = [2, 0, 1]
    pad = model.config.pad_token_id

    def states_of(ids, mask):
        return np.asarray(model.encode(ids, mask))

    expected = states_of(np.where(mask, ids, pad), mask)
    turned = states_of(np.where(mask, ids, 11)[order], mask[order])
    for place, row in enumerate(order):
        assert_close(turned[place][mask[row]], expected[row][mask[row]])
    for row in (1,) if model.family.is_encoder_decoder else (1, 2):
        length = int(lengths[row, 0])
        alone = states_of(ids[row : row + 1, :length], mask[row : row + 1, :length])
        assert_close(alone[0], expected[row][mask[row]])
    if not model.family.is_encoder_decoder:
        return
    options = {"max_new_tokens": 4, "no_repeat_ngram_size": 1}
    options |= {"eos_token_id": None, "forced_eos_token_id": None}
    together = model.generate(ids, mask, **options)
    assert len({tuple(row) for row in together.tolist()}) > 1
    np.testing.assert_array_equal(
        model.generate(ids[order], mask[order], **options), together[order]
    )
    alone = model.generate(ids[2:, :9], mask[2:, :9], **options)
    np.testing.assert_array_equal(alone[0], together[2])


ON_DEVICES = [*FAMILIES, *(f"bert, {kind}" for kind in ENCODER_ATTENTIONS)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        ["bart", "locost", "t5gemma2", "bert, lsg"],
        pytest.param(ON_DEVICES, marks=pytest.mark.weekly),
    ],
    ids=["some", "all families and encoder attentions"],
)
def test_devices_change_neither_states_nor_ids(names, tmp_path, draw_params, run_worker):
    for name in names:
        family, _, kind = name.partition(", ")
        options = {"encoder_attention": kind, "num_hidden_layers": 1} if kind else {}
        drawn_model(family, draw_params, **options).save(tmp_path / name)
    rows = run_worker(WORKER, *(tmp_path / name for name in names), strict=False)
    result = dict(zip(names, rows, strict=True))
    assert [name for name, row in result.items() if row["difference"] > 1e-5] == []
    assert all(row["parallel"] == row["alone"] for row in result.values())
    written = [name for name, row in result.items() if row["alone"]]
    assert written == [name for name in names if get_family(name.split(",")[0]).is_encoder_decoder]


@pytest.mark.parametrize("name", ["t5", "pegasus"])
def test_beam_search(name):
    model, arrays, _ = read(next(path for path in FILES if path.stem == name))
    result = model.generate(
        arrays["input_ids"], arrays["attention_mask"], max_new_tokens=12, **BEAM
    )
    np.testing.assert_array_equal(result, arrays["beam"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_names_cover_every_tensor_both_ways(path):
    model, _, state = read(path)
    result = to_state_dict(model.params, model.family.weight_map(model.config))
    assert result.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_allclose(
            result[key], value, rtol=0, atol=1e-6 if "embed_positions" in key else 0, err_msg=key
        )


@pytest.mark.parametrize("name", ["bart", "bert"])
def test_padding_may_lie_beyond_the_table_of_positions(name, draw_params):
    family = get_family(name)
    config = dataclasses.replace(family.presets["tiny"], max_position_embeddings=10)
    params = draw_params(family.init_params(config))
    ids = np.random.default_rng(0).integers(5, 99, (2, 12))
    mask = np.arange(12) < np.array([[10], [7]])

    @jax.jit
    def encode(params):
        apply = family.module_class(config).apply
        return [
            apply({"params": params}, ids[:, :length], mask[:, :length], method="encode")
            for length in (12, 10)
        ]

    result, expected = map(np.asarray, encode(params))
    assert np.isfinite(result).all()
    assert_close(result[mask], expected[mask[:, :10]])
