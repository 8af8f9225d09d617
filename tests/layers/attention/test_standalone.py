"""LSG and Hepos as layers without a stack: compared with dense attention, in Linen and NNX."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh, AxisType, use_abstract_mesh

from longsum_jax.errors import InputError
from longsum_jax.layers import S4D, HeposCrossAttention, Lsg
from longsum_jax.ops.attention.dense import dot_product_attention

HEADS, SIZE, D = 4, 4, 12
# In NumPy, which needs no compiling.
X, SOURCE = (np.random.default_rng(n).normal(size=(2, n, D)).astype(np.float32) for n in (24, 11))
MASK = np.arange(24) < np.array([[24], [17]])


def dense(variables, x, source, mask):
    """Returns multi-head attention with a mask [batch, heads, targets, keys]."""
    params = variables["params"]

    def project(name, x):
        return jnp.einsum("btd,dhk->bthk", x, params[name]["kernel"]) + params[name]["bias"]

    q, k, v = project("q", x), project("k", source), project("v", source)
    y = dot_product_attention(q, k, v, mask=mask, scale=SIZE**-0.5)
    return jnp.einsum("bthk,hkd->btd", y, params["o"]["kernel"]) + params["o"]["bias"]


def window_mask(block_size, num_globals, causal=False):
    """Returns the keys of LSG attention without sparse keys: [1, 1, length, length]."""
    position = np.arange(24) - num_globals
    block = position // block_size
    mask = abs(block[:, None] - block) <= 1
    mask |= (position < 0)[:, None] | (position < 0)
    if causal:
        mask &= position <= position[:, None]
    return mask[None, None]


@pytest.mark.parametrize(("sparsity_type", "num_globals"), [("none", 0), ("none", 2), ("norm", 2)])
def test_lsg_is_dense_attention_with_a_mask(draw_params, num_globals, sparsity_type):
    # Without sparse keys the window decides; a text of two blocks is dense with any selection.
    block_size = 4 if sparsity_type == "none" else 12
    layer = Lsg(
        HEADS,
        SIZE,
        block_size=block_size,
        sparse_block_size=4,
        sparsity_type=sparsity_type,
        num_global_tokens=num_globals,
    )
    variables = draw_params(layer.init, X)
    mask = window_mask(block_size, num_globals) & MASK[:, None, None]

    def loss(apply, variables, x):
        return (jnp.where(MASK[..., None], apply(variables, x), 0) ** 2).sum()

    def ours(variables, x):
        return layer.apply(variables, x, MASK)

    def twin(variables, x):
        return dense(variables, x, x, mask)

    value_and_grad = jax.jit(jax.value_and_grad(loss, (1, 2)), static_argnums=0)
    value, gradients = value_and_grad(ours, variables, X)
    expected, expected_gradients = value_and_grad(twin, variables, X)
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4),
        gradients,
        expected_gradients,
    )


def test_training_without_dropout_needs_no_random_stream(draw_params):
    layer = Lsg(HEADS, SIZE, block_size=12)
    variables = draw_params(layer.init, X)
    apply = jax.jit(layer.apply, static_argnames="deterministic")
    training = apply(variables, X, deterministic=False)
    np.testing.assert_allclose(training, apply(variables, X), atol=1e-6)


def test_causal_lsg_reads_no_later_token(draw_params):
    layer = Lsg(HEADS, SIZE, block_size=4, sparse_block_size=4, causal=True)
    variables = draw_params(layer.init, X)
    changed = X + np.float32(np.arange(24) >= 15)[:, None]
    apply = jax.jit(layer.apply)
    before, after = (apply(variables, x) for x in (X, changed))
    np.testing.assert_allclose(before[:, :15], after[:, :15], atol=1e-6)
    assert abs(before[:, 15:] - after[:, 15:]).max() > 0.01


@pytest.mark.parametrize("stride", [1, 3])
def test_hepos_is_dense_attention_to_every_stride_th_position(draw_params, stride):
    layer = HeposCrossAttention(HEADS, SIZE, stride=stride)
    variables = draw_params(layer.init, X, SOURCE)
    source_mask = np.arange(11) < np.array([[11], [8]])
    heads, positions = np.arange(HEADS)[:, None], np.arange(11)
    mask = ((positions - heads) % stride == 0)[None, :, None] & source_mask[:, None, None]

    def ours(variables, x, source):
        return layer.apply(variables, x, source, source_mask)

    def twin(variables, x, source):
        return dense(variables, x, source, mask)

    def loss(apply, *args):
        return (apply(*args) ** 2).sum()

    value_and_grad = jax.jit(jax.value_and_grad(loss, (1, 2, 3)), static_argnums=0)
    result = value_and_grad(ours, variables, X, SOURCE)
    expected = value_and_grad(twin, variables, X, SOURCE)
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-4), result, expected
    )


@pytest.mark.parametrize(
    ("layer", "args"),
    [
        (Lsg(HEADS, SIZE, block_size=4, sparse_block_size=4), (X, MASK)),
        (HeposCrossAttention(HEADS, SIZE), (X, SOURCE)),
        (S4D(d_model=D, d_state=8), (X, MASK)),
    ],
    ids=["lsg", "hepos", "s4d"],
)
def test_layers_work_in_nnx(layer, args):
    # Compiled as a whole: the next test creates a layer step by step.
    create = nnx.jit(lambda *x: nnx.bridge.ToNNX(layer, rngs=nnx.Rngs(0)).lazy_init(*x))
    module = create(*args)
    params = nnx.to_pure_dict(nnx.state(module, nnx.Param))
    expected = jax.jit(layer.apply)({"params": params}, *args)
    value_and_grad = nnx.jit(nnx.value_and_grad(lambda module: (module(*args) ** 2).sum()))
    value, gradients = value_and_grad(module)
    np.testing.assert_allclose(value, (expected**2).sum(), rtol=1e-5)
    for gradient in jax.tree.leaves(gradients):
        assert np.isfinite(gradient).all()


def test_a_mesh_needs_no_axes_of_our_names():
    mesh = jax.make_mesh((1,), ("x",), (jax.sharding.AxisType.Auto,))
    layer = Lsg(HEADS, SIZE, block_size=4)
    with jax.set_mesh(mesh):
        module = nnx.bridge.ToNNX(layer, rngs=nnx.Rngs(0)).lazy_init(X[:, :3])
        assert module(X[:, :3]).shape == (2, 3, D)


@pytest.mark.parametrize(
    ("layer", "args", "problem"),
    [
        (Lsg(4, 4, num_global_tokens=25), (X,), "num_global_tokens is 25, but the input has 24"),
        (Lsg(4, 4, block_size=8, sparsity_factor=3), (X,), "sparsity_factor 3 does not divide"),
        (
            HeposCrossAttention(4, 4, stride=5),
            (X, SOURCE),
            "stride is 5, but the layer has 4 heads",
        ),
        (HeposCrossAttention(4, 4, stride=0), (X, SOURCE), "stride is 0, but"),
        (Lsg(4, 4, dropout_rate=1.0), (X,), "dropout_rate is 1.0; give a rate"),
        (HeposCrossAttention(4, 4, dropout_rate=-0.1), (X, SOURCE), "dropout_rate is -0.1"),
    ],
)
def test_options_out_of_range(layer, args, problem):
    with pytest.raises(InputError, match=problem):
        layer.init(jax.random.key(0), *args)


LAYERS = {
    "lsg": (Lsg(HEADS, SIZE, block_size=4, sparse_block_size=4), ()),
    "hepos": (HeposCrossAttention(HEADS, SIZE, stride=3), (SOURCE,)),
    "s4d": (S4D(d_model=D, d_state=8), ()),
}


@pytest.fixture
def annotations_are_not_checked(monkeypatch):
    """Lets arrays through that the annotations exclude, as outside of tests."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.usefixtures("annotations_are_not_checked")
@pytest.mark.parametrize("name", LAYERS)
def test_arrays_of_other_shapes_are_refused(name):
    layer, source = LAYERS[name]
    key = jax.random.key(0)
    length = len((*source, X)[0][0])
    # [d_model, d_model] once gave states of three axes
    for x in (X[None], X[0], X[0, :D]):
        with pytest.raises(InputError, match=r"has shape .*, which is not \[batch, length"):
            layer.init(key, x, *source)
    # one mask of a row once hid the sources of most heads of Hepos
    for shape in ((2, 1), (2, length + 1), (length,), (2, 1, 1, length)):
        with pytest.raises(InputError, match=f"the states have 2 rows of {length} positions"):
            layer.init(key, X, *source, np.ones(shape, bool))


def test_hepos_names_its_own_stride_for_short_sources():
    layer = HeposCrossAttention(HEADS, SIZE, stride=3)
    variables = jax.eval_shape(layer.init, jax.random.key(0), X, SOURCE)
    with pytest.raises(InputError, match=r"^stride is 3, but the source has a length of 2"):
        jax.eval_shape(layer.apply, variables, X, SOURCE[:, :2])


@pytest.mark.usefixtures("annotations_are_not_checked")
@pytest.mark.parametrize("name", LAYERS)
def test_masks_of_any_type(name):
    layer, source = LAYERS[name]
    mask = np.arange(len((*source, X)[0][0])) < np.array([[9], [7]])
    variables = layer.init(jax.random.key(0), X, *source)
    apply = jax.jit(layer.apply)
    expected = apply(variables, X, *source, mask)
    np.testing.assert_array_equal(apply(variables, X, *source, 2.0 * mask), expected)


@pytest.mark.parametrize(("length", "num_globals"), [(32, 1), (30, 0)])
def test_a_mesh_may_shard_the_text_of_lsg(length, num_globals):
    # traced only: tests/ops compares attention to sharded texts
    mesh = AbstractMesh((4,), ("x",), axis_types=(AxisType.Auto,))
    layer = Lsg(HEADS, SIZE, block_size=4, sparse_block_size=4, num_global_tokens=num_globals)
    x = np.zeros((2, length, D), np.float32)
    variables = nn.meta.unbox(jax.eval_shape(layer.init, jax.random.key(0), x))
    with use_abstract_mesh(mesh), nn.logical_axis_rules([("length", "x")]):
        assert jax.eval_shape(layer.apply, variables, x).shape == x.shape


@pytest.mark.parametrize("name", LAYERS)
def test_no_rows(name):
    layer, source = LAYERS[name]
    variables = jax.eval_shape(layer.init, jax.random.key(0), X, *source)

    def loss(variables, *args):
        return layer.apply(variables, *args).sum()

    gradients = jax.eval_shape(jax.grad(loss, 1), variables, X[:0], *(x[:0] for x in source))
    assert gradients.shape == (0, 24, D)


@pytest.mark.parametrize("name", LAYERS)
def test_types_are_promoted_explicitly(name):
    layer, source = LAYERS[name]
    with jax.numpy_dtype_promotion("strict"):
        variables = jax.eval_shape(layer.init, jax.random.key(0), X, *source)

        def loss(variables, *args):
            return layer.apply(variables, *args).sum()

        jax.eval_shape(jax.grad(loss, (0, 1)), variables, X, *source)
