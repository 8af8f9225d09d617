"""Inputs and labels of masked language models."""

import jax
import jax.numpy as jnp

from longsum_jax.typing import IGNORED_LABEL, Array


def mask_tokens(
    rng: Array,
    ids: Array,
    candidates: Array,
    *,
    mask_id: int,
    replacements: Array,
    probability: float = 0.15,
    masked: float = 0.8,
    random: float = 0.1,
) -> tuple[Array, Array]:
    """Chooses random tokens and replaces most of them (Devlin et al. 2019, section 3.1).

    Each call draws a new mask from its key, as RoBERTa does.

    Args:
        rng: key; equal keys and shapes give equal masks.
        ids: int [B, L].
        candidates: bool [B, L], the tokens that may be chosen.
        mask_id: stands in for a hidden token.
        replacements: int [n], the ids of which random tokens are drawn.
        probability: with which each candidate is chosen, independently of the others.
        masked, random: shares of the chosen tokens that become ``mask_id`` or a random token; the
            rest stays.

    Returns:
        (inputs int [B, L], labels int [B, L]): labels are the ids of the chosen tokens,
        IGNORED_LABEL elsewhere.
    """
    chosen_key, kind_key, random_key = jax.random.split(rng, 3)
    chosen = candidates & (jax.random.uniform(chosen_key, ids.shape) < probability)
    kind = jax.random.uniform(kind_key, ids.shape)
    drawn = replacements[jax.random.randint(random_key, ids.shape, 0, len(replacements))].astype(
        ids.dtype
    )
    inputs = jnp.where(kind < masked, mask_id, jnp.where(kind < masked + random, drawn, ids))
    return jnp.where(chosen, inputs, ids), jnp.where(chosen, ids, IGNORED_LABEL)
