"""Sheets that people fill in, as CSV for spreadsheets and as a page for browsers."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from longsum_jax import atomic
from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.judging import Item, Key, Question
from longsum_jax.evaluation.pages import fill, read_part, script_json
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.schema import first_names
from longsum_jax.text.documents import read_text_file

Answers = dict[str, dict[str, float]]  # item -> question -> answer, where one was given


def write_sheets(
    directory: Path,
    key: Key,
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> list[Path]:
    """Writes a CSV and an HTML file for every judge, and the documents as text files.

    The pages need no network access. Names of systems and ids of documents are in none of the
    files.

    Args:
        directory: exists.
        key: of the items.
        pairs: documents by id.
        systems: predictions by id, by name of the system.

    Returns:
        The pages, one for every judge.

    Raises:
        OSError: a file cannot be written.
    """
    documents = directory / "documents"
    documents.mkdir(exist_ok=True)
    numbers = {name: f"{number:03d}" for number, name in enumerate(key.documents, 1)}
    for name, number in numbers.items():
        atomic.write_text(documents / f"{number}.txt", _shown(pairs[name]) + "\n")
    pages = []
    for judge in range(key.judges):
        items = {name: item for name, item in key.items.items() if item.judge == judge}
        stem = f"judge-{judge + 1}"
        rows = [
            [name, numbers[item.document], systems[item.system][item.document].text]
            for name, item in items.items()
        ]
        atomic.write_text(directory / f"{stem}.csv", _csv(rows, key.questions))
        page = _page(stem, items, key, pairs, systems)
        atomic.write_text(directory / f"{stem}.html", page)
        pages.append(directory / f"{stem}.html")
    return pages


def read_sheets(paths: Sequence[str | Path], key: Key) -> Answers:
    """Reads filled sheets; empty cells and absent rows are answers that were not given.

    Commas, semicolons and tabs may stand between cells, as spreadsheets save them.

    Raises:
        InputError: a column is missing, an item is not the key's or comes twice, or an answer is
            none of the question's.
    """
    answers: Answers = {}
    places: dict[str, str] = {}
    for path in paths:
        for where, row in _rows(path, key.questions):
            item = row["item"]
            if item not in key.items:
                raise InputError(
                    f'{where}: the item "{item}" is not in the key; give the key.json that was '
                    "written with this sheet"
                )
            if item in places:
                raise InputError(
                    f'{where}: the item "{item}" is also at {places[item]}; give every sheet once'
                )
            places[item] = where
            answers[item] = _answers(row, key.questions, where)
    return answers


def _shown(pair: Pair) -> str:
    """Returns what a judge reads beside the summaries."""
    return f"{pair.query}\n\n{pair.source}" if pair.query else pair.source


def _csv(rows: Sequence[Sequence[str]], questions: Sequence[Question]) -> str:
    names = [question.name for question in questions]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["item", "document", "summary", *names])
    writer.writerows([*row, *("" for _ in names)] for row in rows)
    return "\ufeff" + text.getvalue()  # by which spreadsheets know UTF-8


def _page(
    title: str,
    items: Mapping[str, Item],
    key: Key,
    pairs: Mapping[str, Pair],
    systems: Mapping[str, Mapping[str, Prediction]],
) -> str:
    summaries: dict[str, list[dict[str, str]]] = {name: [] for name in key.documents}
    for name, item in items.items():
        text = systems[item.system][item.document].text
        summaries[item.document].append({"item": name, "text": text})
    data = {
        "title": title,
        "questions": [question._asdict() for question in key.questions],
        "documents": [
            {"text": _shown(pairs[name]), "summaries": found} for name, found in summaries.items()
        ],
    }
    return fill(read_part("sheet.html"), data=script_json(data))


def _rows(path: str | Path, questions: Sequence[Question]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields the rows of a CSV with the places where they stand."""
    text = read_text_file(path)
    first = text.lstrip().removeprefix('"item"').removeprefix("item")[:1]
    delimiter = first if first in (";", "\t") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    wanted = ["item", *(question.name for question in questions)]
    try:
        absent = [name for name in wanted if name not in (reader.fieldnames or ())]
        if absent:
            raise InputError(f"{path}: no column {first_names(absent)}; give a filled sheet as CSV")
        for row in reader:
            yield f"{path}:{reader.line_num}", {name: row[name] or "" for name in wanted}
    except csv.Error as error:
        raise InputError(f"{path}: not valid CSV ({error}); save the sheet as CSV") from error


def _answers(row: Mapping[str, str], questions: Sequence[Question], where: str) -> dict[str, float]:
    answers = {}
    for question in questions:
        text = row[question.name].strip()
        if not text:
            continue
        if text not in map(str, question.answers):
            known = ", ".join(map(str, question.answers))
            raise InputError(
                f'{where}: "{text}" under {question.name}; answer by one of {known}, or leave it '
                "empty"
            )
        answers[question.name] = float(text)
    return answers
