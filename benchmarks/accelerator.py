"""Checks a GPU or a TPU, and measures the most important times, within a few minutes.

    python benchmarks/accelerator.py --minutes=9 --out=accelerator.json

First, what the device computes is checked, see ``accelerator_checks.py``, for two or three minutes
on a GPU, most of it compilation. If a check fails, nothing is measured, with two exceptions: the
fused state-space kernel on devices whose models do not use it by default, and PyTorch, without
which only longsum_jax is measured. If an attention kernel fails, give --attention_backend=reference
and another --out to measure without kernels.

Then the other scripts run, one case after another in separate processes until --minutes are over,
the most important ones first: training steps, compared with PyTorch's classes, plain and compiled;
encoders up to a million tokens; searches, compared with PyTorch's with static caches; the
operations that take longest; the backends of the state-space operation and of attention. Times are
medians of at least five calls. PyTorch's training steps have separate processes, so that nearly all
memory is available to them. On a row of longsum_jax, `ratio` is its speed relative to the fastest
`peer`, `memory_share` its memory relative to the peer's, and `difference` the relative distance of
the first losses if the weights are the same. `compile_seconds` of a program that an earlier case
compiled are the time to load it. The remaining minutes are for a training on generated text.

The report is written after every case. Start the command again to continue: checks that have passed
and finished cases are not repeated, and a stopped case continues after its last row. Cases that
failed, took longer than three minutes or were stopped twice come last; cases that failed twice
without a new row are left out. The training continues from its folder next to the report
(accelerator.training).
"""

import argparse
import importlib.util
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from accelerator_checks import FAMILIES, LAST_CHECK, NOTE, PEER_CHECK, write_checks
from common import numbers, print_table, rows_before, write_report

HERE = Path(__file__).resolve().parent
# Processes find the packages of this checkout, which need not be installed.
PATHS = (str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")]))
# Programs that several cases have, such as those that make the weights, are compiled once.
CACHE = {"JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir(), "longsum_jax_programs"))}
ENVIRONMENT = CACHE | os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
# Ends a process when its parent is killed: it would keep the device from the next start.
SETPRIV = shutil.which("setpriv")
WITH_PARENT = (SETPRIV, "--pdeathsig=TERM") if SETPRIV else ()
# Modules of all dependencies, and of the peers.
MODULES = ("flax", "google.protobuf", "jax", "jaxtyping", "lazy_loader", "markdown_it")
MODULES += ("ml_collections", "nltk", "numpy", "optax", "orbax", "rouge_score", "sentencepiece")
MODULES += ("torch", "tqdm", "transformers")
SUMMARY = 512  # tokens of a target
# Tokens of a training step for a GiB that JAX may take, three quarters of the device: a step of
# LongT5 takes about 5 GiB for 4,096, PyTorch's 11, which should fit.
ROW_TOKENS = 384
MOST_ROWS = 8
NUM_TEXTS = 100_000  # 24 words each, for the training; the tokenizer reads all of them first
STEPS = 1_000_000  # of the training, which the minutes end
LEAST_CASE, LEAST_TRAINING = 45.0, 120.0  # seconds that must be left to start
LONGEST_CASE = 180.0  # seconds: one that hangs leaves time for the others
MOST_TRIES = 2  # of a case that fails
SAVING = 20.0  # seconds for the last checkpoint
STOPPED, TOO_LONG = "no time was left", f"stopped after {LONGEST_CASE:.0f} s"
OURS = "longsum_jax"
PEERS = {"locost": "longt5"}  # of models that PyTorch lacks
SETTINGS = ("dtype", "batch", "peak_flops")  # of a script's report, for its rows
# of a case that did not begin, or that has just made progress
NOTHING = {"tries": 0, "failures": 0, "report": None}
NESTED = ("losses", "operations")  # columns that the printed table leaves out
Row = dict[str, Any]


class Case(NamedTuple):
    """One measurement by another script of this folder."""

    name: str
    script: str
    flags: tuple[str, ...]


def cases(
    size: str,
    lengths: tuple[int, ...],
    device_gib: float,
    backend: str = "auto",
    *,
    platform: str = "gpu",
    has_peers: bool = True,
) -> Iterator[Case]:
    """Yields the measurements, those first that settle most.

    Args:
        size: size of the models, see ``models.SIZES``.
        lengths: tokens of the documents of training steps, the first one also of other cases.
        device_gib: memory that JAX may take; a step of ours takes about a third of the device's.
        backend: attention kernels of our models.
        platform: JAX's name of the device, which decides the kernels.
        has_peers: True to measure PyTorch, too.
    """
    attention = f"--attention_backend={backend}"
    sized = (f"--size={size}", "--repeats=5", "--median")
    # Turns are not cut short: a call that takes long is not begun.
    ours = (*sized, "--peers=none", "--enough=inf", "--budget_seconds=20", attention)
    theirs = (*sized, "--enough=inf")
    first = lengths[0]

    def step(model: str, length: int) -> tuple[str, ...]:
        rows = min(max(int(device_gib * ROW_TOKENS / length), 1), MOST_ROWS)
        size_of_step = (f"--lengths={length}", f"--target={SUMMARY}", f"--batch={rows}")
        return (f"--models={model}", *size_of_step)

    def trainings(side: str, steps: list[tuple[str, int]]) -> Iterator[Case]:
        for model, length in steps:
            name, flags = f"train {model} {length}", step(model, length)
            if side == "ours":
                yield Case(name, "train_step.py", (*flags, *ours))
            elif has_peers and model not in PEERS:
                flags = (*flags, *theirs, f"--alone={side}")
                yield Case(f"{name}, PyTorch {side}", "train_step.py", flags)

    models = ("locost", "longt5", "led")
    shorter = [(model, first) for model in (*models, "t5")]
    longest = [(model, length) for length in lengths[1:] for model in models]
    yield from trainings("ours", shorter + longest)
    yield from trainings("plain", shorter + longest)
    # torch.compile takes minutes for a step: at the other lengths it comes last.
    yield from trainings("compiled", shorter)
    longer = ",".join(str(first * 4**power) for power in range(5))
    for model in models:
        flags = (f"--models={model}", f"--lengths={longer}", *ours)
        yield Case(f"encode {model}", "encode.py", flags)
    compared = ("--static",) if has_peers else ("--peers=none",)
    for model, length in (("bart", first // 4), ("led", 4 * first)):
        for beams in (1, 4):
            flags = (f"--models={model}", f"--lengths={length}", f"--beams={beams}", *sized)
            flags += (attention, "--batches=1,16", "--new_tokens=128", *compared)
            yield Case(f"decode {model} {length}, beams {beams}", "decode.py", flags)
    flags = (*step("locost", first), *ours, "--profile")
    yield Case(f"profile train {first}", "train_step.py", flags)
    flags = ("--models=locost", f"--lengths={256 * first}", *ours, "--profile")
    yield Case(f"profile encode {256 * first}", "encode.py", flags)
    yield Case("state-space backends", "ssm.py", ("--tables=backends", *sized))
    longer = ",".join(str(length) for length in (first // 4, first, 4 * first))
    # with "reference", kernels may be wrong
    is_gpu = platform == "gpu" and backend != "reference"
    kernels = ("triton", "cudnn") if is_gpu else (backend,)
    for name in dict.fromkeys((*kernels, "reference")):
        flags = ("--models=bart", f"--lengths={longer}", *ours[:-1], f"--attention_backend={name}")
        yield Case(f"attention {name}", "encode.py", flags)
    yield from trainings("compiled", longest)


def measure(case: Case, seconds: float, before: Row | None = None) -> tuple[str, Row | None]:
    """Runs a case for at most some seconds.

    Args:
        before: unfinished report, which the script continues.

    Returns:
        A note, "" if the case is finished; and its report, None if there is none yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        if before is not None:
            out.write_text(json.dumps(before))
        command = [sys.executable, str(HERE / case.script), *case.flags, f"--out={out}"]
        note = run_for(command, seconds)
        return note, json.loads(out.read_text()) if out.exists() else None


def run_for(command: list[str], seconds: float) -> str:
    """Runs a command for at most some seconds.

    Returns:
        "" if it succeeded, otherwise ``STOPPED`` or the end of what it wrote.
    """
    # A file, because processes that outlive the command would keep a pipe open.
    with tempfile.TemporaryFile() as log:
        try:
            options = {"stdout": log, "stderr": log, "timeout": seconds, "env": ENVIRONMENT}
            status = subprocess.run([*WITH_PARENT, *command], **options).returncode
        except subprocess.TimeoutExpired:
            return STOPPED
        log.seek(0)
        text = log.read().decode(errors="replace").strip()
    return f"exit status {status}: {text[-NOTE:]}" if status else ""


def train(directory: Path, size: str, seconds: float) -> Row:
    """Trains a LOCOST to copy generated words for some seconds; a later call continues.

    Returns:
        A row with the losses by step, if there are any, and with a note if the training failed.
    """
    texts, workdir = directory / "words.jsonl", directory / "run"
    if not texts.exists():
        write_words(texts)
    config = "configs/locost_small.py:copy" + (",size=10m" if size == "base" else "")
    command = [sys.executable, "-m", "longsum_jax.train", f"--config={HERE.parent / config}"]
    command += [f"--workdir={workdir.name}", f"--config.training.steps={STEPS}"]
    # A path of this machine would keep another one from continuing.
    command += [f"--config.task.source=json:{texts.name}"]
    process = subprocess.Popen([*WITH_PARENT, *command], cwd=directory, env=ENVIRONMENT)
    try:
        process.wait(seconds - SAVING)
    except subprocess.TimeoutExpired:
        process.terminate()  # it writes a checkpoint
        try:
            process.wait(SAVING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    row: Row = {"case": f"train {config}"}
    log = workdir / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill leaves half
    losses = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    if process.returncode or not losses:
        row["note"] = f"exit status {process.returncode} after {len(losses)} losses"
    if losses:
        row |= {"steps": max(losses), "loss": losses[max(losses)], "losses": losses}
    return row


def write_words(path: Path) -> None:
    """Writes rows of random words, which are their own summaries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    unfinished = path.with_suffix(".new")
    with unfinished.open("w") as file:
        for _ in range(NUM_TEXTS):
            text = " ".join(rng.choices(words, k=24))
            file.write(json.dumps({"document": text, "summary": text}) + "\n")
    unfinished.replace(path)


def pending(cases: Iterator[Case], rows: list[Row], unfinished: Row) -> list[Case]:
    """Returns the cases to run; those last that failed, or were stopped twice."""
    failed = {name for name, x in unfinished.items() if x["note"] != STOPPED}
    late = failed | {name for name, x in unfinished.items() if x["tries"] > 1}
    given_up = {name for name in failed if unfinished[name]["failures"] >= MOST_TRIES}
    done = {row.get("case") for row in rows} - (unfinished.keys() - given_up)
    left = [case for case in cases if case.name not in done]
    return sorted(left, key=lambda case: case.name in late)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="in all; default: 9")
    parser.add_argument("--size", default="base", help="of the measured models; default: base")
    parser.add_argument("--lengths", default="4096,16384", help="default: 4096,16384")
    parser.add_argument("--families", default=",".join(FAMILIES), help="to check; default: all")
    parser.add_argument(
        "--attention_backend", default="auto", help="of our models; reference: without kernels"
    )
    parser.add_argument("--only_checks", action="store_true", help="measure nothing")
    parser.add_argument("--out", required=True, help="JSON report to write or continue")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    settings = {"size": args.size, "attention_backend": args.attention_backend}
    has_checks = _has_checks(rows_before(args.out, **settings))
    if args.only_checks:
        if not has_checks:  # a report that has them may have measurements, too
            write_checks(args.families, args.attention_backend, args.out, **settings)
        return
    if missing := [name for name in MODULES if not is_installed(name)]:
        say(f"not installed, and some cases may fail: {', '.join(missing)}", end)
    if not has_checks:
        say("checks, two or three minutes on a GPU", end)
        command = [sys.executable, __file__, *sys.argv[1:], "--only_checks"]
        # A process of its own, which leaves the device's memory to the others.
        if status := subprocess.run([*WITH_PARENT, *command], env=ENVIRONMENT).returncode:
            sys.exit(status)
    measure_all(args, settings, end)


def measure_all(args: argparse.Namespace, settings: Row, end: float) -> None:
    """Measures the cases that a report does not have, and trains until the end."""
    out = Path(args.out)
    report = json.loads(out.read_text())
    rows, unfinished = report["rows"], report.get("unfinished", {})
    [last] = [row for row in rows if row.get("check") == LAST_CHECK]
    lengths = tuple(numbers(args.lengths))
    [peer] = [row for row in rows if row.get("check") == PEER_CHECK]
    every = cases(
        args.size,
        lengths,
        last["device_gib"],
        args.attention_backend,
        platform=last.get("platform", "gpu"),
        has_peers=peer["holds"],
    )
    extra = settings | {"unfinished": unfinished, "machine": report["machine"]}

    def add(name: str, new: list[Row]) -> None:
        rows[:] = [*(row for row in rows if row.get("case") != name), *new]
        compare(rows)
        write_report(out, rows, **extra)

    left = pending(every, rows, unfinished)
    for number, case in enumerate(left):
        seconds = end - time.monotonic()
        if seconds < LEAST_CASE:
            break
        say(f"{case.name}, one of {len(left) - number} cases", end)
        before = NOTHING | unfinished.pop(case.name, {})
        note, part = measure(case, min(seconds, LONGEST_CASE), before["report"])
        if note == STOPPED and seconds > LONGEST_CASE:
            note = TOO_LONG
        new = rows_of(case, part)
        if note:
            if count_rows(part) > count_rows(before["report"]):
                before = NOTHING
            unfinished[case.name] = {
                "note": note,
                "tries": before["tries"] + 1,
                "failures": before["failures"] + (note != STOPPED),
                "report": part,
            }
            new.append({"case": case.name, "note": note})
        for row in new:
            print(json.dumps(row), file=sys.stderr, flush=True)
        add(case.name, new)
    if end - time.monotonic() > LEAST_TRAINING:
        say("training", end)
        row = train(out.with_suffix(".training"), args.size, end - time.monotonic())
        add(row["case"], [row])
    print_table([{key: row[key] for key in row if key not in NESTED} for row in rows])


def count_rows(report: Row | None) -> int:
    """Returns the number of a report's rows, 0 without a report."""
    return 0 if report is None else len(report["rows"])


def rows_of(case: Case, report: Row | None) -> list[Row]:
    """Returns the rows of a case's report, none without one, with what holds for all of them."""
    if report is None:
        return []
    common = {"case": case.name} | {key: report[key] for key in SETTINGS if key in report}
    return [common | row for row in report["rows"]]


def compare(rows: list[Row]) -> None:
    """Adds to training steps of ours how they compare with the fastest peer of the length."""
    steps = [row for row in rows if row.get("case", "").startswith("train ") and "seconds" in row]
    for row in filter(lambda row: row["by"] == OURS, steps):
        peer = f"PyTorch {PEERS.get(row['model'], row['model'])}"
        by = [x for x in steps if x["by"].startswith(peer) and x["length"] == row["length"]]
        if not by:
            continue
        best = min(by, key=lambda x: x["seconds"])
        row |= {"peer": best["by"], "ratio": best["seconds"] / row["seconds"]}
        row["memory_share"] = row["gib"] / best["gib"]
        if row["model"] not in PEERS and "loss" in row and "loss" in best:
            row["difference"] = abs(row["loss"] / best["loss"] - 1)


def is_installed(module: str) -> bool:
    """Returns True if a module can be imported, without importing the module itself."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def say(what: str, end: float) -> None:
    """Prints what starts, and the most that it may take."""
    seconds = end - time.monotonic()
    print(f"{time.strftime('%X')} {what}: {seconds:.0f} s left", file=sys.stderr, flush=True)


def _has_checks(rows: list[Row]) -> bool:
    """Returns True if all checks of a report were made, and hold."""
    return any(row.get("check") == LAST_CHECK and row["holds"] for row in rows)


if __name__ == "__main__":
    main()
