"""Tests of a mutant: which ones, in which order, and a copy of the working tree to run them in."""

import ast
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from mutants_changes import Mutant

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("longsum_jax", "longsum_plan")
# What most tests import, and what takes long to import.
_HEAVY = (
    "numpy jax jax.numpy jax.experimental.pallas flax.linen pytest beartype jaxtyping optax "
    "orbax.checkpoint torch transformers sentencepiece safetensors.numpy nltk scipy.signal pyarrow"
)
_COPIED = (
    *PACKAGES,
    "benchmarks",
    "configs",
    "docs",
    "launch",
    "studies",
    "tests",
    "conftest.py",
    "pyproject.toml",
    "README.md",
)
# The tests ask a process that imports jax before every run, and keep few compiled programs.
_CONFTEST = """

RECURRING_ROOMS = (TESTS,)
_configure = pytest_configure


def _are_known(flags):
    return True


def pytest_configure(config):
    _configure(config)
    jax.config.update("jax_compilation_cache_dir", {programs!r})
    os.environ["JAX_COMPILATION_CACHE_DIR"] = {programs!r}
"""
_MOST_BYTES = 6 * 2**30  # resident, of a process of tests
_MOST_FILES = 10  # of tests that only import a module, or a module that imports it
_HANG = 5  # times what a test takes without the mutant, and
_HANG_SECONDS = 20.0  # at least, after which it counts as one that does not end


class Stage(NamedTuple):
    """Files of tests that run together.

    Attributes:
        files: paths from the root of the repository.
        marker: expression of pytest's ``-m``.
    """

    files: Sequence[str]
    marker: str


class Outcome(NamedTuple):
    """What a process of tests said.

    Attributes:
        status: exit status of pytest, None for a process that was ended by the limit.
        test: the first test that failed, or the one that ran at the limit; empty without one.
        seconds: time of that test until then.
        line: last line of the output.
    """

    status: int | None
    test: str
    seconds: float
    line: str


def stages_of(path: str, words: Sequence[str] = ()) -> Iterator[Stage]:
    """Yields the tests of a module, in the order in which they run.

    Args:
        path: file, from the root of the repository.
        words: names; files of tests that contain them often come before others of their kind.

    Yields:
        first the quick tests of the file that mirrors the module, then those of files that import
        it, then their slow tests, and finally tests of indirect importers and of the same room.
    """
    mirrors, near, far, indirect, room = (
        sorted(tests, key=lambda test: -_count(ROOT / test, words))
        for tests in _tests_by_rank(path)
    )
    quick, slow = "not slow", "slow and not weekly"
    yield from (
        Stage(files, marker)
        for files, marker in (
            (mirrors, quick),
            (near + far[:_MOST_FILES], quick),
            (mirrors + near, slow),
            (indirect[:_MOST_FILES] + room, quick),
            (far[:_MOST_FILES] + indirect[:_MOST_FILES], slow),
        )
        if files
    )


def _tests_by_rank(path: str) -> list[list[str]]:
    """Returns files of tests: the mirror of a module; in its room and elsewhere, those that import
    it; those that import a module that imports it; the rest of the room. Small files come first.
    """
    module = Path(path)
    below = module.parent.relative_to(module.parts[0])
    folder = ROOT / "tests" / ("plan" if module.parts[0] == "longsum_plan" else below)
    dotted = ".".join(module.with_suffix("").parts).removesuffix(".__init__")
    mirror = folder / f"test_{module.stem.strip('_')}.py"
    importers = {
        ".".join(other.relative_to(ROOT).with_suffix("").parts)
        for other in _sources()
        if dotted in _imports(other)
    }
    ranks: list[list[Path]] = [[] for _ in range(5)]
    for test in _tests():
        names = _imports(test)
        if test == mirror:
            rank = 0
        elif dotted in names:
            rank = 1 if test.parent == folder else 2
        elif names & importers:
            rank = 3
        elif test.parent == folder:
            rank = 4
        else:
            continue
        ranks[rank].append(test)
    return [[test.relative_to(ROOT).as_posix() for test in tests] for tests in ranks]


def _count(path: Path, words: Sequence[str]) -> int:
    text = path.read_text(encoding="utf-8")
    return sum(map(text.count, words))


@cache
def _sources() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


@cache
def _tests() -> list[Path]:
    """Returns all files of tests, small ones first."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return sorted(paths, key=lambda path: path.stat().st_size)


@cache
def _imports(path: Path) -> frozenset[str]:
    """Returns the dotted names that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


class Workshop:
    """A copy of the working tree in which files are changed and tests run.

    Args:
        folder: an empty folder.
        programs: folder of compiled programs, for this and later starts. Mutants change few of the
            programs that their tests compile.
    """

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy(source, folder / name)
        with (folder / "conftest.py").open("a", encoding="utf-8") as conftest:
            conftest.write(_CONFTEST.format(programs=str(programs.resolve())))
        for name in _HEAVY.split():
            importlib.import_module(name)
        os.environ["PYTHONPATH"] = str(folder)
        # Seconds of tests without a mutant, None for those that fail then.
        self.sound: dict[str, float | None] = {}

    def try_mutant(
        self, mutant: Mutant, stages: Iterable[Stage], words: Sequence[str], seconds: float
    ) -> dict[str, Any]:
        """Runs tests until one notices a mutant.

        Args:
            mutant: a change of a file.
            stages: the tests.
            words: names of the file, the functions and the classes of the change; tests that name
                them are the first ones of their file.
            seconds: limit of time for all tests together.

        Returns:
            ``outcome``: "failed" for a killed mutant, "slow" for one whose test does not end,
            "passed" for one that all tests miss, "unfinished" if the time was over before;
            ``by``: the test; ``tried``: number of stages.
        """
        end = time.monotonic() + seconds
        tried = 0
        for stage in stages:
            while True:
                path = self.folder / mutant.path
                content = path.read_bytes()
                self._write(path, mutant.source(content))
                try:
                    outcome = self.run(stage, end - time.monotonic(), words)
                finally:
                    self._write(path, content)
                if outcome.status in (0, 5):
                    break
                if outcome.status is None:
                    slow = self._hangs(outcome)
                    word = "slow" if slow else "unfinished"
                    return {"outcome": word, "by": outcome.test, "tried": tried}
                if self._is_sound(outcome.test, stage):
                    by = outcome.test or outcome.line
                    return {"outcome": "failed", "by": by, "tried": tried}
                if not outcome.test:  # the files cannot even be read without the mutant
                    break
            tried += 1
            if time.monotonic() > end:
                return {"outcome": "unfinished", "by": "", "tried": tried}
        return {"outcome": "passed", "by": "", "tried": tried}

    def _hangs(self, outcome: Outcome) -> bool:
        """Returns True if a test ran much longer than without the mutant."""
        if not outcome.test or outcome.seconds < _HANG_SECONDS:
            return False
        sound = self._is_sound(outcome.test, Stage([outcome.test], ""))
        return sound and outcome.seconds > _HANG * (self.sound[outcome.test] or 0.0)

    def _is_sound(self, test: str, stage: Stage) -> bool:
        """Returns True if a test passes without the mutant, or the files of a stage can be read."""
        if not test:
            return self.run(stage, 60.0, collect=True).status in (0, 5)
        if test not in self.sound:
            begin = time.monotonic()
            status = self.run(Stage([test], ""), 120.0).status
            self.sound[test] = time.monotonic() - begin if status == 0 else None
        return self.sound[test] is not None

    def run(
        self, stage: Stage, seconds: float, words: Sequence[str] = (), *, collect: bool = False
    ) -> Outcome:
        """Runs tests in a process of its own, and ends it after some time."""
        begin = time.monotonic()
        log, events = self.folder / "log", self.folder / "events"
        events.write_text("", encoding="utf-8")
        options = ["-m", stage.marker] if stage.marker else []
        options += ["--collect-only"] if collect else []
        options += [f"--deselect={test}" for test, time_ in self.sound.items() if time_ is None]
        child = os.fork()
        if child == 0:
            _test(self.folder, [*options, *stage.files], log, _Plugin(events, words))
        status = None
        while time.monotonic() - begin < seconds and _resident_bytes(child) < _MOST_BYTES:
            ended, status_of_child = os.waitpid(child, os.WNOHANG)
            if ended:
                status = os.waitstatus_to_exitcode(status_of_child)
                break
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what the tests left running
        if status is None:
            os.waitpid(child, 0)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        test, started, failed = "", time.time(), ""
        for line in events.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["event"] == "start":
                test, started = event["test"], event["time"]
            elif not failed:
                failed = event["test"]
        if status not in (None, 1) and not failed and status >= 0:
            test = ""
        return Outcome(status, failed or test, time.time() - started, (lines or [""])[-1][:200])

    def _write(self, path: Path, content: bytes) -> None:
        """Writes a module, and removes what was compiled of it, which may seem to fit."""
        path.write_bytes(content)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _resident_bytes(process: int) -> int:
    try:
        pages = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class _Plugin:
    """Notes which test runs and fails; tests that name the changed function come first."""

    def __init__(self, events: Path, words: Sequence[str]) -> None:
        self.events = events
        self.words = words

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        files = list(dict.fromkeys(item.path for item in items))
        items.sort(key=lambda item: (files.index(item.path), not self._names(item)))

    def _names(self, item: Any) -> bool:
        code = item.function.__code__ if hasattr(item, "function") else None
        names = (*code.co_names, *map(str, code.co_consts)) if code else ()
        text = " ".join((item.name, *names))
        return any(word in text for word in self.words)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._note(event="start", test=nodeid, time=time.time())

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._note(event="failed", test=report.nodeid)

    def _note(self, **event: Any) -> None:
        with self.events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")


def _test(folder: Path, arguments: Sequence[str], log: Path, plugin: _Plugin) -> None:
    """Runs tests and ends the process, which is a fork."""
    os.setpgid(0, 0)
    status = 1
    try:
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
        options += [f"--basetemp={folder / 'temporary'}"]
        # Heavy packages have plug-ins of pytest.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        status = int(pytest.main([*options, *arguments], plugins=[plugin]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)
