"""Answers questions with the most likely span of a document."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from longsum_jax.errors import InputError, check_whole, counted
from longsum_jax.inference.arguments import check_document, listed
from longsum_jax.inference.model import LoadedModel
from longsum_jax.inference.rows import pair_logits, text_windows
from longsum_jax.models.registry import max_input_length
from longsum_jax.tokenizers.special_tokens import TokenPair

MAX_ANSWER_LENGTH = 30  # tokens, as in BERT's evaluation on SQuAD


class Answer(NamedTuple):
    """An answer to a question.

    Attributes:
        text: span of the document, without surrounding white space.
        score: sum of the logits of its first and last token.
    """

    text: str
    score: float


def best_span(
    logits: np.ndarray, positions: slice, max_length: int
) -> tuple[int, int, float]:
    """Returns the first and last token of the highest-scoring span, and its score.

    The score is the sum of the start and end logits (Devlin et al. 2019,
    section 4.2).

    Args:
        logits: [length, 2], start and end logits.
        positions: slice of the document's tokens, not empty.
        max_length: maximum tokens of a span, at least 1.
    """
    starts, ends = logits[positions].T.astype(np.float64)
    longest = min(max_length, len(starts))
    # Padding of -inf excludes spans that extend beyond the document.
    padded_ends = np.pad(ends, (0, longest - 1), constant_values=-np.inf)
    # [first token, additional tokens]: linear in the length of a text
    scores = starts[:, None] + np.lib.stride_tricks.sliding_window_view(
        padded_ends, longest
    )
    first, more = np.unravel_index(scores.argmax(), scores.shape)
    start = positions.start + int(first)
    return start, start + int(more), float(scores[first, more])


def span_text(
    text: str, spans: Sequence[tuple[int, int]], first: int, last: int
) -> str:
    """Returns the text from token ``first`` to token ``last``, see ``Tokenizer.spans``."""
    return text[spans[first][0] : spans[last][1]].strip()


def answer(
    model: LoadedModel,
    questions: Sequence[str] | str,
    documents: Sequence[str] | str,
    *,
    max_answer_length: int = MAX_ANSWER_LENGTH,
    batch_size: int = 16,
) -> list[Answer]:
    """Finds the answer to each question in its document.

    A document longer than the model's positions is read in windows that overlap
    by half; the highest-scoring answer of all windows is returned.

    Args:
        model: model with a question answering head.
        questions, documents: one question per document, or a single pair of
            texts.
        max_answer_length: maximum tokens of an answer.
        batch_size: windows read together.

    Raises:
        InputError: a model of another kind, no tokenizer, a value that is not a
            text, an empty document, a question that leaves no room for the
            document, an option out of range.
    """
    if model.config.head != "question_answering":
        raise InputError(
            f"the model has the head {model.config.head}, which finds no answers; train one with "
            "configs/answer.py"
        )
    tokenizer = model.tokenizer
    check_whole("max_answer_length", max_answer_length, 1)
    check_whole("batch_size", batch_size, 1)
    questions = listed(questions, "questions")
    documents = listed(documents, "documents")
    if len(questions) != len(documents):
        raise InputError(
            f"{counted(len(questions), 'question')} for "
            f"{counted(len(documents), 'document')}; give one each"
        )
    # Check all inputs before computing anything.
    for number, (question, document) in enumerate(
        zip(questions, documents, strict=True), 1
    ):
        if not isinstance(question, str):
            kind = type(question).__name__
            raise InputError(
                f"question {number} is of type {kind}; give a string"
            )
        check_document(document, f"document {number}", question)
    inputs = zip(questions, documents, strict=True)
    windows = [
        _windows(model, question, document) for question, document in inputs
    ]
    # Read the windows of all documents together, then group them again.
    pairs = [window.pair for window in itertools.chain.from_iterable(windows)]
    logits = iter(pair_logits(model, pairs, batch_size=batch_size))
    answers = []
    for document, parts in zip(documents, windows, strict=True):
        spans = tokenizer.spans(document)
        outputs = list(itertools.islice(logits, len(parts)))
        answers.append(
            _best_answer(document, spans, parts, outputs, max_answer_length)
        )
    return answers


class _QuestionWindow(NamedTuple):
    """A question with a window of its document, which begins at token ``start``."""

    start: int
    pair: TokenPair


def _windows(
    model: LoadedModel, question: str, document: str
) -> list[_QuestionWindow]:
    """Returns the question paired with every window of the document."""
    tokenizer = model.tokenizer
    ids = tokenizer.encode(document)
    if not ids:
        raise InputError("a document is empty; give a text with the answer")
    question_ids = tokenizer.encode(
        model.summarization.get("prefix", "") + question
    )
    limit = max_input_length(model.config)
    # Raises an error if there is no room for the document.
    tokenizer.join_pair(question_ids, ids[:1], limit, truncation="second")
    # Tokens of the question and special tokens, which every window contains.
    num_around = len(tokenizer.join_pair(question_ids, []).ids)
    windows = text_windows(
        len(ids), None if limit is None else limit - num_around
    )
    pairs = [
        tokenizer.join_pair(question_ids, ids[window.start : window.stop])
        for window in windows
    ]
    return [
        _QuestionWindow(window.start, pair)
        for window, pair in zip(windows, pairs, strict=True)
    ]


def _best_answer(
    document: str,
    spans: Sequence[tuple[int, int]],
    windows: Sequence[_QuestionWindow],
    logits: Sequence[np.ndarray],
    max_length: int,
) -> Answer:
    answers = []
    for window, window_logits in zip(windows, logits, strict=True):
        first, last, score = best_span(
            window_logits, window.pair.second, max_length
        )
        # From positions in the pair to positions in the document.
        offset = window.pair.second.start - window.start
        text = span_text(document, spans, first - offset, last - offset)
        answers.append(Answer(text, score))
    # Scores of windows are logits, which compare across windows.
    return max(answers, key=lambda answer: answer.score)
