"""Documents that go through a step segment by segment, on a loss small enough to be written out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from longsum_jax.training.gradients import gradient_fn
from longsum_jax.training.loss import LossOutput, SegmentedLoss, with_frozen
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step

ROWS, S, L, D = 4, 5, 6, 3
PARAMS = {
    "w": jnp.asarray(np.random.default_rng(0).normal(size=(D, D)), jnp.float32),
    "m": jnp.ones(D),
}
COUNTS = np.array([3, 2, 4, 0])  # segments of each row


def batch(segments=S):
    x = np.random.default_rng(1).normal(size=(ROWS, segments, L, D)).astype(np.float32)
    there = np.arange(segments) < COUNTS[:, None]
    return {"x": np.where(there[..., None, None], x, 0), "there": there}


def segment_loss(params, batch, rng, memory):
    """The memory of a row is what its segments before add up to, turned by w each time; noise shows
    the keys."""
    y = (
        jnp.tanh(batch["x"].sum(1) @ params["w"] + memory + batch.get("offset", 0))
        * batch["there"][:, None]
    )
    memory = jnp.where(batch["there"][:, None], y + 0.1 * memory @ params["w"], memory)
    noise = jax.random.normal(rng)
    return LossOutput(
        (y**2).sum(), batch["there"].sum().astype(jnp.float32), {"noise": noise}
    ), memory


def init_memory(params, batch):
    return jnp.broadcast_to(params["m"], (batch["x"].shape[0], D))


def count_segments(batch):
    return (batch["there"].any(0) * jnp.arange(1, 1 + batch["there"].shape[1])).max()


LOSS = SegmentedLoss(segment_loss, init_memory, count_segments)


def by_hand(stop, steps=4, memory=None):
    """Loss and gradient of a loop on the host over all segments; ``stop`` is what happens to the
    memory in between."""

    def total(params):
        memory, total_loss, data = init_memory(params, batch()), 0.0, batch()
        for i in range(steps):
            out, carried = segment_loss(
                params, {k: v[:, i] for k, v in data.items()}, jax.random.key(0), memory
            )
            total_loss, memory = total_loss + out.loss_sum, stop(carried)
        return total_loss

    return jax.jit(jax.value_and_grad(total))(PARAMS)


@pytest.mark.slow
@pytest.mark.parametrize("through_memory", [False, True])
def test_gradients_are_those_of_a_loop_over_segments(through_memory):
    loss, grads = by_hand((lambda m: m) if through_memory else jax.lax.stop_gradient)
    if not through_memory:  # the first memory is a parameter, but what is carried is none
        grads["m"] = jnp.zeros(D)
    result, out = jax.jit(gradient_fn(LOSS._replace(backprop_through_memory=through_memory)))(
        PARAMS, batch(), jax.random.key(0)
    )
    assert float(out.loss_sum) == pytest.approx(float(loss), abs=1e-5)
    assert float(out.weight) == COUNTS.sum()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), result, grads)


@pytest.mark.parametrize(("trainable", "frozen"), [("w", "m"), ("m", "w")])
def test_frozen_parameters_have_no_gradients(trainable, frozen):
    """The first memory is the only use of m."""
    loss = LOSS._replace(backprop_through_memory=True)
    loss = with_frozen(loss, trainable)
    result, _ = jax.jit(gradient_fn(loss))(PARAMS, batch(), jax.random.key(0))
    assert not result[frozen].any()
    assert result[trainable].any()


def test_segments_that_no_document_has_are_not_computed():
    key = jax.random.key(7)
    gradient = jax.jit(gradient_fn(LOSS))
    short, out = gradient(PARAMS, batch(), key)
    long, more = gradient(PARAMS, batch(segments=8), key)
    drawn = sum(
        float(jax.random.normal(jax.random.fold_in(key, i))) for i in range(4)
    )  # of four segments, not 5 or 8
    assert float(out.metrics["noise"]) == pytest.approx(drawn, abs=1e-5)
    assert float(more.metrics["noise"]) == pytest.approx(drawn, abs=1e-5)
    assert float(out.loss_sum) != float(more.loss_sum)  # other numbers
    assert short["w"].shape == long["w"].shape


def test_micro_batches_of_documents_give_the_update_of_the_whole_batch():
    result = []
    for accumulation in (1, 2, 4):
        loss = LOSS._replace(
            shared=lambda params, batch: {
                "offset": params["m"] * jnp.ones((batch["x"].shape[0], 1))
            }
        )
        step = make_train_step(loss, optax.sgd(0.1), accumulation=accumulation)
        state = init_state(jax.tree.map(jnp.copy, PARAMS), optax.sgd(0.1))
        for _ in range(2):  # the second step begins with a fresh memory, like the first
            state, metrics = step(state, batch())
        result.append(
            (jax.device_get(state.params), float(metrics["loss"]), float(metrics["weight"]))
        )
    for other in result[1:]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), result[0], other)
    np.testing.assert_array_equal(result[0][0]["m"], PARAMS["m"])  # what is shared has no gradient


def test_micro_batches_need_no_further_copy_of_the_gradients():
    """Bytes that a step holds besides its arguments, in copies of the parameters."""
    params = {"w": jnp.zeros((512, 512)), "m": jnp.zeros(512)}
    rows = {"x": np.zeros((4, 2, 1, 512), np.float32), "there": np.ones((4, 2), bool)}
    loss = LOSS._replace(init_memory=lambda params, batch: jnp.zeros((len(batch["x"]), 512)))
    held = []
    for accumulation in (1, 2):
        step = make_train_step(loss, optax.sgd(0.1), accumulation=accumulation)
        state = init_state(jax.tree.map(jnp.copy, params), optax.sgd(0.1))
        program = step.lower(state, rows).compile()
        held.append(program.memory_analysis().temp_size_in_bytes / (4 * 512 * 512))
    assert held[1] < held[0] + 0.3
