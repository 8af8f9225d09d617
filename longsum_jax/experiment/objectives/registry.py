"""Registry of training objectives: one class per ``objective`` of a task."""

from longsum_jax.experiment.objectives.base import Objective
from longsum_jax.experiment.objectives.causal_lm import CausalLanguageModel
from longsum_jax.experiment.objectives.classification import Classification
from longsum_jax.experiment.objectives.extraction import Extraction
from longsum_jax.experiment.objectives.masked_lm import MaskedLanguageModel
from longsum_jax.experiment.objectives.multiple_choice import MultipleChoice
from longsum_jax.experiment.objectives.preferences import Preferences
from longsum_jax.experiment.objectives.question_answering import (
    QuestionAnswering,
)
from longsum_jax.experiment.objectives.segments import SegmentSummarization
from longsum_jax.experiment.objectives.summarization import Summarization
from longsum_jax.experiment.objectives.token_classification import (
    TokenClassification,
)

OBJECTIVES: dict[str, type[Objective]] = {
    "summarize": Summarization,
    "summarize_segments": SegmentSummarization,
    "gap_sentences": Summarization,
    "classify": Classification,
    "classify_pairs": Classification,
    "claims": Classification,
    "extract": Extraction,
    "mlm": MaskedLanguageModel,
    "lm": CausalLanguageModel,
    "answer": QuestionAnswering,
    "choose": MultipleChoice,
    "cloze": QuestionAnswering,
    "tag": TokenClassification,
    "prefer": Preferences,
}
