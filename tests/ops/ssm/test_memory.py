"""Temporary memory of one base-size operation, as XLA plans it; nothing is run."""

import jax
import jax.numpy as jnp
import pytest

from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import DiagonalSSM

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized_compilation")]

GIB = 2**30


def forward_and_backward(u, ssm, D):
    y, pull_back = jax.vjp(ssm_convolution, u, ssm, D)
    return pull_back(y)


@pytest.mark.parametrize(
    ("length", "forward", "both"),
    [pytest.param(65536, 0.1, 0.6, marks=pytest.mark.weekly), (2**20, 0.8, 6.0)],
)
def test_temporary_memory_of_a_base_layer(length, forward, both):
    H, M = 768, 256
    shapes = ((1, H), (1, H, M), (1, H, M), (1, H, M, 2), (2, H, M, 2))
    u, D, *ssm = (
        jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((1, length, H), (H,), *shapes)
    )
    for fn, limit in ((ssm_convolution, forward), (forward_and_backward, both)):
        memory = jax.jit(fn).lower(u, DiagonalSSM(*ssm), D).compile().memory_analysis()
        assert 0 < memory.temp_size_in_bytes <= limit * GIB, fn
