"""What gradients keep of the forward pass, and what they compute again."""

import jax
from jax.ad_checkpoint import checkpoint_name

from longsum_jax.typing import Array

MARK = "kept"
SAVE_MARKED_POLICY = jax.checkpoint_policies.save_only_these_names(
    MARK
)  # a policy of ``jax.checkpoint``


def save_for_backward(x: Array) -> Array:
    """``x``, which a ``jax.checkpoint`` with the policy ``SAVE_MARKED_POLICY`` does not compute again: what took
    matrix products."""
    return checkpoint_name(x, MARK)
