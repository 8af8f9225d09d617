"""The file evaluations.jsonl of a run: scores with intervals, and some summaries over time."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from longsum_jax import atomic
from longsum_jax.experiment.objectives.base import Evaluation, Objective
from longsum_jax.files import MAX_ROWS_BYTES, json_text, parse_json, read_bytes
from longsum_jax.training.writers import finite

EVALUATIONS = "evaluations.jsonl"  # of a workdir
SAMPLES = 3  # summaries in every record


def evaluation_record(
    objective: Objective,
    evaluation: Evaluation,
    step: int,
    position: Mapping[str, Any],
) -> dict[str, Any]:
    """Returns an evaluation as plain values for JSON.

    Args:
        objective: objective of the run.
        evaluation: its evaluation of the parameters of ``step``.
        step: number of steps done.
        position: position of the batches, of which "epoch" and "position" are
            kept.

    Returns:
        Dictionary with "step", "epoch" and "position" (examples of the epoch
        that were read) if the batches count them, "documents", "scores",
        "intervals" (95%, by score) and "samples" of "id", "reference" and
        "summary".
    """
    counts = {
        name: position[name]
        for name in ("epoch", "position")
        if isinstance(position.get(name), int)
    }
    return {
        "step": step,
        **counts,
        "documents": len(evaluation.rows),
        "scores": evaluation.scores,
        "intervals": objective.intervals(evaluation),
        "samples": objective.samples(evaluation, SAMPLES),
    }


def add_record(workdir: Path, record: Mapping[str, Any]) -> None:
    """Adds a record to the file, and removes records of its step and later ones.

    Numbers that are not finite become null.

    A run that goes on from an earlier checkpoint thus leaves the same file as
    one that was never interrupted.

    Raises:
        OSError: the file cannot be written; it is then unchanged.
    """
    path = workdir / EVALUATIONS
    lines = [
        line
        for line in _lines(path)
        if parse_json(line)["step"] < record["step"]
    ]
    lines.append(json_text(finite(record), allow_nan=False))
    atomic.write_text(path, "\n".join(lines) + "\n")


def read_records(workdir: Path) -> list[dict[str, Any]]:
    """Returns the records of a run, which need not have any."""
    return [parse_json(line) for line in _lines(workdir / EVALUATIONS)]


def _lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    text = read_bytes(path, MAX_ROWS_BYTES).decode()
    # Not splitlines, which would also split at U+2028 in texts.
    return [line for line in text.split("\n") if line]
