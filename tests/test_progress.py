import io
import sys

import pytest

from longsum_jax import progress
from longsum_jax.progress import Bar


@pytest.fixture
def draw(monkeypatch):
    """Counts three documents on a standard error: what is written there."""

    def draw(is_terminal):
        stderr = io.StringIO()
        stderr.isatty = lambda: is_terminal
        monkeypatch.setattr(sys, "stderr", stderr)
        list(Bar(range(3), "reading", unit=" documents", mininterval=0, dynamic_ncols=True))
        return stderr.getvalue()

    return draw


def test_a_bar_on_a_terminal(draw):
    assert "\rreading: 100%|" in draw(True)


def test_a_short_task_writes_nothing_to_a_file(draw):
    assert draw(False) == ""


def test_a_file_has_lines(draw, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS", 1e-9)
    lines = draw(False).splitlines(keepends=True)
    assert [line.partition(" [")[0] for line in lines] == [
        "reading:  33% 1/3",
        "reading:  67% 2/3",
        "reading: 100% 3/3",
    ]
    assert all(line.endswith(" documents/s]\n") for line in lines)


def test_a_name_cannot_control_a_terminal(monkeypatch):
    stderr = io.StringIO()
    stderr.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stderr)
    list(Bar(range(3), "a\x1b[2J\u202e.jsonl", mininterval=0, dynamic_ncols=True))
    assert "\ra[2J.jsonl: 100%|" in stderr.getvalue()


def test_what_says_nothing_of_the_others_counts_without_its_time(monkeypatch):
    clock = 0.0
    monkeypatch.setattr("tqdm.std.time", lambda: clock)
    monkeypatch.setattr(progress.time, "time", lambda: clock)
    stderr = io.StringIO()
    stderr.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", stderr)
    with Bar(total=5, initial=1, bar_format="{n_fmt} {remaining}") as bar:
        clock = 100.0
        bar.update_untimed()
        assert stderr.getvalue().split("\r")[-1].strip() == "2 ?"
        clock = 102.0
        bar.update()
        assert stderr.getvalue().split("\r")[-1].strip() == "3 00:04"
