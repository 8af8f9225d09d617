"""The model of a run without its parameters, which are in the run's checkpoints."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax.checkpoints import huggingface
from longsum_jax.models.family import Family
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from longsum_jax.inference.model import AuxiliaryModels
    from longsum_jax.summarization.model import Model


@dataclass(frozen=True)
class UntrainedModel:
    """All of a loaded model except its parameters.

    Attributes:
        family: model family.
        config: config of the model.
        tokenizer: tokenizer of the model.
        generation_config: options of ``Model.generate``.
        summarization: settings of ``Model.summarize``.
        auxiliary: models that find and compare sentences; None for none.
    """

    family: Family
    config: Any
    tokenizer: Tokenizer
    generation_config: dict[str, Any] = field(default_factory=dict)
    summarization: dict[str, Any] = field(default_factory=dict)
    auxiliary: "AuxiliaryModels | None" = None

    def make_model(self) -> "Model":
        """Returns a model whose ``params`` must be set before it generates."""
        # Imported here, because a run without evaluations generates nothing.
        from longsum_jax.summarization.model import Model

        return Model(
            self.family,
            self.config,
            None,
            self.tokenizer,
            self.generation_config,
            self.summarization,
            self.auxiliary,
        )

    def auxiliary_functions(self) -> Auxiliary:
        """Returns the functions that run the auxiliary models."""
        if self.auxiliary is None:
            return DEFAULT_AUXILIARY
        # Imported here, because it imports all that loads and runs a model.
        from longsum_jax.inference.auxiliary import auxiliary_functions

        return auxiliary_functions(self.auxiliary)

    def write(self, directory: Path) -> None:
        """Writes config.json and the tokenizer, as ``Model.save`` does without parameters."""
        summarization, writers = self.summarization, {}
        if self.auxiliary is not None:
            summarization = self.auxiliary.named_inside(summarization)
            writers = self.auxiliary.writers()
        huggingface.write_model(
            directory,
            self.family,
            self.config,
            None,
            self.family.generation_config(self.config, self.generation_config),
            self.tokenizer,
            summarization,
            writers,
        )
