"""Selection of the intermediate results that rematerialized layers save for their gradients."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Shaped

from longsum_jax.typing import AnyArray

# What a layer computes again for its gradients: everything (True), all but the
# named results, or only cheap operations (False).
Remat = bool | Literal["attention", "projections"]

# Marks of results: of attentions and convolutions, of linear maps, and of the
# maps to the hidden states of a feed-forward, which are the widest.
MARK = "attention"
PROJECTION = "projection"
HIDDEN = "hidden"

# Policies of ``jax.checkpoint``, which save the results with these marks and
# recompute everything else.
_save_only = jax.checkpoint_policies.save_only_these_names
SAVE_MARKED_POLICY = _save_only(MARK, PROJECTION, HIDDEN)
POLICIES: Mapping[Remat, Callable[..., bool] | None] = {
    True: None,
    "attention": _save_only(MARK),
    "projections": _save_only(MARK, PROJECTION),
    False: SAVE_MARKED_POLICY,
}


def save_for_backward(
    x: Shaped[AnyArray, "..."], mark: str = MARK
) -> Shaped[Array, "..."]:
    """Marks ``x`` so that policies can save it; for results of matrix products."""
    return checkpoint_name(x, mark)
