"""Disks that fill up, break or are slow in the middle of a command, at a random call that writes.

Every command is run as a user runs it, in a process with ``failing_calls.c`` preloaded: from one
call on, all that write into its folder fail as they do on a full disk, beyond a quota, without
permission, on a read-only disk or a broken one; or none fails and all are slow. The command must
end in time, with success or one sentence, and without a traceback. Where it failed, the same
command without faults must then leave what it leaves where nothing ever failed.
"""

import errno
import functools
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any

import reliability_runs as runs
from reliability_damage import ModelDirectory
from reliability_trials import Case, Row

SOURCE = Path(__file__).with_name("failing_calls.c")
TRIALS = 20  # of each command
PATIENCE = 300.0  # seconds after which a command counts as hanging
SLOW = 0  # in place of an error: calls take MILLISECONDS longer
MILLISECONDS = 5
ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO, SLOW)


@functools.cache
def compiled(folder: Path) -> Path:
    """Returns the library to preload, compiled into a folder."""
    library = folder / "failing_calls.so"
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise SystemExit(
            f"{compiler}: no such C compiler; install one, or leave out --sections=disk"
        )
    flags = ["-shared", "-fPIC", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run([compiler, *flags], check=True)
    return library


class Writer(Case):
    """A command that writes into a folder.

    Attributes:
        folder: with everything of the case: what the command reads, and under "disk" what it has
            written where nothing failed ("whole") and where something did ("tried").
    """

    section = "disk"
    wanted = TRIALS

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._num_calls = 0
        self._expected = ""

    def prepare(self) -> None:
        """Makes what the command reads."""

    @abstractmethod
    def arguments(self, out: Path) -> list[str]:
        """Returns the arguments of ``longsum``."""

    def command(self, out: Path) -> list[str]:
        """Returns the command that writes to ``out``."""
        return [sys.executable, "-m", "longsum_jax", *self.arguments(out)]

    @abstractmethod
    def written(self, out: Path) -> Any:
        """Returns what the command has written, without what depends on the clock."""

    def trial(self, rng: random.Random) -> Row:
        """Runs the command with a fault, and again without."""
        if not self._num_calls:
            self._begin()
        error, out = rng.choice(ERRORS), self.disk / "tried"
        shutil.rmtree(out, ignore_errors=True)
        at = 1 if error == SLOW else rng.randint(1, self._num_calls)
        row: Row = {"slow": 1} if error == SLOW else {"failing": 1}
        faults = {"FAIL_AT": str(at), "FAIL_WITH": str(error)}
        where = f"{errno.errorcode.get(error, 'slow')} from call {at} of {self._num_calls} on"
        failures = []
        try:
            done = self._run(out, faults | {"FAIL_MILLISECONDS": str(MILLISECONDS)})
        except subprocess.TimeoutExpired:
            return row | {"failures": [f"{where}: no end"]}
        if "Traceback" in done.stderr or done.returncode not in (0, 1, 2):
            failures.append(f"{where}: ended with {done.returncode}, {done.stderr[-400:]!r}")
        if error == SLOW and done.returncode:
            failures.append(f"{where}: {done.stderr[-400:]!r}")
        row["in_a_sentence"] = int(done.returncode != 0 and not failures)
        again = self._run(out, {}) if done.returncode else done
        if again.returncode:
            failures.append(f"{where}, then the same command: {again.stderr[-400:]!r}")
        elif self._digest(out) != self._expected:
            failures.append(f"{where}: the same command leaves something else")
        row["equal"] = int(not failures)
        return row | {"failures": failures}

    def _begin(self) -> None:
        self.disk.mkdir(parents=True)
        self.prepare()
        whole, count = self.disk / "whole", self.folder / "calls"
        done = self._run(whole, {"FAIL_COUNT_FILE": str(count)})
        if done.returncode:
            raise SystemExit(f"{self.name}: {done.stderr[-2000:]}")
        self._num_calls = len(count.read_text())
        self._expected = self._digest(whole)

    def _run(self, out: Path, faults: dict[str, str]) -> subprocess.CompletedProcess[str]:
        library = compiled(self.folder.parent)
        settings = {
            "LD_PRELOAD": str(library),
            "FAIL_FOLDER": str(self.disk),
            "JAX_PLATFORMS": "cpu",
        }
        settings |= {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        settings |= {"JAX_COMPILATION_CACHE_DIR": str(self.folder.parent / "compiled")}
        return subprocess.run(
            self.command(out),
            env=os.environ | settings | faults,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def _digest(self, out: Path) -> str:
        text = json.dumps(self.written(out), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def disk(self) -> Path:
        """What may fail: the outputs, and what stands beside them until they are whole."""
        return self.folder / "disk"

    @functools.cached_property
    def rows(self) -> Path:
        """A file of documents."""
        path = self.folder / "rows.jsonl"
        runs.write_rows(path, count=8)
        return path

    @functools.cached_property
    def model(self) -> Path:
        """A model directory."""
        directory = self.folder / "model"
        ModelDirectory(directory).write()
        return directory


class Train(Writer):
    name = "train"

    def arguments(self, out: Path) -> list[str]:
        config = f"{runs.CONFIG}:summaries,rows={self.rows},training.steps=3,training.eval_every=2"
        return ["train", f"--config={config}", f"--workdir={out}"]

    def written(self, out: Path) -> Any:
        return [runs.metrics_of(out), _parameters(out, which="latest")]


class Evaluate(Writer):
    name = "evaluate"

    def arguments(self, out: Path) -> list[str]:
        flags = [f"--model={self.model}", f"--data={self.rows}", "--max_new_tokens=4"]
        return ["evaluate", *flags, f"--out={out}", f"--report={out}.html"]

    def written(self, out: Path) -> Any:
        metrics = json.loads((out / "metrics.json").read_text())
        lines = (out / "predictions.jsonl").read_text().splitlines()
        rows = [{k: json.loads(line)[k] for k in ("id", "prediction", "scores")} for line in lines]
        rows.sort(key=lambda row: row["id"])
        return [rows, {name: x for name, x in metrics.items() if "second" not in name}]


class Summarize(Writer):
    name = "summarize"

    def arguments(self, out: Path) -> list[str]:
        documents = self.folder / "documents"
        flags = [f"--model={self.model}", "--max_new_tokens=4", f"--out={out}"]
        return ["summarize", *flags, str(documents)]

    def prepare(self) -> None:
        documents = self.folder / "documents"
        documents.mkdir()
        for number, line in enumerate(self.rows.read_text().splitlines()):
            (documents / f"{number}.txt").write_text(json.loads(line)["document"])

    def written(self, out: Path) -> Any:
        return {path.name: path.read_text() for path in sorted(out.glob("*_summary.txt"))}


class Prepare(Writer):
    name = "prepare"

    def arguments(self, out: Path) -> list[str]:
        task = ["--task=summaries", f"--source=json:{self.rows}", "--max_source_length=64"]
        return ["prepare", *task, "--tokenizer=bytes", "--num_shards=2", f"--out={out}"]

    def written(self, out: Path) -> Any:
        from longsum_jax.data.prepared import PreparedExamples

        result = PreparedExamples(out)
        return [{key: str(value) for key, value in example.items()} for example in result]


class Convert(Writer):
    name = "convert"

    def arguments(self, out: Path) -> list[str]:
        return ["convert", str(self.model), str(out), "--cross_attention=hepos", "--hepos_stride=2"]

    def written(self, out: Path) -> Any:
        return _parameters(out)


def _parameters(directory: Path, **options: Any) -> str:
    """Returns a hash of the parameters of a model."""
    from longsum_jax.summarization.loading import load

    return load(directory, **options).fingerprint


def disk_cases(folder: Path) -> list[Case]:
    """Returns all commands, in subdirectories of a folder."""
    return [case(folder / case.name) for case in (Train, Evaluate, Summarize, Prepare, Convert)]
