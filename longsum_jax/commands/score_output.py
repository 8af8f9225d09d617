"""Scores as longsum score shows and writes them: tables, JSON, and published results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic
from longsum_jax.commands import console, flags
from longsum_jax.errors import counted
from longsum_jax.files import json_text

if TYPE_CHECKING:
    from longsum_jax.evaluation.comparison import (
        Difference,
        Prediction,
        Sampling,
        System,
    )
    from longsum_jax.evaluation.predictions import Metrics, Pair
    from longsum_jax.evaluation.published import PublishedBlock

RESULT, DOCUMENT_SCORES = "scores.json", "scores.jsonl"  # files in --out
SIGNIFICANT = 0.05  # p-value of a star; the page of a report has the same


def result_of(
    systems: Sequence["System"],
    differences: Mapping[str, Mapping[str, "Difference"]],
    metrics: "Metrics",
    sampling: "Sampling",
) -> dict[str, Any]:
    """Returns all numbers and the settings they depend on, for scores.json."""
    from longsum_jax import __version__

    systems_json = {}
    for system in systems:
        systems_json[system.name] = {
            "scores": system.values,
            "intervals": system.intervals,
            "empty_predictions": sum(
                not text.strip() for text in system.predictions
            ),
        }
        if system.name in differences:
            columns = differences[system.name]
            systems_json[system.name]["against"] = {
                column: difference._asdict()
                for column, difference in columns.items()
            }
    return {
        "examples": len(systems[0].predictions),
        "systems": systems_json,
        "metrics": {
            name: metric.describe() for name, metric in metrics.items()
        },
        "sampling": sampling._asdict(),
        "longsum_jax": __version__,
    }


def write_result(
    out: Path,
    result: dict[str, Any],
    systems: Sequence["System"],
    pairs: Sequence["Pair"],
) -> None:
    """Writes the scores of every document, and the result, into an existing directory."""
    try:
        with atomic.open_text(out / DOCUMENT_SCORES) as file:
            for number, pair in enumerate(pairs):
                scores = {
                    system.name: system.scores[number] for system in systems
                }
                row = {"id": pair.id, "scores": scores}
                file.write(json_text(row) + "\n")
    except OSError as error:
        raise console.unwritable(out, error) from error
    write_json(out, result)


def write_json(out: Path, result: dict[str, Any]) -> None:
    """Writes DIR/scores.json."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        atomic.write_text(out / RESULT, json.dumps(result, indent=2) + "\n")
    except OSError as error:
        raise console.unwritable(out, error) from error


def print_result(
    result: dict[str, Any],
    systems: Sequence["System"],
    differences: Mapping[str, Mapping[str, "Difference"]],
    metrics: "Metrics",
    pairs: Sequence["Pair"],
) -> None:
    """Prints the table of scores, and notes on how they were obtained."""
    from longsum_jax.evaluation.registry import columns_of
    from longsum_jax.evaluation.tables import score_table

    rows = {
        column: [
            _cell(system, column, differences.get(system.name))
            for system in systems
        ]
        for column in columns_of(metrics)
    }
    console.print_stdout(score_table([system.name for system in systems], rows))
    sampling = result["sampling"]
    console.print_stdout(
        f"{counted(result['examples'], 'document')}, intervals of {100 * sampling['level']:g} %"
        + left_out_text(result)
    )
    if differences:
        console.print_stdout(
            f"* differs from {systems[0].name} at p < {SIGNIFICANT} ({sampling['test']}, "
            f"{sampling['rounds']} rounds, Holm over {len(differences)})"
        )
    for name in ("scrolls", "zero_scrolls"):
        if name in result:
            console.print_stdout(
                f"the score of {result[name]['task']} is {result[name]['column']}"
            )
    for name, system_result in result["systems"].items():
        if system_result["empty_predictions"]:
            count = system_result["empty_predictions"]
            verbs = "is empty and was" if count == 1 else "are empty and were"
            console.print_stdout(
                f"{name}: {counted(count, 'prediction')} {verbs} scored like the others"
            )
    for described in result["metrics"].values():
        if "signature" in described:
            console.print_stdout(described["signature"])
    flags.print_notes(metrics, [pair.reference for pair in pairs])


def _cell(
    system: "System",
    column: str,
    differences: Mapping[str, "Difference"] | None,
) -> str:
    """Returns a value with its interval, and a star if it differs from the first system."""
    text = f"{system.values[column]:.2f}"
    if column in system.intervals:
        low, high = system.intervals[column]
        text += f" [{low:.2f}, {high:.2f}]"
    if differences is None:
        return text
    difference = differences.get(column)
    return text + (
        "*" if difference and difference.p_value < SIGNIFICANT else " "
    )


def print_published(
    blocks: Sequence["PublishedBlock"],
    systems: Sequence["System"],
    metrics: "Metrics",
) -> None:
    """Prints the scores of the files, followed by the published rows."""
    from longsum_jax.evaluation.published import read_published
    from longsum_jax.evaluation.rouge import Rouge

    rouge = metrics.get("rouge")
    for block in blocks:
        _print_block(block, systems)
    for name in dict.fromkeys(block.paper for block in blocks):
        paper = read_published()[name]
        console.print_stdout(f"\n{name}: {paper.rouge}")
        if isinstance(rouge, Rouge) and paper.stemmer not in (
            None,
            rouge.options.stemmer,
        ):
            if paper.stemmer:
                remedy = "give --stemmer"
            else:
                remedy = "leave out --stemmer"
            console.print_stdout(
                f"{name}: stemming differs from the paper; {remedy} for the same ROUGE"
            )


def _print_block(block: "PublishedBlock", systems: Sequence["System"]) -> None:
    """Prints the rows of one table, or the required metrics if none was scored."""
    from longsum_jax.evaluation.tables import score_table

    split = f", {block.split}" if block.split else ""
    console.print_stdout(
        f"\n{block.paper}, table {block.table}: {block.dataset}{split}"
    )
    scored = systems[0].values
    if not scored.keys().isdisjoint(block.metrics):
        values: dict[str, Mapping[str, float]] = {}
        for system in systems:
            values[system.name] = system.values
        for name, scores in block.systems.items():
            if name in values:  # the name of a file
                name = f"{name} ({block.paper})"
            values[name] = scores
        rows: dict[str, list[str]] = {}
        for name, scores in values.items():
            row = rows[name] = []
            for metric in block.metrics:
                if metric in scores:
                    row.append(f"{scores[metric]:.2f}")
                else:
                    row.append("-")
        console.print_stdout(score_table(block.metrics, rows))
        for note in block.notes:
            console.print_stdout(note)
    comparable = [
        metric for metric in block.metrics if not metric.endswith("?")
    ]
    absent = [metric for metric in comparable if metric not in scored]
    if absent:
        console.print_stdout(
            f"not scored here: {', '.join(absent)}; see --metrics and --metric_option"
        )


def left_out(
    references: Mapping[str, "Pair"], *files: Mapping[str, "Prediction"]
) -> dict[str, int]:
    """Returns the numbers of documents not scored, and of documents without references."""
    ids = set(references)
    counts = {
        "left_out": len(ids) - len(ids.intersection(*files)),
        "without_references": len(set().union(*files) - ids),
    }
    return {name: count for name, count in counts.items() if count}


def left_out_text(counts: Mapping[str, Any]) -> str:
    """Returns the end of a sentence that counts documents without scores."""
    text = ""
    if "left_out" in counts:
        text += f", {counted(counts['left_out'], 'document')} left out"
    if "without_references" in counts:
        text += f", {counted(counts['without_references'], 'document')} without references left out"
    return text
