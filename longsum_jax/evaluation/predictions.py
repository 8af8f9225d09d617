"""Predictions with their scores: what evaluation during training and the evaluate command share."""

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from longsum_jax.errors import InputError
from longsum_jax.evaluation.baselines import lead, random_sentences
from longsum_jax.evaluation.rouge import corpus_rouge, mean_scores, rouge
from longsum_jax.inference.model import Model

Row = dict[str, Any]  # one line of predictions.jsonl


class Pair(NamedTuple):
    """A document, the summary it should give, and what that is to be about, if it is not
    everything."""

    id: str
    source: str
    reference: str
    query: str | None = None


class PredictionsFile:
    """predictions.jsonl: rows appended as they are made, so that an evaluation continues where it
    stopped.

    Attributes:
        rows: what the file holds; a line cut short by a crash is dropped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.rows: list[Row] = []
        if not path.exists():
            return
        try:
            content = path.read_bytes()
            # Not splitlines: a prediction may hold other characters that it takes for the end of a
            # line.
            *whole, cut_short = content.split(b"\n")
            self.rows = [_parsed(line, f"{path}:{i}") for i, line in enumerate(whole, 1)]
            if cut_short:
                os.truncate(path, len(content) - len(cut_short))
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give another --out"
            ) from error

    def append(self, row: Row) -> None:
        """Writes one row to the disk; InputError when that fails, the rows before are kept."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        except OSError as error:
            problem = f"cannot be written ({error.strerror}); make room and start again, finished rows are kept"
            raise InputError(f"{self._path}: {problem}") from error
        self.rows.append(row)


def predict(
    model: Model,
    pairs: Sequence[Pair],
    *,
    batch_size: int = 1,
    stemmer: bool = False,
    on_row: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> list[Row]:
    """Summarises every pair's source and scores it; ``on_row`` is called as soon as each row is
    there.

    ``options`` are those of ``Model.summaries``.
    """
    rows = []
    for start in range(0, len(pairs), batch_size):
        batch = pairs[start : start + batch_size]
        began = time.perf_counter()
        sources, names = (
            [pair.source for pair in batch],
            [f'document "{pair.id}"' for pair in batch],
        )
        queries = (
            {"queries": [pair.query for pair in batch]} if any(pair.query for pair in batch) else {}
        )
        summaries = model.summaries(
            sources, names=names, batch_size=batch_size, **queries, **options
        )
        seconds = (time.perf_counter() - began) / len(batch)
        for pair, summary in zip(batch, summaries, strict=True):
            row = {
                "id": pair.id,
                "prediction": summary.text,
                "reference": pair.reference,
                "scores": rouge(summary.text, pair.reference, stemmer=stemmer),
                **summary.report(),
                "seconds": round(seconds, 4),
            }
            on_row(row)
            rows.append(row)
    return rows


def summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Mean scores, lengths and throughput of ``rows``."""
    lengths = [row["summary_tokens"] for row in rows]
    seconds = sum(row["seconds"] for row in rows)
    read = sum(row["read_tokens"] for row in rows)
    return {
        "examples": len(rows),
        "scores": mean_scores([row["scores"] for row in rows]),
        "summary_tokens": {
            "mean": round(statistics.fmean(lengths), 1),
            "min": min(lengths),
            "max": max(lengths),
        },
        "ended_by_limit": sum(row["ended"] == "limit" for row in rows),
        "document_tokens": sum(row["document_tokens"] for row in rows),
        "read_tokens": read,
        "dropped_tokens": sum(row["dropped_tokens"] for row in rows),
        "seconds": round(seconds, 2),
        "read_tokens_per_second": round(read / max(seconds, 1e-9), 1),
    }


def baseline_scores(
    pairs: Sequence[Pair], *, stemmer: bool = False, seed: int = 0
) -> dict[str, dict[str, float]]:
    """ROUGE of the lead and of random sentences, as many words of each document as references have
    on average."""
    words = max(1, round(statistics.fmean(len(pair.reference.split()) for pair in pairs)))
    texts = {
        "lead": [lead(pair.source, num_words=words) for pair in pairs],
        "random": [
            random_sentences(pair.source, num_words=words, seed=(seed, i))
            for i, pair in enumerate(pairs)
        ],
    }
    references = [pair.reference for pair in pairs]
    return {
        name: corpus_rouge(zip(made, references, strict=True), stemmer=stemmer)
        for name, made in texts.items()
    }


def _parsed(line: bytes, where: str) -> Row:
    try:
        row = json.loads(line)
        row["id"], row["scores"]
    except (ValueError, KeyError, TypeError):
        raise InputError(
            f"{where}: not a line of predictions; remove the file or give another --out"
        ) from None
    return row
