import numpy as np

from longsum_jax.ops.ssm.planes import Planes, add, multiply


def test_planes_are_added_and_multiplied_as_complex_numbers():
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))
    x, y, z = (Planes(number.real, number.imag) for number in (a, b, c))
    for result, expected in ((add(x), a), (add(x, y, z), a + b + c), (multiply(x, y), a * b)):
        np.testing.assert_allclose(result.real + 1j * result.imag, expected, rtol=1e-14)
