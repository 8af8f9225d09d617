import numpy as np

from longsum_jax.ops.padding import append_zeros, zero_padding


def test_zeros_are_appended_to_sequences_of_any_type():
    numbers = append_zeros(np.ones((2, 3, 4), np.float32), 2)
    assert numbers.shape == (2, 5, 4)
    assert numbers[:, :3].all()
    assert not numbers[:, 3:].any()
    mask = append_zeros(np.ones((1, 2), bool), 1)
    assert mask.tolist() == [[True, True, False]]


def test_padding_becomes_zeros_even_where_it_is_nan():
    x = np.full((1, 2, 1, 1), np.nan, np.float32)
    x[0, 0] = 3
    assert zero_padding(x, np.array([[True, False]])).reshape(-1).tolist() == [3.0, 0.0]
