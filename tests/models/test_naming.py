import dataclasses

import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.models.locost import LocostConfig, name_table, tied_keys
from longsum_jax.models.naming import to_params, to_state_dict


@pytest.fixture
def state(golden):
    return golden("c_full_state")


@pytest.fixture(scope="module")
def convert(config, shapes_of):
    shapes = shapes_of(config)
    return lambda state: to_params(state, name_table(config), tied_keys(config), shapes, "model.bin")


VARIANTS = [
    {},
    {"gating": False},
    {"bidirectional": False},
    {"feed_forward_proj": "relu"},
    {"tie_word_embeddings": False},
    {"ssm_shared_dynamics": False},
    {"num_layers": 1, "num_decoder_layers": 3},
]


@pytest.mark.parametrize("options", VARIANTS)
def test_every_parameter_has_one_name_and_every_name_a_parameter(config, shapes_of, options):
    config = dataclasses.replace(config, **options)
    rows = name_table(config)
    assert sorted(row.path for row in rows) == sorted(shapes_of(config))
    assert len({row.key for row in rows}) == len(rows)


@pytest.mark.parametrize("options", VARIANTS)
def test_random_parameters_survive_the_round_trip(config, shapes_of, options):
    config = dataclasses.replace(config, **options)
    shapes, rows, rng = shapes_of(config), name_table(config), np.random.default_rng(0)
    arrays = {row.path: rng.normal(size=shapes[row.path]).astype(np.float32) for row in rows}
    params = {}
    for path, value in arrays.items():
        node = params
        *parents, leaf = path.split("/")
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    again = to_params(to_state_dict(params, rows), rows, tied_keys(config), shapes, "x")
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_golden_state_survives_the_round_trip_bit_for_bit(config, convert, state):
    again = to_state_dict(convert(state), name_table(config))
    assert set(again) == set(state) - set(tied_keys(config))
    for key, value in again.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, state[key], err_msg=key)


def test_linear_weights_are_transposed_and_split_into_heads(convert, state):
    params = convert(state)
    attention = params["decoder"]["layers"]["self_attention"]
    key = "decoder.block.1.layer.0.SelfAttention.{}.weight"
    x = np.random.default_rng(0).normal(size=32)
    q, o = attention["q"]["kernel"][1], attention["o"]["kernel"][1]
    np.testing.assert_allclose(np.einsum("d,dhk->hk", x, q).ravel(), state[key.format("q")] @ x, rtol=1e-5)
    np.testing.assert_allclose(np.einsum("hk,hkd->d", x.reshape(4, 8), o), state[key.format("o")] @ x, rtol=1e-5)


def test_tied_copies_may_be_absent(config, convert, state):
    full = convert(dict(state))
    for key in tied_keys(config):
        del state[key]
    jax.tree.map(np.testing.assert_array_equal, convert(state), full)


def test_missing_left_over_and_misshapen_keys_are_listed_together(convert, state):
    del state["encoder.block.1.layer.0.ssm_layer.D"]
    state["encoder.extra"] = np.zeros(1)
    state["shared.weight"] = np.zeros((100, 31))
    with pytest.raises(InputError) as caught:
        convert(state)
    message = str(caught.value)
    assert message.startswith("model.bin does not fit the model of its config.json; ")
    assert "missing: encoder.block.1.layer.0.ssm_layer.D" in message
    assert "not known to this model: encoder.extra" in message
    assert "of another shape: shared.weight (100, 31)" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ("decoder.block.0.layer.0.SelfAttention.q.weight", (64, 16)),
        ("decoder.block.0.layer.0.SelfAttention.o.weight", (16, 64)),
        ("encoder.block.0.layer.1.DenseReluDense.wo.weight", (64, 32)),
        ("encoder.block.0.layer.0.ssm_layer.kernel.C", (2, 32, 32, 1)),
    ],
)
def test_arrays_of_the_right_size_but_another_shape_are_refused(convert, state, key, shape):
    state[key] = state[key].reshape(shape)
    with pytest.raises(InputError, match="of another shape"):
        convert(state)


def test_a_copy_that_differs_is_refused(convert, state):
    state["lm_head.weight"] = state["lm_head.weight"] + 1
    with pytest.raises(InputError, match=r'"lm_head.weight" should be a copy of "shared.weight"'):
        convert(state)


def test_long_lists_are_cut(convert, state):
    few = {key: state[key] for key in list(state)[:3]}
    with pytest.raises(InputError, match=r"and \d+ more"):
        convert(few)


def test_published_names_of_the_base_model():
    keys = {row.key for row in name_table(LocostConfig())}
    assert {
        "shared.weight",
        "encoder.block.{i}.layer.0.layer_prenorm.weight",
        "encoder.block.{i}.layer.0.ssm_layer.kernel.inv_A_real",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    } <= keys
