"""Taggers that find entities or nouns of texts, for metrics that count them.

A tagger takes texts and returns a list of strings for each. Two taggers use
rules on words and capitalization, for English; they do not need a model, but
are less accurate. The others use a model given by the user. Reports record the
tagger, because scores of different taggers are not comparable.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.experimental.metrics.model_tagger import ModelTagger
from longsum_jax.text.entities import (
    ADJECTIVES,
    DETERMINERS,
    FUNCTION_WORDS,
    find_entities,
)
from longsum_jax.text.sentences import split_sentences

Tagger = Callable[[Sequence[str]], Sequence[Sequence[str]]]


_POSSESSIVE = re.compile(r"(?<=\w)['\u2019]s?\b|(?<=s)['\u2019](?!\w)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_NOUN_ENDING = re.compile(
    r"(?:tion|sion|ment|ness|ity|ism|ist|ance|ence|ship|hood|dom|ure|ology|graphy|ician)s?$"
)
_ADJECTIVE_ENDING = re.compile(
    r"(?:al|ive|ous|ful|less|ic|able|ible|ed|ing|ary|ly|ish|ern)$"
)


def rule_entities(texts: Sequence[str]) -> list[list[str]]:
    """Returns names, dates, numbers, percentages and amounts of money in English texts.

    See ``text.entities``.
    """
    documents = [find_entities(split_sentences(text)) for text in texts]
    return [
        [entity.text for entity in itertools.chain(*sentences)]
        for sentences in documents
    ]


def rule_nouns(sentences: Sequence[str]) -> list[list[str]]:
    """Returns the nouns of each sentence of an English text, singular and in lower case.

    A word counts as a noun throughout the text if at least once it follows a
    determiner (except for words with adjective endings), is capitalized within
    a sentence, or has a noun ending.
    """
    words = [
        _WORD.findall(_POSSESSIVE.sub("", sentence)) for sentence in sentences
    ]
    nouns = {noun for line in words for noun in _evident_nouns(line)}
    nouns_of_sentences = []
    for line in words:
        singular = [_singular(word.lower()) for word in line]
        nouns_of_sentences.append([word for word in singular if word in nouns])
    return nouns_of_sentences


def _evident_nouns(words: Sequence[str]) -> Iterator[str]:
    after_determiner = False
    for index, word in enumerate(words):
        lower = word.lower()
        if lower in FUNCTION_WORDS:
            after_determiner = lower in DETERMINERS
            continue
        has_ending = _NOUN_ENDING.search(lower)
        adjective = lower in ADJECTIVES or (
            not has_ending and _ADJECTIVE_ENDING.search(lower) is not None
        )
        capitalized = index > 0 and word[0].isupper()
        if has_ending or capitalized or (after_determiner and not adjective):
            yield _singular(lower)
        after_determiner = after_determiner and adjective


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if (
        word.endswith("s")
        and not word.endswith(("ss", "us", "is"))
        and len(word) > 3
    ):
        return word[:-1]
    return word


class ModelNounTagger(ModelTagger):
    """A ``ModelTagger`` that returns singular nouns in lower case, like ``rule_nouns``."""

    def __call__(self, texts: Sequence[str]) -> list[list[str]]:
        return [
            [_singular(entity.lower()) for entity in tags]
            for tags in super().__call__(texts)
        ]


ENTITY_TAGGERS: dict[str, Tagger] = {"rules": rule_entities}
NOUN_TAGGERS: dict[str, Tagger] = {"rules": rule_nouns}


def entity_tagger(name: str, where: str) -> Tagger:
    """Returns the entity tagger of this name, or a tagger with the model at this path.

    Args:
        name: name in ``ENTITY_TAGGERS``, or a token classification model: a
            directory, a training workdir or a name on the Hub, with a slash.
        where: name of the metric for errors, "metrics.entities".

    Raises:
        InputError: an unknown name, or a model that cannot be read.
    """
    return _tagger(name, where, ENTITY_TAGGERS, ModelTagger)


def noun_tagger(name: str, where: str) -> Tagger:
    """Returns the noun tagger of this name, or a tagger with the model at this path.

    See ``entity_tagger``; names are in ``NOUN_TAGGERS``.
    """
    return _tagger(name, where, NOUN_TAGGERS, ModelNounTagger)


def _tagger(
    name: str,
    where: str,
    taggers: Mapping[str, Tagger],
    of_model: type[ModelTagger],
) -> Tagger:
    if name in taggers:
        return taggers[name]
    if "/" in name or Path(name).is_dir():
        return of_model(f"{where}.tagger", name)
    raise InputError(
        f'{where}.tagger="{name}" is unknown; {did_you_mean(name, taggers)}, or give the directory '
        "of a model that labels words"
    )


def tag(tagger: Tagger, texts: Sequence[str]) -> list[list[str]]:
    """Returns the strings that a tagger finds in each text.

    Raises:
        InputError: the tagger does not return a list of strings for each text.
    """
    tagged: Any = [list(tags) for tags in tagger(texts)]
    if len(tagged) != len(texts) or not all(
        isinstance(tag, str) for tags in tagged for tag in tags
    ):
        name = getattr(tagger, "__name__", tagger)
        raise InputError(
            f"tagger {name}: give a list of strings for each of {len(texts)} texts"
        )
    return tagged


def describe_tagger(
    metric: str, name: str | None, tagger: Tagger
) -> dict[str, Any]:
    """Returns the signature of a metric with its tagger, for reports.

    Args:
        metric: name of the metric.
        name: name of the tagger in the options; None for a function.
        tagger: the tagger.
    """
    used = name or getattr(tagger, "__name__", type(tagger).__name__)
    described = {"signature": f"{metric}|tagger:{used}", "tagger": used}
    if isinstance(tagger, ModelTagger):
        described["tagger_model"] = tagger.describe()
    return described
