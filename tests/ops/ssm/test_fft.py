import pytest

from longsum_jax.ops.ssm.fft import smooth_length


@pytest.mark.parametrize("length", [1, 2, 3, 5, 64, 337, 4096, 4099, 65537])
def test_smooth_length_is_the_smallest_that_fits(length):
    def fits(n):
        rest = n
        for prime in (2, 3, 5, 7):
            while rest % prime == 0:
                rest //= prime
        return n % 2 == 0 and n >= 2 * length - 1 and rest == 1

    n = smooth_length(length)
    assert fits(n)
    assert not any(fits(smaller) for smaller in range(2 * length - 1, n))
