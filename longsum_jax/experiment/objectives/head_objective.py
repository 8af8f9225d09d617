"""The base class of objectives whose loss is a function of the outputs of the model's head."""

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from longsum_jax.experiment.objectives.base import Objective
from longsum_jax.training.loss import LossFn, LossOutput
from longsum_jax.typing import Array, Params


class HeadObjective(Objective):
    """An objective whose loss is a function of the outputs of the model's head."""

    def loss_fn(self) -> LossFn:
        def loss_fn(
            params: Params, batch: Mapping[str, Array], rng: Array
        ) -> LossOutput:
            outputs = self.forward(
                params, batch, deterministic=False, rngs={"dropout": rng}
            )
            out = self.loss_of(outputs, batch)
            tokens = batch["attention_mask"].sum().astype(np.float32)
            return out._replace(metrics={"tokens": tokens, **out.metrics})

        return loss_fn

    @abstractmethod
    def loss_of(self, outputs: Array, batch: Mapping[str, Array]) -> LossOutput:
        """Returns the loss of a batch, and counts over its rows, except of its tokens."""
