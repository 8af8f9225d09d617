"""What a run can train for: one class per ``objective`` of a task, all with the methods of ``base.Objective``."""

from collections.abc import Mapping

from longsum_jax.objectives.base import Objective
from longsum_jax.objectives.classification import Classification
from longsum_jax.objectives.masked_lm import MaskedLanguageModel
from longsum_jax.objectives.summarization import Summarization

OBJECTIVES: Mapping[str, type[Objective]] = {
    "summarize": Summarization,
    "gap_sentences": Summarization,
    "classify": Classification,
    "mlm": MaskedLanguageModel,
}
