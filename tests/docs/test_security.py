"""Every promise of SECURITY.md names its tests."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
# Words of promises: what a guide says with them is in the table, or not about safety.
PROMISING = r"\b(never|always|(loads|downloads|sends|fetches) nothing|nothing is (# )?downloaded)\b"
# Sentences of the guides with these words that are not about safety.
OTHERS = (
    "Summaries never exceed it",
    "Padding never changes the result",
    "Segments never span two documents",
    "BigBird never returns an answer inside the question",
    "the longest fragment is always found",
    "does not always support its words",
    "The last step is always evaluated",
)


def rows(head):
    """The rows of the table below a head, as lists of cells."""
    table = TEXT.partition(head)[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in row.split("|")[1:-1]] for row in table.strip().splitlines()[1:]
    ]


PROMISES, GUIDES = rows("| promise | tests |"), rows("| guide | promise | tests |")


@cache
def functions(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("row", [*PROMISES, *GUIDES], ids=lambda row: row[-2][:30])
def test_the_tests_of_every_promise_exist(row):
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row[-1])
    assert tests
    for path, name in tests:
        assert name in functions(path), f"{path}::{name}"


def test_every_sentence_has_a_row():
    section = TEXT.partition("\n## What is guaranteed\n")[2].partition("These guarantees are")[0]
    numbers = []
    for item in section.split("\n- ")[1:]:
        text = re.sub(r"\s+", " ", item).strip()
        # A heading in bold is said in full by the sentences behind it.
        text = re.sub(r"^\*\*[^*]+\.\*\* ", "", text)
        for sentence in re.split(r"(?<=\.) (?=[A-Z`])", text):
            result = re.findall(r"\[(\d+)\](?!\()", sentence)
            assert result, sentence
            numbers += map(int, result)
    listed = [int(row[0].split()[0]) for row in PROMISES]
    assert listed == list(range(1, len(PROMISES) + 1))
    assert sorted(set(numbers)) == listed


def test_every_promise_of_the_guides_is_listed():
    quotes = []
    for path, promise, _ in GUIDES:
        text = re.sub(r"\s+", " ", (ROOT / path.strip("`")).read_text(encoding="utf-8"))
        assert promise in text, promise
        quotes.append(promise)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs" / "guide").glob("*.md"))]:
        text = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
        for match in re.finditer(PROMISING, text):
            around = text[max(0, match.start() - 80) : match.end() + 80]
            assert any(quote in around for quote in (*quotes, *OTHERS)), f"{path.name}: {around}"
