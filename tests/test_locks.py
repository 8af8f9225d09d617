import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from longsum_jax import locks
from longsum_jax.errors import InputError

pytest.importorskip("fcntl")

HOLDER = """
import os, sys, time
from pathlib import Path
from longsum_jax.locks import locked

with locked(Path(sys.argv[1]), "trains", "leave"):
    child = os.fork()  # outlives the process and must not keep its lock
    if child == 0:
        time.sleep(30)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of ``tmp_path``, and has a child."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        child = int(process.stdout.readline())
        yield process
        process.kill()
    os.kill(child, signal.SIGKILL)


def test_another_process_is_kept_out_until_it_is_killed(holder, tmp_path):
    message = rf"another process trains there \(process {holder.pid} on .*\); .*, or leave"
    with pytest.raises(InputError, match=message), locks.locked(tmp_path, "trains", "leave"):
        pass
    holder.kill()
    holder.wait()
    with locks.locked(tmp_path, "trains", "leave"):
        assert f"process {os.getpid()} on " in (tmp_path / locks.LOCK).read_text()


def test_the_process_itself_is_not_kept_out(tmp_path):
    with locks.locked(tmp_path, "trains", "leave"), locks.locked(tmp_path, "trains", "leave"):
        pass
    with locks.locked(tmp_path, "trains", "leave"):
        pass


def test_a_full_disk_leaves_the_lock_without_a_name(tmp_path, monkeypatch):
    def write(descriptor, content):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(locks.os, "write", write)
    with locks.locked(tmp_path, "trains", "leave"):
        assert (tmp_path / locks.LOCK).read_text() == ""
    assert not (tmp_path / locks.LOCK).exists()


def test_a_lock_file_that_its_last_holder_removed_is_made_anew(tmp_path, monkeypatch):
    lockf = locks.fcntl.lockf
    calls = []

    def remove_first(*args):
        calls.append(args)
        if len(calls) == 1:
            (tmp_path / locks.LOCK).unlink()
        lockf(*args)

    monkeypatch.setattr(locks.fcntl, "lockf", remove_first)
    with locks.locked(tmp_path, "trains", "leave"):
        assert (tmp_path / locks.LOCK).exists()
    assert len(calls) == 2
    assert not any(tmp_path.iterdir())


def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch):
    def refuse(*args):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(locks.fcntl, "lockf", refuse)
    entered = []
    with locks.locked(tmp_path, "trains", "leave"):
        entered.append(True)
    assert entered


def test_a_lock_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / locks.LOCK).mkdir()
    message = r"\.lock: cannot be written \(Is a directory\)"
    with pytest.raises(InputError, match=message), locks.locked(tmp_path, "trains", "leave"):
        pass


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path, is_dangling):
    """It would be emptied: a directory that somebody made may hold one to any file."""
    target = tmp_path / "precious"
    if not is_dangling:
        target.write_text("kept")
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    (workdir / locks.LOCK).symlink_to(target)
    message = r"\.lock: cannot be written"
    with pytest.raises(InputError, match=message), locks.locked(workdir, "trains", "leave"):
        pass
    assert target.read_text() == "kept" if not is_dangling else not target.exists()


def test_a_pipe_in_place_of_the_lock_is_named(tmp_path):
    os.mkfifo(tmp_path / locks.LOCK)
    message = r"\.lock: not a regular file; delete it"
    with pytest.raises(InputError, match=message), locks.locked(tmp_path, "trains", "leave"):
        pass


def test_what_a_lock_says_is_one_short_line(tmp_path, monkeypatch):
    (tmp_path / locks.LOCK).write_bytes(b"a\n\x1b[1m\xff" + b"b" * 10**5)

    def lockf(*args):
        raise BlockingIOError

    monkeypatch.setattr(locks.fcntl, "lockf", lockf)
    with pytest.raises(InputError) as caught, locks.locked(tmp_path, "trains", "leave"):
        pass
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2000


def test_windows_locks_with_filelock(tmp_path, monkeypatch):
    filelock = pytest.importorskip("filelock")
    monkeypatch.setattr(locks, "fcntl", None)
    with locks.locked(tmp_path, "trains", "leave"):
        assert (tmp_path / locks.LOCK).exists()
    assert not (tmp_path / locks.LOCK).exists()
    other = filelock.FileLock(str(tmp_path / locks.LOCK), is_singleton=False)
    message = "another process trains there"
    with (
        other,
        pytest.raises(InputError, match=message),
        locks.locked(tmp_path, "trains", "leave"),
    ):
        pass
