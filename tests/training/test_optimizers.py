from pathlib import Path

import flax.traverse_util
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.errors import InputError
from longsum_jax.training.loop import LoopOptions
from longsum_jax.training.optimizers import (
    SPIKE_DECAY,
    SPIKE_WARMUP,
    OptimizerOptions,
    make_optimizer,
    schedule,
    swap_average,
    with_average,
    without_spikes,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "locost" / "d_misc.npz"
STEPS = 20


def gradients(shapes, steps=STEPS):
    rng = np.random.default_rng(0)
    return [
        [rng.normal(size=shape) * 10.0 ** rng.integers(-6, 1) for shape in shapes]
        for _ in range(steps)
    ]


def run(optimizer, params, grads):
    """All parameter values after each step of the optax optimizer, or of options, in float32."""
    if isinstance(optimizer, OptimizerOptions):
        optimizer = make_optimizer(optimizer)
    params = [jnp.asarray(p, jnp.float32) for p in params]
    state, values = optimizer.init(params), []
    for step in grads:
        updates, state = optimizer.update(
            [jnp.asarray(g, jnp.float32) for g in step], state, params
        )
        params = optax.apply_updates(params, updates)
        values.append([np.asarray(p) for p in params])
    return values


def adam_twin(params, grads, lr, eps, decay, eps_before_correction, b1=0.9, b2=0.999):
    """Adam after its papers and transformers' source, in float64."""
    m, v = [0.0] * len(params), [0.0] * len(params)
    values = []
    for t, step in enumerate(grads, 1):
        for i, g in enumerate(step):
            m[i], v[i] = b1 * m[i] + (1 - b1) * g, b2 * v[i] + (1 - b2) * g * g
            if eps_before_correction:
                update = np.sqrt(1 - b2**t) / (1 - b1**t) * m[i] / (np.sqrt(v[i]) + eps)
            else:
                update = m[i] / (1 - b1**t) / (np.sqrt(v[i] / (1 - b2**t)) + eps)
            params[i] = params[i] - lr * (update + decay * params[i])
        values.append(list(params))
    return values


@pytest.mark.parametrize("name", ["adamw", "adamw_hf"])
def test_adam_follows_its_twin(name):
    shapes = [(3, 4), (5,)]
    params = [np.random.default_rng(1).normal(size=s) for s in shapes]
    options = OptimizerOptions(name, 0.01, eps=1e-4, weight_decay=0.1, clip_norm=None)
    result = run(options, params, gradients(shapes))
    expected = adam_twin(list(params), gradients(shapes), 0.01, 1e-4, 0.1, name == "adamw_hf")
    other = adam_twin(list(params), gradients(shapes), 0.01, 1e-4, 0.1, name != "adamw_hf")
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(np.concatenate([x.ravel() for x in a]), flat(b), atol=2e-6)
    assert np.abs(flat(result[-1]) - flat(other[-1])).max() > 1e-3


@pytest.mark.parametrize("name", ["lion", "nadamw", "sgd"])
def test_optimizers_of_optax(name):
    shapes = [(3, 4), (5,)]
    params = [np.random.default_rng(1).normal(size=s) for s in shapes]
    options = OptimizerOptions(name, 0.01, b2=0.99, weight_decay=0.1, clip_norm=None)
    result = run(options, params, gradients(shapes))
    rules = {
        "lion": lambda: optax.lion(0.01, b2=0.99, weight_decay=0.1),
        "nadamw": lambda: optax.nadamw(0.01, b2=0.99, weight_decay=0.1),
        "sgd": lambda: optax.chain(
            optax.trace(0.9), optax.add_decayed_weights(0.1), optax.scale(-0.01)
        ),
    }
    expected = run(rules[name](), params, gradients(shapes))
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(flat(a), flat(b), atol=1e-6)


def flat(arrays):
    return np.concatenate([np.ravel(x) for x in arrays])


@pytest.mark.parametrize(("size", "clipped"), [(0.5, False), (3.0, True)])
def test_clipping_is_torchs(size, clipped):
    grads = [np.full((4,), size), np.full((9,), size)]
    norm = size * np.sqrt(13)
    scale = min(1.0, 2.0 / (norm + 1e-6))
    assert (scale < 1) == clipped
    # Adam forgets the scale of a first gradient; a huge eps makes it linear in the gradient again.
    options = OptimizerOptions("adamw_hf", 1.0, eps=1e6, clip_norm=2.0)
    result = run(options, [np.zeros(4), np.zeros(9)], [grads])[0]
    expected = adam_twin(
        [np.zeros(4), np.zeros(9)], [[scale * g for g in grads]], 1.0, 1e6, 0.0, True
    )[0]
    np.testing.assert_allclose(flat(result), flat(expected), rtol=1e-4)


def test_t5_schedule_is_the_published_one():
    golden = np.load(GOLDEN)
    rate = schedule(OptimizerOptions(learning_rate=0.02, schedule="t5", warmup_steps=10_000))
    result = [float(rate(step)) for step in golden["t5_sched_steps"]]
    np.testing.assert_allclose(result, 0.02 * golden["t5_sched_factor_warmup10000"], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OptimizerOptions(learning_rate=2.0), {0: 2, 1000: 2}),
        (OptimizerOptions(learning_rate=2.0, total_steps=10), {0: 2, 9: 2, 20: 2}),
        (OptimizerOptions(learning_rate=2.0, warmup_steps=4), {0: 0, 1: 0.5, 4: 2, 99: 2}),
        (
            OptimizerOptions(learning_rate=2.0, schedule="linear", warmup_steps=4, total_steps=14),
            {0: 0, 2: 1, 4: 2, 9: 1, 14: 0, 20: 0},
        ),
        (
            OptimizerOptions(learning_rate=2.0, schedule="cosine", warmup_steps=4, total_steps=16),
            {0: 0, 2: 1, 4: 2, 7: 1 + np.sqrt(0.5), 10: 1, 13: 1 - np.sqrt(0.5), 16: 0, 20: 0},
        ),
    ],
)
def test_schedules_by_hand(options, expected):
    rate = schedule(options)
    assert {step: pytest.approx(float(rate(step)), abs=1e-6) for step in expected} == expected


def test_state_tells_the_learning_rate():
    options = OptimizerOptions(learning_rate=1.0, schedule="linear", total_steps=4)
    optimizer = make_optimizer(options)
    params = jnp.ones(3)
    state, rates = optimizer.init(params), []
    for _ in range(4):
        _, state = optimizer.update(params, state, params)
        rates.append(float(optax.tree_utils.tree_get(state, "learning_rate")))
    assert rates == [1.0, 0.75, 0.5, 0.25]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "adam"}, 'optimizer.name: "adam" is not allowed; did you mean "adamw"'),
        ({"schedule": "linaer"}, 'did you mean "linear"'),
        ({"learning_rate": 0.0}, "optimizer.learning_rate=0.0 must be above 0"),
        ({"learning_rate": -1.0}, "optimizer.learning_rate=-1.0 must be above 0"),
        ({"learning_rate": float("nan")}, "optimizer.learning_rate=nan"),
        ({"learning_rate": 1e38}, r"optimizer.learning_rate=1e\+38 .* at most 1000000"),
        ({"learning_rate": 1e999}, "optimizer.learning_rate=inf"),
        ({"warmup_steps": -1}, "optimizer.warmup_steps=-1 must be at least 0"),
        (
            {"schedule": "linear", "warmup_steps": 5, "total_steps": 5},
            "more than the 5 warm-up steps, got 5",
        ),
    ],
)
def test_bad_options_are_named(values, message):
    with pytest.raises(InputError, match=message):
        OptimizerOptions(**values)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_schedule_without_an_end_gets_that_of_its_run(name):
    options = OptimizerOptions(learning_rate=1.0, schedule=name, warmup_steps=2)
    with pytest.raises(InputError, match=f'optimizer.total_steps: schedule "{name}" needs'):
        make_optimizer(options)
    rates = [float(schedule(options.for_run(6))(step)) for step in range(7)]
    assert rates[:3] == [0.0, 0.5, 1.0]
    assert rates[3] > rates[5] > rates[6] == 0.0
    assert options.for_run(6).for_run(9).total_steps == 6
    # A run that ends within its warm-up
    assert [float(schedule(options.for_run(1))(step)) for step in range(2)] == [0.0, 0.5]


# Some of the parameters

TREE = {"encoder": {"globals": (2, 3), "kernel": (3, 3)}, "head": {"kernel": (3, 2)}}


def trees(count):
    """Trees of random arrays with the shapes of ``TREE``."""
    rng = np.random.default_rng(0)
    make = lambda shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    return [jax.tree.map(make, TREE, is_leaf=lambda x: isinstance(x, tuple)) for _ in range(count)]


def steps(options, params, gradients, trained=""):
    optimizer = make_optimizer(options, trained=trained)
    state = optimizer.init(params)
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, state


@pytest.mark.parametrize("name", ["adamw", "adafactor"])
def test_only_some_parameters_are_trained(name):
    """As if the others were not there, in clipping too; the others stay to the last bit."""
    params, *gradients = trees(4)
    options = {
        "weight_decay": 0.1,
        "clip_norm": 0.5,
        "schedule": "linear",
        "warmup_steps": 1,
        "total_steps": 5,
    }
    trained, state = steps(
        OptimizerOptions(name, 0.1, **options),
        params,
        gradients,
        r"globals$|^head",
    )
    np.testing.assert_array_equal(trained["encoder"]["kernel"], params["encoder"]["kernel"])
    without = [jax.tree.map(lambda x: x, tree) for tree in (params, *gradients)]
    for tree in without:
        del tree["encoder"]["kernel"]
    alone, state_alone = steps(OptimizerOptions(name, 0.1, **options), without[0], without[1:])
    for result, expected in (
        (trained["encoder"]["globals"], alone["encoder"]["globals"]),
        (trained["head"], alone["head"]),
        *(
            (optax.tree_utils.tree_get(s, "learning_rate"), np.float32(0.075))
            for s in (state, state_alone)
        ),
    ):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), result, expected)
    assert sum(x.size for x in jax.tree.leaves(state)) == sum(
        x.size for x in jax.tree.leaves(state_alone)
    )


def test_frozen_zeros_keep_their_signs():
    params = {"a": jnp.array([-0.0, 0.0, 1.0]), "b": jnp.ones(1)}
    trained, _ = steps(OptimizerOptions(), params, [params], "b")
    np.testing.assert_array_equal(np.signbit(trained["a"]), [True, False, False])
    assert trained["b"] != 1


def test_no_parameter_to_train():
    (params,) = trees(1)
    with pytest.raises(
        InputError,
        match='"global" matches no parameter; known: encoder/bias, encoder/kernel',
    ):
        make_optimizer(OptimizerOptions(), trained="global").init(
            {"encoder": {"kernel": params["head"]["kernel"], "bias": 1.0}}
        )
    with pytest.raises(InputError, match=r'"\(" must be one of .* or a regular'):
        LoopOptions(steps=1, train="(")


def test_spikes_of_the_gradient_are_left_out():
    """Beside a loop over the norms, and the same optimizer that never sees the spikes."""
    rng = np.random.default_rng(0)
    norms = rng.uniform(1, 2, 40)
    norms[[3, 25, 30]] = 50.0  # the first comes before there is a mean to trust
    directions = rng.normal(size=(40, 3))
    gradients = norms[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    params = {"w": jnp.ones(3)}
    options = {"learning_rate": 0.1, "clip_norm": None}
    optimizer = make_optimizer(OptimizerOptions(**options, skip_spikes=3.0))
    plain = make_optimizer(OptimizerOptions(**options))
    state, plain_state = optimizer.init(params), plain.init(params)
    update, plain_update = jax.jit(optimizer.update), jax.jit(plain.update)
    mean, spikes = 0.0, []
    for step, gradient in enumerate(gradients):
        tree = {"w": jnp.asarray(gradient, jnp.float32)}
        updates, state = update(tree, state, params)
        is_spike = step >= SPIKE_WARMUP and norms[step] > 3 * mean
        seen = 3 * mean if is_spike else norms[step]
        decay = min(SPIKE_DECAY, step / (step + 1))
        mean = decay * mean + (1 - decay) * seen
        expected = {"w": jnp.zeros(3)}
        if is_spike:
            spikes.append(step)
        else:
            expected, plain_state = plain_update(tree, plain_state, params)
        np.testing.assert_array_equal(updates["w"], expected["w"])
        assert optax.tree_utils.tree_get(state, "spikes") == len(spikes)
    assert spikes == [25, 30]
    jax.tree.map(np.testing.assert_array_equal, state.inner, plain_state)
    np.testing.assert_allclose(state.mean_norm, mean, rtol=1e-5)


def test_a_norm_at_the_limit_is_no_spike():
    optimizer = without_spikes(optax.sgd(1.0), factor=2.0)
    state = optimizer.init(jnp.ones(1))
    state = state._replace(mean_norm=jnp.float32(1.5), count=jnp.int32(SPIKE_WARMUP))
    update = jax.jit(optimizer.update)
    assert update(jnp.full(1, 3.0), state)[1].spikes == 0
    assert update(jnp.full(1, 3.1), state)[1].spikes == 1


def test_norms_that_stay_high_are_taken_in_the_end():
    optimizer = make_optimizer(OptimizerOptions(skip_spikes=2.0, clip_norm=None))
    params = {"w": jnp.ones(1)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for step in range(SPIKE_WARMUP + 200):
        size = 1.0 if step < SPIKE_WARMUP else 10.0
        _, state = update({"w": jnp.full(1, size)}, state, params)
    assert 20 < state.spikes < 150


def test_gradients_that_were_all_zero_make_no_spikes():
    """As of parameters that something else, at first zero, stands before."""
    optimizer = make_optimizer(OptimizerOptions(skip_spikes=2.0))
    params = {"w": jnp.ones(1)}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    for _ in range(SPIKE_WARMUP):
        _, state = update({"w": jnp.zeros(1)}, state, params)
    updates, state = update({"w": jnp.ones(1)}, state, params)
    assert updates["w"] < 0
    assert state.spikes == 0


def test_a_factor_that_skips_everything_is_refused():
    with pytest.raises(InputError, match="skip_spikes"):
        OptimizerOptions(skip_spikes=1.0)


def test_norms_and_biases_have_no_weight_decay():
    names = ("layers/norm/scale", "q/bias", "relative_attention_bias/embedding", "q/kernel")
    params = dict.fromkeys(names, jnp.ones((2, 2)))
    zeros = jax.tree.map(jnp.zeros_like, params)
    for decays_all, decayed in ((False, {"q/kernel"}), (True, set(names))):
        options = OptimizerOptions(weight_decay=0.1, learning_rate=1.0, decays_all=decays_all)
        tree = flax.traverse_util.unflatten_dict(params, sep="/")
        gradient = flax.traverse_util.unflatten_dict(zeros, sep="/")
        result, _ = steps(options, tree, [gradient])
        flat = flax.traverse_util.flatten_dict(result, sep="/")
        assert {name for name in names if (flat[name] != 1).any()} == decayed


def test_averages_of_parameters():
    """Beside a loop over the parameters; the frozen ones have no average."""
    params, *gradients = trees(4)
    inner = make_optimizer(OptimizerOptions(), trained="head")
    optimizer = with_average(inner, 0.75, "head")
    state, plain = optimizer.init(params), inner.init(params)
    expected, twin = params["head"]["kernel"], params
    for gradient in gradients:
        updates, state = optimizer.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        updates, plain = inner.update(gradient, plain, twin)
        twin = optax.apply_updates(twin, updates)
        expected = 0.75 * expected + 0.25 * twin["head"]["kernel"]
    jax.tree.map(np.testing.assert_array_equal, params, twin)
    assert len(jax.tree.leaves(state.average)) == 1
    averaged, swapped = swap_average(params, state)
    np.testing.assert_allclose(averaged["head"]["kernel"], expected, rtol=1e-6)
    np.testing.assert_array_equal(averaged["encoder"]["kernel"], params["encoder"]["kernel"])
    back, _ = swap_average(averaged, swapped)
    jax.tree.map(np.testing.assert_array_equal, back, params)
