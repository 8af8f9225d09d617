import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.training.loss import LossOutput, with_frozen
from longsum_jax.training.mesh import MeshOptions, make_mesh
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import create_state, init_state, plan_state
from longsum_jax.training.step import make_train_step


def fresh(init, optimizer):
    mesh_options, rng = MeshOptions(), jax.random.key(0)
    mesh = make_mesh(mesh_options)
    abstract, _ = plan_state(init, optimizer, mesh, mesh_options.rules, rng)
    return create_state(abstract, init, optimizer, rng)


def run(toy, accumulation, batches, steps=3):
    """Parameters and metrics of every step of plain SGD."""
    optimizer = optax.chain(optax.sgd(0.5))
    init, loss_fn = toy.make_init(toy.ToyModel()), toy.make_loss(toy.ToyModel())
    state, result = fresh(init, optimizer), []
    step = make_train_step(loss_fn, optimizer, accumulation=accumulation)
    for _ in range(steps):
        state, metrics = step(state, next(batches))
        result.append((jax.device_get(state.params), jax.device_get(metrics)))
    return result


def uneven_batches(toy):
    """Batches whose weight falls very unevenly on the micro-batches."""
    batches = toy.ToyBatches(rows=8)
    batches.labels[::3, 1:] = -100
    return batches


@pytest.fixture(scope="module")
def whole(toy):
    return run(toy, 1, uneven_batches(toy))


@pytest.mark.slow
@pytest.mark.parametrize("accumulation", [2, 8])
def test_micro_batches_give_the_update_of_the_whole_batch(toy, whole, accumulation):
    for one, parts in zip(whole, run(toy, accumulation, uneven_batches(toy)), strict=True):
        for name in ("gradient_signal", "gradient_noise"):  # there is none of a whole batch
            del parts[1][name]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6, rtol=0), one, parts)


def test_noise_of_the_gradient():
    """Gradients 3 and 1 of two halves: 2 of the batch, with the variance (3 - 1)**2 / 4."""
    optimizer = optax.sgd(0.1)
    state = fresh(lambda rng: {"w": jnp.ones(1)}, optimizer)
    step = make_train_step(linear_loss, optimizer, accumulation=2)
    _, metrics = step(state, {"x": jnp.array([[3.0], [1.0]])})
    assert metrics["grad_norm"] == pytest.approx(2)
    assert (metrics["gradient_signal"], metrics["gradient_noise"]) == pytest.approx((3, 1))


def test_one_step_is_plain_gradient_descent_on_the_mean(toy):
    model, batches = toy.ToyModel(), toy.ToyBatches()
    params = fresh(toy.make_init(model), optax.sgd(0.5)).params
    batch = next(toy.ToyBatches())

    def mean_loss(params):
        rows, columns = np.nonzero(batch["labels"] >= 0)
        log_p = jax.nn.log_softmax(model.apply({"params": params}, batch["ids"]))
        return -log_p[rows, columns, batch["labels"][rows, columns]].mean()

    loss, grads = jax.jit(jax.value_and_grad(mean_loss))(params)
    expected = jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)
    result, metrics = run(toy, 1, batches, steps=1)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result, expected)
    norm = np.sqrt(sum((np.asarray(g) ** 2).sum() for g in jax.tree.leaves(grads)))
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-6)
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    norm = np.sqrt(sum((np.asarray(p) ** 2).sum() for p in jax.tree.leaves(expected)))
    assert metrics["param_norm"] == pytest.approx(norm, rel=1e-5)
    assert metrics["weight"] == (batch["labels"] >= 0).sum()


def linear_loss(params, batch, rng):
    """The mean over the rows of their dot product with w."""
    return LossOutput((params["w"] * batch["x"]).sum(), jnp.float32(batch["x"].shape[0]))


def test_batches_without_labels_are_skipped_and_not_called_bad():
    def loss(params, batch, rng):
        x, weight = batch["x"], batch["weight"]
        return LossOutput((params["w"] * x).sum() * weight, jnp.float32(weight))

    optimizer = optax.sgd(0.1)
    step = make_train_step(loss, optimizer)
    state, result = fresh(lambda rng: {"w": jnp.ones(2)}, optimizer), []
    for x, weight in ((1, 0.0), (np.nan, 1.0), (1, 0.0), (np.nan, 1.0), (1, 0.0), (1, 1.0)):
        batch = {"x": np.full((1, 2), x, np.float32), "weight": np.float32(weight)}
        state, _ = step(state, batch)
        result.append([int(state.skipped), int(state.bad_streak)])
    assert result == [[1, 0], [2, 1], [3, 1], [4, 2], [5, 2], [5, 0]]
    np.testing.assert_allclose(state.params["w"], [0.9, 0.9], atol=1e-6)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_gradients_of_frozen_parameters_count_nowhere(accumulation):
    """Neither in the norm nor where they are not finite, as of this root at 0."""

    def loss(params, batch, rng):
        out = linear_loss(params, batch, rng)
        return out._replace(loss_sum=out.loss_sum + jnp.sqrt(params["frozen"]).sum())

    optimizer = make_optimizer(OptimizerOptions(learning_rate=0.1), trained="^w$")
    state = fresh(lambda rng: {"w": jnp.ones(2), "frozen": jnp.zeros(3)}, optimizer)
    step = make_train_step(with_frozen(loss, "^w$"), optimizer, accumulation=accumulation)
    state, metrics = step(state, {"x": np.full((2, 2), 3, np.float32)})
    assert float(metrics["grad_norm"]) == pytest.approx(3 * np.sqrt(2))
    assert int(metrics["skipped"]) == 0
    np.testing.assert_array_equal(state.params["frozen"], np.zeros(3))
    np.testing.assert_allclose(state.params["w"], [0.9, 0.9], atol=1e-5)
    assert with_frozen(loss, "") is loss


@pytest.mark.parametrize("accumulation", [1, 2])
def test_gradients_of_frozen_parameters_take_no_memory(accumulation):
    def loss(params, batch, rng):
        return LossOutput((batch["x"] @ params["frozen"] @ params["w"]).sum(), jnp.float32(2))

    shapes = {"frozen": (500, 500), "w": (500,)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    batch = {"x": jax.ShapeDtypeStruct((2, 500), jnp.float32)}
    optimizer = make_optimizer(OptimizerOptions(), trained="w")
    state = jax.eval_shape(lambda: init_state(params, optimizer))
    step = make_train_step(with_frozen(loss, "w"), optimizer, accumulation=accumulation)
    memory = step.lower(state, batch).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 4 * 500 * 500 / 10


def test_updates_are_in_place():
    def loss(params, batch, rng):
        return LossOutput((batch["x"] @ params["w"]).sum(), jnp.float32(2))

    params = {"w": jax.ShapeDtypeStruct((500, 500), jnp.float32)}
    batch = {"x": jax.ShapeDtypeStruct((2, 500), jnp.float32)}
    optimizer = make_optimizer(OptimizerOptions())
    state = jax.eval_shape(lambda: init_state(params, optimizer))
    step = make_train_step(loss, optimizer)
    memory = step.lower(state, batch).compile().memory_analysis()
    # the gradients, and no second copy of parameters or moments
    assert memory.temp_size_in_bytes < 4 * 500 * 500 * 1.5


@pytest.mark.parametrize("accumulation", [1, 3])
def test_every_row_counts_once(accumulation):
    optimizer = optax.sgd(0.1)
    state = fresh(lambda rng: {"w": jnp.ones(2)}, optimizer)
    step = make_train_step(linear_loss, optimizer, accumulation=accumulation)
    w = np.ones(2)
    for seed in range(3):
        x = np.random.default_rng(seed).normal(size=(6, 2)).astype(np.float32)
        state, metrics = step(state, {"x": x})
        assert float(metrics["loss"]) == pytest.approx((w * x).sum() / 6, abs=1e-5)
        w = w - 0.1 * x.sum(0) / 6
        np.testing.assert_allclose(state.params["w"], w, atol=1e-6)


def noise_loss(params, batch, rng):
    noise = jax.random.normal(rng, batch["x"].shape)
    weight = jnp.float32(batch["x"].shape[0])
    return LossOutput((params["w"] * batch["x"]).sum(), weight, {"noise": noise.sum()})


@pytest.mark.slow
def test_randomness_is_a_function_of_seed_step_and_micro_batch():
    optimizer = optax.sgd(0.0)

    def noises(seed, accumulation=1):
        state = fresh(lambda rng: {"w": jnp.ones(1)}, optimizer)
        step = make_train_step(noise_loss, optimizer, seed=seed, accumulation=accumulation)
        result = []
        for _ in range(3):
            state, metrics = step(state, {"x": np.ones((4, 1), np.float32)})
            result.append(float(metrics["noise"]))
        return result

    def expected(seed, step, count):
        key = jax.random.fold_in(jax.random.key(seed), step)
        micro = [jax.random.fold_in(key, i) for i in range(count)]
        return sum(float(jax.random.normal(k, (4 // count, 1)).sum()) for k in micro)

    assert noises(1) == pytest.approx([expected(1, s, 1) for s in range(3)], abs=1e-6)
    assert noises(1, 2) == pytest.approx([expected(1, s, 2) for s in range(3)], abs=1e-6)
    assert noises(1) == noises(1) != noises(2)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_step_that_is_not_finite_changes_nothing_but_the_counts(bad, accumulation):
    optimizer = make_optimizer(OptimizerOptions(learning_rate=0.1))
    state = fresh(lambda rng: {"w": jnp.ones(2)}, optimizer)
    step = make_train_step(linear_loss, optimizer, accumulation=accumulation)
    good, spoilt = np.ones((2, 2), np.float32), np.array([[1, 1], [1, bad]], np.float32)
    counts, retained = [], []
    for x in (good, spoilt, spoilt, good):
        state, metrics = step(state, {"x": x})
        counts.append(
            [int(state.step), int(state.skipped), int(state.bad_streak), int(metrics["skipped"])]
        )
        retained.append(jax.device_get((state.params, state.opt_state)))
    assert counts == [[1, 0, 0, 0], [2, 1, 1, 1], [3, 2, 2, 2], [4, 2, 0, 2]]
    jax.tree.map(np.testing.assert_array_equal, retained[0], retained[1])
    jax.tree.map(np.testing.assert_array_equal, retained[0], retained[2])
    assert (retained[3][0]["w"] != retained[0][0]["w"]).all()
    assert np.isfinite(retained[3][0]["w"]).all()


@pytest.mark.parametrize("platform", ["cpu", "gpu", "tpu"])
def test_updates_need_no_second_state(platform, monkeypatch):
    """XLA copies results of branches for GPUs, and stores what it selects for CPUs."""
    optimizer = make_optimizer(OptimizerOptions())
    state = fresh(lambda rng: {"w": jnp.ones(2)}, optimizer)
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    step = make_train_step(linear_loss, optimizer)
    program = jax.make_jaxpr(step)(state, {"x": np.ones((2, 2), np.float32)})
    assert ("cond[" in str(program)) == (platform == "cpu")


def test_batch_without_weight_is_skipped(toy):
    batches = toy.ToyBatches()
    batches.labels[:] = -100
    _, metrics = run(toy, 1, batches, steps=1)[0]
    assert (metrics["weight"], metrics["skipped"]) == (0, 1)


def test_padding_is_the_share_of_positions_without_a_token(toy):
    class Masked(toy.ToyBatches):
        def __next__(self):
            mask = np.arange(20).reshape(4, 5) < 15
            return super().__next__() | {"attention_mask": mask}

    (_, metrics), *_ = run(toy, 1, Masked(rows=4), steps=1)
    assert metrics["padding"] == 0.25


def test_one_compilation_per_batch_shape():
    optimizer = make_optimizer(OptimizerOptions())
    state = fresh(lambda rng: {"w": jnp.ones(1)}, optimizer)
    step = make_train_step(noise_loss, optimizer)
    for rows, compilations in ((2, 1), (2, 1), (4, 2), (2, 2), (4, 2)):
        state, _ = step(state, {"x": np.ones((rows, 1), np.float32)})
        assert step._cache_size() == compilations


def test_loss_function_may_not_take_the_name_of_a_metric():
    def loss_fn(params, batch, rng):
        return LossOutput(params["w"].sum(), jnp.float32(1), {"grad_norm": jnp.float32(0)})

    state = fresh(lambda rng: {"w": jnp.ones(1)}, optax.sgd(0.1))
    with pytest.raises(ValueError, match="grad_norm"):
        make_train_step(loss_fn, optax.sgd(0.1))(state, {"x": np.ones((1, 1), np.float32)})
