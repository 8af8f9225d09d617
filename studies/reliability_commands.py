"""Commands other than `longsum train` that are killed at a random moment and run again.

A process that has imported the libraries forks for every run, which makes one as short as it can
be. The run after the kill must leave what a run leaves that nothing ended, byte by byte but for
times, and nothing else: no lock, and no unfinished output.
"""

import functools
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import reliability_disk as disk
from reliability_trials import Case, Row

from longsum_jax.__main__ import main

TRIALS = 10  # kills of each command
PATIENCE = 300.0  # seconds after which a run counts as hanging


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
        expected, seconds = self._whole
        folder = self._writer.disk / "tried"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        out, log = folder / "out", self._writer.folder / "log"
        moment = rng.uniform(0, seconds)
        child = start(self._writer.arguments(out), log)
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        row: Row = {"kills": int(os.WIFSIGNALED(status)), "inside_output": 0, "equal": 0}
        row["inside_output"] = int(row["kills"] and any(folder.iterdir()))
        where = f"after {moment:.2f} s of {seconds:.2f}"
        before = content_of(folder)
        code = finish(start(self._writer.arguments(out), log))
        failures = []
        # A command whose output was whole before the kill may say that it is there.
        if code and before != expected:
            failures.append(f"{where}: {code}, {log.read_text(errors='replace')[-400:]!r}")
        if differing := differences(content_of(folder), expected):
            failures.append(f"{where}: {differing[:4]}")
        row["equal"] = int(not failures)
        return row | {"failures": failures}

    @functools.cached_property
    def _whole(self) -> tuple[dict[str, Any], float]:
        """What the command leaves where nothing ends it, and its seconds."""
        folder = self._writer.disk / "tried"  # a path may be part of the content
        folder.mkdir(parents=True)
        self._writer.prepare()
        # Makes the model; this process must not start the threads of JAX.
        finish(forked(lambda: self._writer.arguments(folder) and 0))
        log = self._writer.folder / "log"
        for _ in range(2):  # the second one has compiled programs
            shutil.rmtree(folder)
            folder.mkdir()
            begin = time.monotonic()
            code = finish(start(self._writer.arguments(folder / "out"), log))
            seconds = time.monotonic() - begin
            if code:
                raise SystemExit(f"{self.name}: {log.read_text(errors='replace')[-2000:]}")
        return content_of(folder), seconds


def start(arguments: list[str], log: Path) -> int:
    """Starts ``longsum`` in a fork; returns the number of the process."""

    def run() -> int:
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.environ["JAX_PLATFORMS"] = "cpu"
        sys.argv = ["longsum", *arguments]
        try:
            main()
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else int(error.code is not None)
        return 0

    return forked(run)


def forked(call: Callable[[], int]) -> int:
    """Calls a function in a fork, whose exit code it returns; returns the number of the process."""
    import longsum_jax.commands.evaluate
    import longsum_jax.summarization.loading  # noqa: F401 (takes long)

    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = call()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def finish(child: int) -> int:
    """Returns the exit code of a process, which it ends if it takes too long."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def content_of(folder: Path) -> dict[str, Any]:
    """Returns all files below a folder by name, hidden ones, too, without what depends on time."""
    paths = sorted(path for path in folder.rglob("*") if not path.is_dir())
    return {path.relative_to(folder).as_posix(): _content(path) for path in paths}


def _content(path: Path) -> Any:
    content = path.read_bytes()
    if path.suffix not in (".json", ".jsonl"):
        return content
    lines = content.splitlines() if path.suffix == ".jsonl" else [content]
    return [_without_times(json.loads(line)) for line in lines]


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
    writers = (disk.Convert, Extract, disk.Evaluate, disk.Prepare, disk.Summarize, Extracts)
    return [KilledCommand(writer(folder / writer.name.replace(" ", "_"))) for writer in writers]
