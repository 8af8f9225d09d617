"""studies/mutants.py: its changes of a file, and the tests of it."""

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


def test_changes_of_a_file(script):
    found = {(mutant.kind, mutant.old, mutant.new) for mutant in script.mutants("a.py", SOURCE)}
    assert found >= {
        ("number", "3", "(3 + 1)"),
        ("number", "3", "(3 - 1)"),
        ("condition", "not text", "(text)"),
        ("statement", 'raise ValueError("nothing")', "pass"),
        ("statement", "print(text)", "pass"),
        ("comparison", "len(text) > size", "(len(text) >= size)"),
        ("arguments", "min(size, 4)", "min(4, size)"),
    }
    assert not any("A module" in old or "Returns" in old for _, old, _ in found)


def test_a_mutant_is_the_file_with_one_change(script):
    changes = list(script.mutants("a.py", SOURCE))
    for mutant in changes:
        changed = mutant.source(SOURCE)
        rest = changed[mutant.start + len(mutant.new) :]
        assert changed != SOURCE
        assert changed[: mutant.start] + mutant.old.encode() + rest == SOURCE
    assert len({mutant.name for mutant in changes}) == len(changes) > 10


@pytest.mark.parametrize(
    ("path", "first"),
    [
        ("text/sentences.py", "tests/text/test_sentences.py"),
        ("tokenizers/train.py", "tests/tokenizers/test_training.py"),
    ],
)
def test_tests_of_a_file(script, path, first):
    assert script.tests_of(path, all_of_room=False)[0] == first
    assert path in script.files_of([path.partition("/")[0]])
