"""Selection of the intermediate results that rematerialized layers save for their gradients."""

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Shaped

from longsum_jax.typing import AnyArray

MARK = "kept"
# A policy of ``jax.checkpoint``: saves marked values and recomputes everything
# else.
SAVE_MARKED_POLICY = jax.checkpoint_policies.save_only_these_names(MARK)


def save_for_backward(x: Shaped[AnyArray, "..."]) -> Shaped[Array, "..."]:
    """Marks ``x`` so that ``SAVE_MARKED_POLICY`` saves it; for results of matrix products."""
    return checkpoint_name(x, MARK)
