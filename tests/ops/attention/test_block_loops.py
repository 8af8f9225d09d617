import jax
import jax.numpy as jnp
import numpy as np
import pytest
from two_sets import B, C, H, N, attend, compiled, tensors, value_and_gradients

from longsum_jax.ops.attention import blockwise
from longsum_jax.ops.attention.blockwise import attend_key_sets
from longsum_jax.ops.attention.key_sets import KeySet, WeightDropout


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_pieces_change_neither_values_nor_gradients(whole, pieces, monkeypatch):
    score_bytes = 4 * B * N * H * C * 9
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: False)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", -(-score_bytes // pieces))
    program = str(jax.make_jaxpr(lambda *x: attend(*x))(*tensors()))
    assert f"length={pieces}" in program
    for value, expected in zip(value_and_gradients(tensors()), whole, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
def test_head_by_head_is_the_same(whole, monkeypatch):
    """What CPUs do with long inputs."""
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 1)
    for value, expected in zip(value_and_gradients(tensors()), whole, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=2e-6)
    q, *rest = tensors()
    one = [q[:1], *(x[:1] for x in rest[:4])]
    sets = [KeySet(one[1], one[2]), KeySet(one[3], one[4])]
    alone = compiled(attend_key_sets, one[0], sets)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 2**28)
    expected = compiled(attend_key_sets, one[0], sets)
    np.testing.assert_allclose(alone, expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("on_cpu", [True, False])
def test_dropout_of_pieces(on_cpu, monkeypatch):
    """Entries are dropped at the rate, the rest is scaled up, and no two pieces or heads are
    dropped alike."""
    monkeypatch.setattr(blockwise, "_on_cpu", lambda: on_cpu)
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", 1)
    q, k = np.zeros((2, 8, 16, 2, 4), np.float32), np.zeros((2, 64, 2, 4), np.float32)
    dropout = WeightDropout(jax.random.key(0), 0.25)
    out = np.asarray(compiled(attend_key_sets, q, [KeySet(k, np.ones_like(k))], dropout=dropout))
    assert abs(out.mean() - 1) < 0.02
    rows = out[..., 0].transpose(0, 1, 3, 2).reshape(-1, 16)
    assert len(np.unique(rows, axis=0)) == len(rows)


def test_pieces_are_not_saved_for_the_gradients(monkeypatch):
    q, k = jnp.zeros((1, 64, 16, 2, 4)), jnp.zeros((1, 256, 2, 4))
    score_bytes = 4 * q.size // 4 * 256

    def memory():
        def loss(q, k):
            return (attend_key_sets(q, [KeySet(k, k)]) ** 2).sum()

        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(q, k).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert memory() > score_bytes
    monkeypatch.setattr(blockwise, "MAX_SCORE_BYTES", score_bytes // 16)
    assert memory() < score_bytes / 2
