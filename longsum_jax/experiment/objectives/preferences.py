"""Preference training of an encoder-decoder: reference summaries against rejected ones."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from longsum_jax.experiment.objectives.base import loss_with_counts, replicate
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.ops.losses import count_labels, preference_scores
from longsum_jax.training.loss import LossFn, LossOutput
from longsum_jax.typing import Array, NumpyBatch, Params


class Preferences(Summarization):
    """Direct preference optimization (Rafailov et al. 2023), as in SCOPE (Duong et al. 2025).

    The reference model is the initial model of the run and remains frozen: its
    log-probabilities of all pairs are computed once, see
    ``experiment.reference``. Evaluations score generated summaries, as in
    ``Summarization``.
    """

    packs = False

    def batch_options(self) -> dict[str, Any]:
        return super().batch_options() | {"pairs": True}

    def loss_fn(self) -> LossFn:
        """Returns the preference loss, which is 0 for a pair of identical summaries.

        Its weight is the number of pairs. The metrics are sums: divided by
        "weight", "reward_margin" is the mean reward margin, and "right_pairs"
        the share of pairs with a positive margin.
        """
        beta = self.setup.run.loss.beta

        def loss_fn(
            params: Params, batch: Mapping[str, Array], rng: Array
        ) -> LossOutput:
            log_probs = self._log_probs(
                params, batch, deterministic=False, rngs={"dropout": rng}
            )
            is_pair = (batch["labels"] != batch["rejected"]).any(-1)
            # With the policy as its own reference, identical pairs have zero
            # margin and gradient.
            reference = jnp.where(
                is_pair[:, None], batch["reference"], log_probs
            )
            losses, margins = preference_scores(log_probs, reference, beta=beta)
            return loss_with_counts(
                jnp.where(is_pair, losses, 0.0).sum(),
                is_pair.sum().astype(np.float32),
                tokens=batch["attention_mask"].sum()
                + count_labels(batch["labels"])
                + count_labels(batch["rejected"]),
                reward_margin=margins.sum(),
                right_pairs=(margins > 0).sum(),
            )

        return loss_fn

    @cached_property
    def pair_log_probs(self) -> Any:
        """Compiled function from parameters and a batch to log-probabilities, float32 [rows, 2].

        It runs without dropout, and its result is available on every host.
        """

        def log_probs(params: Params, batch: NumpyBatch) -> Array:
            return replicate(self._log_probs(params, batch))

        return jax.jit(log_probs)

    def _log_probs(
        self, params: Params, batch: Mapping[str, Any], **options: Any
    ) -> Array:
        """Returns the log-probabilities of both targets of every row, float32 [rows, 2]."""
        return self.module.apply(
            {"params": params},
            batch["input_ids"],
            batch["attention_mask"],
            batch["labels"],
            batch["rejected"],
            method="score_pairs",
            **options,
        )
