"""The figure of quality over cost, from the results of several pages."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from longsum_jax.analysis.figures import Panel, points_figure
from result_pages.tables import Row, where

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


def draw() -> "Figure":
    """Draws quality over cost of extractors, strategies and trained attentions."""
    extractors = Panel(
        "Extractors",
        "CPU seconds per document",
        "mean ROUGE, three data sets",
        _means(_rows("extractive_peers"), "system", "seconds", "mean_rouge"),
        "log",
    )
    strategies = Panel(
        "Strategies, with the ranker",
        "share of the document read",
        "mean ROUGE, five data sets",
        _means(
            where(writer="ranker", data="mean")(_rows("strategies")),
            "strategy",
            "read",
            "rouge",
        ),
    )
    attentions = Panel(
        "Small models, 1,024 tokens",
        "MiB per training step",
        "mean ROUGE, biomedical papers",
        _means(
            [
                row | {"model": _model(row)}
                for row in where(stage="summaries")(_rows("reading_start_study"))
            ],
            "model",
            "step_mib",
            "mean_rouge",
        ),
    )
    return points_figure([extractors, strategies, attentions], (9.0, 3.6))


def _rows(name: str) -> list[Row]:
    """Returns the rows of a file of results."""
    rows: list[Row] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


def _means(rows: Sequence[Row], name: str, x: str, y: str) -> dict[str, tuple[float, float]]:
    """Returns the means of ``x`` and ``y`` over the rows of every name."""
    found: dict[str, tuple[float, float]] = {}
    for key in dict.fromkeys(row[name] for row in rows):
        of_it = [row for row in rows if row[name] == key]
        found[key] = (_mean(of_it, x), _mean(of_it, y))
    return found


def _mean(rows: Sequence[Row], key: str) -> float:
    return float(sum(row[key] for row in rows)) / len(rows)


def _model(row: Row) -> str:
    """Returns the family of a trained model and its differences from the family."""
    parts = [row["family"]]
    parts += [row["encoder"]] if row["encoder"] in ("lsg", "window+global") else []
    parts += ["x Hepos"] if row["cross"] == "hepos" else []
    return " ".join(parts)
