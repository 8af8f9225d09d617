"""Commands other than `longsum train` that are killed at a random moment and run again.

The run after the kill must leave what a run leaves that nothing ended, byte by byte but for times,
and nothing else: no lock, and no unfinished output.
"""

import functools
import json
import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import reliability_disk as disk
from reliability_trials import Case, Row

from longsum_jax.checksums import SUMS

TRIALS = 10  # kills of each command
PATIENCE = 600.0  # seconds after which a run counts as hanging


class Extract(disk.Writer):
    name = "extract"

    def arguments(self, out: Path) -> list[str]:
        return ["extract", f"--data={self.rows}", "--length=2 sentences", f"--out={out}"]

    def written(self, out: Path) -> Any:
        return out.read_text()


class Extracts(disk.Summarize):
    name = "summarize without a model"

    def arguments(self, out: Path) -> list[str]:
        return ["summarize", f"--out={out}", str(self.folder / "documents")]


class KilledCommand(Case):
    """SIGKILL at a random moment of a command, then the same command again.

    Args:
        writer: the command.
    """

    section = "commands"
    wanted = TRIALS

    def __init__(self, writer: disk.Writer) -> None:
        self._writer = writer
        self.name = writer.name

    def trial(self, rng: random.Random) -> Row:
        """Kills the command, at any moment or soon after it has begun to write."""
        expected, seconds = self._whole
        self._empty()
        with self._start() as process:
            if rng.random() < 0.5:
                while process.poll() is None and not any(self._folder.iterdir()):
                    time.sleep(0.001)
                time.sleep(rng.uniform(0, 0.1 * seconds))
            else:
                time.sleep(rng.uniform(0, seconds))
            process.kill()
        before = content_of(self._folder)
        is_killed = process.returncode != 0
        row: Row = {"kills": int(is_killed), "inside_output": int(is_killed and bool(before))}
        done = self._run()
        failures = []
        # A command whose output was whole before the kill may say that it is there.
        if done.returncode and before != expected:
            failures.append(f"ended with {done.returncode}, {done.stderr[-400:]!r}")
        if names := differences(content_of(self._folder), expected):
            failures.append(f"differs in {names[:4]}")
        row["equal"] = int(not failures)
        return row | {"failures": failures}

    @property
    def _folder(self) -> Path:
        """What the command writes to, and nothing else."""
        return self._writer.disk / "tried"

    @functools.cached_property
    def _whole(self) -> tuple[dict[str, Any], float]:
        """What the command leaves where nothing ends it, and its seconds."""
        self._writer.disk.mkdir(parents=True)
        self._writer.prepare()
        for _ in range(2):  # the second one has compiled programs
            self._empty()
            begin = time.monotonic()
            done = self._run()
            seconds = time.monotonic() - begin
            if done.returncode:
                raise SystemExit(f"{self.name}: {done.stderr[-2000:]}")
        return content_of(self._folder), seconds

    def _empty(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir()

    def _start(self) -> subprocess.Popen[str]:
        settings = {"JAX_PLATFORMS": "cpu", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
        settings |= {"JAX_COMPILATION_CACHE_DIR": str(self._writer.folder.parent / "compiled")}
        command = self._writer.command(self._folder / "out")
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=os.environ | settings, text=True, **pipes)

    def _run(self) -> subprocess.CompletedProcess[str]:
        with self._start() as process:
            _, said = process.communicate(timeout=PATIENCE)
        return subprocess.CompletedProcess(process.args, process.returncode, stderr=said)


def content_of(folder: Path) -> dict[str, Any]:
    """Returns all files below a folder by name, hidden ones, too, without what depends on time."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): _content(path) for path in paths}


def _content(path: Path) -> Any:
    content = path.read_bytes()
    if path.name == SUMS:  # of files with times; the others are compared themselves
        return [line.split()[-1] for line in content.splitlines()]
    if path.suffix not in (".json", ".jsonl"):
        return content
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    try:
        return [_without_times(json.loads(line)) for line in lines]
    except ValueError:  # unfinished
        return content


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(x) for key, x in value.items() if "second" not in key}
    if isinstance(value, list):
        return [_without_times(x) for x in value]
    return value


def differences(found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """Returns names of files that are there once only, or differ."""
    names = sorted(found.keys() | expected.keys())
    return [name for name in names if found.get(name) != expected.get(name)]


def command_cases(folder: Path) -> list[Case]:
    """Returns all commands, in subdirectories of a folder."""
    writers = (Extract, Extracts, disk.Prepare, disk.Convert, disk.Summarize, disk.Evaluate)
    return [KilledCommand(writer(folder / writer.name.replace(" ", "_"))) for writer in writers]
