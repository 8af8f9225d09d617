import jax
import jax.numpy as jnp
import optax

from longsum_jax.analysis.device_memory import step_bytes
from longsum_jax.training.loss import LossOutput


def test_bytes_of_a_step_hold_parameters_batch_and_gradients():
    params = jax.eval_shape(lambda: {"w": jnp.zeros((64, 64))})

    def loss_fn(params, batch, rng):
        return LossOutput((batch["x"] @ params["w"]).sum(), jnp.float32(1))

    sizes = [
        step_bytes(
            loss_fn, optax.sgd(0.1), params, {"x": jax.ShapeDtypeStruct((n, 64), jnp.float32)}
        )
        for n in (64, 128)
    ]
    assert sizes[0] >= 2 * 64 * 64 * 4
    assert sizes[1] - sizes[0] >= 64 * 64 * 4
