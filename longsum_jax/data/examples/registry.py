"""Registry of objectives, with the functions that make their examples."""

from collections.abc import Iterable, Iterator

from longsum_jax.data.examples.base import Counts, Example, Maker
from longsum_jax.data.tasks import Task
from longsum_jax.lazy_classes import LazyClasses
from longsum_jax.text.documents import DataRow
from longsum_jax.text.gap_sentences import is_first_piece
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer

_PACKAGE = "longsum_jax.data.examples"
_EXPERIMENTAL = "longsum_jax.experimental.tasks"

MAKERS: LazyClasses[Maker] = LazyClasses(
    {
        "summarize": f"{_PACKAGE}.summarization:summarization_examples",
        "gap_sentences": f"{_PACKAGE}.summarization:summarization_examples",
        "summarize_segments": f"{_PACKAGE}.segments:segment_examples",
        "extract": f"{_PACKAGE}.extraction:extraction_examples",
        "classify": f"{_PACKAGE}.classification:classification_examples",
        "mlm": f"{_PACKAGE}.masked_lm:masked_lm_examples",
        "lm": f"{_PACKAGE}.masked_lm:masked_lm_examples",
        "classify_pairs": f"{_PACKAGE}.classification:pair_examples",
        "claims": f"{_PACKAGE}.classification:pair_examples",
        "answer": f"{_PACKAGE}.answers:answer_examples",
        "choose": f"{_EXPERIMENTAL}.choice_examples:choice_examples",
        "cloze": f"{_PACKAGE}.answers:cloze_examples",
        "tag": f"{_EXPERIMENTAL}.tag_examples:tag_examples",
        "prefer": f"{_PACKAGE}.summarization:preference_examples",
    }
)


def make_examples(
    task: Task,
    tokenizer: Tokenizer,
    docs: Iterable[DataRow],
    *,
    seed: int = 0,
    counts: Counts | None = None,
    auxiliary: Auxiliary = DEFAULT_AUXILIARY,
) -> Iterator[Example]:
    """Yields the examples of documents in their order, skipping documents that are too short.

    Args:
        task: task, whose objective, else its base objective, selects the maker.
        tokenizer: tokenizer that produces the ids.
        docs: documents as yielded by ``sources.documents``.
        seed: random seed of random choices, such as gap sentences.
        counts: counts to which every document and example is added.
        auxiliary: functions that compare sentences and find important ones, for
            "summarize_segments".
    """
    make = MAKERS.get(task.objective) or MAKERS[task.base_objective]
    for document in docs:
        made = make(task, tokenizer, document, seed=seed, auxiliary=auxiliary)
        examples: list[Example | None] = [*made] or [None]
        starts_document = task.piece_words is None or is_first_piece(
            document.id
        )
        for number, example in enumerate(examples):
            if counts is not None:
                counts.add(
                    example, new_document=starts_document and number == 0
                )
            if example is not None:
                yield example
