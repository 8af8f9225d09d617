import jax
import ml_dtypes
import numpy as np
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict

from longsum_jax.checkpoints.state_dict import LazyArray, to_params, to_state_dict
from longsum_jax.errors import InputError
from longsum_jax.models.locost import LocostConfig, weight_map
from longsum_jax.models.registry import get_family
from longsum_jax.models.weight_map import WeightMap, WeightRow


@pytest.fixture
def state(golden):
    return golden("c_full_state")


@pytest.fixture(scope="module")
def convert(config, shapes_of):
    shapes = shapes_of(config)
    return lambda state: to_params(state, weight_map(config), shapes, "model.bin")


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
    config = config.replace(**options)
    rows = weight_map(config).rows
    assert sorted(row.path for row in rows) == sorted(shapes_of(config))
    assert len({row.key for row in rows}) == len(rows)


@pytest.mark.parametrize("options", VARIANTS)
def test_random_parameters_survive_the_round_trip(config, shapes_of, options):
    config = config.replace(**options)
    shapes, table, rng = shapes_of(config), weight_map(config), np.random.default_rng(0)
    arrays = {row.path: rng.normal(size=shapes[row.path]).astype(np.float32) for row in table.rows}
    params = {}
    for path, value in arrays.items():
        node = params
        *parents, leaf = path.split("/")
        for name in parents:
            node = node.setdefault(name, {})
        node[leaf] = value
    again = to_params(to_state_dict(params, table), table, shapes, "x")
    jax.tree.map(np.testing.assert_array_equal, again, params)


def test_golden_state_survives_the_round_trip_bit_for_bit(config, convert, state):
    again = to_state_dict(convert(state), weight_map(config))
    assert set(again) == set(state) - set(weight_map(config).tied)
    for key, value in again.items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, state[key], err_msg=key)


def test_linear_weights_are_transposed_and_split_into_heads(convert, state):
    params = convert(state)
    attention = params["decoder"]["layers"]["self_attention"]
    key = "decoder.block.1.layer.0.SelfAttention.{}.weight"
    x = np.random.default_rng(0).normal(size=32)
    q, o = attention["q"]["kernel"][1], attention["o"]["kernel"][1]
    np.testing.assert_allclose(
        np.einsum("d,dhk->hk", x, q).ravel(), state[key.format("q")] @ x, rtol=1e-5
    )
    np.testing.assert_allclose(
        np.einsum("hk,hkd->d", x.reshape(4, 8), o), state[key.format("o")] @ x, rtol=1e-5
    )


def test_tied_copies_may_be_absent(config, convert, state):
    full = convert(dict(state))
    for key in weight_map(config).tied:
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
    assert "not in this model: encoder.extra" in message
    assert "of a wrong shape: shared.weight (100, 31)" in message
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
    with pytest.raises(InputError, match="of a wrong shape"):
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
    keys = {row.key for row in weight_map(LocostConfig()).rows}
    assert {
        "shared.weight",
        "encoder.block.{i}.layer.0.layer_prenorm.weight",
        "encoder.block.{i}.layer.0.ssm_layer.kernel.inv_A_real",
        "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
    } <= keys


# What other families' tables need, on a table made for these tests.

SHAPES = {
    "q": (3, 4, 2, 5),
    "o": (2, 5, 4),
    "bias": (3, 2, 5),
    "norm": (4,),
    "offset": (6,),
    "a/A_imag": (2,),
}
TABLE = WeightMap(
    rows=(
        WeightRow("q", "m.layers.{i}.q.weight", "linear"),
        WeightRow("o", "m.o.weight", "linear", inputs=2),
        WeightRow("bias", "m.layers.{i}.q.bias", "merged"),
        WeightRow("norm", "m.norm.weight"),
        WeightRow("offset", "offset", "row", optional=True),
        WeightRow("a/A_imag", "m.A_imag"),
    ),
    tied={"m.copy": "m.norm.weight"},
    ignored=(r"position_ids$", r"^head\."),
    constants={"m.table": lambda: np.linspace(0, 1, 4, dtype=np.float32)},
    prefix="m.",
    aliases=((r"norm\.gamma$", "norm.weight"),),
)


@pytest.fixture
def flat():
    rng = np.random.default_rng(0)
    return {path: rng.normal(size=shape).astype(np.float32) for path, shape in SHAPES.items()}


@pytest.fixture
def other(flat):
    """State dict of `flat`, written out by hand."""
    state = {f"m.layers.{i}.q.weight": flat["q"][i].reshape(4, 10).T for i in range(3)}
    state |= {f"m.layers.{i}.q.bias": flat["bias"][i].reshape(10) for i in range(3)}
    return state | {
        "m.o.weight": flat["o"].reshape(10, 4).T,
        "m.norm.weight": flat["norm"],
        "offset": flat["offset"][None],
        "m.A_imag": flat["a/A_imag"],
        "m.table": np.linspace(0, 1, 4, dtype=np.float32),
    }


def read_other(state, **options):
    params = to_params(state, TABLE, SHAPES, "x.bin", **options)
    return {**{k: v for k, v in params.items() if k != "a"}, "a/A_imag": params["a"]["A_imag"]}


def equal(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        np.testing.assert_array_equal(np.asarray(found[key], np.float32), value, err_msg=key)


def test_every_kind_of_row_both_ways(flat, other):
    equal(read_other(other), flat)
    params = {**flat, "a": {"A_imag": flat["a/A_imag"]}}
    equal(to_state_dict(params, TABLE), other)


@pytest.mark.parametrize("order", ["as it is", "reversed"])
def test_keys_under_other_names(flat, other, order):
    other["m.norm.gamma"] = other.pop("m.norm.weight")
    other = dict(reversed(other.items())) if order == "reversed" else other
    equal(read_other(other), flat)
    bare = {key.removeprefix("m."): value for key, value in other.items() if key != "offset"}
    equal(read_other(bare), flat | {"offset": np.zeros(6)})


def test_a_copy_stands_for_what_it_copies(flat, other):
    other["m.copy"] = other.pop("m.norm.weight")
    equal(read_other(other), flat)


def test_ignored_keys_may_be_of_any_type(flat, other):
    other |= {"m.position_ids": np.arange(3), "head.dense": np.zeros(3)}
    equal(read_other(other), flat)


def test_versions_in_the_first_files_of_bart():
    family = get_family("bart")
    config = family.presets["tiny"]
    shapes = family.parameter_shapes(config)
    flat = {path: np.zeros(shape, np.float32) for path, shape in shapes.items()}
    table = family.published_weight_map(config)
    state = dict(to_state_dict(unflatten_dict(flat, sep="/"), table))
    state |= {f"model.{side}.version": np.array([3.0]) for side in ("encoder", "decoder")}
    result = to_params(state, table, shapes, "pytorch_model.bin")
    assert flatten_dict(result, sep="/").keys() == flat.keys()


def test_half_precision_spares_what_it_would_spoil(flat, other):
    result = read_other(other, dtype=ml_dtypes.bfloat16)
    types = {key: value.dtype for key, value in result.items()}
    assert types.pop("a/A_imag") == np.float32
    assert set(types.values()) == {np.dtype(ml_dtypes.bfloat16)}
    np.testing.assert_array_equal(result["q"], flat["q"].astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(result["norm"], flat["norm"].astype(ml_dtypes.bfloat16))


def test_parameters_do_not_share_memory_with_the_caller_s_arrays(flat, other):
    expected = {path: np.array(value) for path, value in flat.items()}
    result = read_other(other)
    for value in other.values():
        value[...] = 7
    equal(result, expected)


def test_arrays_are_read_row_by_row(other):
    log = []

    def lazy(key, value):
        return LazyArray(
            value.shape, value.dtype, lambda: log.append(f"read {key}") or np.array(value)
        )

    other = {key: lazy(key, value) for key, value in other.items() if key != "m.table"}
    read_other(other, place=lambda x: log.append("place") or x)
    expected = []
    for row in TABLE.rows:
        keys = [row.key.format(i=i) for i in range(3)] if "{i}" in row.key else [row.key]
        expected += [f"read {key}" for key in keys] + ["place"]
    assert log == expected


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s.pop("m.layers.1.q.bias"), r"missing: m\.layers\.1\.q\.bias$"),
        (lambda s: s.update(head=np.zeros(1)), r"not in this model: head$"),
        (
            lambda s: s.update({"m.layers.3.q.bias": np.zeros(10)}),
            r"not in this model: m\.layers\.3\.q\.bias$",
        ),
        (
            lambda s: s.update({"m.A_imag": np.arange(2)}),
            r"not of a floating-point type: m\.A_imag int64$",
        ),
        (
            lambda s: s.update(offset=np.zeros((1, 7))),
            r"of a wrong shape: offset \(1, 7\), not \(1, 6\)$",
        ),
        (
            lambda s: s.update({"m.table": np.zeros(4)}),
            r'"m\.table" differs from the table that this model computes',
        ),
        (lambda s: s.update({"m.table": np.zeros(5)}), r'"m\.table" differs from the table'),
        (
            lambda s: s.update({"m.copy": np.zeros(4)}),
            r'"m\.copy" should be a copy of "m\.norm\.weight"',
        ),
        (
            lambda s: s.update({"m.copy": np.zeros(5)}),
            r'"m\.copy" should be a copy of "m\.norm\.weight"',
        ),
    ],
)
def test_what_does_not_fit_the_table(other, change, problem):
    change(other)
    with pytest.raises(InputError, match=rf"^x\.bin.*{problem}"):
        read_other(other)


def test_half_of_an_optional_array_is_missing():
    table = WeightMap([WeightRow("b", "{i}.bias", optional=True)])
    np.testing.assert_array_equal(to_params({}, table, {"b": (2, 3)}, "x")["b"], np.zeros((2, 3)))
    with pytest.raises(InputError, match=r"missing: 1\.bias$"):
        to_params({"0.bias": np.zeros(3)}, table, {"b": (2, 3)}, "x")
