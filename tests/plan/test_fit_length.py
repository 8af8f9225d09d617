import pytest

from longsum_jax.errors import InputError
from longsum_plan.fit_length import fit_length


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
