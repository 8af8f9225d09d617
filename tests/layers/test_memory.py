import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.layers.attention.multi_head import MultiHeadAttention
from longsum_jax.layers.memory import AttentiveMemory, Slots
from longsum_jax.models.bart import BartConfig
from longsum_jax.ops.attention.fused import noted_choices

STACK = BartConfig.of(
    d_model=16,
    encoder_attention_heads=2,
    decoder_attention_heads=2,
    memory="attentive",
    memory_size=70,
).encoder_stack


def test_a_kernel_writes_the_same_memory_with_its_gradients(draw_params):
    """Also of a document that has ended, whose slots remain."""
    rng = np.random.default_rng(0)
    slots, hidden, gradient = (
        rng.normal(size=(3, n, 16)).astype(np.float32) for n in (70, 130, 70)
    )
    mask = np.arange(130) < np.array([[130], [37], [0]])
    old = Slots(slots, np.array([[True], [False], [True]]) & np.ones((3, 70), bool))

    def write(backend, params, hidden):
        stack = dataclasses.replace(STACK, attention_backend=backend)
        memory = AttentiveMemory(stack, MultiHeadAttention(**stack.attention_fields))
        new = memory.apply(params, old, hidden, mask, method="write")
        return jnp.sum(new.values * gradient), new

    def init(key):
        memory = AttentiveMemory(STACK, MultiHeadAttention(**STACK.attention_fields))
        return memory.init(key, old, hidden, mask, method="write")

    params = draw_params(init)
    results = []
    for backend in ("reference", "mosaic"):
        step = jax.value_and_grad(lambda *x: write(backend, *x), (0, 1), has_aux=True)  # noqa: B023
        with noted_choices() as choices:
            results.append(jax.jit(step)(params, hidden))
    (choice,) = choices.values()
    assert choice.kernel == "mosaic"
    for expected, result in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(result, expected, atol=1e-5)
