"""Sheets for human judges, as CSV for spreadsheets and as HTML pages.

A sheet has a row for every sentence of a summary, if the protocol asks about
sentences, and one row without a sentence number for the questions about the
summary.
"""

import csv
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from longsum_jax import atomic
from longsum_jax.errors import InputError, terminal_text
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.pages import fill, read_part
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.experimental.judging.judging import (
    PROTOCOLS,
    Item,
    Key,
    Question,
    instructions,
    item_sentences,
)
from longsum_jax.schema import first_names
from longsum_jax.text.documents import read_text_file

SUMMARY = 0  # sentence number of questions about the whole summary
NO_ANSWER = "-"  # content of cells whose question does not apply to the row

# Item -> sentence number from 1, or SUMMARY -> question -> answer.
Answers = dict[str, dict[int, dict[str, float]]]


class _Row(NamedTuple):
    """One row of a filled sheet, with its file and line."""

    location: str
    item: str
    sentence: int
    answers: dict[str, float]


def write_sheets(
    directory: Path,
    key: Key,
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
    prompt: str | None = None,
) -> list[Path]:
    """Writes a CSV and an HTML file for every judge, and instructions and documents as text files.

    The pages do not need network access. The files do not contain system names
    or document ids.

    Args:
        directory: an existing directory.
        key: key of the items.
        pairs: documents by id.
        systems: predictions by id, by system name.
        prompt: instructions for the judges; None for the protocol's default.

    Returns:
        The HTML pages, one for every judge.

    Raises:
        OSError: a file cannot be written.
    """
    prompt = prompt or instructions(key)
    documents = directory / "documents"
    documents.mkdir(exist_ok=True)
    numbers = {
        name: f"{number:03d}" for number, name in enumerate(key.documents, 1)
    }
    for name, number in numbers.items():
        for kind, text in _texts(key, pairs[name]).items():
            if kind == "document":
                stem = number
            else:
                stem = f"{number}-{kind}"
            atomic.write_text(
                documents / f"{stem}.txt", terminal_text(text) + "\n"
            )
    atomic.write_text(
        directory / "instructions.txt", prompt.rstrip("\n") + "\n"
    )
    pages = []
    for judge in range(key.judges):
        items = {
            name: item
            for name, item in key.items.items()
            if item.judge == judge
        }
        stem = f"judge-{judge + 1}"
        atomic.write_text(
            directory / f"{stem}.csv", _csv(key, items, numbers, systems)
        )
        page = _page(stem, prompt, key, items, pairs, systems)
        atomic.write_text(directory / f"{stem}.html", terminal_text(page))
        pages.append(directory / f"{stem}.html")
    return pages


def read_sheets(paths: Sequence[str | Path], key: Key) -> Answers:
    """Reads filled sheets, which must be complete for every judge with at least one answer.

    Cells may be separated by commas, semicolons or tabs, as saved by different
    spreadsheets.

    Raises:
        InputError: a missing column or answer, an item or sentence that is not
            in the key, two rows for one sentence, an invalid answer, or a
            ranking without a first place.
    """
    answers: Answers = {}
    rows: dict[tuple[str, int], _Row] = {}
    for path in paths:
        for row in _rows(path, key):
            other = rows.setdefault((row.item, row.sentence), row)
            if other is not row:
                if other.answers == row.answers:
                    what = "the same"
                else:
                    what = "other"
                raise InputError(
                    f"{row.location}: {_unit(row.item, row.sentence)} has {what} answers at "
                    f"{other.location}; give one row for it"
                )
            answers.setdefault(row.item, {})[row.sentence] = row.answers
    filled = {key.items[row.item].judge for row in rows.values() if row.answers}
    for name, item in key.items.items():
        if item.judge in filled:
            _check_complete(key, name, answers.get(name, {}))
    _check_ranks(key, answers, filled)
    return {
        name: rows
        for name, rows in answers.items()
        if key.items[name].judge in filled
    }


def _texts(key: Key, pair: Pair) -> dict[str, str]:
    """Returns the texts that a judge reads in addition to the summaries, by kind."""
    if pair.query:
        document = f"{pair.query}\n\n{pair.source}"
    else:
        document = pair.source
    texts = {"document": document}
    if PROTOCOLS[key.protocol].shows_reference:
        texts["reference"] = pair.reference
    return texts


def _csv(
    key: Key,
    items: Mapping[str, Item],
    numbers: Mapping[str, str],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> str:
    num_sentence_cells = len(key.of_sentences)
    num_summary_cells = len(key.of_summaries)
    of_sentences = [""] * num_sentence_cells, [NO_ANSWER] * num_summary_cells
    of_summaries = [NO_ANSWER] * num_sentence_cells, [""] * num_summary_cells
    content = io.StringIO(newline="")
    writer = csv.writer(content)
    names = [
        question.name for question in (*key.of_sentences, *key.of_summaries)
    ]
    writer.writerow(["item", "document", "sentence", "text", *names])
    for name, item in items.items():
        summary = systems[item.system][item.document].text
        number = numbers[item.document]
        for sentence, text in enumerate(
            item_sentences(key.protocol, summary), 1
        ):
            writer.writerow(
                [
                    name,
                    number,
                    sentence,
                    text,
                    *of_sentences[0],
                    *of_sentences[1],
                ]
            )
        # Do not repeat a summary whose sentences are in the rows above.
        text = "" if item.sentences else summary
        writer.writerow(
            [name, number, "", text, *of_summaries[0], *of_summaries[1]]
        )
    # BOM, by which spreadsheets recognize UTF-8
    return "\ufeff" + content.getvalue()


def _page(
    title: str,
    prompt: str,
    key: Key,
    items: Mapping[str, Item],
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> str:
    sections = []
    for number, document in enumerate(key.documents, 1):
        texts = ""
        for kind, text in _texts(key, pairs[document]).items():
            texts += (
                f'<h3>{kind.capitalize()}</h3><div class="text {kind}" tabindex="0" role="region" '
                f'aria-label="{kind.capitalize()} {number}">{html.escape(text)}</div>'
            )
        cards = ""
        for name, item in items.items():
            if item.document == document:
                cards += _card(name, systems[item.system][document].text, key)
        sections.append(
            f'<section class="document" aria-labelledby="document-{number}">'
            f'<h2 id="document-{number}">Document {number} of {len(key.documents)}</h2>'
            f'<div class="columns"><div class="texts">{texts}</div><div>{cards}</div></div>'
            "</section>"
        )
    return fill(
        read_part("sheet.html", "longsum_jax.experimental.judging"),
        title=html.escape(title),
        prompt=html.escape(prompt),
        documents="\n".join(sections),
    )


def _card(item: str, summary: str, key: Key) -> str:
    """Returns an HTML card for one summary, with controls for its sentences and for the whole."""
    letter = item.rpartition("-")[2]
    sentences = item_sentences(key.protocol, summary)
    fields = ""
    for number, sentence in enumerate(sentences, 1):
        fields += _fieldset(
            item, str(number), f"{number}. {sentence}", key.of_sentences
        )
    text = ""
    if not sentences:
        text = f'<p class="text">{html.escape(summary) or "(empty)"}</p>'
    fields += _fieldset(
        item, "", f"Summary {letter} as a whole", key.of_summaries
    )
    return f"<article><h3>Summary {letter}</h3>{text}{fields}</article>"


def _fieldset(
    item: str, sentence: str, legend: str, questions: Sequence[Question]
) -> str:
    """Returns a group of labeled drop-down lists."""
    controls = ""
    for question in questions:
        options = '<option value=""></option>'
        for answer, label in zip(
            question.answers, question.labels, strict=True
        ):
            # Options start with their number, so that one key press selects
            # them.
            text = html.escape(f"{answer} {label}".strip())
            options += f'<option value="{answer}">{text}</option>'
        name = html.escape(question.name)
        controls += (
            f'<label>{name} <select name="{name}">{options}</select></label>'
        )
    return (
        f'<fieldset data-item="{item}" data-sentence="{sentence}">'
        f"<legend>{html.escape(legend)}</legend>{controls}</fieldset>"
    )


def _rows(path: str | Path, key: Key) -> Iterator[_Row]:
    """Yields the rows of a CSV file."""
    text = read_text_file(path)
    first = text.lstrip().removeprefix('"item"').removeprefix("item")[:1]
    delimiter = first if first in (";", "\t") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    names = [
        question.name for question in (*key.of_sentences, *key.of_summaries)
    ]
    try:
        absent = [
            name
            for name in ("item", "sentence", *names)
            if name not in (reader.fieldnames or ())
        ]
        if absent:
            raise InputError(
                f"{path}: no column {first_names(absent)}; give a filled sheet as CSV"
            )
        for cells in reader:
            yield _row(f"{path}:{reader.line_num}", cells, key)
    except csv.Error as error:
        raise InputError(
            f"{path}: not valid CSV ({error}); save the sheet as CSV"
        ) from error


def _row(location: str, cells: Mapping[str, str | None], key: Key) -> _Row:
    item = cells["item"] or ""
    if item not in key.items:
        raise InputError(
            f'{location}: the item "{item}" is not in the key; give the key.json that was written '
            "with this sheet"
        )
    number = (cells["sentence"] or "").strip()
    allowed = ["", *map(str, range(1, key.items[item].sentences + 1))]
    if number not in allowed:
        raise InputError(
            f'{location}: sentence "{number}" of a summary of {len(allowed) - 1}; give the numbers '
            "of the sheet"
        )
    questions, others = key.of_sentences, key.of_summaries
    if not number:
        questions, others = others, questions
    for question in others:
        if (cells[question.name] or "").strip() not in ("", NO_ANSWER):
            raise InputError(
                f'{location}: "{cells[question.name]}" under {question.name}, which this row does '
                "not ask; leave the cell empty"
            )
    answers = {}
    for question in questions:
        text = (cells[question.name] or "").strip()
        if not text:
            continue
        if text not in map(str, question.answers):
            expected = ", ".join(map(str, question.answers))
            raise InputError(
                f'{location}: "{text}" under {question.name}; answer by one of {expected}'
            )
        answers[question.name] = float(text)
    return _Row(location, item, int(number or SUMMARY), answers)


def _unit(item: str, sentence: int) -> str:
    if sentence:
        return f'sentence {sentence} of "{item}"'
    return f'summary "{item}"'


def _check_complete(
    key: Key, item: str, rows: Mapping[int, Mapping[str, float]]
) -> None:
    """Raises InputError for the first missing answer about an item."""
    for sentence in [*range(1, key.items[item].sentences + 1), SUMMARY]:
        for question in key.of_sentences if sentence else key.of_summaries:
            if question.name not in rows.get(sentence, {}):
                raise InputError(
                    f"judge {key.items[item].judge + 1}: no answer to {question.name} of "
                    f"{_unit(item, sentence)}; complete the sheet"
                )


def _check_ranks(key: Key, answers: Answers, judges: set[int]) -> None:
    """Raises InputError if a judge does not rank any summary of a document first."""
    ranked = [
        question.name
        for question in key.of_summaries
        if question.kind == "rank"
    ]
    for name in ranked:
        best: dict[tuple[int, str], float] = {}
        for item, (judge, document, _, _) in key.items.items():
            if judge in judges:
                rank = answers[item][SUMMARY][name]
                best[judge, document] = min(
                    rank, best.get((judge, document), rank)
                )
        for (judge, document), rank in best.items():
            if rank > 1:
                number = key.documents.index(document) + 1
                raise InputError(
                    f"judge {judge + 1}: no summary of document {number:03d} has {name} 1, the "
                    f"best is {rank:g}; correct the ranks"
                )
