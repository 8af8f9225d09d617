"""Every cross-attention in decoders that were not made for it, all at once and step by step."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.errors import InputError
from longsum_jax.layers import decoder_cache
from longsum_jax.layers.attention import cross
from longsum_jax.layers.attention.cross import CrossAttention
from longsum_jax.layers.attention.multi_head import causal_mask
from longsum_jax.layers.attention.registry import CROSS_ATTENTIONS, get_cross_attention
from longsum_jax.layers.decoder import Decoder
from longsum_jax.models.bart import BartConfig
from longsum_jax.models.t5 import T5Config
from longsum_jax.models.t5gemma2 import Gemma3DecoderStack, Gemma3Stack, T5Gemma2Config
from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.fused import KernelChoice, KeyCounts
from longsum_jax.ops.attention.key_sets import KeySet

CROSS = {"hepos_stride": 4, "cross_linformer_size": 5, "cross_linformer_max_length": 20}
# Heads that are no multiple of the stride, a length that is none either.
B, T, L, D, H, K = 2, 4, 18, 24, 6, 4
BEAMS = 3
GPU = AbstractMesh(
    (1,), ("batch",), axis_types=(AxisType.Auto,),
    abstract_device=AbstractDevice("NVIDIA H200", None, "cuda"),
)  # fmt: skip
HEADS = {"encoder_attention_heads": H, "decoder_attention_heads": H}
T5 = T5Config(d_model=D, d_kv=K, d_ff=16, num_decoder_layers=2, num_heads=H, dropout_rate=0.0)
BART = BartConfig(d_model=D, decoder_layers=2, decoder_ffn_dim=16, dropout=0.0, **HEADS)
GEMMA = {"hidden_size": D, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": K}
GEMMA |= {"num_attention_heads": H, "num_key_value_heads": 2, "query_pre_attn_scalar": 4.0}
# One attention reads source and target.
MERGED = T5Gemma2Config(
    vocab_size=30,
    encoder=Gemma3Stack(**GEMMA),
    encoder_attention="full",
    decoder=Gemma3DecoderStack(
        **GEMMA, sliding_window=3, layer_types=("sliding_attention", "full_attention")
    ),
    initializer_range=0.3,
    eoi_token_index=7,
)
NAMED = {"t5": T5, "bart": BART, "merged": MERGED}
CONFIGS = pytest.mark.parametrize("config", NAMED.values(), ids=NAMED)
# Every attention in one decoder, and the plainest in all.
PAIRS = pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param(
            config,
            kind,
            id=f"{kind}-{name}",
            marks=[pytest.mark.weekly] * (name != "t5" and kind != "full"),
        )
        for name, config in NAMED.items()
        for kind in sorted(CROSS_ATTENTIONS)
    ],
)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


X, STATES = normal(0, B, T, D), normal(1, B, L, D)
MASK = np.arange(L) < np.array([L, 11])[:, None]


def hepos_mask(heads, length, stride):
    """Equation (1) as a mask for dense attention, bool [heads, length]."""
    return (np.arange(length) - np.arange(heads)[:, None]) % stride == 0


@pytest.fixture(scope="module")
def make(draw_params):
    def make(config, kind, **options):
        """A decoder, and parameters that are all their own."""
        decoder, variables = draw(config.replace(cross_attention=kind, **CROSS | options))
        return decoder, jax.tree.map(lambda array: array, variables)

    @functools.cache
    def draw(config):
        decoder = Decoder(config.decoder_stack)
        return decoder, draw_params(decoder.init, X, STATES, MASK)

    return make


@functools.partial(jax.jit, static_argnums=(0, 1))
def begin(decoder, limit, variables, states, mask):
    """What is read of the source, and the cache; ``limit`` is read by the decoder and only named
    here, so that one is not taken for another."""
    source = decoder.apply(variables, states, mask, method="read_source")
    return source, decoder.apply(variables, source, BEAMS, T, method="init_cache")


@functools.partial(jax.jit, static_argnums=0)
def step(decoder, variables, x, cache, source):
    return decoder.apply(variables, x, cache, source, method="step")


def steps(decoder, variables, states=STATES, mask=MASK):
    """What is read of the source, and outputs [B, T, D] of one beam when X is given token by
    token."""
    limit = decoder_cache.MAX_CROSS_CACHE_BYTES
    source, cache = begin(decoder, limit, variables, states, mask)
    out = []
    for t in range(T):
        y, cache = step(decoder, variables, np.repeat(X[:, t : t + 1], BEAMS, 1), cache, source)
        out.append(np.asarray(y)[:, -1])
    return source, np.stack(out, 1)


@pytest.mark.slow
@PAIRS
def test_steps_equal_all_at_once_and_padding_is_not_read(make, config, kind):
    decoder, variables = make(config, kind)
    apply = jax.jit(decoder.apply)
    expected = apply(variables, X, STATES, MASK)
    noise = np.where(MASK[..., None], STATES, np.float32(50))
    np.testing.assert_allclose(apply(variables, X, noise, MASK), expected, atol=1e-5)
    _, result = steps(decoder, variables, noise)
    np.testing.assert_allclose(result, expected, atol=2e-5)


@pytest.mark.slow
@PAIRS
def test_decoding_from_the_states_equals_decoding_from_keys_and_values(
    make, config, kind, monkeypatch
):
    decoder, variables = make(config, kind)
    mask = MASK & (np.arange(L) < np.array([L, 1])[:, None])  # some heads read padding alone
    _, expected = steps(decoder, variables, mask=mask)
    monkeypatch.setattr(decoder_cache, "MAX_CROSS_CACHE_BYTES", 0)
    source, result = steps(decoder, variables, mask=mask)
    assert all(layer.cross_kv is None for layer in source.layers)
    assert source.states.shape == STATES.shape
    np.testing.assert_allclose(result, expected, atol=2e-5)


def test_accelerators_store_more_keys_if_steps_would_be_slower_without(monkeypatch):
    monkeypatch.setattr(decoder_cache, "target_memory", lambda: 80 * 2**30)
    with jax.default_device("gpu"):
        assert decoder_cache.max_cross_cache_bytes() == 10 * 2**30
        assert decoder_cache.max_cross_cache_bytes(is_slower=True) == 20 * 2**30
    for is_slower in (True, False):
        assert decoder_cache.max_cross_cache_bytes(is_slower) == 2**31


@pytest.mark.parametrize(("kind", "keys"), [("full", 18), ("hepos", 5), ("linformer", 5)])
@pytest.mark.parametrize("beams", [1, 4])
def test_the_cache_holds_what_heads_read_and_the_limit_counts_that(
    make, kind, keys, beams, monkeypatch
):
    stack = T5.replace(cross_attention=kind, **CROSS).decoder_stack
    decoder, variables = make(T5, kind)
    shapes = lambda: jax.eval_shape(  # noqa: E731
        lambda v: decoder.apply(v, STATES, MASK, method="read_source"), variables
    )
    source = shapes()
    cache = jax.eval_shape(
        lambda v, source: decoder.apply(v, source, beams, T, method="init_cache"), variables, source
    )
    assert len(source.layers) == len(cache.layers) == 2
    for layer, self_kv in zip(source.layers, cache.layers, strict=True):
        assert (layer.cross_kv.k.shape, layer.cross_kv.v.shape) == ((B, H, K, keys),) * 2
        assert (self_kv.k.shape, self_kv.v.shape) == ((B, H, K, beams * T),) * 2
    assert get_cross_attention(stack.cross_attention).num_keys(stack, L) == keys
    size = 2 * source.layers[0].cross_kv.k.size * 2 * 4
    monkeypatch.setattr(decoder_cache, "MAX_CROSS_CACHE_BYTES", size)
    assert shapes().layers[0].cross_kv is not None
    monkeypatch.setattr(decoder_cache, "MAX_CROSS_CACHE_BYTES", size - 1)
    assert shapes().layers[0].cross_kv is None
    # A quarter of an accelerator's memory is for keys that are smaller than the states.
    monkeypatch.setattr(decoder_cache, "target_memory", lambda: 4 * size)
    with jax.default_device("gpu"):
        assert (shapes().layers[0].cross_kv is not None) == (keys < L)


@pytest.mark.slow
@CONFIGS
def test_hepos_decoders_equal_a_dense_mask_with_the_same_parameters(make, config, monkeypatch):
    """Values and gradients of all parameters and of the encoder states."""

    class Dense(CrossAttention):
        @classmethod
        def prepare(cls, stack, states, mask):
            return states, mask[:, None, None] & hepos_mask(H, L, 4)[None, :, None]

    monkeypatch.setitem(CROSS_ATTENTIONS, "dense", Dense)
    (hepos, variables), (twin, others) = make(config, "hepos"), make(config, "dense")
    assert jax.tree.structure(variables) == jax.tree.structure(others)

    def run(decoder):
        loss = lambda v, states: jnp.sin(decoder.apply(v, X, states, MASK)).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(variables, STATES)

    for result, expected in zip(
        *map(jax.tree.leaves, (run(hepos), run(twin))), strict=True
    ):  # two layers of rounding
        np.testing.assert_allclose(
            result, expected, rtol=0, atol=5e-6 * max(1.0, float(np.abs(expected).max()))
        )


def test_the_full_model_has_the_parameters_of_hepos(make):
    _, full = make(BART, "full")
    _, hepos = make(BART, "hepos")
    jax.tree.map(np.testing.assert_array_equal, full, hepos)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [("hepos", {"hepos_stride": 1}), ("linformer", {})])
def test_reading_everything_is_full_attention(make, kind, options):
    full, variables = make(T5, "full")
    other, own = make(T5, kind, **options | {"cross_linformer_size": 20})
    if kind == "linformer":
        identity = np.eye(20, dtype=np.float32)
        own["params"]["layers"]["cross_attention"]["length_projection"] = np.stack([identity] * 2)
    flat = variables
    projection = own["params"]["layers"]["cross_attention"]
    extra = {name: value for name, value in projection.items() if name == "length_projection"}
    flat["params"]["layers"]["cross_attention"] |= extra
    # Compressed rows cannot be masked, so this holds where a key of zeros adds as much as it takes:
    # 20 real tokens.
    states, mask = normal(5, B, 20, D), np.ones((B, 20), bool)
    expected = jax.jit(full.apply)(variables, X, states, mask)
    result = jax.jit(other.apply)(flat, X, states, mask)
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["full", "hepos"])
def test_scores_in_pieces_are_those_of_one_array_gradients_included(draw_params, kind, monkeypatch):
    stack = BART.replace(cross_attention=kind, **CROSS).decoder_stack
    attention_class = get_cross_attention(stack.cross_attention)
    attention = attention_class.from_stack(stack)
    x, states = normal(0, B, 40, D), normal(1, B, 600, D)
    tokens = np.arange(600) < np.array([600, 333])[:, None]

    def attend(module, x, states):
        states, mask = attention_class.prepare(stack, states, tokens)
        return module.attend(x, *module.project_kv(states), mask=mask)

    variables = draw_params(lambda key: attention.init(key, x, states, method=attend))
    num_keys = attention_class.num_keys(stack, 600)

    def loss(variables, x, states):
        y = attention.apply(variables, x, states, method=attend)
        return (y**3).sum(), y

    score_bytes = 4 * B * H * 40 * num_keys
    result, held = [], []
    # All scores, those of a head, those of a few queries.
    for limit in (score_bytes, score_bytes // (B * H), 2**14):
        monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", limit)
        gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2), has_aux=True))
        program = gradient.lower(variables, x, states).compile()
        result.append(program(variables, x, states))
        held.append(program.memory_analysis().temp_size_in_bytes)
    for other in result[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-5), result[0], other)
    assert max(held[1:]) < held[0] - score_bytes


def test_sources_are_moved_for_cudnn_once_with_the_same_gradients(make, monkeypatch):
    decoder, variables = make(BART, "full")
    mask = MASK & (np.arange(L) % 3 > 0)

    def loss(variables, states):
        y = decoder.apply(variables, X, states, mask, deterministic=False)
        return (y**3).sum(), y

    def run():
        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(variables, STATES)

    expected = run()
    kernel, counts = jax.nn.dot_product_attention, []

    def on_cpu(*arrays, implementation, key_value_seq_lengths, **options):
        counts.append(key_value_seq_lengths)
        options["key_value_seq_lengths"] = key_value_seq_lengths
        return kernel(*arrays, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", on_cpu)
    monkeypatch.setattr(cross, "choose_kernel", lambda *_, **__: KernelChoice("cudnn"))
    result = run()
    assert counts
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-5), result, expected
    )


@pytest.mark.parametrize(
    ("kind", "options", "is_moved"),
    [
        ("full", {}, True),
        ("full", {"attention_dropout_rate": 0.1}, False),
        ("full", {"attention_backend": "reference"}, False),
        ("full", {"merged_attention": True}, False),
        ("hepos", {}, False),
    ],
)
def test_sources_are_moved_if_layers_use_cudnn(kind, options, is_moved):
    stack = BART.replace(cross_attention=kind, **CROSS, dtype="bfloat16").decoder_stack
    stack = dataclasses.replace(stack, d_kv=8, **options)
    attention = get_cross_attention(kind)
    states, tokens = normal(0, B, 131, D), np.arange(131) < np.array([[131], [60]])
    prepared = attention.prepare(stack, states, tokens)
    with use_abstract_mesh(GPU):
        moved, mask = attention.arrange(stack, *prepared, 64)
    assert isinstance(mask, KeyCounts) == is_moved
    assert moved.shape[1] == 131 + is_moved


@pytest.mark.slow
def test_one_softmax_in_pieces_is_that_of_one_array(draw_params, monkeypatch):
    """Of source and target, gradients included."""
    stack = MERGED.decoder_stack
    attention = get_cross_attention(stack.cross_attention).from_stack(stack)
    x, states = normal(0, B, 40, D), normal(1, B, 200, D)
    mask = (np.arange(200) < np.array([200, 133])[:, None])[:, None, None]

    def attend(module, x, states):
        own = KeySet(*module.project_kv(x), causal_mask(40))
        return module.attend_with(x, *module.project_kv(states), [own], mask=mask)

    variables = draw_params(lambda key: attention.init(key, x, states, method=attend))

    def loss(*arguments):
        return jnp.sin(attention.apply(*arguments, method=attend)).sum()

    result = []
    for limit in (2**28, 2**12):
        monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", limit)
        gradient = jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2)))
        program = gradient.lower(variables, x, states).compile()
        result.append(jax.tree.leaves(program(variables, x, states)))
    for one, other in zip(*result, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5 * max(1.0, float(np.abs(one).max())))


@pytest.mark.slow
def test_a_text_of_padding_alone_gives_finite_states(make):
    for kind in CROSS_ATTENTIONS:
        decoder, variables = make(BART, kind)
        nothing = jax.jit(decoder.apply)(variables, X, STATES, np.zeros_like(MASK))
        assert np.isfinite(nothing).all()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"cross_attention": "heposs"},
            'cross_attention "heposs" is unknown; did you mean "hepos"? known: full, hepo',
        ),
        (
            {"cross_attention": "hepos", "hepos_stride": 0},
            "hepos_stride=0 must be at least 1",
        ),
        (
            {"cross_attention": "hepos", "hepos_stride": 7},
            "hepos_stride is 7, but the decoder has 6 heads, so that n",
        ),
        (
            {"cross_attention": "linformer", "cross_linformer_size": 0},
            "cross_linformer_size=0 must be at least",
        ),
    ],
)
def test_options_out_of_range(options, problem):
    for config in (T5, BART):
        with pytest.raises(InputError) as caught:
            config.replace(**options)
        assert str(caught.value).startswith(problem)


def test_sources_that_do_not_fit(make):
    decoder, variables = make(T5, "hepos")
    with pytest.raises(
        InputError, match="hepos_stride is 4, but the source has 3 tokens, so that some heads would"
    ):
        jax.eval_shape(decoder.apply, variables, X, STATES[:, :3], MASK[:, :3])
    decoder, variables = make(T5, "linformer", cross_linformer_max_length=18)
    longer = np.pad(STATES, ((0, 0), (0, 1), (0, 0)))
    with pytest.raises(
        InputError, match="an input of 19 tokens is longer than the 18 tokens that the Linformer"
    ):
        jax.eval_shape(decoder.apply, variables, X, longer, np.ones((B, 19), bool))
