"""Published results: all scores in the tables of the four papers, for comparison.

``published.json`` was transcribed from the papers. A table has parts, each with
columns and rows. A column has the name of this library's metric if both measure
the same; a column "NAME:METRIC" belongs to the data set NAME, and a column that
ends with "?" is ambiguous in the paper. ``missing`` contains the reason if a
table lacks numbers.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from longsum_jax.errors import InputError, did_you_mean
from longsum_jax.evaluation.pages import read_part

# Columns that are comparable with this library's metric of the same name.
COMPARABLE = (
    "rouge1",
    "rouge2",
    "rougeL",
    "rougeLsum",
    "ds_focus_nn",
    "entity_graph",
    "entity_precision",
    "unique_1",
    "unique_2",
    "unique_3",
    "density",
)


class PublishedPart(NamedTuple):
    """Rows of a table that have the same columns.

    Attributes:
        columns: names of the columns.
        rows: name of the system and a value for every column; None for an empty
            cell.
        datasets: data sets of columns without a data set, names in
            ``data.tasks.TASKS``.
        split: split of the data sets, None if the paper does not state it.
        origin: source of the numbers if they are not from the table itself.
        note: remark on the numbers.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    datasets: tuple[str, ...] = ()
    split: str | None = None
    origin: str | None = None
    note: str | None = None


class PublishedTable(NamedTuple):
    """A table of a paper.

    Attributes:
        number: number of the table; "section 8" and the like for numbers in the
            text.
        shows: content of the table.
        missing: reason why the table or a part of it is absent, None if it is
            complete.
        parts: numbers of the table.
    """

    number: str
    shows: str
    missing: str | None
    parts: tuple[PublishedPart, ...]


class PublishedPaper(NamedTuple):
    """A paper.

    Attributes:
        title: title of the paper.
        source: version of the paper.
        rouge: variant of ROUGE in the tables.
        stemmer: True if words are stemmed, None if neither paper nor code
            states it.
        tables: tables by number.
    """

    title: str
    source: str
    rouge: str
    stemmer: bool | None
    tables: Mapping[str, PublishedTable]


class PublishedScore(NamedTuple):
    """One cell of a table.

    Attributes:
        table: number of the table.
        dataset: data set, None if the column has none.
        split: split of the data set, None if the paper does not state it.
        system: name of the row.
        metric: name of the column.
        value: content of the cell.
    """

    table: str
    dataset: str | None
    split: str | None
    system: str
    metric: str
    value: float


class PublishedBlock(NamedTuple):
    """The rows of a table that belong to one data set, for a comparison.

    Attributes:
        paper: name of the paper.
        table: number of the table.
        dataset: name of the data set.
        split: split of the data set, None if the paper does not state it.
        metrics: names of the columns, both comparable and ambiguous ones.
        systems: name of a system -> metric -> value.
        notes: remarks on the numbers.
    """

    paper: str
    table: str
    dataset: str
    split: str | None
    metrics: tuple[str, ...]
    systems: Mapping[str, Mapping[str, float]]
    notes: tuple[str, ...]


@cache
def read_published() -> Mapping[str, PublishedPaper]:
    """Returns the papers by name: locost, lsg, hepos and awesome."""
    papers = json.loads(read_part("published.json"))
    return {name: _paper(values) for name, values in papers.items()}


def _paper(values: Mapping[str, Any]) -> PublishedPaper:
    tables = {
        number: _table(number, table)
        for number, table in values["tables"].items()
    }
    return PublishedPaper(
        values["title"],
        values["source"],
        values["rouge"],
        values["stemmer"],
        tables,
    )


def _table(number: str, values: Mapping[str, Any]) -> PublishedTable:
    parts = tuple(_part(part) for part in values.get("parts", ()))
    return PublishedTable(number, values["shows"], values.get("missing"), parts)


def _part(values: Mapping[str, Any]) -> PublishedPart:
    return PublishedPart(
        columns=tuple(values["columns"]),
        rows=tuple((name, tuple(cells)) for name, *cells in values["rows"]),
        datasets=tuple(values.get("datasets", ())),
        split=values.get("split"),
        origin=values.get("from"),
        note=values.get("note"),
    )


def published_scores(paper: str) -> Iterator[PublishedScore]:
    """Yields all numeric cells of a paper, once for every data set of the cell.

    Args:
        paper: name of the paper.
    """
    for table in read_published()[paper].tables.values():
        for part in table.parts:
            for system, values in part.rows:
                for column, value in zip(part.columns, values, strict=True):
                    if value is not None:
                        for dataset, metric in _meanings(column, part):
                            yield PublishedScore(
                                table.number,
                                dataset,
                                part.split,
                                system,
                                metric,
                                value,
                            )


def _meanings(column: str, part: PublishedPart) -> list[tuple[str | None, str]]:
    """Returns the data sets of a column, each with the name of the metric."""
    dataset, colon, metric = column.partition(":")
    if colon:
        return [(dataset, metric)]
    return [(name, column) for name in part.datasets] or [(None, column)]


def find_published(choice: str) -> list[PublishedBlock]:
    """Returns published rows to compare scores with.

    Args:
        choice: "PAPER:DATASET", as in "lsg:arxiv", or "PAPER:tableN", as in
            "awesome:table10".

    Raises:
        InputError: an unknown choice, or one without numbers; the message lists
            the choices.
    """
    papers = read_published()
    name, colon, topic = choice.partition(":")
    if not colon:
        raise InputError(
            f"--published={choice} has no colon; give PAPER:DATASET or PAPER:tableN, "
            "for example lsg:arxiv or awesome:table3"
        )
    if name not in papers:
        raise InputError(
            f'--published={choice}: the paper "{name}" is unknown; {did_you_mean(name, papers)}'
        )
    blocks = [block for block in _blocks(name) if topic in _topics(block)]
    if not blocks:
        raise InputError(f"--published={choice}: {_reason(name, topic)}")
    return blocks


def _topics(block: PublishedBlock) -> tuple[str, str]:
    """Returns the two names of a block that may follow the colon of a choice."""
    return block.dataset, f"table{block.table}"


def _reason(paper: str, topic: str) -> str:
    """Returns the reason why a choice has no rows, and the choices that have some."""
    choices = {name for block in _blocks(paper) for name in _topics(block)}
    if choices:
        remedy = did_you_mean(topic, choices)
    else:
        others = [
            f"{name}:{block.dataset}"
            for name in read_published()
            for block in _blocks(name)
        ]
        remedy = f"choices of other papers: {', '.join(dict.fromkeys(others))}"
    for table in read_published()[paper].tables.values():
        datasets = {
            dataset for part in table.parts for dataset in part.datasets
        }
        if table.missing and (
            topic in datasets or topic == f"table{table.number}"
        ):
            return f"no scores of table {table.number} are known, since {table.missing}; {remedy}"
    return f'"{topic}" is unknown or has no comparable scores; {remedy}'


def _blocks(paper: str) -> list[PublishedBlock]:
    """Returns all blocks of a paper that have a comparable metric."""
    groups: dict[tuple[str, str], list[PublishedScore]] = {}
    for score in published_scores(paper):
        if score.dataset and score.metric.removesuffix("?") in COMPARABLE:
            groups.setdefault((score.table, score.dataset), []).append(score)
    return [_block(paper, scores) for scores in groups.values()]


def _block(paper: str, scores: Sequence[PublishedScore]) -> PublishedBlock:
    systems: dict[str, dict[str, float]] = {}
    for score in scores:
        systems.setdefault(score.system, {})[score.metric] = score.value
    first = scores[0]
    parts = read_published()[paper].tables[first.table].parts
    origins = [f"from {part.origin}" for part in parts if part.origin]
    notes = [part.note for part in parts if part.note]
    names = {score.metric for score in scores}
    metrics = sorted(
        names, key=lambda name: COMPARABLE.index(name.removesuffix("?"))
    )
    return PublishedBlock(
        paper,
        first.table,
        str(first.dataset),
        first.split,
        tuple(metrics),
        systems,
        tuple(dict.fromkeys(origins + notes)),
    )
