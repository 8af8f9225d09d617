"""Tests that name the function of a mutant, or what calls it: they often notice it first."""

import ast
import math
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("longsum_jax", "longsum_plan")
_LEVELS = 4  # of callers
_DECAY = 0.6  # weight of a caller, for every level
_LEFT_OUT = ("slow", "shared_data", "parity")  # marks of tests that take long, or need more
_PLACES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class _Part(NamedTuple):
    """A function or class of a module, or a function of a file of tests.

    Attributes:
        path: of the file, from the root.
        name: of the function; a class stands for its ``__init__`` and ``__call__``.
        names: what its source mentions.
    """

    path: str
    name: str
    names: frozenset[str]


def nearest_tests(path: str, line: int, number: int = 30) -> list[str]:
    """Returns ids of tests, the ones that name most of what leads to a line first.

    Args:
        path: module, from the root of the repository.
        line: number of the line.
        number: largest length of the result.
    """
    weights = _weights(path, line)
    tests = _tests()
    names = {name for _, name in weights}
    counts = Counter(name for test in tests for name in test.names & names)
    room = Path(path).parent.parts[1:]
    scores = []
    for test in tests:
        score = 0.0
        imported = _imported(test.path)
        for (where, name), weight in weights.items():
            if name in test.names:
                # Names of other modules may mean something else.
                share = 1.0 if _dotted(where) in imported else 0.2
                score += share * weight * math.log(len(tests) / counts[name])
        # Long tests mention much.
        score /= math.sqrt(20 + len(test.names))
        if Path(test.path).parent.parts[1:] == room:
            score *= 1.5
        scores.append((score, f"{test.path}::{test.name}"))
    best = sorted(scores, key=lambda pair: -pair[0])[:number]
    return [test for score, test in best if score > 0]


def _weights(path: str, line: int) -> dict[tuple[str, str], float]:
    """Returns names that lead to a line, with their modules: its function, and callers of it."""
    tree = ast.parse((ROOT / path).read_bytes())
    around = [
        node.name for node in ast.walk(tree) if isinstance(node, _PLACES) and _holds(node, line)
    ]
    around += [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and _holds(node, line)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    level = {(path, name) for name in around if not name.startswith("__")}
    weights = {(path, _stem(path)): 0.5}
    weight, seen = 1.0, set(level)
    for _ in range(_LEVELS):
        for where, name in level:
            weights[where, name] = weight
            stem = (where, _stem(where))
            weights[stem] = max(weight / 2, weights.get(stem, 0.0))
        names = {name for _, name in level}
        level = {
            (part.path, part.name)
            for part in _functions()
            if names & part.names and _is_reached(level, part)
        } - seen
        seen |= level
        weight *= _DECAY
    return weights


def _is_reached(level: set[tuple[str, str]], part: _Part) -> bool:
    """Returns True if a part mentions a function of its own module, or of one it imports."""
    imported = _imported(part.path)
    return any(
        name in part.names and (part.path == path or _dotted(path) in imported)
        for path, name in level
    )


@cache
def _functions() -> list[_Part]:
    parts = []
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            for node in ast.parse(file.read_bytes()).body:
                if isinstance(node, ast.ClassDef):
                    parts.append(_Part(path, node.name, _names(node)))
                    parts += [
                        _Part(path, inner.name, _names(inner))
                        for inner in node.body
                        if isinstance(inner, ast.FunctionDef) and not inner.name.startswith("__")
                    ]
                elif isinstance(node, _PLACES):
                    parts.append(_Part(path, node.name, _names(node)))
    return parts


@cache
def _tests() -> list[_Part]:
    shared = _helpers(ROOT / "conftest.py")
    parts = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        helpers = shared | _helpers(file)
        path = file.relative_to(ROOT).as_posix()
        for node in _test_functions(file):
            names = set(_names(node))
            for _ in range(2):  # fixtures, and functions that these call
                names |= {x for name in names & helpers.keys() for x in helpers[name]}
            parts.append(_Part(path, node.name, frozenset(names)))
    return parts


def _test_functions(file: Path) -> Iterator[ast.FunctionDef]:
    tree = ast.parse(file.read_bytes())
    whole = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    if any(text.startswith("pytestmark") and _takes_long(text) for text in whole):
        return
    for node in tree.body:
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if is_test and not any(map(_takes_long, map(ast.unparse, node.decorator_list))):
            yield node


def _takes_long(marks: str) -> bool:
    return any(f"mark.{mark}" in marks for mark in _LEFT_OUT)


def _helpers(file: Path) -> dict[str, frozenset[str]]:
    """Returns what the functions, classes and constants of a file mention, by name."""
    result = {}
    for node in ast.parse(file.read_bytes()).body:
        if isinstance(node, _PLACES) and not node.name.startswith("test_"):
            result[node.name] = _names(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            result[node.targets[0].id] = _names(node.value)
    return result


def _names(node: ast.AST) -> frozenset[str]:
    """Returns names, attributes, arguments and short texts that a piece of source mentions."""
    names = set()
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.keyword(arg=str(name)):
                names.add(name)
            case ast.Constant(value=str(text)) if text.isidentifier():
                names.add(text)
    return frozenset(names)


@cache
def _imported(path: str) -> frozenset[str]:
    names = set()
    for node in ast.walk(ast.parse((ROOT / path).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _stem(path: str) -> str:
    return Path(path).stem.strip("_")


def _holds(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= node.end_lineno
