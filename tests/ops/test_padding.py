import jax
import numpy as np

from longsum_jax.ops.padding import append_zeros, zero_padding, zero_unless


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


def test_masks_are_broadcast_and_stop_gradients():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    mask = np.array([[True], [False]])
    assert zero_unless(mask, x).tolist() == [[0, 1, 2], [0, 0, 0]]
    gradient = jax.grad(lambda x: (zero_unless(mask, x) ** 2).sum())(x)
    assert gradient.tolist() == [[0, 2, 4], [0, 0, 0]]


def test_zeros_are_not_made_by_a_function_that_loops_move_out():
    x = np.ones((2, 3), np.float32)
    [*_, made] = jax.make_jaxpr(zero_unless)(x > 0, x).eqns
    assert made.primitive.name == "select_n"
