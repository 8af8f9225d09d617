"""longsum evaluate: ROUGE of a model's summaries, beside the lead and random baselines."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from longsum_jax import atomic
from longsum_jax.commands import console
from longsum_jax.errors import InputError

EXAMPLES = """\
  # documents and summaries of your own, one JSON object per line
  longsum evaluate --model=runs/reports --data=reports/test.jsonl --out=runs/reports/test

  # other field names, beam search, the first 500 documents
  longsum evaluate --model=locost-base --data='test-*.jsonl.gz' --out=results \\
      --document_key=article --summary_key=abstract --num_beams=4 --examples=500

Writes OUT/predictions.jsonl, a line as soon as each summary is there, and OUT/metrics.json at the end. Run again, it
skips the documents whose ids are in predictions.jsonl already.
"""


def main(argv: Sequence[str]) -> None:
    """Evaluates; raises InputError for data or settings that do not fit."""
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
    parser.add_argument(
        "--document_key", default="document", help="field of the document; default: document"
    )
    parser.add_argument(
        "--summary_key", default="summary", help="field of the reference; default: summary"
    )
    parser.add_argument("--examples", type=int, metavar="N", help="only the first N documents")
    parser.add_argument(
        "--batch_size", type=int, default=1, help="documents decoded together; default: 1"
    )
    parser.add_argument("--stemmer", action="store_true", help="Porter stemmer in ROUGE")
    console.add_reading_flags(parser)
    console.add_generation_flags(parser)
    args = parser.parse_args(argv)
    console.check_positive(args, "examples", "batch_size")
    _evaluate(args)


def _evaluate(args: Any) -> None:
    from tqdm import tqdm

    from longsum_jax.evaluation.predictions import (
        PredictionsFile,
        baseline_scores,
        predict,
        summary_of,
    )
    from longsum_jax.inference.loading import load

    pairs = _read_pairs(args)
    model = load(args.model, dtype=args.dtype, tokenizer=args.tokenizer)
    settings = _settings(args, model)
    out = _open(Path(args.out), settings)
    predictions = PredictionsFile(out / "predictions.jsonl")
    wanted = {pair.id for pair in pairs}
    finished = {row["id"] for row in predictions.rows}
    with tqdm(total=len(pairs), initial=len(wanted & finished), unit="document") as bar:

        def keep(row: dict[str, Any]) -> None:
            predictions.append(row)
            bar.update()

        predict(
            model,
            [pair for pair in pairs if pair.id not in finished],
            batch_size=args.batch_size,
            stemmer=args.stemmer,
            on_row=keep,
            max_source_length=args.max_source_length,
            on_overflow=args.on_overflow,
            seed=args.seed,
            **console.generation_options(args),
        )
    result = summary_of([row for row in predictions.rows if row["id"] in wanted])
    result["baselines"] = baseline_scores(pairs, stemmer=args.stemmer)
    _write(out / "metrics.json", result | settings)
    _print(result, out)


def _read_pairs(args: Any) -> list[Any]:
    """Pairs of the documents that have a summary; ids must be there once."""
    from longsum_jax.evaluation.predictions import Pair
    from longsum_jax.text.documents import read_json_lines

    pairs: dict[str, Pair] = {}
    for document in read_json_lines(
        args.data, document_key=args.document_key, summary_key=args.summary_key
    ):
        if document.id in pairs:
            raise InputError(
                f'{args.data}: the id "{document.id}" is there twice; ids tell finished documents apart'
            )
        pairs[document.id] = Pair(document.id, document.document, document.summary, document.query)
        if len(pairs) == args.examples:
            break
    return list(pairs.values())


def _settings(args: Any, model: Any) -> dict[str, Any]:
    """Everything that the predictions and scores depend on."""
    import dataclasses

    from longsum_jax import __version__
    from longsum_jax.evaluation.rouge import describe

    generation = dataclasses.asdict(model.summary_options(**console.generation_options(args)))
    return {
        **{name: getattr(args, name) for name in ("model", "data", "dtype", "max_source_length")},
        "weights": model.fingerprint,
        "tokenizer": model.tokenizer and model.tokenizer.fingerprint,
        "generation": json.loads(json.dumps(generation)) | {"seed": args.seed},
        "rouge": describe(args.stemmer),
        "longsum_jax": __version__,
    }


def _open(out: Path, settings: dict[str, Any]) -> Path:
    """The output directory, refused when it holds predictions made with other settings."""
    path = out / "settings.json"
    try:
        out.mkdir(parents=True, exist_ok=True)
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            differing = [key for key in settings if before.get(key) != settings[key]]
            if others := ", ".join(differing):
                raise InputError(
                    f"{out}: holds predictions made with another {others}; give another --out"
                )
        _write(path, settings)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{out}: cannot be used ({error}); give another --out") from error
    return out


def _write(path: Path, value: dict[str, Any]) -> None:
    atomic.write_text(path, json.dumps(value, indent=2) + "\n")


def _print(result: dict[str, Any], out: Path) -> None:
    print(f"{'':>8} {'ROUGE-1':>8} {'ROUGE-2':>8} {'Lsum':>8} {'mean':>8}")
    for name, scores in {"model": result["scores"], **result["baselines"]}.items():
        values = (scores[key] for key in ("rouge1", "rouge2", "rougeLsum", "mean_rouge"))
        print(f"{name:>8} " + " ".join(f"{value:8.2f}" for value in values))
    print(
        f"{result['examples']} documents, {result['read_tokens_per_second']} tokens/s, "
        f"{result['dropped_tokens']} of {result['document_tokens']} tokens not read, "
        f"{result['ended_by_limit']} summaries cut at the limit; details in {out}"
    )
