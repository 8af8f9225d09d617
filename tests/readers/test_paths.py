import pytest

from longsum_jax.readers.paths import expand, short_names


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


def test_links_to_folders_elsewhere_are_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("Words.")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "link").symlink_to(tmp_path / "elsewhere")
    assert list(expand([str(tmp_path / "folder")])) == [str(tmp_path / "folder" / "link" / "a.txt")]
