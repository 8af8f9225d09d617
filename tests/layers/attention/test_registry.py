"""Every encoder attention in encoders that were not made for it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.attention import full
from longsum_jax.layers.attention.options import ENCODER_OPTIONS, option_names
from longsum_jax.layers.attention.registry import ENCODER_ATTENTIONS, get_encoder_attention
from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bert import BertConfig
from longsum_jax.models.t5 import T5Config

OPTIONS = {
    "local_radius": 5,
    "global_block_size": 4,
    "attention_window": (8,),
    "block_size": 4,
    "num_global_tokens": 3,
    "num_random_blocks": 1,
    "sparse_block_size": 4,
    "pass_global_tokens_to_decoder": False,
    "d_state": 8,
    "attention_stride": 3,
    "linformer_size": 6,
    "linformer_max_length": 64,
    "lsh_num_hashes": 2,
    "lsh_num_buckets": 4,
    "lsh_chunk_length": 4,
}
T5 = T5Config(d_model=16, d_kv=4, d_ff=24, num_layers=2, num_heads=4, dropout_rate=0.2)
BERT = BertConfig(hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24)
B, L, D = 2, 42, 16
KINDS = [*sorted(ENCODER_ATTENTIONS), "adaptive_span+stride", "window+global+random"]
# Kinds whose layout follows the padded length, which must not show (but for bigbird's last block).
LAID_OUT = ("block_staggered", "longformer", "lsg", "lsh", "s4d", "transient_global")


@pytest.fixture(scope="module")
def make(draw_params):
    def make(config, kind, **options):
        """The encoder of ``config`` with another attention, and parameters."""
        config = config.replace(encoder_attention=kind, **OPTIONS | options)
        encoder, variables = draw(config)
        return encoder, jax.tree.map(lambda array: array, variables)

    @functools.cache
    def draw(config):
        encoder = Encoder(config.encoder_stack)
        return encoder, draw_params(encoder.init, jnp.zeros((1, 4, D)), jnp.ones((1, 4), bool))

    return make


def make_input(length=L, rows=(L, 30)):
    x = np.random.default_rng(1).normal(size=(B, L, D)).astype(np.float32)
    return x[:, :length], np.arange(length) < np.array(rows)[:, None]


@pytest.mark.parametrize(
    ("config", "kind"),
    # Post-norm, without relative positions: for kinds with a norm or tokens of their own, and for
    # one without.
    [
        *((T5, kind) for kind in KINDS),
        *((BERT, kind) for kind in ("block_staggered", "lsg", "longformer", "s4d")),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_states_are_finite_and_do_not_depend_on_other_rows_or_padding(make, config, kind):
    encoder, variables = make(config, kind)
    apply = jax.jit(encoder.apply)
    x, mask = make_input()
    states = np.asarray(apply(variables, x, mask))
    assert states.shape == (B, L, D)
    assert np.isfinite(states).all()
    noise = np.where(mask[..., None], x, np.float32(7))
    result = np.asarray(apply(variables, noise, mask))
    np.testing.assert_allclose(result[mask], states[mask], atol=2e-5)
    if kind in LAID_OUT and config is T5:
        x, mask = make_input(30, rows=(1, 30))
        result = np.asarray(apply(variables, x, mask))
        np.testing.assert_allclose(result[1], states[1, :30], atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_reaches_every_parameter(make, kind):
    """Gradients with dropout on: finite, and none of the parameters is left out."""
    # One layer, unless the second one attends otherwise than the first.
    encoder, variables = make(T5, kind, num_layers=2 if kind == "block_staggered" else 1)
    x, mask = make_input()

    @jax.jit
    def gradient(variables, key):
        def loss(v):
            states = encoder.apply(v, x, mask, False, rngs={"dropout": key})
            return jnp.sin(states[mask]).sum()

        return jax.grad(loss)(variables)

    first, second = (gradient(variables, jax.random.key(seed)) for seed in (0, 1))
    for path, leaf in jax.tree_util.tree_leaves_with_path(first):
        assert np.isfinite(np.asarray(leaf)).all(), path
        assert np.abs(np.asarray(leaf)).max() > 0, path
    differences = jax.tree.map(lambda a, b: float(np.abs(np.asarray(a) - b).max()), first, second)
    assert max(jax.tree.leaves(differences)) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options", "inputs"),
    [
        ("local", {"local_radius": 50}, {}),
        ("window+stride", {"attention_window": (90,)}, {}),
        ("longformer", {"attention_window": (90, 100)}, {"global_indices": np.full((B, 1), -1)}),
        ("bigbird", {"num_random_blocks": 3}, {}),
    ],
)
def test_windows_as_wide_as_the_text_are_full_attention(make, kind, options, inputs):
    full, variables = make(T5, "full")
    sparse, own = make(T5, kind, **options)
    if kind == "longformer":  # has further projections, which nothing uses without global tokens
        own["params"]["layers"]["self_attention"] |= variables["params"]["layers"]["self_attention"]
        variables["params"]["layers"]["self_attention"] = own["params"]["layers"]["self_attention"]
    x, mask = make_input()
    expected = np.asarray(jax.jit(full.apply)(variables, x, mask))
    result = np.asarray(jax.jit(sparse.apply)(variables, x, mask, **inputs))
    np.testing.assert_allclose(result[mask], expected[mask], atol=1e-5)


def test_long_inputs_of_full_attention_go_in_pieces(make, monkeypatch):
    encoder, variables = make(T5, "full")
    x, mask = make_input()
    expected = np.asarray(jax.jit(encoder.apply)(variables, x, mask))
    monkeypatch.setattr(full, "max_score_bytes", lambda: 0)
    result = np.asarray(jax.jit(encoder.apply)(variables, x, mask))
    np.testing.assert_allclose(result[mask], expected[mask], atol=1e-5)


def test_vectors_of_other_segments_are_read_in_pieces(make, monkeypatch):
    encoder, variables = make(T5, "full", salient_vectors=3)
    x, mask = make_input()
    vectors = np.random.default_rng(2).normal(size=(B, 3, D)).astype(np.float32)
    salient = vectors, np.array([[True] * 3, [True, False, False]])

    def states():
        read = functools.partial(encoder.apply, method="with_memory")
        memory = encoder.empty_memory(B, L)
        return np.asarray(jax.jit(read)(variables, x, mask, memory, salient=salient)[0])[mask]

    expected = states()
    monkeypatch.setattr(full, "max_score_bytes", lambda: 0)
    np.testing.assert_allclose(states(), expected, atol=1e-5)


def test_every_option_is_read_by_a_kind():
    names = set()
    for options in ENCODER_OPTIONS:
        names |= set(option_names(options))
    read = set()
    for name, attention in ENCODER_ATTENTIONS.items():
        read |= attention.read_options(name, {}, "").flat().keys()
    assert read == names | {"adaptive"}


def test_unknown_kinds_are_named_with_a_guess():
    with pytest.raises(
        InputError, match='encoder_attention "longformers" is unknown; did you mean "longformer"'
    ):
        get_encoder_attention("longformers")
