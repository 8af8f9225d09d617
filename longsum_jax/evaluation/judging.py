"""Protocols by which people or chat models judge summaries, and the key of blinded ones.

An item is one summary before one judge. Its name tells neither the system nor the document, the key
tells both.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from longsum_jax import atomic
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation.agreement import Scale
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.files import parse_json
from longsum_jax.text.documents import read_text_file

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # of the summaries of a document, so 26 systems at most


class Question(NamedTuple):
    """A question that judges answer about every summary.

    Attributes:
        name: column of the answers.
        text: what the judge reads.
        answers: whole numbers to choose from; () for ranks, from 1 to the number of systems.
        labels: of the lowest and the highest answer.
        scale: of the answers, for Krippendorff's alpha.
    """

    name: str
    text: str
    answers: tuple[int, ...]
    labels: tuple[str, str]
    scale: Scale

    @property
    def is_binary(self) -> bool:
        """True if the answers are no (0) and yes (1)."""
        return self.answers == (0, 1)


class Protocol(NamedTuple):
    """A protocol of human evaluation.

    Attributes:
        documents: to sample; None for all.
        judges: of every summary.
        questions: asked of every summary.
    """

    documents: int | None
    judges: int
    questions: tuple[Question, ...]


class Item(NamedTuple):
    """One summary before one judge, who is numbered from 0."""

    judge: int
    document: str
    system: str


class Key(NamedTuple):
    """The key of anonymised sheets: which item is whose summary of which document.

    Attributes:
        protocol: a name in ``PROTOCOLS``.
        judges: how many see every summary.
        seed: of the sample and the orders.
        systems: that wrote the summaries.
        documents: ids, in the order of the sheets.
        items: by the names that judges see, in the order in which they see them.
    """

    protocol: str
    judges: int
    seed: int
    systems: tuple[str, ...]
    documents: tuple[str, ...]
    items: dict[str, Item]

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions of the protocol, with ranks for so many systems."""
        ranks = tuple(range(1, len(self.systems) + 1))
        return tuple(
            question._replace(answers=question.answers or ranks)
            for question in PROTOCOLS[self.protocol].questions
        )


def _likert(name: str, text: str, low: str, high: str) -> Question:
    return Question(name, text, (1, 2, 3, 4, 5), (low, high), "ordinal")


def _binary(name: str, text: str) -> Question:
    return Question(name, text, (0, 1), ("no", "yes"), "nominal")


PROTOCOLS = {
    # Huang et al. (2021): three kinds of unfaithful errors. The wording is ours.
    "hepos": Protocol(
        100,
        2,
        (
            _likert(
                "informativeness",
                "How much of what matters in the document does the summary say?",
                "hardly anything",
                "nearly everything",
            ),
            _binary("hallucination", "Does it state something that the document does not contain?"),
            _binary(
                "deletion",
                "Does a left out name, event or clause make one of its statements wrong?",
            ),
            _binary(
                "false_concatenation",
                "Does it join parts of different sentences to a statement that the document does "
                "not make?",
            ),
        ),
    ),
    # Cao & Wang (2024): binary labels and ranks. The wording is ours.
    "awesome": Protocol(
        25,
        3,
        (
            _binary("informative", "Does it say what matters most in the document?"),
            _binary("faithful", "Does the document support all that it says?"),
            _binary("coherent", "Does it read as one text, each sentence following on the last?"),
            Question(
                "rank",
                "Which place has it among the summaries of this document? Equal ones share one.",
                (),
                ("best", "worst"),
                "ordinal",
            ),
        ),
    ),
    # Le Bronnec et al. (2024), appendix I: four axes from 1 to 5. The wording is ours.
    "locost": Protocol(
        None,
        1,
        (
            _likert(
                "relevance",
                "Does it say what is important in the document, and nothing else?",
                "not at all",
                "fully",
            ),
            _likert(
                "consistency",
                "Does the document support all of its statements?",
                "hardly any",
                "all of them",
            ),
            _likert(
                "fluency",
                "Are its sentences well formed and easy to read?",
                "hardly any",
                "all of them",
            ),
            _likert(
                "coherence",
                "Do its sentences build on each other and make one text?",
                "not at all",
                "fully",
            ),
        ),
    ),
}


def make_key(
    protocol: str,
    pairs: Sequence[Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
    *,
    documents: int | None = None,
    judges: int | None = None,
    seed: int = 0,
) -> Key:
    """Samples documents, and shuffles the summaries of each anew for every judge.

    Args:
        protocol: a name in ``PROTOCOLS``.
        pairs: documents; all systems have a prediction of each.
        systems: predictions by id, by name of the system.
        documents: how many to sample; None for the protocol's number.
        judges: of every summary; None for the protocol's number.
        seed: of the sample and the orders.

    Raises:
        InputError: an unknown protocol, too few documents or too many systems.
    """
    if protocol not in PROTOCOLS:
        raise InputError(f"--protocol={protocol} is unknown; {did_you_mean(protocol, PROTOCOLS)}")
    published = PROTOCOLS[protocol]
    documents = documents or published.documents or len(pairs)
    judges = judges or published.judges
    if documents > len(pairs):
        raise InputError(
            f"{documents} documents to judge, but there are {len(pairs)}; give "
            f"--documents={len(pairs)}"
        )
    if len(systems) > len(LETTERS):
        raise InputError(f"{len(systems)} systems to judge; give at most {len(LETTERS)}")
    generator = np.random.default_rng(seed)
    sample = [pairs[row] for row in generator.choice(len(pairs), documents, replace=False)]
    names = tuple(systems)
    mark = _mark(protocol, seed, sample, systems)
    items = {}
    for judge in range(judges):
        for number, pair in enumerate(sample, 1):
            for letter, system in zip(LETTERS, generator.permutation(len(names)), strict=False):
                item = f"{mark}-{judge + 1}-{number:03d}-{letter}"
                items[item] = Item(judge, pair.id, names[system])
    return Key(protocol, judges, seed, names, tuple(pair.id for pair in sample), items)


def _mark(
    protocol: str,
    seed: int,
    sample: Sequence[Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> str:
    """Returns letters that tell these sheets from those of other samples, systems or texts."""
    content = [protocol, seed, [pair.id for pair in sample]]
    for name, predictions in systems.items():
        content.append([name, [predictions[pair.id].text for pair in sample]])
    digest = hashlib.blake2b(json.dumps(content).encode(), digest_size=8).digest()
    # Letters alone, because spreadsheets change what looks like a number or a date.
    return "".join(LETTERS[byte % len(LETTERS)].lower() for byte in digest)


def write_key(path: Path, key: Key) -> None:
    """Writes a key as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    values = key._asdict()
    values["items"] = {name: item._asdict() for name, item in key.items.items()}
    atomic.write_text(path, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def read_key(path: str | Path) -> Key:
    """Reads what ``write_key`` wrote.

    Raises:
        InputError: a file that is no key.
    """
    text = read_text_file(path)
    try:
        values: dict[str, Any] = parse_json(text)
        values["items"] = {name: Item(**item) for name, item in values["items"].items()}
        for name in ("systems", "documents"):
            values[name] = tuple(values[name])
        key = Key(**values)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: not a key; give the key.json that longsum judge wrote") from None
    if not isinstance(key.protocol, str) or key.protocol not in PROTOCOLS:
        raise InputError(
            f'{path}: protocol "{key.protocol}"; {did_you_mean(key.protocol, PROTOCOLS)}'
        )
    return key
