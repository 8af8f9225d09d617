import tracemalloc

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference.answers import answer, best_span
from longsum_jax.models.registry import get_family
from longsum_jax.summarization.model import Model
from longsum_jax.tokenizers.loading import load_tokenizer


@pytest.mark.parametrize("max_length", [1, 3, 9])
def test_the_best_span_is_the_best_of_all(max_length):
    rng = np.random.default_rng(max_length)
    for _ in range(20):
        logits = rng.normal(size=(12, 2))
        spans = [(i, j) for i in range(4, 11) for j in range(i, min(i + max_length, 11))]
        expected = max(spans, key=lambda span: logits[span[0], 0] + logits[span[1], 1])
        first, last, score = best_span(logits, slice(4, 11), max_length)
        assert (first, last) == expected
        assert score == pytest.approx(logits[first, 0] + logits[last, 1])


def test_memory_is_linear_in_the_length_of_a_text():
    logits = np.random.default_rng(0).normal(size=(4096, 2)).astype(np.float32)
    tracemalloc.start()
    best_span(logits, slice(8, 4096), 30)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 * logits.nbytes  # a square of the length takes thousands of times as much


def test_what_cannot_answer(tiny_tokenizer):
    family = get_family("bert")
    model = Model(family, family.presets["tiny"], {}, tiny_tokenizer)
    with pytest.raises(InputError, match="the model has the head masked_lm, which finds no answer"):
        answer(model, ["Who?"], ["You."])
    config = family.config({"head": "question_answering"})
    with pytest.raises(InputError, match="holds no tokenizer"):
        answer(Model(family, config, {}), ["Who?"], ["You."])
    model = Model(family, config, {}, tiny_tokenizer)
    with pytest.raises(InputError, match="1 question for 2 documents; give one each"):
        model.answer(["Who?"], ["You.", "I."])
    with pytest.raises(InputError, match="document 1 is empty"):
        model.answer(["Who?"], [""])
    for name in ("batch_size", "max_answer_length"):
        with pytest.raises(InputError, match=f"{name}=0 must be at least 1"):
            model.answer(["Who?"], ["You."], **{name: 0})
    with pytest.raises(InputError, match="document 2 is of type NoneType; give its text"):
        model.answer(["Who?", "What?"], ["You.", None])
    with pytest.raises(InputError, match="question 1 is of type NoneType; give a string"):
        model.answer([None], "You.")
    with pytest.raises(InputError, match="cannot generate; use answer"):
        model.summarize("You.")
    with pytest.raises(InputError, match="questions is of type NoneType; give a string, or a list"):
        model.answer(None, ["You."])
    with pytest.raises(InputError, match="max_answer_length=0 must be at least 1"):
        model.answer(["Who?"], ["You."], max_answer_length=0)


class Reader:
    """A model of 24 positions whose logits depend on a token and its neighbours alone."""

    config = get_family("bert").config(
        {"head": "question_answering", "max_position_embeddings": 24, "type_vocab_size": 2}
    )
    summarization = {"prefix": "Q"}  # noqa: RUF012
    tokenizer = load_tokenizer("bytes")

    def __init__(self):
        self.rows = []

    def logits(self, ids, mask, token_type_ids, bucket=64):
        assert token_type_ids.shape == ids.shape == mask.shape
        assert mask.sum(1).max() <= 24
        self.rows += [row[real].tolist() for row, real in zip(ids, mask, strict=True)]
        numbers = ids * 7919 + np.roll(ids, 1, axis=1) * 104729
        return np.stack([numbers % 1009, numbers % 997], axis=-1) * mask[..., None]


def test_long_documents_are_read_in_windows():
    """Every window by itself; the best of all counts."""
    reader = Reader()
    documents = ["abcdefghijklmnopqrstuvwxyz0123456789", "ab", "zyxwvutsrqponmlkjihgfedcba"]
    questions = ["who?", "what is this?", "?"]
    result = answer(reader, questions, documents, max_answer_length=4, batch_size=3)
    for question, document, given in zip(questions, documents, result, strict=True):
        room = 24 - len(question) - 3  # prefix and two ends
        # Overlapping by half, the last one at the end.
        last = max(len(document) - room, 0)
        starts = [*range(0, last, room // 2), last]
        best = max(
            (read_alone(question, document[start : start + room]) for start in starts),
            key=lambda each: each[1],
        )
        assert (given.text, given.score) == best
    covered = {bytes(i - 3 for i in row if i > 2) for row in reader.rows}
    assert any(b"9" in text for text in covered)
    assert answer(reader, questions[0], documents[0], max_answer_length=4) == result[:1]
    assert answer(reader, iter(questions), tuple(documents), max_answer_length=4) == result
    with pytest.raises(InputError, match="leaves no room for two texts"):
        answer(reader, ["?" * 22], ["text"])


def read_alone(question, text):
    pair = Reader.tokenizer.join_pair(
        Reader.tokenizer.encode("Q" + question), Reader.tokenizer.encode(text)
    )
    ids = np.array([pair.ids])
    logits = Reader().logits(ids, np.ones_like(ids, bool), np.array([pair.token_type_ids]))[0]
    first, last, score = best_span(logits, pair.second, 4)
    offset = pair.second.start
    return text[first - offset : last - offset + 1].strip(), score
