"""Inputs and labels of masked language models."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from longsum_jax.typing import IGNORED_LABEL, AnyArray


def mask_tokens(
    rng: PRNGKeyArray,
    ids: Int[AnyArray, "*batch length"],
    candidates: Bool[AnyArray, "*batch length"],
    *,
    mask_id: int,
    replacements: Int[AnyArray, " num_replacements"],
    probability: float = 0.15,
    masked: float = 0.8,
    random: float = 0.1,
) -> tuple[Int[Array, "*batch length"], Int[Array, "*batch length"]]:
    """Selects random tokens and replaces most of them (Devlin et al. 2019, section 3.1).

    Each call draws a new mask from its key, as RoBERTa does.

    Args:
        rng: PRNG key; equal keys and shapes give equal masks.
        ids: token ids of the texts.
        candidates: True on tokens that may be selected.
        mask_id: id of the mask token.
        replacements: ids from which random tokens are drawn.
        probability: probability of each candidate to be selected, independently
            of the others.
        masked, random: fractions of the selected tokens that become ``mask_id``
            or a random token; the others are unchanged.

    Returns:
        (inputs, labels): labels are the ids of the selected tokens,
        IGNORED_LABEL elsewhere.
    """
    selection_key, action_key, random_key = jax.random.split(rng, 3)
    is_selected = candidates & (
        jax.random.uniform(selection_key, ids.shape) < probability
    )
    action = jax.random.uniform(action_key, ids.shape)
    indices = jax.random.randint(random_key, ids.shape, 0, len(replacements))
    drawn = replacements[indices].astype(ids.dtype)
    is_masked = action < masked
    inputs = jnp.where(action < masked + random, drawn, ids)
    inputs = jnp.where(is_masked, mask_id, inputs)
    return jnp.where(is_selected, inputs, ids), jnp.where(
        is_selected, ids, IGNORED_LABEL
    )
