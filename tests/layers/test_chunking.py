"""Maps over the length in chunks."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.core import meta

from longsum_jax.layers.chunking import (
    CPU_ROWS,
    RECOMPUTED_ROWS,
    _chunk_length,
    map_over_length,
)
from longsum_jax.layers.dense import Dropout, FeedForward
from longsum_jax.models.registry import get_family
from longsum_jax.ops import device_memory
from longsum_jax.ops.random_masks import RowWords, row_words

X = np.random.default_rng(0).normal(size=(2, 11, 6)).astype(np.float32)


@functools.partial(jax.jit, static_argnums=0, static_argnames="deterministic")
def apply(module, variables, *args, **options):
    return module.apply(variables, *args, **options)


class Chunked(nn.Module):
    """A feed-forward over pieces of the length, of the input scaled by a second array."""

    chunk: int
    dropout_rate: float = 0.0
    recompute: bool = False

    def setup(self):
        self.inner = FeedForward(16, dropout_rate=self.dropout_rate)

    def __call__(self, x, scale, deterministic=True):
        fn = lambda module, x, scale: module.inner(x * scale, deterministic)  # noqa: E731
        return map_over_length(self, fn, self.chunk, x, scale, recompute=self.recompute)


@functools.partial(jax.jit, static_argnums=3)
@functools.partial(jax.value_and_grad, argnums=(0, 1), has_aux=True)
def loss_and_gradients(variables, x, scale, module):
    out = module.apply(variables, x, scale)
    return (out**2).sum(), out


@pytest.mark.parametrize(
    ("chunk", "recompute"),
    [(1, False), (4, False), (11, False), (12, False), (4, True)],
)
def test_map_over_length_equals_all_at_once(draw_params, chunk, recompute):
    scale = np.broadcast_to(np.linspace(0.5, 2, 11, dtype=np.float32)[:, None], (2, 11, 1))
    variables = draw_params(Chunked(0).init, X, scale)
    shapes = jax.eval_shape(Chunked(chunk).init, jax.random.key(0), X, scale)
    assert jax.tree.map(jnp.shape, variables) == jax.tree.map(jnp.shape, meta.unbox(shapes))

    whole, pieces = (
        loss_and_gradients(variables, X, scale, Chunked(0)),
        loss_and_gradients(variables, X, scale, Chunked(chunk, recompute=recompute)),
    )
    for x, y in zip(jax.tree.leaves(pieces), jax.tree.leaves(whole), strict=True):
        # Sums in another order round by the size of their terms.
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6 * np.abs(y).max())


class ChunkedLayer(nn.Module):
    """The feed-forward of an encoder layer: dropout inside and behind it, by positions."""

    chunk: int

    def setup(self):
        self.inner, self.outer = FeedForward(16, dropout_rate=0.3), Dropout(0.3)

    def __call__(self, x, deterministic=False):
        def fn(module, x, *words):
            words = RowWords(*words) if words else None
            y = module.inner(x, deterministic, words)
            return module.outer(y, deterministic, words)

        words = () if deterministic else row_words(self.make_rng("dropout"), x.shape[:2])
        return map_over_length(self, fn, self.chunk, x, *words)


@pytest.mark.parametrize(
    ("chunk", "keys"),
    [(1, "threefry2x32"), (4, "threefry2x32"), (11, "threefry2x32"), (4, "rbg"), (4, "unsafe_rbg")],
)
def test_dropout_by_positions_is_the_same_in_chunks_of_any_length(draw_params, chunk, keys):
    variables = draw_params(functools.partial(ChunkedLayer(0).init, deterministic=True), X)
    rngs = {"dropout": jax.random.key(1, impl=keys)}
    whole, pieces = (
        np.asarray(apply(ChunkedLayer(n), variables, X, rngs=rngs)) for n in (0, chunk)
    )
    np.testing.assert_array_equal(pieces == 0, whole == 0)
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)
    assert 0.15 < (whole == 0).mean() < 0.45
    dropped = whole == 0
    assert (dropped[0] != dropped[1]).any()
    positions = dropped.swapaxes(0, 1).reshape(11, -1)
    assert len({row.tobytes() for row in positions}) == 11  # each has draws of its own


@pytest.mark.slow
def test_dropout_differs_from_piece_to_piece(draw_params):
    ones = np.ones((1, 12, 6), np.float32)
    module = Chunked(4, dropout_rate=0.5)
    variables = draw_params(module.init, ones, ones[..., :1])

    def run(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return apply(module, variables, ones, ones[..., :1], deterministic=False, rngs=rngs)

    first, second, third = np.split(np.asarray(run(0)), 3, axis=1)
    for a, b in ((first, second), (second, third), (first, third)):
        assert not np.allclose(a, b)
    np.testing.assert_array_equal(run(0), run(0))
    assert not np.allclose(run(0), run(1))


def test_pieces_are_about_equal_and_small_on_cpus():
    sizes = [
        (0, 1, 4096),
        (16384, 8, 4096),
        (0, 1, 4160),
        (100, 1, 250),
        (300, 1, 250),
        (0, 1000, 3),
    ]
    assert [_chunk_length(*size) for size in sizes] == [512, 64, 463, 84, 250, 1]
    asked = [4096, 4096, 4160, 84, 250, 3]
    assert [_chunk_length(*size, is_trained=True) for size in sizes] == asked
    with jax.default_device("gpu"):
        assert [_chunk_length(*size) for size in sizes] == asked
        assert _chunk_length(16384, 8, 16384, recompute=True) == RECOMPUTED_ROWS // 8


def test_recomputed_pieces_are_larger_on_devices_with_more_memory(monkeypatch):
    sizes = (0, 8, 16384)
    for memory, times in ((2**33, 1), (2**34, 1), (31 * 2**30, 1), (2**35, 2), (79 * 2**30, 4)):
        monkeypatch.setattr(device_memory, "target_memory", lambda memory=memory: memory)
        with jax.default_device("gpu"):
            assert _chunk_length(*sizes, recompute=True) == times * RECOMPUTED_ROWS // 8
            assert _chunk_length(*sizes) == 16384
            single = RECOMPUTED_ROWS * max(1, times // 2)
            assert _chunk_length(0, 1, 2**17, recompute=True) == single
        assert _chunk_length(*sizes, recompute=True) == CPU_ROWS // 8


def test_chunks_in_training_are_those_that_are_asked_for():
    family = get_family("t5")
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "vocab_size": 16}
    ids = np.zeros((1, 600), np.int32)

    def num_chunks(deterministic, chunk):
        config = family.config(sizes | {"length_chunk": chunk})
        module = family.module_class(config)
        params = meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
        rngs = {"dropout": jax.random.key(0)}

        def encode(params):
            variables = {"params": params}
            options = {"deterministic": deterministic, "rngs": rngs, "method": "encode"}
            return module.apply(variables, ids, ids == 0, **options)

        text = str(jax.make_jaxpr(encode)(params))
        return max(map(int, re.findall(r"\blength=(\d+)", text)))

    assert num_chunks(True, 0) == 2
    assert num_chunks(False, 0) == 1
    assert num_chunks(False, 200) == 3


@pytest.mark.slow
def test_dropout_of_an_encoder_does_not_depend_on_its_chunks(draw_params):
    family = get_family("t5")
    sizes = {"num_layers": 1, "d_model": 8, "d_ff": 8, "d_kv": 4, "num_heads": 2, "vocab_size": 16}
    ids = np.arange(12)[None] % 16
    rngs = {"dropout": jax.random.key(0)}

    def states(chunk, deterministic):
        config = family.config(sizes | {"length_chunk": chunk, "dropout_rate": 0.5})
        options = {"deterministic": deterministic, "rngs": rngs, "method": "encode"}
        encode = functools.partial(family.module_class(config).apply, **options)
        params = draw_params(family.init_params(config))
        return jax.jit(lambda params: encode({"params": params}, ids, ids >= 0))(params)

    whole = states(0, False)
    np.testing.assert_allclose(states(5, False), whole, rtol=1e-5, atol=1e-6)
    assert not np.allclose(states(0, True), whole)
