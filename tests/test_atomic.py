import errno
import gzip
import lzma
import os
from pathlib import Path

import pytest

from longsum_jax import atomic, locks
from longsum_jax.errors import InputError


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def fail_inside(manager, write):
    with manager as opened:
        write(opened)
        raise ZeroDivisionError


def test_text_replaces_the_file_at_the_end_alone(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic.open_text(path) as file:
        file.write("né")
        assert path.read_text() == "old"
    assert path.read_bytes() == "né".encode()
    atomic.write_text(path, "newer")
    assert path.read_text() == "newer"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_is_an_error_of_the_file(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left") as caught:
        atomic.write_text(path, "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_content_is_on_the_disk_before_the_name(tmp_path, monkeypatch, name):
    path = tmp_path / name
    synced = []

    def fsync(descriptor):
        synced.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(atomic.os, "fsync", fsync)
    atomic.write_text(path, "new")
    assert synced == [(path.stat().st_size, False)]


def test_a_link_of_the_temporary_name_is_not_followed(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / ".a.txt.longsum").symlink_to(precious)
    atomic.write_text(tmp_path / "a.txt", "new")
    assert (precious.read_text(), (tmp_path / "a.txt").read_text()) == ("kept", "new")
    assert names(tmp_path) == ["a.txt", "precious"]


def test_a_failure_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError):
        fail_inside(atomic.open_text(path), lambda file: file.write("half" * 10_000))
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_text_is_compressed_to_the_same_bytes(tmp_path, suffix, opener):
    first, second = (tmp_path / f"{name}.txt{suffix}" for name in "ab")
    for path in (first, second):
        atomic.write_text(path, "né\n" * 1000)
    with opener(first, "rt", encoding="utf-8") as file:
        assert file.read() == "né\n" * 1000
    assert first.read_bytes() == second.read_bytes()
    with pytest.raises(ZeroDivisionError):
        fail_inside(atomic.open_text(first), lambda file: file.write("half" * 10_000))
    assert first.read_bytes() == second.read_bytes()
    assert names(tmp_path) == [first.name, second.name]


def test_text_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        atomic.write_text(tmp_path / "file" / "a.txt", "text")


@pytest.mark.parametrize("exists", [False, True])
def test_a_new_directory_shows_when_it_is_whole(tmp_path, exists):
    target = tmp_path / "some" / "where"
    if exists:
        target.mkdir(parents=True)
    with atomic.new_directory(target) as work:
        (work / "a").write_text("a")
        assert work.parent == target.parent
        assert not (target / "a").exists()
    assert (target / "a").read_text() == "a"
    assert target.stat().st_mode & 0o777 == 0o755
    assert names(target.parent) == ["where"]


@pytest.mark.parametrize("content", [None, "empty", "old"])
def test_a_link_to_a_new_directory_stays(tmp_path, content):
    link, there = tmp_path / "link", tmp_path / "disk" / "there"
    link.symlink_to(there)
    if content:
        there.mkdir(parents=True)
    if content == "old":
        (there / "old").write_text("old")
    with atomic.new_directory(link, overwrite=content == "old") as work:
        (work / "new").write_text("new")
    assert link.is_symlink()
    assert [path.name for path in there.iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "link"]
    assert [path.name for path in there.parent.iterdir()] == ["there"]


def test_a_directory_with_content_is_replaced_when_asked_alone(tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(OSError, match="not empty"), atomic.new_directory(target) as work:
        (work / "new").write_text("new")
    assert names(target) == ["old"]
    with atomic.new_directory(target, overwrite=True) as work:
        (work / "new").write_text("new")
    assert names(target) == ["new"]
    assert names(tmp_path) == ["target"]


def test_a_directory_that_cannot_be_replaced_stays(tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    (target / "old").write_text("old")
    replace = os.replace

    def fail_for_the_new_one(source, destination):
        if (Path(source) / "new").exists():
            raise OSError(errno.EIO, "Input/output error")
        replace(source, destination)

    monkeypatch.setattr(atomic.os, "replace", fail_for_the_new_one)
    with (
        pytest.raises(OSError, match="Input/output error"),
        atomic.new_directory(target, overwrite=True) as work,
    ):
        (work / "new").write_text("new")
    assert names(target) == ["old"]
    assert names(tmp_path) == ["target"]


def test_a_failure_leaves_no_directory(tmp_path):
    with pytest.raises(ZeroDivisionError):
        fail_inside(
            atomic.new_directory(tmp_path / "target"),
            lambda work: (work / "half").write_text("half"),
        )
    assert names(tmp_path) == []


def test_a_scratch_directory_goes_away(tmp_path):
    with atomic.scratch_directory(tmp_path / "target") as work:
        os.mkdir(work / "inner")
        assert names(tmp_path) == [".target.lock", work.name]
    assert names(tmp_path) == []


class Killed(BaseException):
    """Stands for the end of a process that cleans nothing up."""


def kill_inside(manager, write, monkeypatch):
    """Leaves a block as if its process were killed."""

    def kill(opened):
        write(opened)
        raise Killed

    with monkeypatch.context() as patch:
        for name in ("_remove", "_swap"):
            patch.setattr(atomic, name, lambda *paths: None)
        patch.setattr(atomic.Path, "unlink", lambda *args, **options: None)
        with pytest.raises(Killed):
            leave(manager, kill)


def leave(manager, end):
    with manager as opened:
        end(opened)


def test_the_next_process_removes_what_a_killed_one_left(tmp_path, monkeypatch):
    target, file = tmp_path / "target", tmp_path / "file.txt"
    kill_inside(
        atomic.new_directory(target),
        lambda work: (work / "half").write_text("half"),
        monkeypatch,
    )
    kill_inside(atomic.open_text(file), lambda text: text.write("half"), monkeypatch)
    assert {".target.longsum", ".file.txt.longsum"} < set(names(tmp_path))
    with atomic.new_directory(target) as work:
        assert names(work) == []
    with locks.locked(tmp_path, "trains", "leave"):
        assert names(tmp_path) == [".lock", "target"]


def test_an_interrupted_directory_is_continued(tmp_path):
    target = tmp_path / "target"

    def interrupt(work):
        (work / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        leave(atomic.new_directory(target, resume=True), interrupt)
    with atomic.new_directory(target, resume=True) as work:
        assert (work / "half").read_text() == "half"
    assert names(tmp_path) == ["target"]


@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_swap_that_was_killed_is_finished(tmp_path, is_replaced):
    target, old = tmp_path / "target", tmp_path / ".target.longsum-old"
    old.mkdir()
    (old / "old").write_text("old")
    if is_replaced:
        target.mkdir()
        (target / "new").write_text("new")
    with atomic.scratch_directory(target):
        pass
    assert names(tmp_path) == ["target"]
    assert names(target) == ["new" if is_replaced else "old"]


def test_two_processes_do_not_write_the_same_output(tmp_path, monkeypatch):
    def lockf(*args):
        raise BlockingIOError

    monkeypatch.setattr(locks.fcntl, "lockf", lockf)
    message = "a.txt: another process writes there .*; wait for its end, or give"
    for opened in (atomic.open_text, atomic.new_directory):
        with pytest.raises(InputError, match=message), opened(tmp_path / "a.txt"):
            pass


@pytest.mark.skipif(os.name != "posix", reason="permissions of other systems")
@pytest.mark.parametrize("umask", [0o077, 0o027, 0o002])
def test_permissions_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        with atomic.new_directory(tmp_path / "new") as work:
            assert work.stat().st_mode & 0o777 == 0o700
            atomic.write_text(work / "file", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o777 & ~umask
    assert (tmp_path / "new" / "file").stat().st_mode & 0o777 == 0o666 & ~umask
    assert os.listdir(tmp_path / "new") == ["file"]
