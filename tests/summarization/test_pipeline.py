"""The interface of transformers' former pipeline, over a model that records its arguments."""

from types import SimpleNamespace

import pytest

import longsum_jax
from longsum_jax.errors import InputError


class Recorder:
    def summaries(self, texts, **options):
        self.options = options
        return [SimpleNamespace(text=text.upper()) for text in texts]


def test_pipeline():
    model = Recorder()
    summarizer = longsum_jax.pipeline("summarization", model, min_length=5)
    assert summarizer("a") == [{"summary_text": "A"}]
    assert model.options == {"min_length": 5}
    outputs = summarizer(
        ["a", "b"],
        max_length=60,
        min_length=9,
        do_sample=False,
        truncation=True,
        clean_up_tokenization_spaces=False,
        generate_kwargs={"num_beams": 4},
    )
    assert outputs == [{"summary_text": "A"}, {"summary_text": "B"}]
    generation = {"max_length": 60, "min_length": 9, "do_sample": False, "num_beams": 4}
    assert model.options == {"strategy": "direct", "on_overflow": "truncate", **generation}
    summarizer("a", truncation="do_not_truncate", length="9 words")
    assert model.options == {"min_length": 5, "length": "9 words"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"truncation": "all"}, "truncation='all' must be true"),
        ({"truncation": 1}, "truncation=1 must be true"),
        ({"return_tensors": True}, "return_tensors=True is not supported"),
        ({"clean_up_tokenization_spaces": True}, "clean_up_tokenization_spaces"),
        ({"generate_kwargs": [1]}, "generate_kwargs must be an object"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(InputError, match=message):
        longsum_jax.pipeline("summarization", Recorder(), **arguments)
    with pytest.raises(InputError, match=message):
        longsum_jax.pipeline("summarization", Recorder())("a", **arguments)


def test_other_tasks_and_types():
    with pytest.raises(InputError, match='did you mean "summarization"'):
        longsum_jax.pipeline("summarisation", Recorder())
    with pytest.raises(InputError, match="documents is of type int"):
        longsum_jax.pipeline("summarization", Recorder())(3)
