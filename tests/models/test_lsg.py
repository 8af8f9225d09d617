"""Models with LSG attention: against the published code, and in families that it was never written
for."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from longsum_jax.checkpoints.state_dict import to_params, to_state_dict
from longsum_jax.conversion.lsg import to_lsg
from longsum_jax.models.registry import family_of, get_family
from longsum_jax.summarization.model import Model

GOLDEN = Path(__file__).parents[1] / "golden"
CONFIGS = json.loads((GOLDEN / "lsg" / "tiny_configs.json").read_text())
NAMES = ["bert", "bart"]
WITHOUT = "_noglobdec"  # pass_global_tokens_to_decoder=False
BART_DAILY = [
    name + WITHOUT
    for name in ("norm_b16_f4_g4", "none_b16_g4_maskfirst", "pooling_b16_f4_g1_nopool")
]


class Published:
    """One of the two published models: its arrays, and our config and parameters of them."""

    def __init__(self, name):
        self.raw = CONFIGS["models"][name]["lsg_config"]
        with np.load(GOLDEN / "lsg" / f"tiny_{name}.npz") as file:
            self.arrays = dict(file)
        self.state = {
            key.removeprefix("lsg/"): x for key, x in self.arrays.items() if key.startswith("lsg/")
        }
        self.family = family_of(self.raw, name)
        self.config = self.family.config_of_json(self.raw, name)
        table, shapes = (
            self.family.weight_map(self.config),
            self.family.parameter_shapes(self.config),
        )
        self.params = to_params(self.state, table, shapes, name)

    def variants(self, length):
        keys = (key.split("/") for key in self.arrays if key.startswith(f"L{length}/"))
        return sorted({parts[1] for parts in keys if len(parts) == 3 and parts[1] != "orig"})

    def module(self, variant):
        options = CONFIGS["variants"][variant.removesuffix(WITHOUT)]
        passed = {"pass_global_tokens_to_decoder": not variant.endswith(WITHOUT)}
        quirks = {
            "reference_quirks": "bos_pooling" in variant
        }  # its padding is seen in the published outputs
        config = self.family.config_of_json(self.raw | options | passed | quirks, variant)
        return self.family.module_class(config), config

    def inputs(self, length, variant, config):
        """Ids, mask, and the random matrices that the published code drew."""
        at = f"L{length}/"
        ids, mask = self.arrays[at + "input_ids"], self.arrays[at + "attention_mask"].astype(bool)
        matrices = [self.arrays.get(f"{at}{variant}/R{i}") for i in range(4)]
        given = {}
        if matrices[0] is not None:
            layers = [[r[0, :, 0] for r in matrices[i::2]] for i in (0, 1)]
            given = {"lsh_projections": tuple(np.stack(x) for x in layers)}
        if (
            self.family.name == "bart"
            and config.attention.reference_quirks
            and length > 2 * config.attention.block_size
        ):
            extra = (
                (0, 0),
                (0, -length % config.attention.block_size),
            )  # which the published model does itself
            ids, mask = np.pad(ids, extra, constant_values=config.pad_token_id), np.pad(mask, extra)
        return ids, mask, given


@pytest.fixture(scope="module")
def published():
    made = {name: Published(name) for name in NAMES}
    return made.__getitem__


def check_bert(model, length, step=1, chosen=None):
    assert len(model.variants(length)) == 9
    for variant in chosen or model.variants(length):
        module, config = model.module(variant)
        ids, mask, given = model.inputs(length, variant, config)
        result = np.asarray(jax.jit(module.apply)({"params": model.params}, ids, mask, **given))[
            :, ::step
        ]
        expected, real = model.arrays[f"L{length}/{variant}/logits"], mask[:, ::step]
        np.testing.assert_allclose(result[real], expected[real], atol=1e-5, err_msg=variant)


@functools.partial(jax.jit, static_argnums=(0, 1))
def run(module, method, params, *inputs, **given):
    return module.apply({"params": params}, *inputs, method=method, **given)


def check_bart(model, length, variants=None):
    assert len(model.variants(length)) == 18
    for variant in variants or model.variants(length):
        module, config = model.module(variant)
        ids, mask, given = model.inputs(length, variant, config)
        at = f"L{length}/"

        states = run(module, "encode", model.params, ids, mask, **given)
        targets = model.arrays[at + "decoder_input_ids"]
        logits = run(module, "decode", model.params, targets, states, mask)
        np.testing.assert_allclose(
            logits, model.arrays[f"{at}{variant}/logits"], atol=1e-5, err_msg=variant
        )
        expected = model.arrays.get(f"{at}{variant}/encoder_last_hidden_state")
        if expected is not None:
            count = expected.shape[1] - length
            assert count == (0 if variant.endswith(WITHOUT) else config.attention.num_global_tokens)
            real = np.concatenate([np.ones((2, count), bool), mask[:, :length]], 1)
            np.testing.assert_allclose(
                np.asarray(states)[:, : count + length][real], expected[real], atol=1e-5
            )


# Keys of every selection are compared with those published in tests/ops/attention/test_lsg.py; here
# the selections that models give more than their options: matrices, a quirk.
PLAIN = ["norm_b16_f4_g4", "none_b16_g4_maskfirst"]
WITH_INPUTS = ["bos_pooling_b16_f4_g1", "lsh_b16_f4_g1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "step", "chosen"),
    [
        (40, 1, PLAIN),
        (200, 4, PLAIN + WITH_INPUTS),
        pytest.param(200, 4, None, marks=pytest.mark.weekly, id="all"),
    ],
)
def test_bert_as_published(length, step, chosen, published):
    check_bert(published("bert"), length, step, chosen)


@pytest.mark.slow
def test_bart_as_published(published):
    """With and without global tokens for the decoder, BERT's selections are made."""
    model = published("bart")
    check_bart(model, 40, BART_DAILY)
    check_bart(model, 200, PLAIN)


@pytest.mark.weekly
@pytest.mark.parametrize("length", [40, 200])
def test_every_bart_as_published(length, published):
    check_bart(published("bart"), length)


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_all_published_outputs(name, published, shared_data):
    model = published(name)
    with np.load(shared_data.parent / "golden" / "lsg" / f"tiny_{name}.npz") as file:
        model.arrays |= dict(file)
    for length in (20, 40, 64, 200):
        check_bert(model, length) if name == "bert" else check_bart(model, length)


@pytest.mark.parametrize("name", NAMES)
def test_published_names_both_ways(name, published):
    """Every array under its published key, and every entry of config.json that the published code
    reads."""
    model = published(name)
    result = to_state_dict(model.params, model.family.weight_map(model.config))
    assert result.keys() == model.state.keys()
    for key, value in model.state.items():
        np.testing.assert_array_equal(result[key], value, err_msg=key)
    written = model.family.config_json(model.config)
    for key in (
        "model_type",
        "architectures",
        "auto_map",
        "base_model_prefix",
        "adaptive",
        *CONFIGS["variants"]["none_b16_g4_maskfirst"],
    ):
        assert written[key] == model.raw[key], key
    assert model.family.config_of_json(written, name) == model.config


def test_a_config_without_sparse_keys_is_understood(published):
    """The published code writes null where nothing is selected, and takes a marked file for its
    own."""
    model = published("bert")
    raw = model.raw | {"sparsity_type": None, "architectures": ["BertForMaskedLM"]}
    assert model.family.config_of_json(raw, "x").attention.sparsity_type == "none"
    assert family_of({"architectures": ["LSGRobertaForMaskedLM"]}, "x").name == "roberta"


# In our own hands


@pytest.mark.slow
def test_padding_and_other_rows_change_nothing(published):
    """Ids of any length, padded inside; with globals in front, and in generation."""
    model = published("bart")
    _, config = model.module("norm_b16_f4_g4")
    ours = Model(model.family, config, model.params)
    ids = model.arrays["L200/input_ids"][:, :70].astype(np.int32)
    mask = np.arange(70) < np.array([70, 33])[:, None]
    both, alone = np.asarray(ours.encode(ids, mask)), np.asarray(ours.encode(ids[1:, :33]))
    assert both.shape == (2, 74, 32)
    np.testing.assert_allclose(both[1, :37], alone[0], atol=1e-5)
    options = {"max_new_tokens": 8, "num_beams": 2}
    generated, single = ours.generate(ids, mask, **options), ours.generate(ids[1:, :33], **options)
    np.testing.assert_array_equal(generated[1, : single.shape[1]], single[0])


def convert(path, first_id=7, **options):
    """(Our model of a stored one of transformers, the same with LSG attention, ids that begin with
    ``first_id``)."""
    with np.load(path) as file:
        arrays = dict(file)
    raw = json.loads(str(arrays.pop("config")))
    state = {key.removeprefix("state/"): x for key, x in arrays.items() if key.startswith("state/")}
    family = family_of(raw, path.name)
    config = family.infer_from_weights(family.config_of_json(raw, path.name), state)
    params = to_params(state, family.weight_map(config), family.parameter_shapes(config), path.name)
    ids, mask = arrays["input_ids"], arrays["attention_mask"].astype(bool)
    ids = np.where(np.arange(ids.shape[1]) == 0, first_id, ids)
    longer, converted = to_lsg(family, config, params, first_id=first_id, mask_id=5, **options)
    return Model(family, config, params), Model(family, longer, converted), (ids, mask)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "roberta_labels", "bart"])  # the others: tests/parity
def test_converted_models_are_exact_on_short_texts(name):
    """One global token in the place of a hidden first one, up to two blocks: the model as it
    was."""
    options = {
        "mask_first_token": True,
        "block_size": 32,
        "sparse_block_size": 32,
        "max_source_length": 128,
    }
    model, converted, inputs = convert(GOLDEN / "families" / f"{name}.npz", **options)
    assert inputs[0].shape[1] <= 64
    if name == "bart":
        inputs = (*inputs, np.tile(np.arange(6), (len(inputs[0]), 1)))
    expected, result = (np.asarray(x.logits(*inputs)) for x in (model, converted))
    real = inputs[1] if expected.ndim == 3 and name != "bart" else slice(None)
    assert np.abs(result - expected)[real].max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.slow
def test_without_its_token_type_roberta_is_not_exact():
    """What the published conversion gives."""
    options = {
        "mask_first_token": True,
        "block_size": 32,
        "sparse_block_size": 32,
        "reference_quirks": True,
    }
    model, converted, inputs = convert(
        GOLDEN / "families" / "roberta.npz", **options, max_source_length=64
    )
    expected, result = (np.asarray(x.logits(*inputs))[inputs[1]] for x in (model, converted))
    assert np.abs(result - expected).max() > 1e-2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5", "pegasus", "longt5", "led", "bigbird_pegasus"])
def test_other_families(name, draw_params):
    """LSG attention where it was not made for: states, generation, names."""
    family = get_family(name)
    options = {
        "encoder_attention": "lsg",
        "block_size": 8,
        "sparse_block_size": 8,
        "num_global_tokens": 2,
    }
    config = family.config(family.presets["tiny"].flat() | options | {"vocab_size": 60})
    params = draw_params(family.init_params(config))
    model = Model(family, config, params)
    ids = np.random.default_rng(0).integers(3, 60, (1, 50))
    states = np.asarray(model.encode(ids))
    assert states.shape == (1, 52, 64)
    assert np.isfinite(states).all()
    if name == "t5":  # generation is the same for all
        assert model.generate(ids, max_new_tokens=3).shape[1] <= 4
    assert ("lsg" in family.attentions) == (name == "pegasus")
    state = to_state_dict(params, family.weight_map(config))
    tables = {key: x.shape for key, x in state.items() if "global_embeddings" in key}
    assert list(tables.values()) == [(512, 64)]
    assert name != "pegasus" or tables.keys() == {"model.encoder.global_embeddings.weight"}
