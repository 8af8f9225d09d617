"""Cloze questions: sentences in which a mark replaces an entity, which is the answer."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from longsum_jax.data.derived import ClozeOptions
from longsum_jax.text.oracle import recalled_sentences
from longsum_jax.text.sentences import split_sentences

MARK = "@placeholder"  # as in Hermann et al. (2015)


class ClozeQuestion(NamedTuple):
    """A sentence with a gap, and the entity that belongs there."""

    question: str
    answer: str


def cloze_questions(
    text: str, entities: Sequence[str], options: ClozeOptions
) -> list[ClozeQuestion]:
    """Returns a question for every sentence and every entity in it.

    All occurrences of the entity in the sentence are replaced.

    Args:
        text: text from which questions are made, such as a summary.
        entities: entities of the text; an entity that does not occur verbatim
            yields no question.
        options: options of length.
    """
    distinct = list(dict.fromkeys(entity.strip() for entity in entities))
    questions = []
    for sentence in split_sentences(text):
        for entity in filter(None, distinct):
            pattern = rf"(?<!\w){re.escape(entity)}(?!\w)"
            question = re.sub(pattern, MARK, sentence)
            if question != sentence:
                around = _around_gap(question, options.question_words)
                questions.append(ClozeQuestion(around, entity))
    return questions


def _around_gap(question: str, max_words: int) -> str:
    """Returns the words around the first mark, equally many on both sides if possible."""
    words = question.split()
    if len(words) <= max_words:
        return question
    gap = next(position for position, word in enumerate(words) if MARK in word)
    start = min(max(gap - max_words // 2, 0), len(words) - max_words)
    return " ".join(words[start : start + max_words])


def question_context(document: str, summary: str, max_words: int) -> str:
    """Returns the sentences of a document that contain the answers to questions on a summary.

    They are added greedily for ROUGE-2 recall of the summary (Huang et al.
    2021, section 5), and joined in document order.

    Args:
        document: text of any length.
        summary: reference summary.
        max_words: maximum words of the context, separated by white space.
    """
    sentences = split_sentences(document)
    sizes = [len(sentence.split()) for sentence in sentences]
    selected = recalled_sentences(
        sentences, summary, sizes=sizes, room=max_words
    )
    return " ".join(sentences[index] for index in selected)
