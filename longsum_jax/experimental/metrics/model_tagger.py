"""Tags entities or nouns with a user's token classification model."""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from longsum_jax.errors import InputError
from longsum_jax.evaluation.model_metric import (
    Requirement,
    UserModel,
    longest_text,
)
from longsum_jax.experimental.metrics.tags import OUTSIDE, entities
from longsum_jax.text.sentences import split_sentences
from longsum_jax.tokenizers.base import NO_TOKEN, first_tokens

if TYPE_CHECKING:
    from longsum_jax.inference.model import LoadedModel

# letters and digits, with single marks inside
_WORD = re.compile(r"\w+(?:[-.'\u2019&]\w+)*")
# labels of Universal Dependencies and the Penn Treebank
_NOUN = re.compile(r"NOUN|PROPN|NNP?S?")
_REQUIREMENT = Requirement(
    "a model that labels words", heads=("token_classification",)
)
BATCH_SIZE = 32


class ModelTagger:
    """A tagger with a token classification model, from its checkpoint.

    The label of a word is the label of its first token, as in BERT (Devlin et
    al. 2019, section 5.3); labels B-... and I-... join words, and O means no
    entity (``tags``). With a part-of-speech model, only nouns are returned.

    Args:
        option: name of the option for the model, such as
            "metrics.entities.tagger".
        path: path or name of the model, as accepted by ``longsum_jax.load``.

    Raises:
        InputError: the model cannot be read, has no token classifier, or its
            labels have no names.
    """

    def __init__(self, option: str, path: str) -> None:
        self._user_model = UserModel(option, path, None, _REQUIREMENT)
        self.__name__ = path
        config: Any = self._user_model.config
        names = config.id2label
        if not names:
            raise InputError(
                f'{option}: the labels of {path} have no names; write them as "id2label" in its '
                "config.json"
            )
        nouns = {name for name in names if _NOUN.fullmatch(name)}
        self._labels = [
            name if name in nouns or not nouns else OUTSIDE for name in names
        ]

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        """Returns the tagged words or phrases of each text."""
        sentences = [split_sentences(text) for text in texts]
        with self._user_model.on_device() as model:
            phrases = iter(
                self._of_sentences(model, list(itertools.chain(*sentences)))
            )
        return [
            list(itertools.chain(*itertools.islice(phrases, len(of_text))))
            for of_text in sentences
        ]

    def describe(self) -> dict[str, Any]:
        """Returns the hashes that identify this model."""
        return self._user_model.describe()

    def _of_sentences(
        self, model: "LoadedModel", sentences: Sequence[str]
    ) -> list[list[str]]:
        phrases = []
        for sentence, numbers in zip(
            sentences, _token_labels(model, sentences), strict=True
        ):
            words = [match.span() for match in _WORD.finditer(sentence)]
            firsts = first_tokens(words, model.tokenizer.spans(sentence))
            tagged = entities([self._label(numbers, token) for token in firsts])
            spans = sorted((start, end) for _, start, end in tagged)
            phrases.append(
                [sentence[words[i][0] : words[j - 1][1]] for i, j in spans]
            )
        return phrases

    def _label(self, numbers: np.ndarray, token: int) -> str:
        """Returns the label of a token; "O" for ``NO_TOKEN``."""
        if token == NO_TOKEN:
            return OUTSIDE
        return self._labels[numbers[token]]


def _token_labels(
    model: "LoadedModel", sentences: Sequence[str]
) -> Iterator[np.ndarray]:
    """Yields the label indices of all tokens of every sentence, int [tokens].

    Sentences longer than the model's positions are read in windows.
    """
    from longsum_jax.inference.rows import most_likely, row_logits, text_windows

    tokenizer = model.tokenizer
    prefix = tokenizer.encode(model.summarization.get("prefix", ""))
    num_before = len(tokenizer.prefix_ids) + len(prefix)
    limit = longest_text(model)
    if limit is None:
        room = None
    else:
        room = limit - len(tokenizer.add_special_tokens(prefix))
    ids = tokenizer.encode_batch(list(sentences))
    windows = [text_windows(len(of_sentence), room) for of_sentence in ids]
    rows = [
        tokenizer.add_special_tokens(
            prefix + of_sentence[window.start : window.stop]
        )
        for of_sentence, of_windows in zip(ids, windows, strict=True)
        for window in of_windows
    ]
    labels = iter(
        row_logits(model, rows, batch_size=BATCH_SIZE, reduce=most_likely)
    )
    for of_windows in windows:
        slices = []
        for window in of_windows:
            offset = num_before - window.start
            slices.append(
                next(labels)[window.first + offset : window.last + offset]
            )
        yield np.concatenate(slices)
