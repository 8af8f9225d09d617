import jax
import jax.numpy as jnp
import optax
import pytest

from longsum_jax.analysis.device_memory import fit_length, step_bytes
from longsum_jax.errors import InputError
from longsum_jax.training.step import LossOutput


def test_longest_length_within_a_budget():
    asked = []

    def bytes_of(length):
        asked.append(length)
        return 1000 + 3 * length

    assert fit_length(bytes_of, 1000 + 3 * 70_000) == 68 * 1024
    assert len(asked) <= 7
    assert fit_length(bytes_of, 1000 + 3 * 1024) == 1024
    assert fit_length(bytes_of, 1000 + 3 * 1023) == 0
    assert fit_length(bytes_of, 10**9, longest=5000) == 4096
    with pytest.raises(
        InputError, match="fit_length: budget=0, multiple=1024 and longest=1048576 must be above 0"
    ):
        fit_length(bytes_of, 0)


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
