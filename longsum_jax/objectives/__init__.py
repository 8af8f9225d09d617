"""What a run can train for: one class per ``objective`` of a task, all with the methods of ``base.Objective``."""

from collections.abc import Mapping

from longsum_jax.objectives.base import Objective
from longsum_jax.objectives.classification import Classification
from longsum_jax.objectives.extraction import Extraction
from longsum_jax.objectives.masked_lm import MaskedLanguageModel
from longsum_jax.objectives.segments import SegmentSummarization
from longsum_jax.objectives.summarization import Summarization

OBJECTIVES: Mapping[str, type[Objective]] = {
    "summarize": Summarization,
    "summarize_segments": SegmentSummarization,
    "gap_sentences": Summarization,
    "classify": Classification,
    "extract": Extraction,
    "mlm": MaskedLanguageModel,
}
