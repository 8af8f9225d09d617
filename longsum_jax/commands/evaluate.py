"""longsum evaluate: scores of a model's summaries, beside the lead and random baselines."""

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longsum_jax import atomic
from longsum_jax.commands import console
from longsum_jax.errors import InputError

if TYPE_CHECKING:
    from longsum_jax.evaluation.predictions import Metrics, Pair, PredictionsFile
    from longsum_jax.inference.model import Model

EXAMPLES = """\
  # documents and summaries of your own, one JSON object per line
  longsum evaluate --model=runs/reports --data=reports/test.jsonl --out=runs/reports/test

  # other field names, beam search, the first 500 documents
  longsum evaluate --model=locost-base --data='test-*.jsonl.gz' --out=results \\
      --document_key=article --summary_key=abstract --num_beams=4 --examples=500

Writes OUT/predictions.jsonl, a line as soon as each summary is made, and OUT/metrics.json at the
end, with confidence intervals. Started again, it skips the documents whose ids are in
predictions.jsonl already. longsum score compares such files.
"""


def main(argv: Sequence[str]) -> None:
    """Evaluates a model on a data set.

    Raises:
        InputError: data or settings that do not fit.
    """
    parser = console.parser(
        "evaluate", "Scores the summaries of a model against references.", EXAMPLES
    )
    console.add_model_flags(parser)
    parser.add_argument(
        "--data", required=True, metavar="FILE", help="JSON lines, plain, .gz or .xz, or a glob"
    )
    parser.add_argument(
        "--out",
        required=True,
        metavar="DIR",
        help="directory for metrics.json and predictions.jsonl",
    )
    console.add_data_keys(parser)
    parser.add_argument("--examples", type=int, metavar="N", help="only the first N documents")
    parser.add_argument(
        "--batch_size", type=int, default=1, help="documents decoded together; default: 1"
    )
    console.add_metric_flags(parser)
    console.add_reading_flags(parser)
    console.add_generation_flags(parser)
    args = parser.parse_args(argv)
    console.check_positive(args, "examples", "batch_size")
    _evaluate(args)


def _evaluate(args: argparse.Namespace) -> None:
    from longsum_jax.evaluation.comparison import Sampling, intervals
    from longsum_jax.evaluation.predictions import (
        PredictionsFile,
        baseline_scores,
        read_pairs,
        summary_of,
    )
    from longsum_jax.inference.loading import load

    metrics = console.metrics_of(args)
    pairs = read_pairs(
        args.data,
        document_key=args.document_key,
        summary_key=args.summary_key,
        examples=args.examples,
    )
    model = load(args.model, dtype=args.dtype, tokenizer=args.tokenizer)
    settings = _settings(args, model, metrics)
    out = _open(Path(args.out), settings)
    predictions = PredictionsFile(out / "predictions.jsonl")
    _predict(args, model, list(pairs.values()), metrics, predictions)
    rows = [row for row in predictions.rows if row["id"] in pairs]
    result = summary_of(rows, [pairs[row["id"]] for row in rows], metrics)
    result["intervals"] = intervals(metrics, [row["scores"] for row in rows], Sampling())
    result["baselines"] = baseline_scores(list(pairs.values()), metrics)
    _write(out / "metrics.json", result | settings)
    _print(result, metrics, out)


def _predict(
    args: argparse.Namespace,
    model: "Model",
    pairs: list["Pair"],
    metrics: "Metrics",
    predictions: "PredictionsFile",
) -> None:
    """Predicts what the file does not hold yet, with a progress bar."""
    from tqdm import tqdm

    from longsum_jax.evaluation.predictions import predict

    finished = {row["id"] for row in predictions.rows}
    missing = [pair for pair in pairs if pair.id not in finished]
    with tqdm(total=len(pairs), initial=len(pairs) - len(missing), unit="document") as bar:

        def on_row(row: dict[str, Any]) -> None:
            predictions.append(row)
            bar.update()

        predict(
            model,
            missing,
            metrics,
            batch_size=args.batch_size,
            on_row=on_row,
            max_source_length=args.max_source_length,
            on_overflow=args.on_overflow,
            seed=args.seed,
            **console.generation_options(args),
        )


def _settings(args: argparse.Namespace, model: "Model", metrics: "Metrics") -> dict[str, Any]:
    """Returns everything that the predictions and scores depend on."""
    from longsum_jax import __version__

    flags = {name: getattr(args, name) for name in ("model", "data", "dtype", "max_source_length")}
    generation = dataclasses.asdict(model.summary_options(**console.generation_options(args)))
    return {
        **flags,
        "weights": model.fingerprint,
        "tokenizer": model.tokenizer and model.tokenizer.fingerprint,
        "generation": _as_json(generation) | {"seed": args.seed},
        **_as_json({name: metric.describe() for name, metric in metrics.items()}),
        "longsum_jax": __version__,
    }


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Returns values as they come back from a file."""
    return json.loads(json.dumps(values))


def _open(out: Path, settings: dict[str, Any]) -> Path:
    """Returns the output directory; refuses one with predictions made with other settings."""
    path = out / "settings.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            differing = [key for key in settings if before.get(key) != settings[key]]
            if differing:
                raise InputError(
                    f"{out}: holds predictions made with another {', '.join(differing)}; give "
                    "another --out"
                )
        _write(path, settings)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{out}: cannot be used ({error}); give another --out") from error
    return out


def _write(path: Path, value: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(value, indent=2) + "\n")


def _print(result: dict[str, Any], metrics: "Metrics", out: Path) -> None:
    from longsum_jax.evaluation.predictions import columns_of
    from longsum_jax.evaluation.tables import score_table

    columns = columns_of(metrics)
    scores = {"model": result["scores"], **result["baselines"]}
    rows = {name: [values[key] for key in columns] for name, values in scores.items()}
    print(score_table(columns, rows))
    print(
        f"{result['examples']} documents, {result['read_tokens_per_second']} tokens/s, "
        f"{result['dropped_tokens']} of {result['document_tokens']} tokens not read, "
        f"{result['ended_by_limit']} summaries cut at the limit; details in {out}"
    )
