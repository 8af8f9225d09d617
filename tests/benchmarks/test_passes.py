import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="module")
def passes(scripts):
    return scripts("passes")


@pytest.fixture(scope="module")
def factors():
    rng = np.random.default_rng(0)
    return np.float32(rng.normal(size=(2, 16, 16)))


def test_three_parts_are_the_number(passes, factors):
    parts = np.float64(passes.parts(jnp.asarray(factors)))
    np.testing.assert_array_equal(parts.sum(0), factors)
    assert (parts == np.float64(jnp.asarray(parts, jnp.bfloat16))).all()


@pytest.mark.parametrize(("count", "error"), [(6, 1e-6), (3, 2e-5), (2, 4e-3), (1, 6e-3)])
def test_errors_of_passes_and_of_their_gradients(passes, factors, count, error):
    a, b = factors

    def exact(axes, a, b, precision):
        return jnp.einsum(axes, a, b, precision="highest")

    def with_gradients(product):
        y, pull_back = jax.vjp(lambda a, b: product("ij,jk->ik", a, b, None), a, b)
        return [y, *pull_back(y)]

    result, expected = with_gradients(passes.emulated(count)), with_gradients(exact)
    for x, y in zip(result, expected, strict=True):
        assert error / 50 < np.linalg.norm(x - y) / np.linalg.norm(y) < error


def test_two_passes_are_three_if_the_second_factor_is_bfloat16(passes, factors):
    a, b = factors
    b = jnp.asarray(b, jnp.bfloat16)
    two, three = (passes.emulated(count)("ij,jk->ik", a, b, None) for count in (2, 3))
    np.testing.assert_array_equal(two, three)
