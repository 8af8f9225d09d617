"""Runs that are killed or stopped at random moments, beside the same run that never was."""

import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path

import reliability_runs as runs
from reliability_runs import STEPS, Process, Run
from reliability_trials import Case, Row

from longsum_jax import checksums
from longsum_jax.errors import InputError
from longsum_jax.tokenizers.bytes import ByteTokenizer
from longsum_jax.tokenizers.loading import BYT5_EXTRA_IDS

KILLS = 8  # of a run
SIGNALS = 3  # of a run
TRIALS = 6  # runs of each case; with six cases some 220 kills
# What is killed, and the overrides that it is run with.
KILLED = {
    "gap sentences, prepared shards": (
        "gap_sentences,data.reader=prepared,data.prepared={prepared},"
        "tokenizer.path={prepared}/tokenizer"
    ),
    "summaries, streamed, accumulation": (
        "summaries,data.reader=stream,data.shuffle=block,data.shuffle_block=8,"
        "training.accumulation=2"
    ),
    "segments with memories, accumulation": "segments,training.accumulation=2",
    "classification, shuffled in blocks": (
        "classification,data.shuffle=block,data.shuffle_block=6,data.prefetch=5"
    ),
    "extraction, Adafactor": "extraction,optimizer.name=adafactor",
    "masked LM, evaluated every epoch": "masked_lm,training.eval_every=epoch",
}
STOPPED = {"SIGTERM": "summaries", "SIGINT": "classification"}  # what each signal is sent to
MOMENTS = ("compilation", "step", "evaluation", "save")
_EVALUATED = (4, 8)
_SAVED = r"stopped by {} after step (\d+), saved; the same command continues"


class Wholes:
    """Runs that nothing ends, each made when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows = folder / "rows.jsonl"
        folder.mkdir(parents=True, exist_ok=True)
        runs.write_rows(self.rows)
        self.of = cache(self._of)  # (config, devices) -> (its workdir, its seconds)

    def run(self, config: str, workdir: Path, **options: int) -> Run:
        """Returns a run over the same rows; ``options`` are attributes of ``Run``."""
        return Run(config, self.rows, workdir, self.folder / "compiled", **options)

    def config(self, config: str) -> str:
        """Returns a config with the directory of prepared shards, if it has a place for it."""
        return config.format(prepared=self._prepared()) if "{prepared}" in config else config

    def _of(self, config: str, devices: int = 1) -> tuple[Path, float]:
        name = f"whole_{len(list(self.folder.glob('whole_*')))}"
        run = self.run(config, self.folder / name / "run", devices=devices)
        outcome = runs.complete(run)
        if outcome.code:
            raise RuntimeError(f"a run that nothing ended failed: {outcome.said}")
        return run.workdir, outcome.seconds

    def _prepared(self) -> Path:
        out = self.folder / "prepared"
        if not out.exists():
            flags = {"task": "summaries", "objective": "gap_sentences", "short_documents": "one"}
            flags |= {"source": f"json:{self.rows}", "max_source_length": 64, "out": out}
            flags |= {"max_target_length": 24, "num_shards": 8}
            # As many ids as the model has; its sentinels are the rest of them.
            flags["tokenizer"] = self.folder / "tokenizer"
            ByteTokenizer(extra_ids=BYT5_EXTRA_IDS).save(flags["tokenizer"])
            command = [sys.executable, "-m", "longsum_jax", "prepare", "--split=train"]
            command += [f"--{name}={value}" for name, value in flags.items()]
            subprocess.run(command, check=True, capture_output=True)
        return out


def differences(found: Path, whole: Path) -> list[str]:
    """Returns in what a run differs from one that nothing ended: [] if all is equal, bit for bit.

    Args:
        found, whole: the workdirs of the two, complete.
    """
    differing = []
    if runs.metrics_of(found) != runs.metrics_of(whole):
        differing.append("losses or gradient norms")
    expected = runs.readings_of(whole)
    readings = runs.readings_of(found)
    if readings.keys() != expected.keys() or any(
        ids != expected[step][0] for step, lives in readings.items() for ids in lives
    ):
        differing.append("example ids")
    final, wanted = runs.final_of(found), runs.final_of(whole)
    names = [name for name in wanted if final.get(name) != wanted[name]]
    if names or final.keys() != wanted.keys():
        differing.append(f"final arrays {names[:3]}")
    return differing


class Kills(Case):
    """SIGKILL at random moments, half of them while a checkpoint is written.

    Args:
        name: in the table.
        config: mode and overrides.
        wholes: see there.
    """

    section = "kill"
    wanted = TRIALS

    def __init__(self, name: str, config: str, wholes: Wholes) -> None:
        self.name, self._config, self._wholes = name, config, wholes

    def trial(self, rng: random.Random) -> Row:
        """Kills one run several times, then lets it end."""
        config = self._wholes.config(self._config)
        whole, seconds = self._wholes.of(config)
        workdir = fresh(self._wholes.folder / "killed" / "run")
        counts = Counter(kills=0, in_saves=0, equal=0)
        for life in range(KILLS):
            with Process(self._wholes.run(config, workdir, life=life)) as process:
                before = runs.saves_under_way(workdir)
                wait_for_moment(process, rng, seconds)
                process.send(signal.SIGKILL)
                outcome = process.finish()
            if outcome.code == 0:
                break
            if outcome.code != -signal.SIGKILL:
                return {**counts, "failures": [f"exit code {outcome.code}: {outcome.said[-300:]}"]}
            counts["kills"] += 1
            counts["in_saves"] += bool(runs.saves_under_way(workdir) - before)
        outcome = runs.complete(self._wholes.run(config, workdir, life=KILLS))
        if outcome.code != 0:
            return {**counts, "failures": [f"exit code {outcome.code}: {outcome.said[-300:]}"]}
        failures = differences(workdir, whole)
        counts["equal"] += not failures
        return {**counts, "failures": failures}


def fresh(workdir: Path) -> Path:
    """Removes a workdir of an earlier trial."""
    shutil.rmtree(workdir.parent, ignore_errors=True)
    return workdir


def wait_for_moment(process: Process, rng: random.Random, seconds: float) -> None:
    """Waits for a random moment: any, after a random event, or while a checkpoint is written.

    Args:
        process: just started.
        rng: of the moment.
        seconds: that a run which nothing ends takes.
    """
    done = max(runs.saved_steps(process.run.workdir), default=0)
    step = min(done + rng.randint(1, 3), STEPS)
    kind = rng.choice(["save", "save", "event", "any"])
    if kind == "save":
        wait_for_save(process, step)
        time.sleep(rng.uniform(0, 0.03))
    elif kind == "event":
        process.wait_for(rng.choice(["start", "first", f"step {step}"]))
        time.sleep(rng.uniform(0, 0.3))
    else:
        process.wait_for("start")
        time.sleep(rng.uniform(0, seconds / 2))  # the first start takes longer, it compiles


def wait_for_save(process: Process, step: int) -> None:
    """Waits until the checkpoint of a step is being written, or has been."""
    if not process.wait_for(f"save {step}"):
        return
    end = time.monotonic() + 1
    prefix = f"{step}.orbax"
    while time.monotonic() < end and step not in runs.saved_steps(process.run.workdir):
        if any(name.startswith(prefix) for name, _ in runs.saves_under_way(process.run.workdir)):
            return
        time.sleep(0.001)


class Signals(Case):
    """A signal at random moments of a run, which saves and ends; then the same command continues.

    Args:
        name: of the signal.
        config: mode and overrides.
        wholes: see there.
    """

    section = "signal"
    wanted = 9

    def __init__(self, name: str, config: str, wholes: Wholes) -> None:
        self.name, self._config, self._wholes = name, config, wholes
        self._signal = signal.Signals[name]

    def trial(self, rng: random.Random) -> Row:
        """Stops one run several times, then lets it end."""
        whole, _ = self._wholes.of(self._config)
        workdir = fresh(self._wholes.folder / "stopped" / "run")
        counts = Counter(signals=0, as_documented=0, equal=0)
        counts |= Counter({f"in_{moment}": 0 for moment in MOMENTS})
        failures: list[str] = []
        for life in range(SIGNALS):
            with Process(self._wholes.run(self._config, workdir, life=life)) as process:
                moment = self._wait(process, rng)
                process.send(self._signal)
                outcome = process.finish()
            if outcome.code == 0 and f"{STEPS} steps done" in outcome.said:
                break  # the signal came after the last step
            counts["signals"] += 1
            counts[f"in_{moment}"] += 1
            problem = self._problem(outcome, workdir)
            counts["as_documented"] += problem is None
            failures += [problem] if problem else []
        outcome = runs.complete(self._wholes.run(self._config, workdir, life=SIGNALS))
        if outcome.code != 0:
            return {**counts, "failures": [*failures, f"exit code {outcome.code}"]}
        differing = differences(workdir, whole)
        counts["equal"] += not differing
        return {**counts, "failures": failures + differing}

    def _wait(self, process: Process, rng: random.Random) -> str:
        """Waits for a random moment; returns which of ``MOMENTS`` it is."""
        done = max(runs.saved_steps(process.run.workdir), default=0)
        moment = rng.choice(MOMENTS)
        step = min(done + rng.randint(1, 2), STEPS - 1)
        later = [number for number in _EVALUATED if number > done]
        if moment == "evaluation" and later:
            process.wait_for(f"evaluate {later[0]}")
        elif moment == "save":
            wait_for_save(process, step)
            return moment
        elif moment == "compilation":
            process.wait_for("first")
        else:
            moment = "step"
            process.wait_for(f"step {step}")
        time.sleep(rng.uniform(0, 0.05))
        return moment

    def _problem(self, outcome: runs.Outcome, workdir: Path) -> str | None:
        """Returns what is not as documented, None if all is."""
        said = re.search(_SAVED.format(self.name), outcome.said)
        if outcome.code != 0 or said is None:
            return f"exit code {outcome.code}: {outcome.said[-300:]}"
        if int(said[1]) not in runs.saved_steps(workdir):
            return f"step {said[1]} is not saved"
        try:
            checksums.check(workdir / "checkpoints" / said[1])
        except InputError as error:
            return str(error)
        return None


def kill_cases(wholes: Wholes) -> list[Case]:
    """Returns all runs that are killed."""
    return [Kills(name, config, wholes) for name, config in KILLED.items()]


def signal_cases(wholes: Wholes) -> list[Case]:
    """Returns all runs that are stopped by signals."""
    return [Signals(name, config, wholes) for name, config in STOPPED.items()]
