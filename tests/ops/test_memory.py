"""Memories against loops that follow the equations one token at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.memory import compressive_update, gated_update, right_aligned

B, M, D, L, R = 3, 6, 4, 9, 2
RNG = np.random.default_rng(0)
KERNEL, BIAS = RNG.normal(size=(R, D, D)).astype(np.float32), RNG.normal(size=D).astype(np.float32)
update = jax.jit(compressive_update, static_argnames="overflow")


class SlowMemory:
    """One document: a list of compressed states and a list of newest ones, as the paper's text has
    it."""

    def __init__(self, overflow):
        self.compressed, self.newest, self.overflow = [], [], overflow

    def add(self, states):
        self.newest += list(states)
        old = self.newest[: max(0, len(self.newest) - M // 2)]
        self.newest = self.newest[len(old) :]
        zeros = [np.zeros(D)] * (-len(old) % R)
        old = old[: len(old) // R * R] if self.overflow == "floor" else zeros + old
        for i in range(0, len(old), R):
            self.compressed.append(sum(old[i + j] @ KERNEL[j] for j in range(R)) + BIAS)
        self.compressed = self.compressed[max(0, len(self.compressed) - M // 2) :]

    def slots(self):
        values, valid = np.zeros((M, D)), np.zeros(M, bool)
        for part, end in ((self.compressed, M // 2), (self.newest, M)):
            for i, state in enumerate(part):
                values[end - len(part) + i], valid[end - len(part) + i] = state, True
        return values, valid


@pytest.mark.parametrize("overflow", ["left_pad", "floor"])
def test_compressive_memory_equals_lists_that_grow_and_shrink(overflow):
    values, valid = jnp.zeros((B, M, D)), jnp.zeros((B, M), bool)
    slow = [SlowMemory(overflow) for _ in range(B)]
    for counts in ([9, 2, 0], [4, 1, 3], [0, 1, 9], [7, 5, 1]):
        hidden = RNG.normal(size=(B, L, D)).astype(np.float32)
        mask = np.zeros((B, L), bool)
        for row, count in enumerate(counts):
            mask[row, RNG.permutation(L)[:count]] = True  # padding may stand anywhere
            slow[row].add(hidden[row, mask[row]])
        hidden = np.where(mask[..., None], hidden, np.nan)  # and is never looked at
        values, valid = update(values, valid, hidden, mask, KERNEL, BIAS, overflow=overflow)
        for row in range(B):
            expected, there = slow[row].slots()
            np.testing.assert_array_equal(valid[row], there)
            np.testing.assert_allclose(values[row], expected, atol=1e-5)


def test_gradients_of_the_compression_are_finite_and_reach_it():
    hidden, mask = RNG.normal(size=(B, L, D)).astype(np.float32), np.ones((B, L), bool)
    mask[1:, 1:] = False

    def total(kernel, bias, hidden):
        values, _ = update(
            jnp.zeros((B, M, D)), jnp.zeros((B, M), bool), hidden, mask, kernel, bias
        )
        return (values**2).sum()

    for gradient in jax.jit(jax.grad(total, argnums=(0, 1, 2)))(KERNEL, BIAS, hidden):
        assert np.isfinite(gradient).all()
        assert np.abs(gradient).max() > 0
    kernel, _, _ = jax.grad(total, argnums=(0, 1, 2))(
        KERNEL, BIAS, np.where(mask[..., None], 0, hidden)
    )
    assert not kernel.any()  # padding has no part in it


def test_right_aligned_keeps_the_order():
    x, valid = right_aligned(
        jnp.arange(1.0, 6)[None, :, None], jnp.array([[True, False, True, False, True]])
    )
    assert x[0, :, 0].tolist() == [0, 0, 1, 3, 5]
    assert valid[0].tolist() == [False, False, True, True, True]


def test_gates_mix_old_and_new_and_leave_rows_without_news():
    memory, new, gate = (RNG.normal(size=(2, M, D)).astype(np.float32) for _ in range(3))
    result = gated_update(memory, new, gate, np.array([True, False]))
    g = 1 / (1 + np.exp(-gate[0]))
    np.testing.assert_allclose(result[0], g * np.tanh(new[0]) + (1 - g) * memory[0], atol=1e-6)
    np.testing.assert_array_equal(result[1], memory[1])
