"""Writes docs/papers/numbers.md: the published numbers, and for each table how to repeat it.

    python docs/make_numbers.py

Numbers of the papers come from ``longsum_jax/evaluation/published.json``, hours from the plans of
``benchmarks/results/config_plans.json`` and the steps of the configs, and our numbers from other
files of ``benchmarks/results``. A test compares the page with these files.
"""

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from result_pages.recipes import OURS, RECIPES, OwnColumn, Recipe, Run

from longsum_jax.evaluation.published import (
    PublishedPaper,
    PublishedPart,
    PublishedTable,
    published_scores,
    read_published,
)
from longsum_jax.experiment.config_files import read_config

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "papers" / "numbers.md"
WIDTH = 100  # of a line of a command, in characters
NAMES = {"locost": "LOCOST", "lsg": "LSG", "hepos": "Hepos", "awesome": "AWESOME"}
HEADINGS = {
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "rougeLsum": "ROUGE-Lsum",
    "summac": "SummaC",
    "ds_focus_nn": "DS_Focus",
    "entity_graph": "entity graph",
    "entity_precision": "entity precision",
    "unique_1": "unique 1-grams",
    "unique_2": "2-grams",
    "unique_3": "3-grams",
    "gpu_gb": "GPU, GB",
    "bpc": "BPC",
    "f1": "F1",
    "micro_f1": "micro F1",
    "macro_f1": "macro F1",
}
INTRODUCTION = """# Published numbers

This page is made by `docs/make_numbers.py`; the papers' numbers are in
`longsum_jax/evaluation/published.json`. No model of the papers' size has been trained here, so the
tables have no column of ours, except where a plan measures the same quantity; the line *here*
links what was measured on other sizes. `longsum score --published=lsg:arxiv` (any paper and data
set, or `awesome:table10`) prints the rows of a paper below the scores of a file.

- A cell with **-** is empty in the paper. The text leaves the meaning of a heading open that ends
  with **?**. Numbers from another place than the table itself name it.
- **Hours** are those of one NVIDIA H200 for training: the steps of the config times the roofline
  time of a step (`longsum plan`), every document as long as the config reads at most. A real step
  takes longer than its roofline, and a shorter document less than the longest; the estimate leaves
  out evaluation. **-** stands for a run without a plan.
- Data sets of TensorFlow Datasets and SCROLLS are read by name (`longsum corpus export --task=NAME`
  writes them as JSON lines); BookSum has to be fetched by hand, as its builder says.
"""


def write_page(path: Path = PAGE) -> Path:
    """Writes the page, and returns its path."""
    lines = [INTRODUCTION]
    for name, paper in read_published().items():
        lines += _paper_lines(name, paper)
    path.write_text("\n".join(lines).rstrip("\n") + "\n", encoding="utf-8")
    return path


def _paper_lines(name: str, paper: PublishedPaper) -> Iterator[str]:
    yield f"## {NAMES[name]}"
    yield ""
    yield f"*{paper.title}* ({paper.source}); [what is as published]({name}.md)."
    yield ""
    yield f"Scores: {paper.rouge}."
    yield ""
    for number, table in paper.tables.items():
        yield from _table_lines(name, table, RECIPES[name].get(number))


def _table_lines(paper: str, table: PublishedTable, recipe: Recipe | None) -> Iterator[str]:
    number = f"Table {table.number}" if table.number.isdecimal() else table.number.capitalize()
    yield f"### {NAMES[paper]}, {number.lower()}: {table.shows}"
    yield ""
    if table.missing:
        yield f"- Missing: {table.missing}"
    if recipe is not None:
        yield f"- Needs: {recipe.needs}"
        if recipe.runs:
            yield f"- Hours: {'; '.join(map(_hours, recipe.runs))}"
        if recipe.here:
            yield f"- Here: {recipe.here}"
    yield ""
    if recipe is not None and recipe.commands:
        yield from ("```bash", *map(_wrapped, recipe.commands), "```", "")
    ours = OURS.get((paper, table.number))
    for part in table.parts:
        yield from _part_lines(part, _places(table), ours)
    if ours is not None and not any(_is_main(part) for part in table.parts):
        yield from _own_lines(ours)


def _wrapped(command: str) -> str:
    """Returns a command over several lines, each of which begins with a flag."""
    lines = textwrap.wrap(
        command.replace(" -- --", " --\0--"), WIDTH, break_long_words=False, break_on_hyphens=False
    )
    return " \\\n    ".join(lines).replace("\0", " ")


def _is_main(part: PublishedPart) -> bool:
    """Returns True if the numbers of a part are those of the table itself."""
    return part.origin is None


def _part_lines(
    part: PublishedPart, places: dict[str, int], ours: OwnColumn | None
) -> Iterator[str]:
    remarks = [f"from {part.origin}"] if part.origin else []
    remarks += [part.split] if part.split else []
    datasets = {column.partition(":")[0] for column in part.columns if ":" in column}
    remarks += [", ".join(part.datasets)] if part.datasets and not datasets else []
    remarks += [part.note] if part.note else []
    if remarks:
        yield f"({'; '.join(remarks)})"
        yield ""
    headings = [_heading(column) for column in part.columns]
    own = _own_values(ours) if ours is not None and _is_main(part) else {}
    if own:
        headings.append(ours.heading)
    yield "| | " + " | ".join(headings) + " |"
    yield "|---|" + "---|" * len(headings)
    for system, values in part.rows:
        cells = [
            _number(value, places.get(column, 0))
            for value, column in zip(values, part.columns, strict=True)
        ]
        if own:
            cells.append(_number(own.get(system)))
        yield f"| {system} | " + " | ".join(cells) + " |"
    yield ""


def _own_values(ours: OwnColumn) -> dict[str, float]:
    """Returns our numbers by the name of the row."""
    rows = json.loads((RESULTS / f"{ours.file}.json").read_text(encoding="utf-8"))["rows"]
    return {
        ours.systems[row["model"]]: ours.value(row) for row in rows if row["model"] in ours.systems
    }


def _own_lines(ours: OwnColumn) -> Iterator[str]:
    """Yields a table of our numbers alone, for a table whose cells are missing."""
    yield f"| | {ours.heading} |"
    yield "|---|---|"
    for system, value in _own_values(ours).items():
        yield f"| {system} | {_number(value)} |"
    yield ""


def _heading(column: str) -> str:
    dataset, colon, metric = column.partition(":")
    if not colon:
        dataset, metric = "", column
    name = metric.removesuffix("?")
    shown = HEADINGS.get(name, name) + ("?" if metric.endswith("?") else "")
    return f"{dataset}: {shown}" if dataset else shown


def _places(table: PublishedTable) -> dict[str, int]:
    """Returns the decimal places of every column of a table: the most that a value has."""
    places: dict[str, int] = {}
    for part in table.parts:
        for _, values in part.rows:
            for column, value in zip(part.columns, values, strict=True):
                if isinstance(value, float):
                    digits = len(f"{value:.6f}".rstrip("0").partition(".")[2])
                    places[column] = max(places.get(column, 1), digits)
    return places


def _number(value: float | None, places: int = 0) -> str:
    """Returns the text of a cell."""
    if value is None:
        return "-"
    if isinstance(value, float) and 0 < value < 1e-3:
        return f"{value:.0e}".replace("e-0", "e-")  # a learning rate
    return f"{value:,.{places}f}"


def _hours(run: Run) -> str:
    """Returns the estimated hours of a training run on the device of its plan."""
    plans = json.loads((RESULTS / "config_plans.json").read_text(encoding="utf-8"))["rows"]
    rows = [row for row in plans if row["case"] == run.case and row["program"] == "train"]
    label = f"`{run.case}`"
    if not rows:
        return f"{label} -"
    [row] = rows
    steps = steps_of(run)
    hours = steps * row["least_ms"] / 3.6e6
    return f"{label} {hours:,.1f} ({steps:,} steps of {row['least_ms'] / 1000:.2f} s)"


def steps_of(run: Run) -> int:
    """Returns the steps of a training run, which its config or the passes over the data end."""
    file, _, mode = run.case.partition(":")
    config = read_config(f"configs/{file}.py:{mode}", {})
    steps = config["training"]["steps"]
    if run.documents is None:
        return steps
    paper, table, system = run.documents
    found = {
        score.value
        for score in published_scores(paper)
        if (score.table, score.system, score.metric) == (table, system, "train")
    }
    [documents] = found
    batches = -(-int(documents) // config["data"]["batch_size"])
    return min(steps, config["data"]["epochs"] * batches)


if __name__ == "__main__":
    print(write_page(), file=sys.stderr)
