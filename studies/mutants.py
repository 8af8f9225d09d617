"""Mutants: small changes of the package, each of which some test should notice.

    python studies/mutants.py --room=text,data/padding.py --out=mutants.json [--count=100]
        [--seconds=600] [--seed=0] [--again]

A mutant swaps a comparison, an operator or two arguments, changes a number by one, negates a
condition, or leaves out a statement. The tests that mirror the file run in a copy of the working
tree, in a process that was forked after the heavy imports, until the first one fails. Without
mutants they must pass. The order of the mutants of a room is drawn by the seed; started again, the
script goes on with the next ones, or with --again with the survivors, for which all tests of the
room run that import the file, as for files without a mirror.

Survivors are mutants that no test notices. Some change nothing ("x <= n" for "x < n" where they
are never equal): --equivalent=ID,ID notes those that somebody has looked at.
"""

import argparse
import ast
import copy
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "longsum_jax"
# What most tests import, and what takes long to import.
_HEAVY = ("numpy", "jax", "jax.numpy", "flax.linen", "pytest", "beartype", "jaxtyping", "optax")
_COPIED = ("longsum_jax", "longsum_plan", "configs", "tests", "conftest.py", "pyproject.toml")
_COMPARISONS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_DROPPED = (ast.Expr, ast.AugAssign, ast.Raise, ast.Continue, ast.Break)
_MOST_SECONDS = 60.0  # a mutant's tests may take, besides some times what they take without it
_TIMES = 6


class Mutant(NamedTuple):
    """A change of one expression or statement.

    Attributes:
        path: file below the package.
        line: number of the changed line.
        kind: word for the change.
        old, new: source text.
        start, end: offsets of ``old`` in the bytes of the file.
    """

    path: str
    line: int
    kind: str
    old: str
    new: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """A short hash, which stays while neither the line nor its number changes."""
        text = repr((self.path, self.line, self.kind, self.old, self.new, self.start))
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()

    def source(self, content: bytes) -> bytes:
        """Returns the content of the file with the change."""
        return content[: self.start] + self.new.encode() + content[self.end :]


def mutants(path: str, content: bytes) -> Iterator[Mutant]:
    """Yields all mutants of a file that are Python."""
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(content)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.parent = node
    for node in ast.walk(tree):
        if _is_ignored(node):
            continue
        for kind, new in _changes(node):
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            mutant = Mutant(path, node.lineno, kind, content[start:end].decode(), new, start, end)
            try:
                compile(mutant.source(content), path, "exec")
            except (SyntaxError, ValueError):
                continue
            yield mutant


def _is_ignored(node: ast.AST) -> bool:
    """Returns True for what no test can notice: annotations, imports, and words of messages."""
    while (parent := getattr(node, "parent", None)) is not None:
        if isinstance(parent, ast.AnnAssign | ast.arg) and node is parent.annotation:
            return True
        if isinstance(parent, ast.FunctionDef) and node is parent.returns:
            return True
        if isinstance(parent, ast.If) and "TYPE_CHECKING" in ast.unparse(parent.test):
            return True
        if isinstance(parent, ast.JoinedStr | ast.Import | ast.ImportFrom):
            return True
        node = parent
    return False


def _changes(node: ast.AST) -> Iterator[tuple[str, str]]:
    """Yields the kinds and the source texts of the changes of a node."""
    new = copy.copy(node)
    match node:
        case ast.Compare(ops=[operation]) if type(operation) in _COMPARISONS:
            new.ops = [_COMPARISONS[type(operation)]()]
            yield "comparison", f"({ast.unparse(new)})"
        case ast.BinOp(op=operation) if type(operation) in _OPERATORS:
            new.op = _OPERATORS[type(operation)]()
            yield "operator", f"({ast.unparse(new)})"
        case ast.BoolOp():
            new.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "operator", f"({ast.unparse(new)})"
        case ast.UnaryOp(op=ast.Not()):
            yield "condition", f"({ast.unparse(node.operand)})"
        case ast.Constant(value=bool()):
            yield "constant", str(not node.value)
        case ast.Constant(value=int() | float()):
            yield "number", f"({node.value!r} + 1)"
            yield "number", f"({node.value!r} - 1)"
        case ast.Call(args=[first, second, *others]) if not any(
            isinstance(x, ast.Starred) for x in node.args
        ):
            new.args = [second, first, *others]
            yield "arguments", ast.unparse(new)
        case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
            return
        case _ if isinstance(node, _DROPPED):
            yield "statement", "pass"
    parent = getattr(node, "parent", None)
    if isinstance(parent, ast.If | ast.IfExp | ast.While) and node is parent.test:
        yield "condition", f"(not ({ast.unparse(node)}))"


def tests_of(path: str, *, all_of_room: bool) -> list[str]:
    """Returns the files of tests of a module.

    Args:
        path: file below the package.
        all_of_room: whether the tests of the room that import the module are run after the one that
            mirrors it; they are if there is no mirror.
    """
    module = Path(path)
    room = ROOT / "tests" / module.parent
    mirror = room / f"test_{module.stem.lstrip('_')}.py"
    tests = [mirror] if mirror.exists() else []
    if all_of_room or not tests:
        dotted = ".".join((PACKAGE, *module.with_suffix("").parts))
        parent, _, name = dotted.rpartition(".")
        imports = (f"from {dotted} import", f"import {dotted}", f"from {parent} import {name}\n")
        for test in sorted(room.glob("test_*.py")):
            text = test.read_text(encoding="utf-8")
            if test != mirror and any(words in text for words in imports):
                tests.append(test)
    tests = tests or sorted(room.glob("test_*.py"))
    return [test.relative_to(ROOT).as_posix() for test in tests]


def files_of(rooms: Sequence[str]) -> list[str]:
    """Returns the files of rooms, relative to the package."""
    package = ROOT / PACKAGE
    paths: list[Path] = []
    for room in rooms:
        place = package / room
        paths += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return [path.relative_to(package).as_posix() for path in paths if path.name != "__init__.py"]


class Workshop:
    """A copy of the working tree in which files are changed and tests run.

    Args:
        folder: an empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ignored = shutil.ignore_patterns("__pycache__")
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored, symlinks=True)
            else:
                shutil.copy(source, folder / name)
        for name in _HEAVY:
            importlib.import_module(name)
        os.environ["PYTHONPATH"] = str(folder)

    def run(self, tests: Sequence[str], seconds: float) -> tuple[str, float, str]:
        """Runs tests in a process of its own, and ends it after some time.

        Returns:
            "passed", "failed" or "slow"; the seconds that it took; the last line of the output.
        """
        begin = time.monotonic()
        log = self.folder / "log"
        child = os.fork()
        if child == 0:
            _test(self.folder, tests, log)
        outcome = "slow"
        while time.monotonic() - begin < seconds:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                outcome = "failed" if status else "passed"
                break
            time.sleep(0.02)
        else:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
        return outcome, time.monotonic() - begin, (failed or lines or [""])[-1][:200]

    def try_mutant(self, mutant: Mutant, tests: Sequence[str], seconds: float) -> tuple[str, str]:
        """Returns what the tests say of a mutant, and their last line."""
        path = self.folder / PACKAGE / mutant.path
        content = path.read_bytes()
        try:
            self._write(path, mutant.source(content))
            outcome, _, line = self.run(tests, seconds)
        finally:
            self._write(path, content)
        return outcome, line

    def _write(self, path: Path, content: bytes) -> None:
        """Writes a module, and removes what was compiled of it, which may seem to fit."""
        path.write_bytes(content)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
            compiled.unlink()


def _test(folder: Path, tests: Sequence[str], log: Path) -> None:
    """Runs tests and ends the process, which is a fork."""
    os.setpgid(0, 0)
    status = 1
    try:
        file = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        import pytest

        options = ["-q", "-x", "-n0", "-p", "no:cacheprovider", "--no-header", "--tb=no"]
        # Heavy packages have plug-ins of pytest.
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        status = int(pytest.main([*options, *tests]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--room", default="text", help="folders and files, comma-separated")
    parser.add_argument("--count", type=int, default=10**9, help="most mutants of this start")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--equivalent", default="", help="names of survivors that change nothing")
    args = parser.parse_args()
    report = {"seed": args.seed, "mutants": {}}
    if args.out.exists():
        report = json.loads(args.out.read_text(encoding="utf-8"))
    results = report["mutants"]
    for name in filter(None, args.equivalent.split(",")):
        results[name]["outcome"] = "equivalent"
    with tempfile.TemporaryDirectory() as folder:
        _try_all(args, Workshop(Path(folder)), results, report)
    _write_report(args.out, report)
    _print(results)


def _try_all(args: argparse.Namespace, shop: Workshop, results: dict, report: dict) -> None:
    """Tries mutants until there are no more, or the time is over."""
    end = time.monotonic() + args.seconds
    todo = []
    for path in files_of(args.room.split(",")):
        todo += mutants(path, (ROOT / PACKAGE / path).read_bytes())
    random.Random(args.seed).shuffle(todo)
    tried = {"passed", None} if args.again else {None}
    todo = [
        mutant
        for mutant in todo
        if results.get(mutant.name, {}).get("outcome") in tried - ({None} if args.again else set())
    ]
    limits: dict[str, float | None] = {}
    for mutant in todo[: args.count]:
        if time.monotonic() > end:
            break
        tests = tests_of(mutant.path, all_of_room=args.again)
        if mutant.path not in limits:
            outcome, seconds, line = shop.run(tests, 3 * _MOST_SECONDS)
            limits[mutant.path] = _MOST_SECONDS + _TIMES * seconds if outcome == "passed" else None
            print(
                f"{mutant.path}: {len(tests)} files of tests, {seconds:.1f} s, {line}", flush=True
            )
        limit = limits[mutant.path]
        if limit is None:
            continue
        outcome, line = shop.try_mutant(mutant, tests, limit)
        change = {"kind": mutant.kind, "old": mutant.old, "new": mutant.new}
        place = f"{mutant.path}:{mutant.line}"
        results[mutant.name] = {"place": place, **change, "outcome": outcome, "by": line}
        _write_report(args.out, report)
        if outcome == "passed":
            print(f"  survived {mutant.name} {place} {mutant.old!r} -> {mutant.new!r}", flush=True)


def _write_report(path: Path, report: dict) -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    report["commit"] = head.stdout.strip()
    text = json.dumps(report, indent=1, sort_keys=True) + "\n"
    path.with_suffix(".new").write_text(text, encoding="utf-8")
    path.with_suffix(".new").replace(path)


def _print(results: dict) -> None:
    """Prints the counts by file."""
    counts: dict[str, Counter] = {}
    for result in results.values():
        path = result["place"].partition(":")[0]
        for row in (path, "all"):
            counts.setdefault(row, Counter())[result["outcome"]] += 1
    for row, count in sorted(counts.items(), key=lambda item: (item[0] == "all", item[0])):
        killed = count["failed"] + count["slow"]
        rest = f"{count['passed']:4} survived {count['equivalent']:4} equivalent"
        print(f"{row:40} {killed:4} killed {rest}")


if __name__ == "__main__":
    main()
