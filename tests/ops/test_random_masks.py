import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops import random_masks
from longsum_jax.ops.random_masks import drop_entries, head_words, keep_mask, keep_pairs

SHAPE = (64, 500)


@pytest.fixture
def for_tpu(monkeypatch):
    monkeypatch.setattr(random_masks, "target_platform", lambda: "tpu")


def test_masks_of_cpus_are_those_of_jax():
    rng = jax.random.key(3)
    expected = jax.random.bernoulli(rng, 0.7, SHAPE)
    np.testing.assert_array_equal(keep_mask(rng, 0.7, SHAPE), expected)


@pytest.mark.parametrize(
    "rng",
    [jax.random.key(3), jax.random.key(3, impl="rbg"), jax.random.PRNGKey(3)],
    ids=["threefry", "rbg", "array"],
)
def test_tpus_draw_with_their_own_generator(for_tpu, rng):
    result = np.asarray(keep_mask(rng, 0.7, SHAPE))
    assert abs(result.mean() - 0.7) < 0.02  # 8 standard deviations
    np.testing.assert_array_equal(keep_mask(rng, 0.7, SHAPE), result)
    other = np.asarray(keep_mask(jax.random.fold_in(rng, 1), 0.7, SHAPE))
    assert abs((result == other).mean() - (0.7**2 + 0.3**2)) < 0.02  # as of independent masks
    text = str(jax.make_jaxpr(lambda rng: keep_mask(rng, 0.7, SHAPE))(rng))
    assert re.search(r"key<rbg>|impl=rbg|rng_bit_generator", text)
    assert "threefry2x32[" not in text


@pytest.mark.parametrize("share", [0.95, 0.9, 0.8, 0.7])
def test_dropped_bfloat16_has_the_expected_mean(share):
    """The share itself in bfloat16 would be off by up to 2 in 1,000."""
    x = jax.random.uniform(jax.random.key(1), (100_000,), jnp.bfloat16, 1, 2)
    retained = drop_entries(x, jnp.ones(x.shape, bool), share)
    assert retained.dtype == jnp.bfloat16
    means = [np.asarray(values, np.float64).mean() for values in (x, retained)]
    assert means[1] * share == pytest.approx(means[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_each_tpu_of_a_mesh_draws_its_own_part():
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    from longsum_jax.training.loss import LossOutput
    from longsum_jax.training.mesh import MeshOptions, make_mesh
    from longsum_jax.training.state import init_state
    from longsum_jax.training.step import make_train_step
    from longsum_plan import devices

    mesh = make_mesh(MeshOptions(), devices.find_target("v5e:2x2").devices)
    optimizer = optax.chain(optax.sgd(0.1))

    def loss_fn(params, batch, rng):
        x = batch["x"]
        retained = jnp.where(keep_mask(rng, 0.9, x.shape), x / 0.9, 0)
        return LossOutput((retained @ params["w"]).sum(), jnp.float32(len(x)))

    replicated = NamedSharding(mesh, PartitionSpec())
    state = jax.eval_shape(lambda: init_state({"w": jnp.ones(256)}, optimizer))
    shardings = jax.tree.map(lambda _: replicated, state)
    state = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=replicated), state
    )
    rows = NamedSharding(mesh, PartitionSpec(("batch",)))
    batch = {"x": jax.ShapeDtypeStruct((8, 128, 256), jnp.float32, sharding=rows)}
    with jax.set_mesh(mesh):
        step = make_train_step(loss_fn, optimizer, shardings=shardings)
        text = step.lower(state, batch).compile().as_text()
    drawn = re.findall(r"= u32\[([\d,]+)\]\S* rng-bit-generator", text)
    assert drawn == ["2,128,256"]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_masks_of_pairs_are_as_independent_draws(impl):
    share, n, rows, heads = 0.9, 512, 3, 4
    indices = np.arange(n)
    words = head_words(jax.random.key(3, impl=impl), rows, heads).reshape(-1, 2)
    draw = jax.jit(lambda x: keep_pairs((x[0], x[1]), indices[:, None], indices[None], share))
    masks = np.stack([draw(x) for x in words])
    # A block of pairs has the mask of its positions.
    block = keep_pairs(tuple(words[5]), indices[64:128, None], indices[None, 256:320], share)
    np.testing.assert_array_equal(block, masks[5, 64:128, 256:320])
    # Standard scores of means, and of products of neighbors: queries, keys, and heads.
    entries = (masks - share) / np.sqrt(share * (1 - share))
    flat = entries.reshape(len(words), -1)
    scores = [flat, (entries[:, 1:] * entries[:, :-1]).reshape(len(words), -1)]
    scores += [(entries[:, :, 1:] * entries[:, :, :-1]).reshape(len(words), -1)]
    scores += [flat[1:] * flat[:-1]]
    for x in scores:
        assert np.abs(x.mean(1) * np.sqrt(x.shape[1])).max() < 4.5
    # The largest correlation of two rows, and of two columns, of half a million products.
    for x in (entries[0], entries[0].T):
        correlations = x @ x.T / np.sqrt(n)
        assert np.abs(np.triu(correlations, 1)).max() < 8


def test_the_smallest_rate_keeps_all_pairs():
    words, indices = head_words(jax.random.key(3), 1, 1)[0, 0], np.arange(8)
    assert keep_pairs(tuple(words), indices[:, None], indices[None], 1 - 1e-12).all()


def test_words_do_not_depend_on_the_number_of_rows():
    rng = jax.random.key(0)
    few, many = head_words(rng, 1, 4), head_words(rng, 3, 4)
    np.testing.assert_array_equal(few, many[:1])
    assert len(np.unique(many.reshape(-1, 2), axis=0)) == 12
