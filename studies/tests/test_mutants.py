"""studies/mutants.py: its changes of a file, and the tests of it."""

from pathlib import Path

import pytest

SOURCE = b'''"""A module."""

def cut(text: str, size: int = 3) -> str:
    """Returns a part."""
    if not text:
        raise ValueError("nothing")
    print(text)
    return text[:size] if len(text) > size and min(size, 4) else text
'''


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("mutants")


@pytest.fixture(scope="module")
def parts(scripts):
    return scripts("mutants_tests")


def test_changes_of_a_file(script):
    result = {(mutant.kind, mutant.old, mutant.new) for mutant in script.mutants("a.py", SOURCE)}
    assert result >= {
        ("number", "3", "(3 + 1)"),
        ("number", "3", "(3 - 1)"),
        ("condition", "not text", "(text)"),
        ("statement", 'raise ValueError("nothing")', "pass"),
        ("statement", "print(text)", "pass"),
        ("comparison", "len(text) > size", "(len(text) >= size)"),
        ("arguments", "min(size, 4)", "min(4, size)"),
    }
    assert not any("A module" in old or "Returns" in old for _, old, _ in result)


def test_a_mutant_is_the_file_with_one_change(script):
    changes = list(script.mutants("a.py", SOURCE))
    for mutant in changes:
        changed = mutant.source(SOURCE)
        rest = changed[mutant.start + len(mutant.new) :]
        assert changed != SOURCE
        assert changed[: mutant.start] + mutant.old.encode() + rest == SOURCE
    assert len({mutant.name for mutant in changes}) == len(changes) > 10


def test_names_stay_when_a_file_changes_elsewhere(script):
    before = {mutant.name: mutant.old for mutant in script.mutants("a.py", SOURCE)}
    longer = SOURCE.replace(b"\n\ndef", b"\n\nx = 1\n\ndef")
    after = {mutant.name: mutant.old for mutant in script.mutants("a.py", longer)}
    assert after.items() > before.items()


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("longsum_jax/text/sentences.py", "tests/text/test_sentences.py"),
        ("longsum_jax/tokenizers/train.py", "tests/tokenizers/test_training.py"),
        ("longsum_jax/errors.py", "tests/test_errors.py"),
        ("longsum_plan/devices.py", "tests/plan/test_devices.py"),
    ],
)
def test_tests_of_a_file(parts, path, first):
    stages = list(parts.stages_of(path))
    assert stages[0].files[0] == first
    assert stages[0].marker == "not slow"


def test_tests_that_name_the_function_come_first(parts):
    test = "tests/commands/test_terminal.py"
    for words, is_early in ([], False), (["terminal_text"], True):
        stages = list(parts.stages_of("longsum_jax/errors.py", words))
        assert (test in stages[1].files) == is_early


def test_every_room_has_its_share(script):
    assert script.shares({"a": 10, "b": 80, "c": 910}, 100) == {"a": 10, "b": 10, "c": 80}
    assert sum(script.shares({"a": 333, "b": 334, "c": 335}, 100).values()) == 100
    rooms = script.files_by_room()
    assert {"ops", "readers", "longsum_jax", "longsum_plan"} <= rooms.keys()
    assert "longsum_jax/layers/attention/cross.py" in rooms["layers"]
    assert rooms["longsum_jax"][:2] == ["longsum_jax/__init__.py", "longsum_jax/__main__.py"]


def test_counts_by_room(script):
    results = [
        {"place": "longsum_jax/text/a.py:1", "outcome": "failed"},
        {"place": "longsum_jax/text/a.py:2", "outcome": "slow", "before": "passed"},
        {"place": "longsum_jax/text/a.py:3", "outcome": "equivalent"},
        {"place": "longsum_jax/errors.py:4", "outcome": "unfinished"},
        {"place": "longsum_jax/errors.py:5", "outcome": None},
    ]
    top, text, total = script.rows_of(results)
    assert (top["room"], top["mutants"], top["share"]) == ("longsum_jax", 1, 0)
    counts = {"mutants": 3, "killed": 1, "killed_later": 1, "equivalent": 1, "survived": 0}
    assert text == {"room": "text", **counts, "share_before": 0.5, "share": 1.0}
    assert (total["room"], total["mutants"], total["survived"]) == ("all", 4, 1)


def test_a_mutant_is_killed_by_a_test_that_passes_without_it(script, parts, tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_bytes(SOURCE)
    shop = parts.Workshop.__new__(parts.Workshop)
    shop.folder, shop.sound = tmp_path, {}

    def run(stage, seconds, words=()):
        is_mutant = path.read_bytes() != SOURCE
        failing = [
            test
            for test in ("broken", "value")
            if test in stage.files and (test == "broken" or is_mutant)
            if shop.sound.get(test, 0) is not None
        ]
        return parts.Outcome(bool(failing), failing[0] if failing else "", 0.1, "")

    monkeypatch.setattr(shop, "run", run)
    mutant = next(iter(script.mutants("a.py", SOURCE)))
    stages = [parts.Stage(["broken"], ""), parts.Stage(["broken", "value"], "")]
    assert shop.try_mutant(mutant, stages, [], 60) == {
        "outcome": "failed",
        "by": "value",
        "tried": 1,
    }
    assert shop.try_mutant(mutant, stages[:1], [], 60)["outcome"] == "passed"
    assert path.read_bytes() == SOURCE


def test_the_nearest_tests_name_the_function(scripts, monkeypatch):
    module = scripts("mutants_nearest")
    root = Path(__file__).parents[2]
    files = [root / "tests" / name for name in ("test_atomic.py", "test_checksums.py")]
    monkeypatch.setattr(module, "_test_files", lambda: files)
    path = "longsum_jax/checksums.py"
    text = (root / path).read_text(encoding="utf-8")
    line = text[: text.index("def check(")].count("\n") + 2
    tests = module.nearest_tests(path, line, 5)
    assert len(tests) == 5
    assert {test.partition("::")[0] for test in tests} == {"tests/test_checksums.py"}


def test_mutants_of_lines_that_have_changed_are_replaced(script):
    gone = {"place": "longsum_jax/text/sentences.py:3", "name": "gone", "outcome": None}
    done = gone | {"name": "done", "outcome": "failed"}
    results = [gone, done]
    script.replace_gone(results, 0)
    assert results[0]["place"].startswith("longsum_jax/text/")
    assert results[0]["outcome"] is None
    assert results[0]["name"] != "gone"
    assert results[1] == done
