"""Protocols for human and chat-model judges, and the key of blinded summaries.

An item is one summary shown to one judge. Its name reveals neither the system
nor the document; the key maps names to both. A protocol asks some questions
about every sentence of a summary and others about the whole summary.
Definitions of the questions follow the papers, in our own words.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from longsum_jax import atomic
from longsum_jax.data.govreport import ASPECTS as GAO_ASPECTS
from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experimental.judging.agreement import Scale
from longsum_jax.files import json_text, parse_json
from longsum_jax.text.documents import read_text_file
from longsum_jax.text.sentences import split_sentences

# names of a document's summaries: at most 26 systems
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Aspects of summaries by data set (Huang et al. 2021, section 4).
ASPECTS = {
    "govreport": GAO_ASPECTS,
    "pubmed": ("Introduction", "Methods", "Results", "Conclusion"),
}


class Question(NamedTuple):
    """A question that judges answer about a sentence or a summary.

    Attributes:
        name: column of the answers.
        text: definition that the judge reads.
        answers: whole numbers to choose from; () for numbers that the key
            determines.
        labels: label of each answer, "" for none.
        scale: scale of the answers, for Krippendorff's alpha.
        share: name of the share of sentences that is reported, "" for questions
            about summaries.
        counted: answer that the share counts.
        kind: "aspect" to select one of the protocol's aspects, "per_aspect" to
            answer once for each aspect, "rank" for ranks from 1 to the number
            of systems.
    """

    name: str
    text: str
    answers: tuple[int, ...]
    labels: tuple[str, ...]
    scale: Scale
    share: str = ""
    counted: int = 1
    kind: Literal["plain", "aspect", "per_aspect", "rank"] = "plain"


class Protocol(NamedTuple):
    """A protocol of human evaluation.

    Attributes:
        documents: number of documents to sample.
        judges: number of judges of every summary.
        shows_reference: True if judges read the reference summary as well.
        instruction: task of the judges.
        of_sentences: questions about every sentence of a summary.
        of_summaries: questions about every summary.
    """

    documents: int
    judges: int
    shows_reference: bool
    instruction: str
    of_sentences: tuple[Question, ...]
    of_summaries: tuple[Question, ...]

    @property
    def has_aspects(self) -> bool:
        """True if sentences have an aspect."""
        return any(question.kind == "aspect" for question in self.of_sentences)


class Item(NamedTuple):
    """One summary shown to one judge.

    Attributes:
        judge: number of the judge, from 0.
        document: id of the document.
        system: name of the system.
        sentences: number of sentences to label.
    """

    judge: int
    document: str
    system: str
    sentences: int


class Key(NamedTuple):
    """The key of blinded summaries: the system and the document of every item.

    Attributes:
        protocol: a name in ``PROTOCOLS``.
        judges: number of judges of every summary.
        seed: random seed of the sample and the orders.
        aspects: aspects that a sentence may have; () for protocols without
            aspects.
        systems: names of the systems.
        documents: ids, in the order of the sheets.
        items: items by the names that judges see, in the order in which they
            see them.
    """

    protocol: str
    judges: int
    seed: int
    aspects: tuple[str, ...]
    systems: tuple[str, ...]
    documents: tuple[str, ...]
    items: dict[str, Item]

    @property
    def of_sentences(self) -> tuple[Question, ...]:
        """Questions about every sentence, with the answers of this key."""
        return self._complete(PROTOCOLS[self.protocol].of_sentences)

    @property
    def of_summaries(self) -> tuple[Question, ...]:
        """Questions about every summary, with the answers of this key."""
        return self._complete(PROTOCOLS[self.protocol].of_summaries)

    def _complete(self, questions: Sequence[Question]) -> tuple[Question, ...]:
        complete = []
        for question in questions:
            if question.kind == "rank":
                ranks = tuple(range(1, len(self.systems) + 1))
                labels = [""] * len(ranks)
                labels[:1], labels[-1:] = (
                    ["most informative"],
                    ["least informative"],
                )
                question = question._replace(
                    answers=ranks, labels=tuple(labels)
                )
            if question.kind == "aspect":
                numbers = tuple(range(1, len(self.aspects) + 1))
                question = question._replace(
                    answers=numbers, labels=self.aspects
                )
            if question.kind == "per_aspect":
                names = [
                    f"{question.name}: {aspect}" for aspect in self.aspects
                ]
                complete += [question._replace(name=name) for name in names]
            else:
                complete.append(question)
        return tuple(complete)


def _likert(
    name: str,
    text: str,
    low: str,
    high: str,
    kind: Literal["plain", "per_aspect"] = "plain",
) -> Question:
    return Question(
        name,
        text,
        (1, 2, 3, 4, 5),
        (low, "", "", "", high),
        "ordinal",
        kind=kind,
    )


def _binary(name: str, text: str, share: str, counted: int) -> Question:
    return Question(
        name, text, (0, 1), ("no", "yes"), "nominal", share, counted
    )


PROTOCOLS = {
    # Huang et al. (2021), section 6.4: 50 documents of each of two data sets,
    # two judges.
    "hepos": Protocol(
        50,
        2,
        True,
        "Read the document and its reference, then the summaries, whose order is random. Label "
        "every sentence of a summary by its aspect and by its errors. Then rate how informative "
        "the summary is on each aspect.",
        (
            Question(
                "aspect",
                "The aspect of the document that the sentence is about.",
                (),
                (),
                "nominal",
                kind="aspect",
            ),
            _binary(
                "hallucination",
                "The sentence states something that the document does not contain.",
                "hallucination",
                1,
            ),
            _binary(
                "deletion",
                "The sentence is wrong because a name, an event or a clause that matters is "
                "missing.",
                "deletion",
                1,
            ),
            _binary(
                "false_concatenation",
                "The sentence joins parts of different sentences to a statement that the document "
                "does not make.",
                "false_concatenation",
                1,
            ),
        ),
        (
            _likert(
                "informativeness",
                "The amount of important information on this aspect, measured by the reference.",
                "hardly any",
                "nearly all",
                "per_aspect",
            ),
        ),
    ),
    # Cao & Wang (2023), section 5 and appendix E: 25 documents, three judges.
    "awesome": Protocol(
        25,
        3,
        True,
        "Read the document and its reference, then the summaries, whose order is random. Label "
        "every sentence of a summary. Then give every summary of the document a rank.",
        (
            _binary(
                "coherent",
                "The sentence continues its predecessor in topic and wording, and is consistent "
                "with all of the summary before it: no contradiction, no change of an order that "
                "was set, no announced point left out.",
                "incoherent",
                0,
            ),
            _binary(
                "faithful",
                "The document supports all of the sentence, including the names that abbreviations "
                "stand for and the state of a plan or an action. The reference may help to decide.",
                "unfaithful",
                0,
            ),
        ),
        (
            Question(
                "rank",
                "The rank of the summary by the amount of the reference's information that it "
                "contains; equal ones share a rank. Information that the reference lacks does not "
                "count, however long the summary is.",
                (),
                (),
                "ordinal",
                kind="rank",
            ),
        ),
    ),
    # Le Bronnec et al. (2024), section 5.4 and appendix I: four axes, for a
    # chat model.
    "locost": Protocol(
        500,
        1,
        False,
        "Take the part of a person who rates summaries. First read the document with care. Then "
        "read its summary. Last rate the summary on each axis by a whole number from 1, the worst, "
        "to 5, the best.",
        (),
        (
            _likert(
                "relevance",
                "The summary contains all important points of the document, and only these.",
                "worst",
                "best",
            ),
            _likert(
                "consistency",
                "The document supports every statement of the summary; nothing is wrong or made "
                "up.",
                "worst",
                "best",
            ),
            _likert(
                "fluency",
                "Each sentence is grammatical and well written.",
                "worst",
                "best",
            ),
            _likert(
                "coherence",
                "The sentences together make one text that reads naturally.",
                "worst",
                "best",
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
    aspects: str | None = None,
    seed: int = 0,
) -> Key:
    """Samples documents, and shuffles the summaries of each document separately for every judge.

    Args:
        protocol: a name in ``PROTOCOLS``.
        pairs: documents; each system has a prediction for each.
        systems: predictions by id, by system name.
        documents: number of documents to sample; None for the protocol's
            number.
        judges: number of judges of every summary; None for the protocol's
            number.
        aspects: a name in ``ASPECTS``, or a comma-separated list of aspects;
            None for the aspects of GovReport.
        seed: random seed of the sample and the orders.

    Raises:
        InputError: an unknown protocol, too few documents, too many systems, or
            aspects for a protocol without aspects.
    """
    if protocol not in PROTOCOLS:
        raise InputError(
            f"--protocol={protocol} is unknown; {did_you_mean(protocol, PROTOCOLS)}"
        )
    names = _aspects(protocol, aspects)
    published = PROTOCOLS[protocol]
    documents = documents or published.documents
    judges = judges or published.judges
    if documents > len(pairs):
        raise InputError(
            f"{documents} documents to judge, but there are {len(pairs)}; give "
            f"--documents={len(pairs)}"
        )
    if len(systems) > len(LETTERS):
        raise InputError(
            f"{len(systems)} systems to judge; give at most {len(LETTERS)}"
        )
    generator = np.random.default_rng(seed)
    sample = [
        pairs[row]
        for row in generator.choice(len(pairs), documents, replace=False)
    ]
    system_names = tuple(systems)
    mark = _mark([protocol, names, seed], sample, systems)
    items = {}
    for judge in range(judges):
        for number, pair in enumerate(sample, 1):
            order = generator.permutation(len(system_names))
            for letter, row in zip(LETTERS, order, strict=False):
                system = system_names[row]
                sentences = len(
                    item_sentences(protocol, systems[system][pair.id].text)
                )
                item = Item(judge, pair.id, system, sentences)
                items[f"{mark}-{judge + 1}-{number:03d}-{letter}"] = item
    ids = tuple(pair.id for pair in sample)
    return Key(protocol, judges, seed, names, system_names, ids, items)


def item_sentences(protocol: str, summary: str) -> list[str]:
    """Returns the sentences of a summary that judges label; [] if they label none."""
    if PROTOCOLS[protocol].of_sentences:
        return split_sentences(summary)
    return []


def read_prompt(
    path: str | Path, required: Sequence[str] = (), optional: Sequence[str] = ()
) -> str:
    """Reads a user's text with placeholders such as ``{document}``.

    Args:
        path: a text file.
        required: names of placeholders that must occur.
        optional: names of other placeholders that may occur.

    Raises:
        InputError: a missing or unknown placeholder, or a blank file.
    """
    text = read_text_file(path)
    allowed = [f"{{{name}}}" for name in (*required, *optional)]
    present = re.findall(r"\{\w+\}", text)
    for placeholder in present:
        if placeholder not in allowed:
            if allowed:
                remedy = f"known: {', '.join(allowed)}"
            else:
                remedy = "a sheet has no placeholders; remove it"
            raise InputError(
                f"{path}: unknown placeholder {placeholder}; {remedy}"
            )
    for name in required:
        if f"{{{name}}}" not in present:
            raise InputError(
                f"{path}: no placeholder {{{name}}}; put it where the {name} of a request stands"
            )
    if not text.strip():
        raise InputError(
            f"{path}: the file is blank; write the text that judges read into it"
        )
    return text


def instructions(key: Key) -> str:
    """Returns the text that judges read first: the task, and the definition of every question."""
    protocol = PROTOCOLS[key.protocol]
    lines = [protocol.instruction, ""]
    for question in (*protocol.of_sentences, *protocol.of_summaries):
        lines.append(f"{question.name}: {question.text}")
    return "\n".join(lines)


def _aspects(protocol: str, aspects: str | None) -> tuple[str, ...]:
    if not PROTOCOLS[protocol].has_aspects:
        if aspects is not None:
            raise InputError(
                f"--aspects has no effect with --protocol={protocol}; leave it out"
            )
        return ()
    if aspects is None:
        return ASPECTS["govreport"]
    if aspects in ASPECTS:
        return ASPECTS[aspects]
    names = tuple(name.strip() for name in aspects.split(","))
    if len(names) < 2 or len(set(names)) < len(names) or not all(names):
        raise InputError(
            f"--aspects={aspects} must be {', '.join(ASPECTS)} or at least two different names "
            "with commas between them"
        )
    return names


def _mark(
    settings: Sequence[Any],
    sample: Sequence[Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> str:
    """Returns letters that identify these sheets by their sample and texts."""
    content = [*settings, [pair.id for pair in sample]]
    for name, predictions in systems.items():
        content.append([name, [predictions[pair.id].text for pair in sample]])
    digest = hashlib.blake2b(
        json.dumps(content).encode(), digest_size=8
    ).digest()
    # Only letters, because spreadsheets reformat anything that looks like a
    # number or a date.
    return "".join(LETTERS[byte % len(LETTERS)].lower() for byte in digest)


def write_key(path: Path, key: Key) -> None:
    """Writes a key as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    values = key._asdict()
    values["items"] = {name: item._asdict() for name, item in key.items.items()}
    atomic.write_text(path, json_text(values, indent=1) + "\n")


def read_key(path: str | Path) -> Key:
    """Reads a file written by ``write_key``.

    Raises:
        InputError: the file is not a key.
    """
    text = read_text_file(path)
    try:
        values: dict[str, Any] = parse_json(text)
        values["items"] = {
            name: Item(**item) for name, item in values["items"].items()
        }
        for name in ("aspects", "systems", "documents"):
            values[name] = tuple(values[name])
        key = Key(**values)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(
            f"{path}: not a key; give the key.json that longsum judge wrote"
        ) from None
    if not isinstance(key.protocol, str) or key.protocol not in PROTOCOLS:
        raise InputError(
            f'{path}: protocol "{key.protocol}"; {did_you_mean(key.protocol, PROTOCOLS)}'
        )
    return key
