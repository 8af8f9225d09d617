"""Gradients of operations and layers against central differences, both in float64.

Operations compute in ``jnp.float32`` whatever they are given; here that name stands for float64, so
that differences have ten digits. Convolutions with state-space kernels keep the phases of float32,
and are compared with differences of their definition in NumPy.
"""

import functools
from types import SimpleNamespace

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.experimental.ops import performer
from longsum_jax.experimental.ops.linear import efficient_attention, linear_attention
from longsum_jax.experimental.ops.patterns import KeyPattern, pattern_attention
from longsum_jax.experimental.ops.performer import performer_attention
from longsum_jax.experimental.ops.sinkhorn import sinkhorn_attention, soft_permutation
from longsum_jax.layers.chunking import map_over_length
from longsum_jax.layers.dense import FeedForward, LayerNorm, RMSNorm
from longsum_jax.models import vocabulary
from longsum_jax.models.vocabulary import score_labels
from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.bigbird import bigbird_attention
from longsum_jax.ops.attention.blocks import to_blocks
from longsum_jax.ops.attention.dense import QKV, CappedScale, dot_product_attention
from longsum_jax.ops.attention.full import full_attention
from longsum_jax.ops.attention.hepos import mix_strided, project_strided, strided_key_mask
from longsum_jax.ops.attention.key_sets import KeySet, attend_jointly
from longsum_jax.ops.attention.local import (
    block_sums,
    local_attention,
    transient_blocks,
    transient_global_attention,
)
from longsum_jax.ops.attention.lsg import LsgSpec, lsg_attention
from longsum_jax.ops.losses import preference_scores, token_scores
from longsum_jax.ops.memory import compressive_update, gated_update, reconstruction_error
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import DiagonalSSM

LENGTH = 14
MASK = np.arange(LENGTH) < np.array([[LENGTH], [9], [0]])  # full, padded and empty rows
TOKENS = (3, LENGTH, 2, 4)  # [batch, length, heads, head_dim]
STATES = (3, LENGTH, 8)
FLOAT64 = np.dtype("float64")
LABELS = np.array([[3, 1, 4, -100], [0, -100, 2, 2], [-100] * 4])


@pytest.fixture
def in_float64(monkeypatch):
    """Lets operations compute in float64."""
    with jax.enable_x64(True):
        monkeypatch.setattr(jnp, "float32", jnp.float64)
        yield
    jax.clear_caches()  # programs whose float32 was float64


class OverLength(nn.Module):
    """A norm and a feed-forward in chunks of three positions, recomputed for gradients."""

    @nn.compact
    def __call__(self, x):
        def layer(module, x):
            normalized = RMSNorm(1e-6, FLOAT64, offset=1.0, parent=module, name="norm")(x)
            return FeedForward(6, use_bias=True, dtype=FLOAT64, parent=module, name="dense")(
                normalized
            )

        return map_over_length(self, layer, 3, x, recompute=True)


class Head(nn.Module):
    """Scores of labels from states, one position at a time."""

    config = SimpleNamespace(vocab_size=5)

    def setup(self):
        self.kernel = self.param("kernel", nn.initializers.ones, (8, 5))

    def __call__(self, x):
        options = {"label_smoothing": 0.1}
        return score_labels(self, lambda head, x: x @ head.kernel, x, LABELS, **options).losses


def apply(module, *shape):
    """The function of a module and its parameters, drawn, and their arrays."""
    x = np.zeros(shape)
    with jax.enable_x64(True):
        params = nn.meta.unbox(jax.eval_shape(module.init, jax.random.key(0), x))["params"]
    leaves, structure = jax.tree.flatten(params)

    def function(x, *leaves):
        return module.apply({"params": jax.tree.unflatten(structure, leaves)}, x)

    return function, shape, *(leaf.shape for leaf in leaves)


def lsg(kind, *arrays):
    projections = [np.random.default_rng(1).normal(size=(2, 4, n)) for n in (2, 1)]
    spec = LsgSpec(4, sparse_block_size=4, sparsity_factor=2, sparsity_type=kind)
    tokens, global_tokens = QKV(*arrays[:3]), QKV(*arrays[3:])
    projections = projections if kind == "lsh" else ()
    return lsg_attention(tokens, global_tokens, MASK, spec, projections=projections)


def transient_global(q, k, v, bias, side_bias):
    ids, valid = transient_blocks(MASK, 4)
    sums = [block_sums(x, MASK, 4, LENGTH // 4) for x in (k, v)]
    keys = KeySet(*sums, valid[:, None, None, None])
    options = {"radius": 3, "block_size": 4, "bias": bias, "side_bias": side_bias}
    return transient_global_attention(QKV(q, k, v), MASK, ids, keys, **options)


def hepos(states, k_kernel, v_kernel, q):
    k, v = (project_strided(states, kernel, 3) for kernel in (k_kernel, v_kernel))
    mask = strided_key_mask(MASK, 2, 3)[:, :, None]
    return dot_product_attention(q, k, v, mask=mask)


def merged(q, k, v, own_k, own_v):
    """Self-attention and cross-attention under one softmax with a soft cap, as in T5Gemma 2."""
    source = KeySet(k, v, MASK[:, None, None])
    causal = np.tril(np.ones((4, 4), bool))[None, None]
    own = KeySet(own_k, own_v, causal)
    return attend_jointly(q, [own, source], scale=CappedScale(0.5, 2.0))


def sinkhorn(q, k, v, bias):
    permutation = soft_permutation(q, k, MASK, block_size=4)
    options = {"block_size": 4, "distance_bias": bias}
    return sinkhorn_attention(q, k, v, MASK, permutation, **options)


def in_blocks(q, k, v):
    """Attention with different keys of every block."""
    keys = KeySet(to_blocks(k, 7), to_blocks(v, 7), to_blocks(MASK, 7)[:, :, None, None])
    return blockwise.attend_key_sets(to_blocks(q, 7), [keys], scale=0.5)


QKV_SHAPES = (TOKENS,) * 3
DISTANCES = (2, 2 * LENGTH - 1)
# Name -> function and the shapes of its arguments.
OPERATIONS = {
    "attention with T5's bias": (
        lambda q, k, v, bias: full_attention(q, k, v, MASK, distance_bias=bias),
        *QKV_SHAPES,
        DISTANCES,
    ),
    "attention in blocks": (in_blocks, *QKV_SHAPES),
    "window": (
        lambda q, k, v, bias: local_attention(
            q, k, v, MASK, radius=3, block_size=4, bias=bias, scale=0.5
        ),
        *QKV_SHAPES,
        (2, 4, 12),
    ),
    "adaptive span": (
        lambda q, k, v, span: pattern_attention(
            q, k, v, MASK, KeyPattern(radius=5, span=3.3 + 0.1 * span, ramp=4, num_global=2)
        ),
        *QKV_SHAPES,
        (2,),
    ),
    **{
        f"LSG, {kind}": (functools.partial(lsg, kind), *QKV_SHAPES, *[(3, 2, 2, 4)] * 3)
        for kind in ("norm", "lsh", "bos_pooling")
    },
    "transient global": (transient_global, *QKV_SHAPES, (2, 4, 12), (2, 6)),
    "BigBird": (
        lambda q, k, v: bigbird_attention(
            q, k, v, MASK, block_size=3, random_blocks=np.array([[[3], [4], [1]], [[4], [0], [0]]])
        ),
        *QKV_SHAPES,
    ),
    "Sinkhorn": (sinkhorn, *QKV_SHAPES, DISTANCES),
    "linear": (lambda *x: linear_attention(*x, MASK), *QKV_SHAPES),
    "efficient": (lambda *x: efficient_attention(*x, MASK), *QKV_SHAPES),
    "Performer": (
        lambda q, k, v, projection: performer_attention(q, k, v, MASK, projection),
        *QKV_SHAPES,
        (6, 4),
    ),
    "Hepos": (hepos, STATES, (8, 2, 4), (8, 2, 4), (3, 4, 2, 4)),
    "Hepos over states": (
        lambda q, states: mix_strided(q, states, strided_key_mask(MASK, 2, 3)[:, :, None], 3),
        (3, 4, 2, 8),
        STATES,
    ),
    "merged attention": (merged, (3, 4, 2, 4), *[(3, LENGTH, 1, 4)] * 2, *[(3, 4, 1, 4)] * 2),
    "compressive memory": (
        lambda memory, hidden, kernel, bias: compressive_update(
            memory, np.arange(6) > np.array([[1], [4], [5]]), hidden, MASK[:, 7:10], kernel, bias
        )[0],
        (3, 6, 8),
        (3, 3, 8),
        (2, 8, 8),
        (8,),
    ),
    "reconstruction": (
        lambda x, y: reconstruction_error(x, y, MASK, MASK[:, :3]),
        TOKENS,
        TOKENS,
    ),
    "gated memory": (
        lambda memory, update, gate: gated_update(memory, update, gate, MASK.any(1)),
        *[(3, 6, 8)] * 3,
    ),
    "loss": (
        lambda logits: token_scores(logits, LABELS, label_smoothing=0.1).losses,
        (3, 4, 5),
    ),
    "loss from states": apply(Head(), 3, 4, 8),
    "preferences": (lambda x, y: preference_scores(x, y, beta=0.3).losses, (3, 2), (3, 2)),
    "RMS norm": apply(RMSNorm(1e-6, FLOAT64), 3, 8),
    "layer norm": apply(LayerNorm(1e-6, FLOAT64), 3, 8),
    "feed-forward in chunks": apply(OverLength(), 2, 8, 4),
}


def relative_error(found, wanted, gradient, direction):
    return abs(found - wanted) / (np.linalg.norm(gradient) * np.linalg.norm(direction))


def check_along_directions(gradients, function, arguments, rng, tolerance):
    """Compares each gradient with a difference of ``function`` along a random direction."""
    for place, gradient in enumerate(gradients):
        direction = rng.normal(size=gradient.shape)
        moved = [list(arguments) for _ in range(2)]
        for step, x in zip((1e-5, -1e-5), moved, strict=True):
            x[place] = x[place] + step * direction
        expected = (function(*moved[0]) - function(*moved[1])) / 2e-5
        result = (np.asarray(gradient, np.float64) * direction).sum()
        error = relative_error(result, expected, gradient, direction)
        assert error < tolerance, f"argument {place}"


# Their gradients are also compared, every day, with those of a dense twin or of a definition.
WITH_TWINS = (
    *("attention with T5's bias", "attention in blocks", "window", "adaptive span", "LSG, norm"),
    *("LSG, lsh", "transient global", "BigBird", "linear", "efficient", "Performer", "Hepos"),
)


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=pytest.mark.weekly) if x in WITH_TWINS else x for x in OPERATIONS],
)
def test_operation(name, in_float64, monkeypatch):
    function, *shapes = OPERATIONS[name]
    monkeypatch.setattr(blockwise, "max_score_bytes", lambda: 1)  # as many pieces as can be
    monkeypatch.setattr(vocabulary, "MAX_LOGIT_BYTES", 1)
    # Gradients pass by the maxima of exponents, which matter through this floor alone.
    monkeypatch.setattr(performer, "FEATURE_FLOOR", 0.0)
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=shape) for shape in shapes]
    outputs = jax.tree.leaves(jax.eval_shape(function, *arguments))
    assert {x.dtype for x in outputs} == {FLOAT64}
    weights = [rng.normal(size=x.shape) for x in outputs]

    @jax.jit
    def total(*arguments):
        leaves = jax.tree.leaves(function(*arguments))
        return sum((w * x).sum() for w, x in zip(weights, leaves, strict=True))

    gradients = jax.jit(jax.grad(total, argnums=range(len(shapes))))(*arguments)
    check_along_directions(gradients, total, arguments, rng, tolerance=1e-8)


@pytest.mark.weekly  # every day, gradients are those of slow twins
@pytest.mark.parametrize("backend", ["fft", "matmul"])
@pytest.mark.parametrize("directions", [1, 2])
def test_state_space_convolution(make_ssm, kernel_float64, directions, backend):
    rng = np.random.default_rng(0)
    ssm = make_ssm(3, 4, directions)
    arguments = [rng.normal(size=(2, LENGTH, 3)), rng.normal(size=3), *ssm]
    arguments = [np.asarray(x, np.float64) for x in arguments]
    weights = rng.normal(size=(2, LENGTH, 3))
    lags = np.arange(LENGTH)[:, None] - np.arange(LENGTH)

    def total(u, skip, *parts):
        kernels = kernel_float64(DiagonalSSM(*parts), LENGTH)
        matrix = np.where(lags >= 0, kernels[0][:, np.abs(lags)], 0)
        if directions == 2:
            matrix = matrix + np.where(lags <= 0, kernels[1][:, np.abs(lags)], 0)
        return (weights * (np.einsum("hji,bih->bjh", matrix, u) + skip * u)).sum()

    def computed(u, skip, *parts):
        out = ssm_convolution(u, DiagonalSSM(*parts), skip, backend=backend)
        return (weights.astype(np.float32) * out).sum()

    narrow = [x.astype(np.float32) for x in arguments]
    gradients = jax.jit(jax.grad(computed, argnums=range(len(narrow))))(*narrow)
    check_along_directions(gradients, total, arguments, rng, tolerance=1e-5)
