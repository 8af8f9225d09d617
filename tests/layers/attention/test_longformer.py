"""Global attention of Longformer whose queries and means absorb the maps of keys and values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.layers.attention.longformer import LongformerAttention
from longsum_jax.layers.attention.options import WindowOptions
from longsum_jax.layers.dense import normal
from longsum_jax.ops.positions import Rotary

B, L, D, H, K = 2, 30, 12, 4, 8
X = np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32)
MASK = np.arange(L) < np.array([[L], [17]])
INDICES = np.array([[0, 11], [3, -1]])


def module(**options):
    window = WindowOptions(attention_window=(6,))
    maps = (normal(0.5), normal(0.5))
    return LongformerAttention(D, H, K, *maps, use_bias=True, options=window, **options)


@pytest.mark.parametrize("options", [{}, {"num_kv_heads": 2}])
def test_absorbed_maps_change_neither_values_nor_gradients(options, draw_params, monkeypatch):
    attention = module(scale=0.4, **options)
    arguments = (MASK, None, INDICES, ()), 3, True
    variables = draw_params(lambda key: attention.init(key, X, *arguments))

    def loss(variables, x):
        y = jnp.where(MASK[..., None], attention.apply(variables, x, *arguments), 0)
        return (y**3).sum(), y

    def run():
        return jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(variables, X)

    result = run()
    monkeypatch.setattr(LongformerAttention, "_absorbs_maps", lambda *_: False)
    expected = run()
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-4)
    jax.tree.map(close, result, expected)
    gradients = expected[0][0]["params"]
    assert all(np.asarray(gradients[name]["kernel"]).any() for name in ("k_global", "v_global"))


@pytest.mark.parametrize(
    ("num_globals", "deterministic", "options", "absorbs"),
    [
        (K // 2, True, {}, True),
        (K // 2 + 1, True, {}, False),
        (1, True, {"dropout_rate": 0.1}, True),
        (1, False, {"dropout_rate": 0.1}, False),
        (1, False, {}, True),
        (1, True, {"rotary": Rotary(1e4)}, False),
        (1, True, {"norm_epsilon": 1e-6}, False),
    ],
)
def test_maps_are_absorbed_if_that_is_exact_and_cheaper(
    num_globals, deterministic, options, absorbs, draw_params
):
    attention = module(**options)
    arguments = (MASK, None, INDICES, ()), 3, True
    bound = attention.bind(draw_params(lambda key: attention.init(key, X, *arguments)))
    assert bound._absorbs_maps(num_globals, deterministic) == absorbs


def test_low_rank_updates_are_not_absorbed(draw_params):
    attention = module()
    arguments = (MASK, None, INDICES, ()), 3, True
    variables = draw_params(lambda key: attention.init(key, X, *arguments))
    variables["params"]["v_global"] |= {"lora_a": np.ones((D, 1)), "lora_b": np.ones((1, H, K))}
    assert not attention.bind(variables)._absorbs_maps(1, True)
