"""Stacks whose layers are not all alike: against the same layers in one stack, and through
files."""

import functools

import flax.linen as nn
import flax.traverse_util
import jax
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.experiment.warm_start import WarmStart
from longsum_jax.layers.encoder import Encoder
from longsum_jax.layers.layer_groups import (
    layer_attentions,
    layer_groups,
    layer_params,
    num_layers,
    parse_hybrid,
    parse_layer_path,
    regroup,
)
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model

SIZES = {"vocab_size": 31, "d_model": 16}
BART = SIZES | {"max_position_embeddings": 48, "encoder_layers": 3, "decoder_layers": 1}
BART |= {
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
}
T5 = SIZES | {"d_kv": 8, "d_ff": 16, "num_heads": 2, "num_layers": 3, "num_decoder_layers": 1}
# A window over the whole text is full attention, so that these hybrids compute what equal layers
# do.
WIDE = {"attention_window": (96,), "local_radius": 40}


@pytest.fixture(scope="module")
def make(draw_params):
    def make(family_name, values, kind="full", **options):
        family = get_family(family_name)
        config = family.config(values | WIDE | {"encoder_attention": kind} | options)
        return Model(family, config, draw_params(family.init_params(config), seed=1))

    return make


def flat(params):
    return flax.traverse_util.flatten_dict(params, sep="/")


def test_runs_of_equal_layers_are_groups():
    groups = layer_groups(("a", "a", "b", "a"))
    assert [tuple(group) for group in groups] == [
        ("layers_0_1", 0, 2, "a"),
        ("layers_2_2", 2, 1, "b"),
        ("layers_3_3", 3, 1, "a"),
    ]
    assert [tuple(group) for group in layer_groups(("a",) * 3)] == [("layers", 0, 3, "a")]
    assert groups[0].rows({"x": np.arange(4)})["x"].tolist() == [0, 1]


def test_names_of_hybrids():
    assert list(parse_hybrid("window+global*2, full")) == [("window+global", 2), ("full", 1)]
    assert layer_attentions("window*2,full", 3) == ("window", "window", "full")
    assert layer_attentions("lsh", 2) == ("lsh", "lsh")
    assert parse_layer_path("encoder/layers_6_11/ff_norm/scale") == (
        "encoder/layers/ff_norm/scale",
        6,
    )
    assert parse_layer_path("encoder/layers/ff_norm/scale") == ("encoder/layers/ff_norm/scale", 0)
    assert parse_layer_path("encoder/final_norm/scale") is None


def test_parameters_of_one_layer():
    values = np.arange(6)
    one = {"layers": {"scale": values}, "final_norm": {"scale": np.ones(2)}}
    several = {
        "layers_0_3": {"scale": values[:4]},
        "layers_4_5": {"scale": values[4:], "q": {"kernel": values[4:]}},
        "final_norm": {"scale": np.ones(2)},
    }
    for params in (one, several):
        assert num_layers(params) == 6
        assert [layer_params(params, i)["scale"] for i in range(6)] == list(range(6))
        with pytest.raises(IndexError, match="no layer 6 among the parameters layers"):
            layer_params(params, 6)
    assert layer_params(several, 5) == {"scale": 5, "q": {"kernel": 5}}
    assert num_layers({"layers": {}}) == 0
    shared = {"layer": {"scale": np.arange(2)}, "final_norm": {}}
    assert num_layers(shared) == 1
    assert layer_params(shared, 5) is shared["layer"]


IDS = np.random.default_rng(0).integers(4, 31, (2, 37))
MASK = np.arange(37) < np.array([[37], [20]])
SIZES_OF = {"bart": BART, "t5": T5}


@pytest.fixture(scope="module")
def equal_layers(make):
    """A model of a family whose layers are alike, and its states of `IDS`."""

    @functools.cache
    def model_and_states(family):
        model = make(family, SIZES_OF[family])
        return model, model.encode(IDS, MASK)

    return model_and_states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [("bart", "full,window*2"), ("bart", "window,full,local"), ("t5", "window,full,local")],
)
def test_hybrids_compute_what_equal_layers_do(make, equal_layers, family, kind):
    plain, states = equal_layers(family)
    hybrid = make(family, SIZES_OF[family], kind)
    shapes = hybrid.family.parameter_shapes(hybrid.config)
    params = regroup(flat(plain.params), shapes)
    assert {path: x.shape for path, x in params.items()} == shapes
    hybrid.params = flax.traverse_util.unflatten_dict(params, sep="/")
    real = MASK[..., None]
    np.testing.assert_allclose(
        np.where(real, hybrid.encode(IDS, MASK), 0), np.where(real, states, 0), atol=2e-6
    )
    back = regroup(params, plain.family.parameter_shapes(plain.config))
    for path, x in flat(plain.params).items():
        np.testing.assert_array_equal(back[path], x)


@pytest.mark.slow
def test_every_layer_of_a_hybrid_has_the_inputs_of_its_place(make, draw_params):
    """The third layer gets the third window, and draws its random blocks as the third."""
    model = make("bart", BART, "local*2,window+random", attention_window=(4, 6, 8))
    encoder = Encoder(model.config.encoder_stack)
    x, mask = np.ones((1, 5, 16), np.float32), np.ones((1, 5), bool)

    def parts(encoder):
        _, *prepared = encoder.attention.prepare(x, mask, None, True)
        return [encoder.attention.for_group(*prepared, group) for group in encoder.groups]

    variables = draw_params(encoder.init, x, mask)
    (_, local), (_, (radius, number)) = nn.apply(parts, encoder)(variables)
    assert local == ()
    assert radius.tolist() == [4]
    assert number.tolist() == [2]


@pytest.mark.slow
def test_training_reaches_every_layer_and_dropout_differs_between_groups(make):
    model = make("bart", BART, "window,full,window", dropout=0.1)
    ids = np.random.default_rng(2).integers(4, 31, (2, 24))

    def loss(params):
        rngs = {"dropout": jax.random.key(0)}
        return model.module.apply(
            {"params": params}, ids, np.ones_like(ids), ids, False, rngs=rngs
        ).var()

    for path, gradient in flat(jax.jit(jax.grad(loss))(model.params)).items():
        if "/layers" in path and not path.endswith(
            "/k/bias"
        ):  # a bias of keys shifts all scores alike
            assert np.abs(gradient).max() > 0, path


@pytest.mark.parametrize(("family", "values"), [("bart", BART), ("t5", T5)])
def test_hybrids_come_back_from_files(make, tmp_path, family, values):
    model = make(family, values, "full,linformer*2", linformer_size=4, linformer_max_length=48)
    model.save(tmp_path / "saved")
    loaded = load(tmp_path / "saved")
    assert loaded.family.config_json(loaded.config) == model.family.config_json(model.config)
    for path, x in flat(model.params).items():
        np.testing.assert_array_equal(flat(loaded.params)[path], x)


@pytest.mark.slow
def test_a_hybrid_starts_from_equal_layers_and_its_own_parts_are_new(make, tmp_path):
    plain = make("bart", BART)
    plain.save(tmp_path / "plain")
    config = plain.config.replace(encoder_attention="full,linformer*2", linformer_max_length=48)
    start = WarmStart(str(tmp_path / "plain"), plain.family, config)
    assert start.fresh == ["encoder/layers_1_2/self_attention/length_projection"]
    result, there = flat(start.params), flat(plain.params)
    assert result.keys() == plain.family.parameter_shapes(config).keys()
    name = "self_attention/q/kernel"
    np.testing.assert_array_equal(
        result[f"encoder/layers_1_2/{name}"], there[f"encoder/layers/{name}"][1:]
    )
    np.testing.assert_array_equal(result[f"decoder/layers/{name}"], there[f"decoder/layers/{name}"])


def test_what_a_model_has_learnt_is_not_left_out_in_silence(make, tmp_path):
    """Starting a plain model from a hybrid would drop the projections."""
    hybrid = make("bart", BART, "full,linformer*2", linformer_max_length=48)
    hybrid.save(tmp_path / "hybrid")
    config = hybrid.config.replace(encoder_attention="full")
    with pytest.raises(
        InputError, match=r"model in encoder/layers_1_2/self_attention/length_projection"
    ):
        WarmStart(str(tmp_path / "hybrid"), hybrid.family, config)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("window*2,full*2", "describes 4 layers, but the encoder has 3"),
        ("window*two,full", '"window\\*two" gives no number of layers'),
        ("window*0,full*3", "gives no number of layers"),
        ("window*2,ful", '"ful" is unknown; did you mean "full"'),
        ("block_staggered,full*2", "block_staggered adds tokens in front of the text"),
    ],
)
def test_bad_hybrids(make, kind, said):
    with pytest.raises(InputError, match=said):
        make("bart", BART, kind)


@pytest.mark.parametrize("kind", ["lsg*12", "lsg*6,full*6", "block_staggered*2"])
def test_configs_refuse_hybrids_with_tokens_of_their_own(kind):
    name = kind.partition("*")[0]
    with pytest.raises(InputError) as caught:
        get_family("bart").config({"encoder_attention": kind})
    problem = f'encoder_attention "{kind}": {name} adds tokens in front of the text'
    assert str(caught.value).startswith(f"model: {problem}")
    assert f'give only "{name}"' in str(caught.value)
