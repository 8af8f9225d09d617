"""What the encoder does for LSG attention beyond the attention itself."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.layers.encoder import Encoder
from longsum_jax.models.bert import BertConfig
from longsum_jax.models.t5 import T5Config
from longsum_jax.ops.attention.dense import dot_product_attention

OPTIONS = {
    "encoder_attention": "lsg",
    "block_size": 4,
    "sparse_block_size": 4,
    "num_global_tokens": 3,
}
SIZES = {"d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
B, L, D = 2, 30, 16
X = np.random.default_rng(1).normal(size=(B, L, D)).astype(np.float32)
MASK = np.arange(L) < np.array([L, 21])[:, None]


@pytest.fixture(scope="module")
def make(draw_params):
    """A T5 encoder with LSG attention, and parameters."""

    @functools.cache
    def make(**options):
        encoder = Encoder(T5Config.of(**SIZES | OPTIONS | options).encoder_stack)
        return encoder, draw_params(encoder.init, X[:, :4], MASK[:, :4])

    return make


@pytest.fixture(scope="module")
def states(make):
    """States of the encoder with these options, which is compiled once."""

    @functools.cache
    def compiled(**options):
        encoder, _ = make(**options)
        return jax.jit(encoder.apply)

    def states(options, variables=None, x=X, mask=MASK, **inputs):
        variables = variables or make(**options)[1]
        return np.asarray(compiled(**options)(variables, x, mask, **inputs))

    return states


@pytest.mark.slow
def test_globals_come_first_or_stay_behind(states):
    """Passed on they stand in front of the same states; else the first may stand in for the first
    token."""
    with_globals = states({})
    plain = states({"pass_global_tokens_to_decoder": False, "pool_with_global": False})
    pooled = states({"pass_global_tokens_to_decoder": False})
    assert with_globals.shape == (B, 3 + L, D)
    np.testing.assert_allclose(plain, with_globals[:, 3:], atol=1e-6)
    np.testing.assert_allclose(pooled[:, 1:], plain[:, 1:], atol=1e-6)
    np.testing.assert_allclose(pooled[:, 0], with_globals[:, 0], atol=1e-6)


@pytest.mark.slow
def test_a_hidden_first_token_is_seen_by_nobody(states):
    options = {"mask_first_token": True}
    changed = states(options, x=X + np.float32(np.arange(L) == 0)[:, None])
    result = states(options)
    np.testing.assert_allclose(
        np.delete(changed, 3, 1)[:, : 3 + 20], np.delete(result, 3, 1)[:, : 3 + 20], atol=1e-6
    )
    # and its state is that of the first global token
    pooled = states(options | {"pass_global_tokens_to_decoder": False, "pool_with_global": False})
    np.testing.assert_allclose(pooled[:, 0], result[:, 0], atol=1e-6)


@pytest.mark.slow
def test_a_memory_stores_the_text_alone(make):
    """Neither global tokens nor what the published code fills the last block with."""
    memory = {"memory": "attentive", "memory_size": 4, "num_layers": 1}
    encoder, variables = make(reference_quirks=True, **memory)

    @jax.jit
    def stored(x, mask):
        empty = encoder.apply(variables, *mask.shape, 1, method="empty_memory")
        _, (state,) = encoder.apply(variables, x, mask, empty, method="with_memory")
        return state.hidden[..., :L, :]

    filled = np.pad(X, ((0, 0), (0, -L % 4), (0, 0))), np.pad(MASK, ((0, 0), (0, -L % 4)))
    np.testing.assert_allclose(stored(X, MASK), stored(*filled), atol=1e-5)


@pytest.mark.slow
def test_more_global_tokens_are_further_rows_of_one_table(make, states):
    """512 rows, whatever the number in use; the rows beyond it change nothing."""
    _, variables = make()
    table = variables["params"]["attention"]["global_embeddings"]
    assert table.shape == (512, D)
    other = jax.tree.map(lambda x: x, variables)
    other["params"]["attention"]["global_embeddings"] = table.at[3:].add(1.0)
    np.testing.assert_array_equal(states({}, variables), states({}, other))
    assert (
        np.abs(
            states({"num_global_tokens": 4}, variables)[:, 4:] - states({}, variables)[:, 3:]
        ).max()
        > 1e-3
    )


@pytest.mark.slow
def test_globals_go_through_the_norm_and_the_dropout_of_the_embeddings(draw_params):
    config = BertConfig.of(
        hidden_size=D,
        num_hidden_layers=1,
        num_attention_heads=4,
        intermediate_size=24,
        hidden_dropout_prob=0.5,
        **OPTIONS,
    )
    encoder = Encoder(config.encoder_stack)

    class WithNorm(nn.Module):
        def setup(self):
            self.norm, self.encoder = nn.LayerNorm(), encoder.clone(parent=None)

        def __call__(self, x, deterministic=True):
            return self.encoder(x, MASK, deterministic, embedding_norm=self.norm)

        def tokens(self, x, deterministic):
            return self.encoder.attention.prepare(
                x, MASK, None, deterministic, embedding_norm=self.norm
            )[0][:, :3]

    module = WithNorm()
    variables = draw_params(module.init, X)
    table = variables["params"]["encoder"]["attention"]["global_embeddings"][:3]
    norm = variables["params"]["norm"]
    result = module.apply(variables, X, True, method="tokens")
    expected = (table - table.mean(-1, keepdims=True)) / jnp.sqrt(
        table.var(-1, keepdims=True) + 1e-6
    )
    expected = expected * norm["scale"] + norm["bias"]
    np.testing.assert_allclose(result, jnp.broadcast_to(expected, result.shape), atol=1e-5)
    dropped = module.apply(
        variables, X, False, method="tokens", rngs={"dropout": jax.random.key(0)}
    )
    assert 0.2 < np.mean(np.asarray(dropped) == 0) < 0.8


@pytest.mark.slow
def test_t5_has_its_bias_inside_the_window_alone(make, states):
    """One layer against dense attention: blocks of 4, no sparse keys, a bias for tokens, none for
    globals."""
    options = {"num_layers": 1, "sparsity_type": "none"}
    encoder, variables = make(**options)
    p = variables["params"]
    layer = jax.tree.map(lambda x: x[0], p["layers"])
    rms = lambda x, scale: x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale  # noqa: E731
    tokens = jnp.broadcast_to(p["attention"]["global_embeddings"][:3], (B, 3, D))
    x = jnp.concatenate([tokens, X], 1)
    u = rms(x, layer["self_norm"]["scale"])
    q, k, v = (
        jnp.einsum("bld,dhk->blhk", u, layer["self_attention"][name]["kernel"]) for name in "qkv"
    )
    i = np.arange(L)
    near = np.abs(i[:, None] // 4 - i // 4) <= 1
    seen = np.ones((B, 3 + L, 3 + L), bool)
    seen[:, :, 3:] &= MASK[:, None]
    seen[:, 3:, 3:] &= near
    bias = encoder.apply(variables, i, i, method=lambda m, *x: m.relative_attention_bias(*x))
    bias = jnp.pad(bias, ((0, 0), (0, 0), (3, 0), (3, 0)))
    y = dot_product_attention(q, k, v, mask=seen[:, None], bias=bias)
    x = x + jnp.einsum("blhk,hkd->bld", y, layer["self_attention"]["o"]["kernel"])
    u = rms(x, layer["ff_norm"]["scale"])
    x = (
        x
        + jax.nn.relu(u @ layer["feed_forward"]["wi"]["kernel"])
        @ layer["feed_forward"]["wo"]["kernel"]
    )
    expected = rms(x, p["final_norm"]["scale"])
    real = np.concatenate([np.ones((B, 3), bool), MASK], 1)
    np.testing.assert_allclose(states(options, variables)[real], expected[real], atol=2e-5)


@pytest.mark.slow
def test_a_short_text_is_the_same_in_a_long_array(make, states):
    """Up to two blocks all is full attention; beyond, padding hides what does not belong. T5's bias
    included."""
    _, variables = make()
    mask = np.arange(L) < np.array([8, 5])[:, None]
    long, short = (
        states({}, variables, mask=mask),
        states({}, variables, x=X[:, :8], mask=mask[:, :8]),
    )
    for row, count in enumerate((8, 5)):
        np.testing.assert_allclose(long[row, : 3 + count], short[row, : 3 + count], atol=1e-5)


@pytest.mark.slow
def test_clusters_are_drawn_anew_in_training_alone(make, states):
    options = {"sparsity_type": "lsh", "sparsity_factor": 2}
    encoder, variables = make(**options)
    train = jax.jit(lambda key: encoder.apply(variables, X, MASK, False, rngs={"dropout": key}))
    first, other = train(jax.random.key(0)), train(jax.random.key(1))
    assert np.abs(first - other).max() > 1e-4
    np.testing.assert_array_equal(states(options, variables), states(options, variables))


@pytest.mark.slow
def test_clusters_may_be_given(make, states):
    options = {"sparsity_type": "lsh", "sparsity_factor": 2}
    _, variables = make(**options)
    keys = jax.random.split(jax.random.key(5))
    given = [
        tuple(
            jax.random.normal(key, (2, 4, 4, n))
            for key, n in zip(jax.random.split(k), (2, 1), strict=True)
        )
        for k in keys
    ]
    first, other = (states(options, variables, lsh_projections=x) for x in given)
    assert np.abs(first - other).max() > 1e-4


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"num_global_tokens": 513},
            "num_global_tokens is 513, but the table of LSG's global tokens has 512 rows",
        ),
        ({"num_global_tokens": 0}, "num_global_tokens is 0, but .*; give 1 to 512"),
        (
            {"sparsity_factor": 3},
            "sparsity_factor 3 does not divide block_size 4; the nearest that does is 2",
        ),
        ({"sparsity_type": "max"}, 'sparsity_type: "max" is not allowed'),
        ({"lsh_num_pre_rounds": -1}, "lsh_num_pre_rounds=-1 must be at least 0"),
    ],
)
def test_options_that_do_not_fit(options, problem):
    with pytest.raises(InputError, match=problem):
        T5Config.of(**OPTIONS | options)
