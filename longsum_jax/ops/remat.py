"""Choice of the intermediate results that rematerialised layers keep for their gradients."""

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Shaped

from longsum_jax.typing import AnyArray

MARK = "kept"
# A policy of ``jax.checkpoint``: keeps what is marked and computes everything else again.
SAVE_MARKED_POLICY = jax.checkpoint_policies.save_only_these_names(MARK)


def save_for_backward(x: Shaped[AnyArray, "..."]) -> Shaped[Array, "..."]:
    """Marks ``x`` so that ``SAVE_MARKED_POLICY`` keeps it; for results of matrix products."""
    return checkpoint_name(x, MARK)
