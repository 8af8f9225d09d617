"""Every promise of SECURITY.md names its tests."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_every_promise_exist():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    table = text.partition("| promise | tests |")[2].partition("\n\n")[0]
    rows = table.strip().splitlines()[1:]
    assert len(rows) > 10
    names: dict[str, set[str]] = {}
    for row in rows:
        tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert tests, row
        for path, name in tests:
            if path not in names:
                tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
                functions = filter(lambda node: isinstance(node, ast.FunctionDef), ast.walk(tree))
                names[path] = {function.name for function in functions}
            assert name in names[path], f"{path}::{name}"
