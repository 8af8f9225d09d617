"""Table 3 of the Hepos paper as one sweep: encoder attentions times cross-attentions at equal cost, on any data.

    python benchmarks/attention_study.py --workdir=runs/study --data='reports/{split}.jsonl' --length=512 \\
        [--model=DIR] [--cells=full/full,lsh/hepos] [--seeds=0,1] [--out=study.json] [--config.KEY=VALUE ...]

Trains configs/attention_study.py for every cell (ENCODER/CROSS) and seed, one after the other, in directories of
--workdir. The first cell trains the tokenizer, all others use it. Each row goes to WORKDIR/results.jsonl as soon as
its cell is finished; started again, the sweep skips what is there and takes up a cell where it stopped. At the end
WORKDIR/table.md and WORKDIR/study.png hold the table and the picture. `bits` are bits per token of the
reference summaries of all validation documents under teacher forcing, `bits_other` the same with the source of another
document: where both are equal, the model does not make use of what it reads, and the sweep says nothing of attentions.
ROUGE is of config.evaluation.examples generated summaries, with its stemmer. --config=FILE:mode,... sweeps another
config: {encoder}, {cross}, {model}, {data} and {length} in it are filled in.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from common import markdown_table, print_table, write_report

from longsum_jax import cli, plotting, train
from longsum_jax.config_files import read_config, split_overrides
from longsum_jax.data.batches import Batches
from longsum_jax.data.examples import load_examples
from longsum_jax.data.tasks import Task
from longsum_jax.errors import InputError
from longsum_jax.experiment import Experiment
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.pipeline import TRAINING_MODEL, Model, load

CONFIG = "configs/attention_study.py:encoder={encoder},cross={cross},model={model},data={data},length={length}"
ENCODERS = ("full", "window", "window+global", "window+stride", "window+random", "adaptive_span")
ENCODERS += ("adaptive_span+global", "adaptive_span+stride", "adaptive_span+random", "linformer", "lsh", "sinkhorn")
CROSSES = ("full", "hepos", "linformer")
ROUGE = ("rouge1", "rouge2", "rougeLsum", "mean_rouge")


class Cell(NamedTuple):
    """One run of the sweep."""

    encoder: str
    cross: str
    seed: int

    @property
    def directory(self) -> str:
        return f"{self.encoder}-{self.cross}-{self.seed}"


def cells(names: str | None, seeds: str) -> list[Cell]:
    """The runs that --cells and --seeds ask for, all of the table without names."""
    every = [f"{encoder}/{cross}" for encoder in ENCODERS for cross in CROSSES]
    chosen = names.split(",") if names else every
    for name in chosen:
        if name.count("/") != 1:
            raise InputError(f'--cells: "{name}" is not ENCODER/CROSS such as lsh/hepos')
    return [Cell(*name.split("/"), int(seed)) for seed in seeds.split(",") for name in chosen]


def run(cell: Cell, spec: str, workdir: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Trains and evaluates one cell; a row of the table."""
    start, directory = time.perf_counter(), workdir / cell.directory
    flags = [*flags, f"--config.training.seed={cell.seed}"]
    if tokenizer := next(workdir.glob(f"*/{TRAINING_MODEL}/*.model"), None):
        flags = [f"--config.tokenizer.path={tokenizer.parent}", *flags]
    cli.say(f"== {cell.directory}")
    if train.main([f"--config={spec}", f"--workdir={directory}", *flags]):
        raise InputError(f"{directory}: training diverged; lower config.optimizer.learning_rate")
    seconds = time.perf_counter() - start
    experiment = Experiment(read_config(spec, split_overrides(flags)[1]), directory)
    if not _evaluated(directory, experiment.training.steps):
        raise KeyboardInterrupt  # a signal stopped training, which the next start takes up
    found, model = plotting.read_run(directory), load(directory, which="latest")
    return {
        **cell._asdict(),
        "steps": experiment.training.steps,
        "parameters": model.num_parameters,
        **{name: round(value, 4) for name, value in bits_per_token(model, experiment.given_task).items()},
        **{name: round(float(found.evaluation[name].values[-1]), 2) for name in ROUGE},
        "lead": round(float(found.evaluation["lead_mean_rouge"].values[-1]), 2),
        "tokens_per_second": round(float(np.median(found.training["tokens_per_second"].values))),
        "seconds": round(seconds),
    }


def _evaluated(directory: Path, steps: int) -> bool:
    """Whether training came to its end, which has an evaluation."""
    path = directory / "metrics.jsonl"
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return any("eval" in row and row["step"] == steps for row in rows)


def bits_per_token(model: Model, task: Task, batch_size: int = 10) -> dict[str, float]:
    """Teacher-forced bits per token of the summaries of the task's validation documents, without dropout.

    Returns:
        "bits", and "bits_other" with the source of the next document of the batch in place of the own.
    """
    totals, tokens = {"bits": 0.0, "bits_other": 0.0}, 0.0
    for batch in _batches(model, task, batch_size):
        for name, shift in (("bits", 0), ("bits_other", 1)):
            ids, mask = (np.roll(batch[key], shift, 0) for key in ("input_ids", "attention_mask"))
            loss, weight = _loss(model, ids, mask, batch["labels"])
            totals[name] += loss
        tokens += weight
    return {name: total / tokens / math.log(2) for name, total in totals.items()}


def _loss(model: Model, ids: np.ndarray, mask: np.ndarray, labels: np.ndarray) -> tuple[float, float]:
    """Cross-entropy in nats, and how many tokens it is of."""
    config = model.config
    shifted = shift_right(labels, start_id=config.decoder_start_token_id, pad_id=config.pad_token_id)
    loss, weight = token_cross_entropy(model.logits(ids, mask, np.asarray(shifted)), labels)
    return float(loss), float(weight)


def _batches(model: Model, task: Task, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
    return Batches(
        load_examples(task, model.tokenizer, "validation"),
        batch_size=batch_size,
        source_lengths=(task.max_source_length,),
        target_length=task.max_target_length,
        shuffle=None,
        epochs=1,
        pad_id=model.config.pad_token_id,
    )


def finished(path: Path) -> list[dict[str, Any]]:
    """Rows of results.jsonl; a line that was being written when the sweep stopped is taken away."""
    if not path.exists() or not (text := path.read_text()).count("\n"):
        return []
    path.write_text(text[: text.rfind("\n") + 1])
    return plotting.read_study(path)


def write_results(workdir: Path, rows: Sequence[dict[str, Any]], out: str | None) -> None:
    """Table, picture and report."""
    (workdir / "table.md").write_text(markdown_table(rows))
    height = 0.8 + 0.3 * len({row["encoder"] for row in rows})
    plotting.save(plotting.study_figure(rows, (7.0, height)), workdir / "study.png", 200)
    print_table(rows)
    if out:
        write_report(out, rows)


def main(argv: Sequence[str]) -> None:
    rest, overrides = split_overrides(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workdir", required=True, type=Path, help="directory of the sweep")
    parser.add_argument("--data", default="data/{split}.jsonl", help="JSON lines, see configs/attention_study.py")
    parser.add_argument("--model", default="", help="checkpoint that all cells start from; default: none")
    parser.add_argument("--length", type=int, default=1024, help="source tokens; default: 1024")
    parser.add_argument("--cells", help="ENCODER/CROSS,...; default: all of the paper's table")
    parser.add_argument("--seeds", default="0", help="of initialisation, order and dropout; default: 0")
    parser.add_argument("--config", default=CONFIG, help=f"default: {CONFIG}")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args(rest)

    args.workdir.mkdir(parents=True, exist_ok=True)
    results = args.workdir / "results.jsonl"
    rows = finished(results)
    done = {(row["encoder"], row["cross"], row["seed"]) for row in rows}
    flags = [f"--config.{key}={value}" for key, value in overrides.items()]
    for cell in cells(args.cells, args.seeds):
        if cell in done:
            continue
        spec = args.config
        for name, value in {**cell._asdict(), "model": args.model, "data": args.data, "length": args.length}.items():
            spec = spec.replace(f"{{{name}}}", str(value))
        rows.append(run(cell, spec, args.workdir, flags))
        with results.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        jax.clear_caches()
    write_results(args.workdir, rows, args.out)


if __name__ == "__main__":
    cli.run(main)
