"""What gradients keep of the forward pass, and what they compute again."""

import jax
from jax.ad_checkpoint import checkpoint_name

from longsum_jax.typing import Array

KEPT = "kept"
KEEP = jax.checkpoint_policies.save_only_these_names(KEPT)  # a policy of ``jax.checkpoint``


def keep(x: Array) -> Array:
    """``x``, which a ``jax.checkpoint`` with the policy ``KEEP`` does not compute again: what took matrix products."""
    return checkpoint_name(x, KEPT)
