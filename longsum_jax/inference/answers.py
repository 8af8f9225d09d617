"""Answers to questions: the span of a document that a model finds most likely."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.models.registry import max_input_length
from longsum_jax.tokenizers.base import Tokenizer
from longsum_jax.typing import Array

MAX_ANSWER_LENGTH = 30  # tokens, as in BERT's evaluation on SQuAD


class Answer(NamedTuple):
    """An answer to a question.

    Attributes:
        text: the part of the document, without white space around it.
        score: sum of the logits of its first and its last token.
    """

    text: str
    score: float


class AnsweringModel(Protocol):
    """What answering needs of a model."""

    config: Any
    tokenizer: Tokenizer | None

    def logits(self, input_ids: Any, attention_mask: Any = None, **inputs: Any) -> Array: ...


def best_span(logits: np.ndarray, places: slice, max_length: int) -> tuple[int, int, float]:
    """Returns the first and the last token of the best span, and its score.

    The score is the sum of both logits (Devlin et al. 2019, section 4.2).

    Args:
        logits: [length, 2], of starts and ends.
        places: tokens of the document, at least one.
        max_length: tokens of the longest span, at least 1.
    """
    starts, ends = logits[places].T
    scores = starts[:, None] + ends
    lags = np.arange(len(starts)) - np.arange(len(starts))[:, None]
    scores = np.where((lags >= 0) & (lags < max_length), scores, -np.inf)
    first, last = np.unravel_index(scores.argmax(), scores.shape)
    return places.start + int(first), places.start + int(last), float(scores[first, last])


def span_text(text: str, spans: Sequence[tuple[int, int]], first: int, last: int) -> str:
    """Returns the text from the first to the last of some tokens, see ``Tokenizer.spans``."""
    return text[spans[first][0] : spans[last][1]].strip()


def takes_token_types(config: Any) -> bool:
    """Returns whether a model tells the tokens of two texts apart."""
    return config.has_token_types and config.type_vocab_size > 1


def answer(
    model: AnsweringModel,
    questions: Sequence[str],
    documents: Sequence[str],
    *,
    max_answer_length: int = MAX_ANSWER_LENGTH,
) -> list[Answer]:
    """Finds the answer to each question in its document.

    Documents are cut where the model's positions end.

    Args:
        model: with a head for question answering.
        questions, documents: as many of each.
        max_answer_length: tokens of the longest answer.

    Raises:
        InputError: another kind of model, no tokenizer, an empty document, an option out of range.
    """
    if model.config.head != "question_answering":
        raise InputError(
            f"the model has the head {model.config.head}, which finds no answers; train one with "
            "configs/answer.py"
        )
    if model.tokenizer is None:
        raise InputError("the model directory holds no tokenizer; load it with tokenizer=PATH")
    if max_answer_length < 1:
        raise InputError(f"max_answer_length={max_answer_length} must be at least 1")
    if len(questions) != len(documents):
        raise InputError(
            f"{len(questions)} questions for {len(documents)} documents; give one each"
        )
    pairs = zip(questions, documents, strict=True)
    return [_answer(model, *pair, max_answer_length) for pair in pairs]


def _answer(model: AnsweringModel, question: str, document: str, max_length: int) -> Answer:
    tokenizer = model.tokenizer
    ids = tokenizer.encode(document)
    if not ids:
        raise InputError("a document is empty; give a text with the answer")
    limit = max_input_length(model.config)
    pair = tokenizer.join_pair(tokenizer.encode(question), ids, limit, truncation="second")
    types = {"token_type_ids": [pair.token_type_ids]} if takes_token_types(model.config) else {}
    mask = np.ones((1, len(pair.ids)), bool)
    logits = np.asarray(model.logits(np.array([pair.ids]), mask, **types))[0]
    first, last, score = best_span(logits, pair.second, max_length)
    offset = pair.second.start
    text = span_text(document, tokenizer.spans(document), first - offset, last - offset)
    return Answer(text, score)
