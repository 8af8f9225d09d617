import pytest

from longsum_jax.readers.paths import short_names


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/a/lead.jsonl"], ["lead.jsonl"]),
        (["runs/a/x.jsonl", "runs/b/x.jsonl"], ["a/x.jsonl", "b/x.jsonl"]),
        (["a/x", "b/a/x", "c/y"], ["a/x", "b/a/x", "c/y"]),
        (["a/x", "a/x"], ["x", "x"]),
        (["a/li\nne"], ["li\\nne"]),
    ],
)
def test_names_are_the_shortest_ends_that_differ(paths, names):
    assert short_names(paths) == names
