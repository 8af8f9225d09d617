"""Registry of objectives, with the functions that make their examples."""

from collections.abc import Iterable, Iterator, Mapping

from longsum_jax.data.examples.answers import answer_examples, cloze_examples
from longsum_jax.data.examples.base import Counts, Example, Maker
from longsum_jax.data.examples.choices import choice_examples
from longsum_jax.data.examples.classification import classification_examples
from longsum_jax.data.examples.extraction import extraction_examples
from longsum_jax.data.examples.masked_lm import masked_lm_examples
from longsum_jax.data.examples.pairs import pair_examples
from longsum_jax.data.examples.preferences import preference_examples
from longsum_jax.data.examples.segments import segment_examples
from longsum_jax.data.examples.summarization import summarization_examples
from longsum_jax.data.examples.tags import tag_examples
from longsum_jax.data.pieces import is_first_piece
from longsum_jax.data.tasks import Task
from longsum_jax.text.documents import DataRow
from longsum_jax.text.segment_inputs import DEFAULT_AUXILIARY, Auxiliary
from longsum_jax.tokenizers.base import Tokenizer

MAKERS: Mapping[str, Maker] = {
    "summarize": summarization_examples,
    "gap_sentences": summarization_examples,
    "summarize_segments": segment_examples,
    "extract": extraction_examples,
    "classify": classification_examples,
    "mlm": masked_lm_examples,
    "lm": masked_lm_examples,
    "classify_pairs": pair_examples,
    "claims": pair_examples,
    "answer": answer_examples,
    "choose": choice_examples,
    "cloze": cloze_examples,
    "tag": tag_examples,
    "prefer": preference_examples,
}


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
        task: task, whose objective selects the maker.
        tokenizer: tokenizer that produces the ids.
        docs: documents as yielded by ``sources.documents``.
        seed: random seed of random choices, such as gap sentences.
        counts: counts to which every document and example is added.
        auxiliary: functions that compare sentences and find important ones, for
            "summarize_segments".
    """
    make = MAKERS[task.objective]
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
