"""Cells of studies compared: which differ by more than chance, and by how much they would have to.

    python studies/compare_cells.py LABEL=WORKDIR [LABEL=WORKDIR ...] --against=LABEL/s4d-full \\
        [--cells=s4d-full,lsg-full] [--data=validation.jsonl [--by=set] [--bits_only] \\
        [--length="150 words"] [--segments_no_repeat_ngram_size=3] [--metrics=rouge,...]] \\
        [--out=compare_cells.json]

WORKDIR is one of study.py, whose cells have the same validation documents in all of them; several
may hold the same cell with other seeds. Seeds of a cell are averaged, document by document. Two
cells are compared by paired approximate randomization over the documents, and the p-values adjusted
for their number (Holm). With --data, documents of it are summarised by every cell, as its
evaluation did, and the values of --metrics (those of longsum score; default: rouge, stemmed) are
compared, too, documents weighing alike; predictions stay in WORKDIR/CELL-SEED/predictions, those of
a --length or --segments_no_repeat_ngram_size of longsum evaluate in a directory beside it. With
--by, a field of these rows names the data set of a document, and every data set is compared alone
as well; p-values are adjusted for all of these comparisons together. The rows must be the
validation documents of the cells, in the same order, which is not checked. With --bits_only, which
is for --by, no summaries are written. Documents are left out that have other summaries to know in
some cells, as where important sentences leave less room for a segment; where these are more than a
tenth, cells are not compared.

`least_documents` is the smallest difference that a test with these documents finds four times out
of five, at p < .05; `least_seeds` the same of seeds, whose spread is pooled over all cells. A
difference that is smaller than either of them is not known here. `documents_needed` says with how
many documents the difference that was found would be.
"""

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, write_report
from study import DOCUMENT_BITS, bits_per_token, document_bits, write_document_bits

from longsum_jax.commands import console, evaluate, flags
from longsum_jax.errors import InputError
from longsum_jax.evaluation.comparison import read_predictions
from longsum_jax.evaluation.predictions import Metrics, Pair, example_scores, read_pairs
from longsum_jax.evaluation.significance import (
    holm,
    percentile_interval,
    randomization_test,
    resampled_differences,
)
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.experiment import make_experiment
from longsum_jax.summarization.loading import load

POWER = 1.96 + 0.84  # standard errors: found four times out of five, two-sided, p < .05
LEAST_COMMON = 0.9  # of the documents
SEEDED = re.compile(r"(.+)-(\d+)")
SETTINGS = ("num_beams", "max_new_tokens", "no_repeat_ngram_size", "batch_size")


class Scores(NamedTuple):
    """What is compared, of one cell and seed.

    Attributes:
        bits: of every document: bits of its summary, with another source, and how many tokens.
        summaries: every value of the metrics, of every document; empty without --data.
    """

    bits: Mapping[str, np.ndarray]
    summaries: Mapping[str, np.ndarray]


CellScores = Mapping[int, Scores]  # by seed


def find_cells(places: Sequence[str]) -> dict[str, dict[int, Path]]:
    """Returns the directories of the seeds of every LABEL/CELL."""
    result: dict[str, dict[int, Path]] = {}
    for place in places:
        label, equals, workdir = place.partition("=")
        if not equals:
            raise InputError(f'"{place}" is no LABEL=WORKDIR; give both')
        for run in sorted(Path(workdir).glob("*/run.json")):
            if match := SEEDED.fullmatch(run.parent.name):
                result.setdefault(f"{label}/{match[1]}", {})[int(match[2])] = run.parent
    return result


def choose_cells(
    found: Mapping[str, dict[int, Path]], names: Sequence[str]
) -> dict[str, dict[int, Path]]:
    """Returns the cells of some names."""
    known = {cell.partition("/")[2] for cell in found}
    if unknown := [name for name in names if name not in known]:
        raise InputError(f"--cells: no {unknown[0]}; there are {', '.join(sorted(known))}")
    return {cell: seeds for cell, seeds in found.items() if cell.partition("/")[2] in names}


def read_bits(directory: Path) -> dict[str, np.ndarray]:
    """Returns bits of every document of a cell; a cell that a study left without is asked."""
    path = directory / DOCUMENT_BITS
    if not path.exists():
        console.print_stderr(f"== {directory}: bits")
        run = run_config(json.loads((directory / "run.json").read_text()))
        model = load(directory, which="latest")
        write_document_bits(directory, document_bits(model, make_experiment(run, directory)))
    return {name: np.array(value) for name, value in json.loads(path.read_text()).items()}


def common_documents(tokens: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the numbers of the documents whose summaries to know are the same in all cells.

    Args:
        tokens: of the summaries of every document, for each cell and seed.

    Raises:
        InputError: cells of other documents, or more than a tenth with other summaries.
    """
    sizes = set(map(len, tokens))
    if len(sizes) > 1:
        raise InputError(f"cells have {sizes} validation documents; compare those of one data set")
    is_common = np.all([other == tokens[0] for other in tokens], axis=0)
    if is_common.mean() < LEAST_COMMON:
        raise InputError(
            "cells have other summaries to know, such as those of other segments; compare cells "
            "of the same max_source_length and max_target_length"
        )
    if not is_common.all():
        left_out = ", ".join(map(str, np.flatnonzero(~is_common)))
        console.print_stderr(f"left out, with other summaries to know in some cells: {left_out}")
    return np.flatnonzero(is_common)


def write_summaries(directory: Path, data: str, length: str = "", forbidden: int = 0) -> Path:
    """Summarises documents as the evaluation of a cell's own config did; returns the file.

    Args:
        directory: of the cell.
        data: JSON lines.
        length: of ``longsum evaluate --length``; empty for what the model makes of it.
        forbidden: size of the n-grams that no later segment says again; 0 for none.
    """
    name = f"predictions.{length.replace(' ', '_')}" if length else "predictions"
    name += f".no_{forbidden}" if forbidden else ""
    path = directory / name / "predictions.jsonl"
    if path.exists():
        return path
    run = json.loads((directory / "run.json").read_text())
    options = run["evaluation"]
    settings = {name: options[name] for name in SETTINGS if options[name] is not None}
    if run["task"].get("objective", "summarize") == "summarize":  # segments are read to the end
        limit = options["max_source_length"] or run["task"]["max_source_length"]
        settings |= {"max_source_length": limit, "strategy": "direct"}
    given = [f"--{name}={value}" for name, value in settings.items()]
    given += [f"--length={length}"] if length else []
    given += [f"--segments_no_repeat_ngram_size={forbidden}"] if forbidden else []
    given += [f"--model={directory}", "--which=latest", f"--data={data}"]
    evaluate.main([*given, f"--out={path.parent}"])
    return path


def score_summaries(
    path: Path, pairs: Mapping[str, Pair], metrics: Metrics
) -> dict[str, np.ndarray]:
    """Returns every value of the metrics, of every document."""
    predictions = read_predictions(path)
    if predictions.keys() != pairs.keys():
        raise InputError(f"{path} is of other documents than --data; remove its directory")
    texts = [predictions[number].text for number in pairs]
    rows = example_scores(metrics, texts, list(pairs.values()))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def documents_by_part(data: str, field: str) -> dict[str, np.ndarray]:
    """Returns the numbers of the documents of every data set that the rows' ``field`` names."""
    parts: dict[str, list[int]] = {}
    named = read_pairs(data, document_key=field)  # the field in the document's place
    for number, row in enumerate(named.values()):
        parts.setdefault(row.source, []).append(number)
    return {name: np.array(numbers) for name, numbers in parts.items()}


def select(cells: Mapping[str, CellScores], documents: np.ndarray) -> dict[str, CellScores]:
    """Returns the scores of some documents."""

    def of_documents(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {column: value[documents] for column, value in values.items()}

    return {
        name: {
            seed: Scores(of_documents(scores.bits), of_documents(scores.summaries))
            for seed, scores in cell.items()
        }
        for name, cell in cells.items()
    }


def corpus_bits(means: np.ndarray) -> np.ndarray:
    """Returns bits per token of the means of bits and of tokens."""
    return means[..., :1] / means[..., 1:]


def table_of(cell: CellScores) -> np.ndarray:
    """Returns bits, averaged over seeds, and tokens of every document, [documents, 2]."""
    bits = np.mean([scores.bits["bits"] for scores in cell.values()], 0)
    return np.stack([bits, next(iter(cell.values())).bits["tokens"]], 1)


def pooled_spread(cells: Mapping[str, CellScores]) -> float | None:
    """Returns the standard deviation of bits per token between seeds of a cell; None of one."""
    squares, freedom = 0.0, 0
    for cell in cells.values():
        values = [bits_per_token(scores.bits)["bits"] for scores in cell.values()]
        squares += float(np.sum((np.array(values) - np.mean(values)) ** 2))
        freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else None


def compare(cells: Mapping[str, CellScores], against: str) -> list[dict[str, Any]]:
    """Returns a row for every cell, each beside the one named ``against``; p-values as they are."""
    base = cells[against]
    theirs = mean_summaries(base)
    spread = pooled_spread(cells)
    others = [name for name in cells if name != against]
    rows = {name: describe(name, cell) for name, cell in cells.items()}
    for name in others:
        cell = cells[name]
        pair = table_of(cell), table_of(base)
        differences = resampled_differences(*pair, statistic=corpus_bits)[:, 0]
        error, (low, high) = float(differences.std()), percentile_interval(differences)
        result = rows[name]["bits"] - rows[against]["bits"]
        least_seeds = None
        if spread is not None:
            least_seeds = POWER * spread * math.sqrt(1 / len(cell) + 1 / len(base))
        rows[name] |= {
            "difference": result,
            "low": float(low),
            "high": float(high),
            "p_value": float(randomization_test(*pair, statistic=corpus_bits)[0]),
            "least_documents": POWER * error,
            "least_seeds": least_seeds,
            "documents_needed": needed(len(pair[0]), error, result),
        }
        for column, mine in mean_summaries(cell).items():
            of_pair = mine, theirs[column]
            rows[name] |= {
                f"{column}_difference": float(np.mean(of_pair[0] - of_pair[1])),
                f"{column}_p_value": float(randomization_test(*of_pair)),
                f"{column}_least": POWER * float(resampled_differences(*of_pair).std()),
            }
    return list(rows.values())


def adjust(rows: Sequence[dict[str, Any]]) -> None:
    """Puts Holm's p-values in place, for all comparisons of a value together."""
    for column in {column for row in rows for column in row if column.endswith("p_value")}:
        tested = [row for row in rows if column in row]
        adjusted = holm(np.array([row[column] for row in tested]))
        for row, value in zip(tested, adjusted, strict=True):
            row[column] = float(value)


def needed(documents: int, error: float, difference: float) -> int | None:
    """Returns how many documents a difference needs to be found, None where there is none."""
    return math.ceil(documents * (POWER * error / difference) ** 2) if difference else None


def mean_summaries(cell: CellScores) -> dict[str, np.ndarray]:
    """Returns every value of the metrics, of every document, averaged over seeds."""
    seeds = [scores.summaries for scores in cell.values()]
    return {column: np.mean([seed[column] for seed in seeds], 0) for column in seeds[0]}


def describe(name: str, cell: CellScores) -> dict[str, Any]:
    """Returns the columns of a row that need no other cell."""
    label, _, rest = name.partition("/")
    bits = [bits_per_token(scores.bits) for scores in cell.values()]
    row: dict[str, Any] = {"label": label, "cell": rest, "seeds": len(cell)}
    row |= {key: float(np.mean([b[key] for b in bits])) for key in ("bits", "bits_other")}
    row["documents"] = len(next(iter(cell.values())).bits["bits"])
    row["by_seed"] = [b["bits"] for b in bits]
    return row | {column: float(x.mean()) for column, x in mean_summaries(cell).items()}


def rounded(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row with four digits of its numbers."""

    def shorten(value: Any) -> Any:
        if isinstance(value, list):
            return [shorten(v) for v in value]
        return round(value, 4) if isinstance(value, float) else value

    return {name: shorten(value) for name, value in row.items()}


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="+", metavar="LABEL=WORKDIR")
    parser.add_argument("--against", required=True, metavar="LABEL/CELL")
    parser.add_argument("--cells", help="such as s4d-full,lsg-full; default: all that are there")
    parser.add_argument("--data", default="", help="JSON lines to summarise; default: none")
    parser.add_argument("--by", default="", help="field of --data that names a data set")
    parser.add_argument(
        "--bits_only", action="store_true", help="compare the bits of every --by, and no summaries"
    )
    parser.add_argument("--length", default="", help="of summaries, as longsum evaluate has it")
    parser.add_argument(
        "--segments_no_repeat_ngram_size",
        type=int,
        default=0,
        metavar="N",
        help="of summaries, as longsum evaluate has it",
    )
    flags.add_metric_flags(parser)
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args(argv)
    directories = find_cells(args.places)
    if args.cells:
        directories = choose_cells(directories, args.cells.split(","))
    if args.against not in directories:
        raise InputError(
            f'--against: no cell "{args.against}"; there are {", ".join(directories) or "none"}'
        )
    for name in ("metrics", "length", "segments_no_repeat_ngram_size"):
        value = getattr(args, name)
        if value and not args.data:
            raise InputError(f"--{name}={value} is of summaries; give --data to write them")
        if value and args.bits_only:
            raise InputError(f"--{name}={value} is of summaries; leave --bits_only out")
    if args.by and not args.data:
        raise InputError(f"--by={args.by} is a field of --data, which is missing; give both")
    if args.bits_only and not args.by:
        raise InputError("--bits_only is for --by, which is missing; give it, or leave both out")
    metrics = flags.metrics_of(args, default_options={"rouge": {"stemmer": True}})
    pairs = read_pairs(args.data) if args.data else {}
    parts = documents_by_part(args.data, args.by) if args.by else {}
    bits = {
        name: {seed: read_bits(directory) for seed, directory in seeds.items()}
        for name, seeds in directories.items()
    }
    of_all = [of_seed["tokens"] for seeds in bits.values() for of_seed in seeds.values()]
    common = common_documents(of_all)
    of_first = next(iter(bits[args.against].values()))
    if parts and sum(map(len, parts.values())) != len(of_first["tokens"]):
        raise InputError(f"{args.data} has other documents than the cells' validation set")
    cells: dict[str, dict[int, Scores]] = {}
    for name, seeds in directories.items():
        for seed, directory in seeds.items():
            console.print_stderr(f"== {directory}")
            summaries = {}
            if args.data and not args.bits_only:
                forbidden = args.segments_no_repeat_ngram_size
                path = write_summaries(directory, args.data, args.length, forbidden)
                summaries = score_summaries(path, pairs, metrics)
            cells.setdefault(name, {})[seed] = Scores(bits[name][seed], summaries)
    rows = compare(select(cells, common), args.against)
    for part, documents in parts.items():
        of_part = compare(select(cells, np.intersect1d(documents, common)), args.against)
        rows += [{"part": part} | row for row in of_part]
    adjust(rows)
    rows = [rounded(row) for row in rows]
    print_table([{k: v for k, v in row.items() if k != "by_seed"} for row in rows])
    if args.out:
        write_report(args.out, rows)


if __name__ == "__main__":
    console.run(main)
