import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.inference.answers import answer, best_span
from longsum_jax.inference.model import Model
from longsum_jax.models.registry import get_family


@pytest.mark.parametrize("max_length", [1, 3, 9])
def test_the_best_span_is_the_best_of_all(max_length):
    rng = np.random.default_rng(max_length)
    for _ in range(20):
        logits = rng.normal(size=(12, 2))
        spans = [(i, j) for i in range(4, 11) for j in range(i, min(i + max_length, 11))]
        wanted = max(spans, key=lambda span: logits[span[0], 0] + logits[span[1], 1])
        first, last, score = best_span(logits, slice(4, 11), max_length)
        assert (first, last) == wanted
        assert score == pytest.approx(logits[first, 0] + logits[last, 1])


def test_what_cannot_answer(tiny_tokenizer):
    family = get_family("bert")
    model = Model(family, family.presets["tiny"], {}, tiny_tokenizer)
    with pytest.raises(InputError, match="the model has the head masked_lm, which finds no answer"):
        answer(model, ["Who?"], ["You."])
    config = family.config({"head": "question_answering"})
    with pytest.raises(InputError, match="holds no tokenizer"):
        answer(Model(family, config, {}), ["Who?"], ["You."])
    model = Model(family, config, {}, tiny_tokenizer)
    with pytest.raises(InputError, match="1 questions for 2 documents; give one each"):
        model.answer(["Who?"], ["You.", "I."])
    with pytest.raises(InputError, match="a document is empty"):
        model.answer(["Who?"], [""])
    with pytest.raises(InputError, match="max_answer_length=0 must be at least 1"):
        model.answer(["Who?"], ["You."], max_answer_length=0)
