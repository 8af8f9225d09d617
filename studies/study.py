"""A study: one config trained at every cell of a grid on the same data, with bits per token, ROUGE
and memory of each.

    python studies/study.py --workdir=runs/study --data='reports/{split}.jsonl' --length=512 \
        [--model=DIR] [--cells=full/full,lsh/hepos] [--seeds=0,1] [--out=study.json] \
        [--config.KEY=VALUE ...]
    python studies/study.py --workdir=runs/memory --data='reports/{split}.jsonl' \
        --cells=se3/true,attentive/false \
        '--config=configs/awesome.py:small,variant={variant},decoder_memory={decoder_memory},data={data}'
    python studies/study.py --workdir=runs/empty --data='reports/{split}.jsonl' \
        --cells=false,true \
        '--config=configs/awesome.py:small,data={data},task.segments.train_empty={train_empty}'

The default is Table 3 of the Hepos paper: configs/attention_study.py for every encoder attention
and cross-attention. --config names another config; {model}, {data} and {length} in it are filled
in, every other name in braces is a column of the table, and --cells gives their values, joined by
"/"; both also in --config.KEY=VALUE, as in --config.init_from='runs/before/{encoder}-full-0', which
goes on with what another study has trained. Every cell and seed is trained one after the other in
directories of --workdir. The first cell trains the tokenizer if none is given, all others use it.
Each row goes to WORKDIR/results.jsonl as soon as its cell is finished; started again, the study
skips what is there and takes up a cell where it stopped. At the end WORKDIR/table.md holds the
table, and study.png the picture of attentions.

`bits` are bits per token of the reference summaries of all validation documents under teacher
forcing, `bits_other` the same with the source of another document: where both are equal, the model
does not make use of what it reads, and the study says nothing of the parts compared. Of documents
in segments they are of segments with a target. ROUGE is of config.evaluation.examples generated
summaries, with its stemmer; `summary_tokens` is how long these are. `step_mib` is what one training
step holds of the device's memory, as its compiled program says. compare_cells.py says which cells
differ by more than chance.
"""

import argparse
import dataclasses
import json
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import jax
import numpy as np
from common import markdown_table, print_table, write_report

from longsum_jax.analysis import figures, records
from longsum_jax.atomic import write_text
from longsum_jax.commands import console, train
from longsum_jax.data.batches import Batches
from longsum_jax.data.stores import load_examples
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config, split_overrides
from longsum_jax.experiment.experiment import (
    Experiment,
    make_batches,
    make_experiment,
    make_loss,
    make_store,
    with_run_length,
)
from longsum_jax.experiment.objectives.segments import segment_loss_fn
from longsum_jax.inference.loading import TRAINING_MODEL
from longsum_jax.ops.device_memory import held_bytes
from longsum_jax.ops.losses import shift_right, token_cross_entropy
from longsum_jax.summarization.loading import load
from longsum_jax.summarization.model import Model
from longsum_jax.training.loss import document_loss
from longsum_jax.training.optimizers import OptimizerOptions, make_optimizer
from longsum_jax.training.state import init_state
from longsum_jax.training.step import make_train_step
from longsum_jax.typing import NumpyBatch

CONFIG = (
    "configs/attention_study.py:"
    "encoder={encoder},cross={cross},model={model},data={data},length={length}"
)
ENCODERS = ("full", "window", "window+global", "window+stride", "window+random", "adaptive_span")
ENCODERS += (
    "adaptive_span+global",
    "adaptive_span+stride",
    "adaptive_span+random",
    "linformer",
    "lsh",
    "sinkhorn",
)
CROSSES = ("full", "hepos", "linformer")
ROUGE = ("rouge1", "rouge2", "rougeLsum", "mean_rouge")
DOCUMENT_BITS = "document_bits.json"

GIVEN = ("model", "data", "length")  # names in a config that are flags


class Cell(NamedTuple):
    """One run of the study."""

    values: Mapping[str, str]
    seed: int

    @property
    def directory(self) -> str:
        return "-".join([*self.values.values(), str(self.seed)])


def cells(texts: Sequence[str], names: str | None, seeds: str) -> list[Cell]:
    """The runs that --cells and --seeds ask for; without names all of the paper's table.

    Args:
        texts: the config and its overrides, in which names in braces are columns.
        names, seeds: the flags.
    """
    result = dict.fromkeys(re.findall(r"{(\w+)}", " ".join(texts)))
    columns = [name for name in result if name not in (*GIVEN, "split")]
    if not names and columns != ["encoder", "cross"]:
        raise InputError(
            f"--cells is missing; give values of {'/'.join(columns)}, separated by commas"
        )
    selected = (
        names.split(",")
        if names
        else [f"{encoder}/{cross}" for encoder in ENCODERS for cross in CROSSES]
    )
    for name in selected:
        if name.count("/") != len(columns) - 1:
            raise InputError(f'--cells: "{name}" is no {"/".join(columns)}; give a value for each')
    values = [dict(zip(columns, name.split("/"), strict=True)) for name in selected]
    return [Cell(value, int(seed)) for seed in seeds.split(",") for value in values]


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Returns the text with the values in place of their names in braces."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


def run(cell: Cell, spec: str, workdir: Path, flags: Sequence[str]) -> dict[str, Any]:
    """Trains and evaluates one cell; a row of the table."""
    start, directory = time.perf_counter(), workdir / cell.directory
    flags = [*flags, f"--config.training.seed={cell.seed}"]
    if tokenizer := next(workdir.glob(f"*/{TRAINING_MODEL}/*.model"), None):
        flags = [f"--config.tokenizer.path={tokenizer.parent}", *flags]
    console.print_stderr(f"== {cell.directory}")
    if train.main([f"--config={spec}", f"--workdir={directory}", *flags]):
        raise InputError(f"{directory}: training diverged; lower config.optimizer.learning_rate")
    seconds = time.perf_counter() - start
    experiment = make_experiment(
        run_config(read_config(spec, split_overrides(flags)[1])), directory
    )
    batches = make_batches(experiment, make_store(experiment))
    config = with_run_length(experiment.setup.run, batches)
    steps = config.training.steps
    if not _evaluated(directory, steps):
        raise KeyboardInterrupt  # a signal stopped training, which the next start takes up
    result, model = records.read_run(directory), load(directory, which="latest")
    bits = document_bits(model, experiment)
    write_document_bits(directory, bits)
    return {
        **cell.values,
        "seed": cell.seed,
        "steps": steps,
        "parameters": model.num_parameters,
        **{name: round(value, 4) for name, value in bits_per_token(bits).items()},
        **{name: round(float(result.evaluation[name].values[-1]), 2) for name in ROUGE},
        "lead": round(float(result.evaluation["lead_mean_rouge"].values[-1]), 2),
        "summary_tokens": round(float(result.evaluation["summary_tokens"].values[-1]), 1),
        "tokens_per_second": round(float(np.median(result.training["tokens_per_second"].values))),
        "step_mib": round(
            _step_bytes(experiment, model, config.optimizer, next(batches)) / 2**20, 1
        ),
        "seconds": round(seconds),
    }


def _evaluated(directory: Path, steps: int) -> bool:
    """Whether training came to its end, which has an evaluation."""
    path = directory / "metrics.jsonl"
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return any("eval" in row and row["step"] == steps for row in rows)


def bits_per_token(documents: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Bits per token of all documents together, of the result of ``document_bits``."""
    tokens = documents["tokens"].sum()
    return {name: float(documents[name].sum() / tokens) for name in ("bits", "bits_other")}


def document_bits(
    model: Model, experiment: Experiment, batch_size: int = 10
) -> dict[str, np.ndarray]:
    """Teacher-forced bits of the summaries of the task's validation documents, without dropout.

    Returns:
        "bits", "bits_other" with the source of the document before in the batch, not the own,
        and "tokens" of the summaries, each [documents].
    """
    loss = _segment_loss(model) if experiment.objective.parts else _whole_loss(model)
    result: dict[str, list[np.ndarray]] = {"bits": [], "bits_other": [], "tokens": []}
    for batch in _batches(model, experiment, batch_size):
        nats, tokens = loss(batch)
        real = np.flatnonzero(tokens)  # a last batch is filled up with empty rows
        sources = np.arange(len(tokens))
        sources[real] = np.roll(real, 1)
        others = {key: value[sources] for key, value in batch.items()}
        nats_other, _ = loss(others | {"labels": batch["labels"]})
        result["bits"].append(np.asarray(nats)[real] / math.log(2))
        result["bits_other"].append(np.asarray(nats_other)[real] / math.log(2))
        result["tokens"].append(np.asarray(tokens)[real])
    return {name: np.concatenate(parts) for name, parts in result.items()}


def write_document_bits(directory: Path, documents: Mapping[str, np.ndarray]) -> None:
    """Keeps the result of ``document_bits`` in the directory of a cell, for compare_cells.py."""
    plain = {name: np.round(value, 4).tolist() for name, value in documents.items()}
    write_text(directory / DOCUMENT_BITS, json.dumps(plain) + "\n")


Loss = Callable[[dict[str, np.ndarray]], tuple[Any, Any]]


def _whole_loss(model: Model) -> Loss:
    """Cross-entropies in nats of the documents of a batch, and of how many tokens each is."""
    config = model.config

    def loss(batch: dict[str, np.ndarray]) -> tuple[Any, Any]:
        labels = batch["labels"]
        shifted = shift_right(
            labels, start_id=config.decoder_start_token_id, pad_id=config.pad_token_id
        )
        logits = model.logits(batch["input_ids"], batch["attention_mask"], np.asarray(shifted))
        return jax.vmap(token_cross_entropy)(logits[:, None], labels[:, None])

    return loss


def _segment_loss(model: Model) -> Loss:
    """The same of documents in segments."""
    module = model.family.module_class(model.config)
    loss = document_loss(segment_loss_fn(module, model.config, deterministic=True))

    def losses(params: Any, batch: dict[str, Any]) -> tuple[Any, Any]:
        def of_one(document: dict[str, Any]) -> tuple[Any, Any]:
            alone = {name: value[None] for name, value in document.items()}
            return loss(params, alone, jax.random.key(0))[:2]

        return jax.lax.map(of_one, batch)

    compiled = jax.jit(losses)
    return lambda batch: compiled(model.params, batch)


def _batches(
    model: Model, experiment: Experiment, batch_size: int
) -> Iterator[dict[str, np.ndarray]]:
    task = experiment.setup.task
    if experiment.objective.parts:  # of sentences of summaries alone, however the cell was trained
        task = dataclasses.replace(
            task, segments=dataclasses.replace(task.segments, train_empty=False)
        )
    return Batches(
        load_examples(task, model.tokenizer, "validation"),
        batch_size=batch_size,
        source_lengths=experiment.objective.source_lengths,
        **experiment.objective.batch_options(),
        shuffle=None,
        epochs=1,
        pad_id=model.config.pad_token_id,
    )


def _step_bytes(
    experiment: Experiment, model: Model, options: OptimizerOptions, batch: NumpyBatch
) -> int:
    """Of a step over a batch of the longest bucket, with as many rows as ``batch``."""
    optimizer = make_optimizer(options, model.family.parameter_axes(model.config))
    length = experiment.objective.source_lengths[-1]
    longest = {}
    for name, x in batch.items():
        if name == "labels" and not experiment.objective.parts:
            longest[name] = x
        else:
            shape = (len(x), length, *x.shape[2:])
            longest[name] = np.zeros(shape, x.dtype)
    state = jax.eval_shape(lambda params: init_state(params, optimizer), model.params)
    step = make_train_step(make_loss(experiment), optimizer)
    return held_bytes(step.lower(state, longest).compile())


def finished(path: Path) -> list[dict[str, Any]]:
    """Rows of results.jsonl; a line that was being written when the study stopped is taken away."""
    if not path.exists() or not (text := path.read_text()).count("\n"):
        return []
    path.write_text(text[: text.rfind("\n") + 1])
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_results(workdir: Path, rows: Sequence[dict[str, Any]], out: str | None) -> None:
    """Table, picture and report."""
    (workdir / "table.md").write_text(markdown_table(rows))
    if rows[0].keys() >= {"encoder", "cross"}:
        height = 0.8 + 0.3 * len({row["encoder"] for row in rows})
        figures.save(figures.study_figure(rows, (7.0, height)), workdir / "study.png", 200)
    print_table(rows)
    if out:
        write_report(out, rows)


def main(argv: Sequence[str]) -> None:
    rest, overrides = split_overrides(argv)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, type=Path, help="directory of the study")
    parser.add_argument(
        "--data", default="data/{split}.jsonl", help="JSON lines, see configs/attention_study.py"
    )
    parser.add_argument(
        "--model", default="", help="checkpoint that all cells start from; default: none"
    )
    parser.add_argument("--length", type=int, default=1024, help="source tokens; default: 1024")
    parser.add_argument(
        "--cells", help="such as lsh/hepos,lsh/full; default: all of the paper's table"
    )
    parser.add_argument(
        "--seeds", default="0", help="of initialization, order and dropout; default: 0"
    )
    parser.add_argument("--config", default=CONFIG, help=f"default: {CONFIG}")
    parser.add_argument("--out", help="JSON report to write")
    args = parser.parse_args(rest)

    args.workdir.mkdir(parents=True, exist_ok=True)
    results = args.workdir / "results.jsonl"
    rows = finished(results)
    flags = [f"--config.{key}={value}" for key, value in overrides.items()]
    given = {"model": args.model, "data": args.data, "length": args.length}
    for cell in cells([args.config, *flags], args.cells, args.seeds):
        if any(
            cell == Cell({name: row[name] for name in cell.values}, row["seed"]) for row in rows
        ):
            continue
        values = {**cell.values, **given}
        overridden = [filled(flag, values) for flag in flags]
        rows.append(run(cell, filled(args.config, values), args.workdir, overridden))
        with results.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
        jax.clear_caches()
    write_results(args.workdir, rows, args.out)


if __name__ == "__main__":
    console.run(main)
