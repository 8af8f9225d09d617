"""Readers of files on files that were damaged at random: each gives a value or an InputError.

    python studies/fuzz.py --out=fuzz.json [--minutes=10] [--seed=0] [--readers=config,rows]

Started again, it goes on with the next files, those readers first that had the least processor
time, until all had --cpu_minutes. Every reader has a few small valid files (fuzz_readers.py). A
number makes a damaged one of them (fuzz_damage.py). Readers run in a process of their own, because
a damaged file may end it. Failures are files that do, that raise another exception than InputError,
that run a program, reach for the network or write elsewhere, that take a gigabyte or more than
--patience seconds of the processor. They are tried again at every start; "mended" counts those that
pass then. The same seed and number make the same files; --show writes them:

    python studies/fuzz.py --show=config:17 --folder=here [--seed=0]
"""

import argparse
import contextlib
import itertools
import json
import os
import queue
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import benchmarks_path  # noqa: F401
import numpy as np
from common import print_table, rows_before, write_report
from fuzz_damage import damaged
from fuzz_readers import READERS, Files

_IMPORT_SECONDS = 300.0  # the first answer of a worker waits for imports
_CLOCK = 12  # times as many seconds on the clock as of the processor
_MOST_BYTES = 2**30  # that the memory of a worker may grow by over one file
_HARMFUL = (
    *("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.", "socket.connect"),
    *("socket.getaddrinfo", "os.symlink", "os.chmod"),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class Failure(NamedTuple):
    """A damaged file that did not end in a value or a sentence."""

    reader: str
    number: int
    problem: str


class Watch:
    """A context that sees what a reader does without need, as Python tells it.

    Args:
        folder: where it may write.

    Attributes:
        found: the first such event since the context was entered.
    """

    def __init__(self, folder: Path) -> None:
        self._places = (str(folder.resolve()), "/dev/null")
        self.found: str | None = None
        self._is_on = False
        self._before = 0
        sys.addaudithook(self._look)

    def __enter__(self) -> "Watch":
        self.found, self._is_on, self._before = None, True, _peak_bytes()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_on = False
        if _peak_bytes() - self._before > _MOST_BYTES:
            self.found = self.found or "takes more than a gigabyte"

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._is_on or self.found:
            return
        if event.startswith(_HARMFUL) or (event == "open" and self._is_writing(*arguments)):
            self.found = f"does {event} {arguments}"[:200]

    def _is_writing(self, path: Any, mode: Any, flags: int) -> bool:
        if not (flags & _WRITING and isinstance(path, str | bytes)):
            return False
        return not os.path.realpath(os.fsdecode(path)).startswith(self._places)


def _peak_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def write_case(seeds: list[Files], seed: int, number: int, folder: Path) -> None:
    """Writes the files of a number: one of the seeds, one of its files damaged."""
    rng = np.random.default_rng((seed, number))
    files = dict(seeds[rng.integers(len(seeds))])
    name = sorted(files)[rng.integers(len(files))]
    files[name] = damaged(name, files[name], rng)
    shutil.rmtree(folder, ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def read_cases(
    name: str, seed: int, numbers: Iterator[int] | range, folder: Path
) -> Iterator[tuple[int, Failure | None]]:
    """Reads the files of numbers in this process; yields each number, and its failure."""
    reader, watch = READERS[name], Watch(folder)
    seeds = reader.seeds()
    for number in numbers:
        write_case(seeds, seed, number, folder)
        with watch:
            problem = _problem(reader.read, folder)
        problem = problem or watch.found
        yield number, problem and Failure(name, number, problem)


def _problem(read: Callable[[Path], Any], folder: Path) -> str | None:
    """Reads a folder; returns what is wrong with how that ends."""
    from longsum_jax.errors import InputError

    try:
        read(folder)
    except InputError as error:
        return None if str(error).isprintable() else f"not one line: {error!r}"
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        said = str(error).replace(str(folder), "FOLDER")
        return f"{type(error).__name__} at {place}: {said}"[:200]
    return None


def _work(name: str, seed: int, start: int, folder: Path) -> None:
    """Reads without end; prints a line for every number."""
    for number, failure in read_cases(name, seed, itertools.count(start), folder):
        print(json.dumps([number, failure and failure.problem]), flush=True)


def fuzz(
    name: str, seed: int, start: int, seconds: float, patience: float
) -> tuple[int, list[Failure]]:
    """Tries a reader for some seconds, from the file of number ``start`` on; returns the number of
    the next file, and the failures."""
    end = time.monotonic() + seconds
    done, failures = start, []
    with tempfile.TemporaryDirectory() as root:
        while time.monotonic() < end:
            answers = _answers(name, seed, done, f"{root}/{name}", end, patience)
            for number, problem in answers:
                done = number + 1
                if problem is not None:
                    failures.append(Failure(name, number, problem))
    return done, failures


def still_fails(failure: Failure, seed: int, patience: float) -> bool:
    """Tries the file of an earlier failure again."""
    with tempfile.TemporaryDirectory() as root:
        end = time.monotonic() + max(_IMPORT_SECONDS, patience)
        answers = _answers(
            failure.reader, seed, failure.number, f"{root}/{failure.reader}", end, patience
        )
        with contextlib.closing(answers):
            _, problem = next(answers)
    return problem is not None


def _worker_seconds() -> float:
    """Processor seconds of all workers that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _answers(
    name: str, seed: int, number: int, folder: str, end: float, patience: float
) -> Iterator[tuple[int, str | None]]:
    """Yields what a worker says of the files from ``number`` on, until it ends or time is up."""
    command = [sys.executable, __file__, f"--worker={name}", f"--seed={seed}"]
    command += [f"--start={number}", f"--folder={folder}"]
    seconds = max(_IMPORT_SECONDS, patience)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    quiet = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "JAX_PLATFORMS": "cpu"}
    with subprocess.Popen(command, env=quiet, **pipes) as worker:
        lines = _Lines(worker)
        try:
            while time.monotonic() < end:
                line = lines.get(seconds)
                seconds = patience
                if not line:
                    how = f"takes more than {patience} s" if line is None else "ends the process"
                    yield number, how
                    return
                number, problem = json.loads(line)
                yield number, problem
                number += 1
        finally:
            worker.kill()
            lines.join()  # before what it reads is closed


class _Lines:
    """The lines that a process prints."""

    def __init__(self, worker: "subprocess.Popen[bytes]") -> None:
        self._worker = worker
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._thread = threading.Thread(target=self._pump, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the last line of a process that has ended."""
        self._thread.join()

    def _pump(self) -> None:
        for line in self._worker.stdout or ():
            self._lines.put(line)
        self._lines.put(b"")

    def get(self, seconds: float) -> bytes | None:
        """Returns the next line, b"" at the end, and None after so many seconds of the processor,
        or many times as many on the clock: other work on the machine makes no file slow.
        """
        used, began = _seconds_used(self._worker.pid), time.monotonic()
        while True:
            try:
                return self._lines.get(timeout=min(1.0, seconds))
            except queue.Empty:
                if _seconds_used(self._worker.pid) - used > seconds:
                    return None
                if time.monotonic() - began > _CLOCK * seconds:
                    return None


def _seconds_used(process: int) -> float:
    """Returns the processor seconds of a process; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", default="")
    parser.add_argument("--minutes", type=float, default=1.0, help="of this start")
    parser.add_argument(
        "--cpu_minutes", type=float, default=120.0, help="of every reader, over all starts"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=10.0)
    parser.add_argument("--readers", default=",".join(READERS))
    parser.add_argument("--show", default="", metavar="NAME:NUMBER")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        _work(args.worker, args.seed, args.start, args.folder)
        return
    if args.show:
        name, _, number = args.show.partition(":")
        write_case(READERS[name].seeds(), args.seed, int(number), args.folder)
        return
    names = args.readers.split(",")
    rows = rows_before(args.out or None, seed=args.seed)
    rows += [
        {"reader": name, "files": 0, "cpu_minutes": 0.0, "failures": 0, "mended": 0}
        for name in names
        if name not in {row["reader"] for row in rows}
    ]
    failures: list[Failure] = []

    def keep() -> None:
        if args.out:
            result = [failure._asdict() for failure in failures]
            write_report(args.out, rows, seed=args.seed, failures=result)

    if args.out and Path(args.out).exists():
        for known in json.loads(Path(args.out).read_text())["failures"]:
            failure = Failure(**known)
            if still_fails(failure, args.seed, args.patience):
                failures.append(failure)
            else:
                row = next(row for row in rows if row["reader"] == failure.reader)
                row["mended"] += 1
        keep()
    end = time.monotonic() + 60 * args.minutes
    slice_seconds = min(300.0, 60 * args.minutes / len(names))
    while time.monotonic() < end:
        row = min(
            (row for row in rows if row["reader"] in names), key=lambda row: row["cpu_minutes"]
        )
        if row["cpu_minutes"] >= args.cpu_minutes:
            break
        before = _worker_seconds()
        next_file, result = fuzz(
            row["reader"], args.seed, row["files"], slice_seconds, args.patience
        )
        row["cpu_minutes"] += (_worker_seconds() - before) / 60
        row["files"] = next_file
        row["failures"] += len(result)
        failures += result
        for failure in result:
            print(f"{failure.reader} {failure.number}: {failure.problem}", flush=True)
        keep()
    print_table(rows)
    for failure in failures:
        print(f"{failure.reader} {failure.number}: {failure.problem}")


if __name__ == "__main__":
    main()
