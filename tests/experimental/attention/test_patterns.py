"""Names that join patterns, what they draw and learn, and the penalty of spans."""

import functools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax import checksums
from longsum_jax.errors import InputError
from longsum_jax.experiment.objectives.penalties import with_span_penalty
from longsum_jax.experimental.attention.patterns import PatternAttention, pattern_names
from longsum_jax.layers.attention.options import AdaptiveSpanOptions
from longsum_jax.layers.attention.registry import get_encoder_attention
from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bart import BartConfig
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.training.loss import LossOutput

SIZES = {
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_attention_heads": 2,
}
OPTIONS = {
    "attention_window": (8,),
    "num_global_tokens": 2,
    "block_size": 4,
    "num_random_blocks": 1,
    "attention_stride": 4,
}
BART = BartConfig(d_model=16, dropout=0.0, **SIZES)
X, MASK = (
    jax.random.normal(jax.random.key(0), (2, 30, 16)),
    jnp.arange(30) < jnp.array([30, 17])[:, None],
)


@pytest.fixture(scope="module")
def make(draw_params):
    def make(kind, **options):
        config = BART.replace(encoder_attention=kind, **OPTIONS | options)
        encoder = Encoder(config.encoder_stack)
        return jax.jit(encoder.apply, static_argnums=3), draw_params(encoder.init, X, MASK)

    return make


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (
            "window+globals",
            'unknown part "globals"; did you mean "global"? known: adaptive_span, global, ran',
        ),
        ("window+", 'unknown part ""; known: adaptive_span, global, random, stride, window'),
        (
            "window+full",
            'unknown part "full"; known: adaptive_span, global, random, stride, window',
        ),
        ("stride+window+stride", 'names "stride" twice'),
        ("adaptive_span+window", "an adaptive span is a window already"),
    ],
)
def test_unknown_combinations_list_the_parts(name, problem):
    with pytest.raises(InputError) as caught:
        BART.replace(encoder_attention=name)
    assert str(caught.value).startswith(f'encoder_attention "{name}"')
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "options", "problem"),
    [
        (
            "window",
            {"attention_window": (7,)},
            "attention_window is (7,); windows must be even and at least 2",
        ),
        (
            "window",
            {"attention_window": (8, 0)},
            "attention_window is (8, 0); windows must be even and at least 2",
        ),
        (
            "longformer",
            {"attention_window": (7,)},
            "attention_window is (7,); windows must be even and at least 2",
        ),
        (
            "longformer",
            {"attention_window": (8, 0)},
            "attention_window is (8, 0); windows must be even and at least 2",
        ),
        (
            "adaptive_span",
            {"attention_window": (8, 2050)},
            "attention_window is (8, 2050), but the model reads 1024 t",
        ),
        (
            "window+global",
            {"num_global_tokens": 0},
            "num_global_tokens=0 must be at least 1",
        ),
        ("stride", {"attention_stride": 0}, "attention_stride=0 must be at least 1"),
        ("random", {"num_random_blocks": 0}, "num_random_blocks=0 must be at least 1"),
        ("adaptive_span", {"span_ramp": 0}, "span_ramp=0 must be at least 1"),
        ("adaptive_span", {"span_penalty": -1.0}, "span_penalty=-1.0 must be at least 0"),
        ("lsh", {"lsh_num_buckets": 5}, "lsh_num_buckets is 5; buckets come in pairs"),
        ("lsh", {"lsh_chunk_length": 0}, "lsh_chunk_length=0 must be at least 1"),
        (
            "sinkhorn",
            {"sinkhorn_temperature": 0.0},
            "sinkhorn_temperature=0.0 must be above 0",
        ),
        ("sinkhorn", {"block_size": 0}, "block_size=0 must be at least 1"),
        ("linformer", {"linformer_size": 0}, "linformer_size=0 must be at least 1"),
    ],
)
def test_options_out_of_range(kind, options, problem):
    with pytest.raises(InputError) as caught:
        BART.replace(encoder_attention=kind, **options)
    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("kind", ["window", "longformer"])
def test_windows_that_are_not_one_for_each_layer(make, kind):
    with pytest.raises(
        InputError, match="attention_window has 3 numbers for 2 layers; give one, or one each"
    ):
        make(kind, attention_window=(4, 8, 8))


def test_inputs_beyond_the_projection_of_linformer(make):
    with pytest.raises(
        InputError, match="an input of 30 tokens is longer than the 29 tokens that the Linformer"
    ):
        make("linformer", linformer_max_length=29)


@pytest.mark.slow
def test_the_order_of_parts_does_not_matter_and_each_says_what_it_reads(make):
    (first, variables), (second, _) = make("window+stride"), make("stride+window")
    np.testing.assert_array_equal(first(variables, X, MASK, True), second(variables, X, MASK, True))
    assert pattern_names("stride+window") == ("stride", "window")
    config = BART.replace(encoder_attention="stride+window", **OPTIONS)
    assert config.attention.flat() == {"attention_stride": 4, "attention_window": (8,)}


@pytest.mark.slow
def test_windows_of_their_own_for_each_layer(make):
    apply, variables = make("window", attention_window=(2, 8))
    wide, _ = make("window")
    assert (
        np.abs(apply(variables, X, MASK, True) - wide(variables, X, MASK, True))[
            np.asarray(MASK)
        ].max()
        > 1e-3
    )
    same, _ = make("window", attention_window=(8, 8))
    np.testing.assert_array_equal(same(variables, X, MASK, True), wide(variables, X, MASK, True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["random", "lsh", "sinkhorn"])
def test_chance_is_for_training_alone_and_follows_the_key(make, kind):
    apply, variables = make(kind, lsh_chunk_length=4, lsh_num_hashes=1, lsh_num_buckets=4)
    np.testing.assert_array_equal(apply(variables, X, MASK, True), apply(variables, X, MASK, True))
    trained = [
        apply(variables, X, MASK, False, rngs={"dropout": jax.random.key(seed)})
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(*trained[:2])
    assert np.abs(trained[0] - trained[2]).max() > 1e-3


@pytest.mark.slow
def test_linformer_with_an_identity_is_full_attention(make):
    full, variables = make("full")
    linformer, _ = make("linformer", linformer_size=30, linformer_max_length=30)
    extended = jax.tree.map(lambda x: x, variables)
    extended["params"]["layers"]["self_attention"]["length_projection"] = jnp.stack(
        [jnp.eye(30)] * 2
    )
    everything = jnp.ones_like(MASK)
    expected = full(variables, X, everything, True)
    np.testing.assert_allclose(linformer(extended, X, everything, True), expected, atol=1e-5)


def test_the_penalty_is_the_mean_span_in_tokens_and_the_loss_reports_it():
    config = BART.replace(
        encoder_attention="adaptive_span", span_penalty=0.5, attention_window=(4, 8)
    )
    logits = jnp.array([[0.0, 2.0], [-1.0, 30.0]])
    params = {"encoder": {"layers": {"self_attention": {"span_logit": logits}}}}
    sigmoid = 1 / (1 + np.exp(-np.asarray(logits, np.float64)))
    expected = 0.5 * (sigmoid * [[2], [4]]).mean()
    assert float(PatternAttention.penalty(config.attention, params)) == pytest.approx(expected)
    loss_fn = lambda params, batch, rng: LossOutput(  # noqa: E731
        jnp.float32(6), jnp.float32(3), {"tokens": jnp.float32(9)}
    )
    out = with_span_penalty(loss_fn, config)(params, {}, None)
    assert float(out.loss_sum / out.weight) == pytest.approx(2 + expected)
    assert float(out.metrics["span_penalty"] / out.weight) == pytest.approx(expected)
    gradient = jax.grad(lambda p: with_span_penalty(loss_fn, config)(p, {}, None).loss_sum)(params)
    assert (gradient["encoder"]["layers"]["self_attention"]["span_logit"][0] > 0).all()
    assert with_span_penalty(loss_fn, BART) is loss_fn
    assert (
        float(
            PatternAttention.penalty(
                AdaptiveSpanOptions(span_penalty=1.0), {"encoder": {"layers": {}}}
            )
        )
        == 0
    )


def test_the_penalty_counts_the_spans_of_every_group_of_layers():
    """Hybrids, and stacks with memory in some layers, keep parameters of several groups apart."""
    logits = np.array([[0.0, 2.0], [-1.0, 30.0], [0.5, 0.25]], np.float32)
    sigmoid = 1 / (1 + np.exp(-logits.astype(np.float64)))

    def params(groups):
        return {"encoder": {name: {"self_attention": value} for name, value in groups.items()}}

    options = {"encoder_layers": 3, "span_penalty": 0.5, "attention_window": (4, 8, 16)}
    memory = BART.replace(
        encoder_attention="adaptive_span", memory="attentive", memory_layers=(0,), **options
    )
    spans = {"layers_0_0": {"span_logit": logits[:1]}, "layers_1_2": {"span_logit": logits[1:]}}
    expected = 0.5 * (sigmoid * [[2], [4], [8]]).mean()
    assert float(PatternAttention.penalty(memory.attention, params(spans))) == pytest.approx(
        expected
    )

    hybrid = BART.replace(encoder_attention="full,adaptive_span*2", **options)
    attention = get_encoder_attention(hybrid.encoder_attention)
    spans["layers_0_0"] = {"q": {"kernel": np.zeros((1, 2))}}
    expected = 0.5 * (sigmoid[1:] * [[4], [8]]).mean()
    penalty = functools.partial(attention.penalty, hybrid.attention)
    assert float(penalty(params(spans))) == pytest.approx(expected)
    gradient = jax.grad(penalty)(params(spans))
    assert (gradient["encoder"]["layers_1_2"]["self_attention"]["span_logit"][1] > 0).all()


def test_spans_of_another_number_of_heads_are_refused_by_name(tmp_path):
    family = get_family("bart")
    config = family.presets["tiny"].replace(encoder_attention="adaptive_span", vocab_size=20)
    zeros = jax.tree.map(
        jnp.zeros_like, nn.meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    )
    Model(family, config, zeros).save(tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"encoder_attention_heads": 2}))
    checksums.write(tmp_path / "model")
    with pytest.raises(InputError, match="span_logit"):
        load(tmp_path / "model")


@pytest.mark.parametrize("kind", ["window+global", "adaptive_span+random", "linformer"])
def test_models_with_them_have_names_and_read_back(kind):
    family = get_family("bart")
    config = family.config(
        {**family.presets["tiny"].flat(), "encoder_attention": kind, "num_random_blocks": 2}
    )
    assert {row.path for row in family.weight_map(config).rows} == family.parameter_shapes(
        config
    ).keys()
    raw = family.config_json(config)
    assert raw["model_type"] == "longsum_jax/bart"
    assert family.config_json(family.config_of_json(raw, "config.json")) == raw
