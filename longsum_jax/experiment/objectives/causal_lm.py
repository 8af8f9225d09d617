"""Causal language modeling: an encoder with causal attention predicts the next token."""

import dataclasses
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from longsum_jax.data.tasks import Task
from longsum_jax.experiment.config import RunConfig
from longsum_jax.experiment.objectives.masked_lm import MaskedLanguageModel
from longsum_jax.typing import IGNORED_LABEL, Array


class CausalLanguageModel(MaskedLanguageModel):
    """Language modeling of whole documents from left to right, read in pieces.

    All tokens of the text are predicted from the preceding tokens of the piece.
    Special tokens are not, because pieces end anywhere. So bits per character
    measure lossless compression.
    """

    head = "causal_lm"

    @classmethod
    def resolve(cls, run: RunConfig) -> tuple[Task, Any]:
        return run.task, dataclasses.replace(
            run.model, head=cls.head, is_decoder=True
        )

    def masks(self, rng: Array, ids: Array, mask: Array) -> tuple[Array, Array]:
        """Returns the ids and the token after each, int [b, l]; ``rng`` is not used."""
        del rng
        following = jnp.where(self._is_text(ids, mask), ids, IGNORED_LABEL)
        last = ((0, 0), (0, 1)) if ids.ndim == 2 else ((0, 1),)
        return ids, jnp.pad(
            following[..., 1:], last, constant_values=IGNORED_LABEL
        )

    @cached_property
    def special_ids(self) -> np.ndarray:
        """Ids that are excluded from prediction."""
        return np.unique(self._around())
