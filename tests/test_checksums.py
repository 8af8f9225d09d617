import hashlib
import shutil
import subprocess

import pytest

from longsum_jax import checksums
from longsum_jax.errors import InputError


@pytest.fixture
def directory(tmp_path):
    """Two files, one of them in a subdirectory, with their sums."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").write_text("first")
    (tmp_path / "inner" / "b").write_bytes(bytes(range(256)))
    checksums.write(tmp_path)
    return tmp_path


def test_the_sums_are_those_of_hashlib(directory):
    expected = f"# 2 sums\n{hashlib.sha256(b'first').hexdigest()}  a\n"
    assert (directory / checksums.SUMS).read_text().startswith(expected)
    assert list(checksums.compare(directory)) == [("a", None), ("inner/b", None)]


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs coreutils")
def test_the_tool_of_the_system_reads_them(directory):
    command = ["sha256sum", "--check", "--strict", checksums.SUMS]
    subprocess.run(command, cwd=directory, check=True, capture_output=True)


def test_every_flipped_bit_is_found(directory):
    for path in (directory / "a", directory / "inner" / "b", directory / checksums.SUMS):
        content = path.read_bytes()
        for bit in range(0, 8 * len(content), 3):
            flipped = bytearray(content)
            flipped[bit // 8] ^= 1 << bit % 8
            path.write_bytes(flipped)
            with pytest.raises(InputError, match="changed since it was written"):
                checksums.check(directory)
        path.write_bytes(content)
    checksums.check(directory)


def test_every_truncation_is_found(directory):
    for path in (directory / "a", directory / "inner" / "b", directory / checksums.SUMS):
        content = path.read_bytes()
        for size in range(len(content)):
            path.write_bytes(content[:size])
            with pytest.raises(InputError, match="changed since it was written"):
                checksums.check(directory)
        path.write_bytes(content)


def test_a_missing_file_is_named(directory):
    (directory / "inner" / "b").unlink()
    with pytest.raises(InputError, match=r"inner/b: changed since it was written \(No such file"):
        checksums.check(directory)
    assert list(checksums.compare(directory)) == [
        ("a", None),
        ("inner/b", "No such file or directory"),
    ]


def test_files_that_are_not_wanted_are_not_read(directory):
    (directory / "a").write_text("other")
    checksums.check(directory, lambda name: name.startswith("inner/"))
    with pytest.raises(InputError, match="a: changed since it was written"):
        checksums.check(directory)


def test_without_sums_nothing_is_proved(tmp_path):
    (tmp_path / "a").write_text("first")
    checksums.check(tmp_path)
    assert list(checksums.compare(tmp_path)) == []


def test_subdirectories_with_sums_are_left_to_these(directory, tmp_path_factory):
    outer = tmp_path_factory.mktemp("outer")
    shutil.copytree(directory, outer / "model")
    (outer / "c").write_text("c")
    checksums.write(outer)
    assert list(checksums.compare(outer)) == [("c", None)]


@pytest.mark.parametrize("name", ["../a", "/a", "inner/../../a"])
def test_names_outside_of_the_directory_are_refused(directory, name):
    (directory / checksums.SUMS).write_text(f"# 1 sums\n{'0' * 64}  {name}\n")
    with pytest.raises(InputError, match="unexpected line"):
        checksums.check(directory)


def test_a_replaced_file_is_whole_at_every_moment(directory, monkeypatch):
    seen = []
    write_text = checksums.atomic.write_text

    def watched(path, text):
        write_text(path, text)
        checksums.check(directory)
        seen.append(path.name)

    monkeypatch.setattr(checksums.atomic, "write_text", watched)
    checksums.replace_text(directory, "a", "second")
    assert seen == [checksums.SUMS, "a", checksums.SUMS]
    assert (directory / "a").read_text() == "second"
    (directory / "a").write_text("first")
    with pytest.raises(InputError):
        checksums.check(directory)


@pytest.mark.parametrize("name", ["./a", "inner/./b", "inner//b", "inner/b/", ".", "inner/../a"])
def test_a_file_has_one_spelling(directory, name):
    """Others could have one large file read as often as there are lines."""
    path = directory / checksums.SUMS
    lines = path.read_text().splitlines()[1:]
    path.write_text("\n".join(["# 3 sums", *lines, f"{'0' * 64}  {name}", ""]))
    with pytest.raises(InputError, match="unexpected line"):
        checksums.check(directory)
