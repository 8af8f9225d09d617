"""A minute's worth of what benchmarks/fuzz.py does for hours: damaged files end in a value or in a
sentence."""

import itertools
import json
import sys
from types import SimpleNamespace

import pytest

from longsum_jax.errors import InputError

READERS = ["config", "weights", "pickle", "tokenizer", "sentencepiece", "rows", "predictions"]
READERS += ["scrolls", "metadata", "documents"]
FILES = 60  # each


@pytest.fixture(scope="module")
def fuzz(scripts):
    return scripts("fuzz")


def test_all_readers_are_tried(fuzz):
    assert set(fuzz.READERS) == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_end_in_a_value_or_a_sentence(fuzz, name, tmp_path):
    answers = list(fuzz.read_cases(name, 0, range(FILES), tmp_path / name))
    assert [failure for _, failure in answers if failure] == []
    assert len(answers) == FILES


@pytest.mark.parametrize("name", READERS)
def test_what_is_not_damaged_is_read(fuzz, name, tmp_path):
    """Else every file would be refused, and nothing tried."""
    reader = fuzz.READERS[name]
    for number, files in enumerate(reader.seeds()):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file_name, content in files.items():
            (folder / file_name).write_bytes(content)
        reader.read(folder)


def test_the_same_number_makes_the_same_files(fuzz, tmp_path):
    seeds = fuzz.READERS["config"].seeds()
    for folder in ("one", "two"):
        fuzz.write_case(seeds, 0, 7, tmp_path / folder)
    files = [{p.name: p.read_bytes() for p in (tmp_path / x).iterdir()} for x in ("one", "two")]
    assert files[0] == files[1]
    fuzz.write_case(seeds, 0, 8, tmp_path / "three")
    assert files[0] != {p.name: p.read_bytes() for p in (tmp_path / "three").iterdir()}


def test_failures_are_found(fuzz, tmp_path, monkeypatch):
    def read(folder):
        if int.from_bytes((folder / "a").read_bytes()[:1], "big") % 2:
            raise ZeroDivisionError("a bug")
        raise InputError("a sentence")

    monkeypatch.setitem(fuzz.READERS, "broken", fuzz.Reader(lambda: [{"a": b"\x01"}], read))
    found = [failure for _, failure in fuzz.read_cases("broken", 0, range(40), tmp_path / "x")]
    problems = [failure.problem for failure in found if failure]
    assert 0 < len(problems) < 40
    assert problems[0].startswith("ZeroDivisionError at test_fuzz.py:")


@pytest.mark.slow
def test_a_reader_runs_in_a_process_of_its_own(fuzz, monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # files instead of seconds
    monkeypatch.setattr(fuzz, "time", clock)
    done, failures = fuzz.fuzz("weights", 0, start=5, seconds=30, patience=30.0)
    assert done > 25
    assert failures == []


@pytest.mark.slow
def test_a_second_start_goes_on_and_tries_failures_again(fuzz, tmp_path, monkeypatch, capsys):
    out = tmp_path / "fuzz.json"
    call = ["fuzz.py", f"--out={out}", "--minutes=0.1", "--readers=rows"]
    monkeypatch.setattr(sys, "argv", call)
    fuzz.main()
    first = json.loads(out.read_text())
    assert first["rows"][0]["files"] > 20
    assert first["rows"][0]["cpu_minutes"] > 0
    first["failures"] = [{"reader": "rows", "number": 3, "problem": "an old bug"}]
    out.write_text(json.dumps(first))
    fuzz.main()
    second = json.loads(out.read_text())
    assert second["rows"][0]["files"] > first["rows"][0]["files"]
    assert second["rows"][0]["mended"] == 1
    assert second["failures"] == []
    monkeypatch.setattr(sys, "argv", [*call, "--cpu_minutes=0"])
    fuzz.main()
    assert json.loads(out.read_text())["rows"] == second["rows"]
    assert "rows" in capsys.readouterr().out
