"""Generates claims about a text, some falsified by rules, to train a classifier (FactCC).

The transformations follow Kryscinski et al. (2020), section 3.2 and table 1,
but use the rules of ``text.entities`` instead of a tagger. Paraphrases by
back-translation are omitted, because they need a translation model.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from longsum_jax.data.derived import ClaimOptions
from longsum_jax.text.documents import document_rng
from longsum_jax.text.entities import Entity, EntityKind, find_entities
from longsum_jax.text.sentences import split_sentences

ClaimLabel = Literal["CORRECT", "INCORRECT"]  # labels of the published models
CORRECT: ClaimLabel = "CORRECT"
INCORRECT: ClaimLabel = "INCORRECT"

PRONOUNS = {
    "subject": "you he she we they",
    "object": "me you him her us them",
    "possessive": "my your his her its our their",
    "reflexive": "myself yourself himself herself itself ourselves yourselves themselves",
}
# For a pronoun of several classes, the last class counts, as in the published
# code.
_CLASS_OF = {
    word: words.split() for words in PRONOUNS.values() for word in words.split()
}
AUXILIARIES = (
    "are is was were have has had do does did can could may might must shall should "
    "will would"
)
_NEVER_CONTRACTED = ("may", "might", "must", "shall", "will", "can")
_IRREGULAR = {
    "can't": "can",
    "cannot": "can",
    "won't": "will",
    "shan't": "shall",
}
_AUXILIARY = rf"(?:{'|'.join(AUXILIARIES.split())})"
_PRONOUN = re.compile(rf"\b(?:{'|'.join(sorted(_CLASS_OF))})\b", re.IGNORECASE)
_NEGATED = rf"(?:{'|'.join(_IRREGULAR)}|{_AUXILIARY}n['\u2019]t)"
# The first of several consecutive auxiliaries, with its negation.
_NEGATABLE = re.compile(
    rf"(?<!\w)(?P<verb>{_NEGATED}|{_AUXILIARY})\b(?!['\u2019])(?P<next>\s+(?:not|no)\b)?"
)


class Claim(NamedTuple):
    """A sentence that a text supports or contradicts.

    Attributes:
        text: text of the sentence.
        label: CORRECT or INCORRECT.
        changed: start and end (exclusive) of the characters inserted by a
            transformation; None without one.
    """

    text: str
    label: ClaimLabel
    changed: tuple[int, int] | None = None


class ClaimSentence(NamedTuple):
    """A sentence, its entities, and the entities of the whole text as candidates."""

    text: str
    entities: Sequence[Entity]
    others: Sequence[Entity]


Transformation = Callable[[ClaimSentence, np.random.Generator], Claim | None]


def claims_of(text: str, options: ClaimOptions) -> list[Claim]:
    """Returns claims about a text: randomly chosen sentences, each with a falsified variant.

    A sentence that no transformation changes is skipped, so both labels are
    equally frequent.

    Args:
        text: text whose sentences become claims.
        options: options of number and noise.
    """
    rng = document_rng(text, options.seed)
    sentences = split_sentences(text)
    entities = find_entities(sentences)
    others = [entity for of_sentence in entities for entity in of_sentence]
    claims: list[Claim] = []
    for index in rng.permutation(len(sentences)):
        if len(claims) == 2 * options.per_text:
            break
        sentence = ClaimSentence(sentences[index], entities[index], others)
        wrong = None
        if _is_long(sentence, options):
            wrong = _wrong_claim(sentence, rng)
        if wrong is not None:
            claims += [Claim(sentence.text, CORRECT), wrong]
    return [add_noise(claim, options, rng) for claim in claims]


def _is_long(sentence: ClaimSentence, options: ClaimOptions) -> bool:
    return len(sentence.text.split()) >= options.min_words


def _wrong_claim(
    sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Applies transformations in random order; returns the first result, or None."""
    transformations = list(TRANSFORMATIONS.values())
    for index in rng.permutation(len(transformations)):
        claim = transformations[index](sentence, rng)
        if claim is not None:
            return claim
    return None


def _swap_entity(
    kind: EntityKind, sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Replaces an entity of the sentence with another entity of the same kind from the text."""
    same_kind = [entity for entity in sentence.entities if entity.kind == kind]
    if not same_kind:
        return None
    old = same_kind[rng.integers(len(same_kind))]
    candidates = [
        entity.text
        for entity in sentence.others
        if entity.kind == kind
        and entity.text not in old.text
        and old.text not in entity.text
    ]
    if not candidates:
        return None
    new = candidates[rng.integers(len(candidates))]
    return _replaced(sentence.text, (old.start, old.stop), new)


def swap_name(
    sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Replaces a name with another name of the text."""
    return _swap_entity("name", sentence, rng)


def swap_date(
    sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Replaces a date with another date of the text."""
    return _swap_entity("date", sentence, rng)


def swap_number(
    sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Replaces a number, percentage or amount with another one of the text."""
    return _swap_entity("number", sentence, rng)


def swap_pronoun(
    sentence: ClaimSentence, rng: np.random.Generator
) -> Claim | None:
    """Replaces a pronoun with another pronoun of the same class."""
    matches = list(_PRONOUN.finditer(sentence.text))
    if not matches:
        return None
    old = matches[rng.integers(len(matches))]
    candidates = [
        word for word in _CLASS_OF[old[0].lower()] if word != old[0].lower()
    ]
    new = candidates[rng.integers(len(candidates))]
    return _replaced(
        sentence.text, old.span(), new if old[0].islower() else new.capitalize()
    )


def negate(sentence: ClaimSentence, rng: np.random.Generator) -> Claim | None:
    """Negates an auxiliary verb, or removes its negation.

    Of several consecutive auxiliaries, only the first is changed. One before
    "no" is not changed.
    """
    matches = list(_first_of_rows(sentence.text))
    if not matches:
        return None
    match = matches[rng.integers(len(matches))]
    verb, following = match["verb"], (match["next"] or "").strip()
    if following == "no":
        return None
    contracted = verb.replace("\u2019", "'")
    if following == "not":
        new = verb
    elif contracted in _IRREGULAR:
        new = _IRREGULAR[contracted]
    elif contracted.endswith("n't"):
        new = verb[:-3]
    elif verb in _NEVER_CONTRACTED or rng.random() < 0.5:
        new = f"{verb} not"
    else:
        new = f"{verb}n't"
    return _replaced(sentence.text, match.span(), new)


def _first_of_rows(text: str) -> Iterator[re.Match[str]]:
    """Yields auxiliary verbs with their negations, except directly after another one."""
    end = -1
    for match in _NEGATABLE.finditer(text):
        if text[end : match.start()].strip() or end < 0:
            yield match
        end = match.end()


TRANSFORMATIONS: Mapping[str, Transformation] = {
    "name": swap_name,
    "date": swap_date,
    "number": swap_number,
    "pronoun": swap_pronoun,
    "negation": negate,
}


def _replaced(text: str, span: tuple[int, int], new: str) -> Claim:
    start, stop = span
    return Claim(
        text[:start] + new + text[stop:], INCORRECT, (start, start + len(new))
    )


def add_noise(
    claim: Claim, options: ClaimOptions, rng: np.random.Generator
) -> Claim:
    """Deletes or doubles random words of a claim, except those inserted by a transformation.

    Args:
        claim: correct or incorrect claim, whose label is kept.
        options: options of the noise.
        rng: random generator.
    """
    if rng.random() >= options.noisy:
        return claim
    first, last = claim.changed or (0, 0)
    words = []
    for match in re.finditer(r"\S+", claim.text):
        is_changed = match.start() < last and match.end() > first
        if is_changed or rng.random() >= options.noise:
            words.append(match[0])
        elif rng.random() >= options.deleted:
            words += [match[0], match[0]]
    if words:
        return Claim(" ".join(words), claim.label)
    return claim
