"""Registry of training objectives: one class per ``objective`` of a task."""

from longsum_jax.experiment.objectives.base import Objective
from longsum_jax.lazy_classes import LazyClasses

_PACKAGE = "longsum_jax.experiment.objectives"
_EXPERIMENTAL = "longsum_jax.experimental.tasks"

OBJECTIVES: LazyClasses[type[Objective]] = LazyClasses(
    {
        "summarize": f"{_PACKAGE}.summarization:Summarization",
        "summarize_segments": f"{_PACKAGE}.segments:SegmentSummarization",
        "gap_sentences": f"{_PACKAGE}.summarization:Summarization",
        "classify": f"{_PACKAGE}.classification:Classification",
        "classify_pairs": f"{_PACKAGE}.classification:Classification",
        "claims": f"{_PACKAGE}.classification:Classification",
        "extract": f"{_PACKAGE}.extraction:Extraction",
        "mlm": f"{_PACKAGE}.masked_lm:MaskedLanguageModel",
        "lm": f"{_PACKAGE}.causal_lm:CausalLanguageModel",
        "answer": f"{_PACKAGE}.question_answering:QuestionAnswering",
        "choose": f"{_EXPERIMENTAL}.multiple_choice:MultipleChoice",
        "cloze": f"{_PACKAGE}.question_answering:QuestionAnswering",
        "tag": f"{_EXPERIMENTAL}.token_classification:TokenClassification",
        "prefer": f"{_PACKAGE}.preferences:Preferences",
    }
)
