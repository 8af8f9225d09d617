"""Training in bfloat16 beside float32: how far losses, parameters and logits drift apart.

    python benchmarks/precision.py --out=precision.json [--attentions=s4d,full] [--steps=200]
        [--seed=0]

A small LOCOST learns gap sentences of the embedded documentation, from the same parameters on the
same batches: in float32, in bfloat16, and once more in float32 with another seed, of parameters and
batches, which says how much a difference means. A row is a tenth of the steps: means of the losses,
and the largest difference at one step. Then a row for the end: parameters of the first two runs,
and logits of the first one's parameters computed in both types.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from common import print_table, rows_before, write_report

import longsum_jax
from longsum_jax.commands import train
from longsum_jax.typing import Params

PARTS = 10
SIZES = {"d_model": 64, "d_state": 32, "d_kv": 16, "d_ff": 128, "num_layers": 2}
SIZES |= {"num_decoder_layers": 2, "vocab_size": 384}
SOURCE, TARGET, ROWS = 256, 64, 8  # tokens, tokens, documents of a batch


def run(workdir: Path, attention: str, dtype: str, steps: int, seed: int) -> list[float]:
    """Trains; returns the loss of every step."""
    settings = {f"model.{name}": value for name, value in SIZES.items()}
    settings |= {"model.encoder_attention": attention, "model.dtype": dtype}
    settings |= {"task.max_source_length": SOURCE, "task.max_target_length": TARGET}
    settings |= {"tokenizer.path": "bytes", "data.batch_size": ROWS, "training.seed": seed}
    settings |= {"training.steps": steps, "training.checkpoint_every": steps}
    settings |= {"training.log_every": 1, "optimizer.total_steps": steps, "evaluation.examples": 2}
    settings |= {"optimizer.warmup_steps": steps // 10, "evaluation.max_new_tokens": 8}
    settings["training.progress"] = False
    flags = [f"--config.{name}={value}" for name, value in settings.items()]
    if train.main(["--config=configs/quickstart.py", f"--workdir={workdir}", *flags]):
        raise SystemExit(f"the training in {dtype} failed")
    lines = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def losses_by_part(wide: list[float], narrow: list[float], other: list[float]) -> list[dict]:
    """Returns a row for each tenth of the steps.

    Args:
        wide, narrow: losses of every step in float32 and bfloat16.
        other: in float32, with another seed.
    """
    rows = []
    for steps in np.array_split(np.arange(len(wide)), PARTS):
        losses = [np.asarray(x)[steps] for x in (wide, narrow, other)]
        row = {"last_step": int(steps[-1]) + 1}
        row |= {name: float(x.mean()) for name, x in zip(("wide", "narrow"), losses, strict=False)}
        row["largest_difference"] = float(np.abs(losses[1] - losses[0]).max())
        row["of_another_seed"] = float(np.abs(losses[2] - losses[0]).max())
        rows.append(row)
    return rows


def distance(found: Params, wanted: Params) -> float:
    """Returns the norm of a difference of parameters, relative to that of the second ones."""
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    squares = [(float(np.sum(np.square(a - b))), float(np.sum(np.square(b)))) for a, b in pairs]
    difference, whole = np.sum(squares, axis=0)
    return float(np.sqrt(difference / whole))


def of_the_end(wide: Path, narrow: Path, other: Path, seed: int) -> dict[str, Any]:
    """Compares the parameters of three runs, and logits of the first one's in both types."""
    model = longsum_jax.load(wide)
    rng = np.random.default_rng(seed)
    ids = rng.integers(3, 259, (ROWS, SOURCE))
    targets = rng.integers(3, 259, (ROWS, TARGET))
    logits = np.asarray(model.logits(ids, None, targets))
    rounded = np.asarray(
        longsum_jax.load(wide, dtype="bfloat16").logits(ids, None, targets), np.float32
    )
    return {
        "parameters_differ": distance(longsum_jax.load(narrow).params, model.params),
        "another_seed_differs": distance(longsum_jax.load(other).params, model.params),
        "logits_differ": float(np.abs(rounded - logits).max() / np.abs(logits).max()),
        "same_token": float((rounded.argmax(-1) == logits.argmax(-1)).mean()),
    }


def compare(attention: str, steps: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Returns the rows of an attention."""
    runs = {"wide": ("float32", seed), "narrow": ("bfloat16", seed), "other": ("float32", seed + 1)}
    workdirs = {name: folder / attention / name for name in runs}
    losses = {
        name: run(workdirs[name], attention, dtype, steps, start)
        for name, (dtype, start) in runs.items()
    }
    rows = [*losses_by_part(**losses), of_the_end(**workdirs, seed=seed)]
    return [{"attention": attention} | row for row in rows]


def main() -> None:
    """Prints a table and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attentions", default="s4d,full", help="of the encoder")
    parser.add_argument("--steps", type=int, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    settings = {"steps": args.steps, "seed": args.seed}
    rows = rows_before(args.out, **settings)
    known = {row["attention"] for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        for attention in args.attentions.split(","):
            if attention not in known:
                rows += compare(attention, args.steps, args.seed, Path(folder))
            if args.out:
                write_report(args.out, rows, **settings, date=time.strftime("%Y-%m-%d"))
    print_table(rows)


if __name__ == "__main__":
    main()
