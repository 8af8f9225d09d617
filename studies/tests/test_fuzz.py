"""A minute's worth of what studies/fuzz.py does for hours: damaged files end in a value or in a
sentence."""

import contextlib
import io
import itertools
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from longsum_jax.errors import InputError

READERS = ["config", "weights", "index", "pickle", "checkpoint", "tokenizer", "sentencepiece"]
READERS += ["rows", "predictions", "scrolls", "metadata", "sums", "documents"]
FILES = 60  # each; of checkpoints fewer, which take long


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
        for file_name, content in files.items():
            (folder / file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / file_name).write_bytes(content)
        reader.read(folder)


def test_every_kind_of_document_is_tried(fuzz):
    from longsum_jax.readers.pandoc import MARKUPS
    from longsum_jax.readers.registry import KINDS, kind_of
    from longsum_jax.readers.source import ReadOptions, Source

    seeds = fuzz.READERS["documents"].seeds()
    suffixes = {"." + name.rpartition(".")[2] for files in seeds for name in files}
    missing = {name for name, kind in KINDS.items() if not suffixes & set(kind.suffixes)}
    # The fuzzer reports readers that start a program. Exports of Slack are zip archives.
    assert missing == MARKUPS.keys() | {"slack"}
    [slack] = [files["slack.zip"] for files in seeds if "slack.zip" in files]
    source = Source("slack.zip", "slack.zip", slack, ReadOptions())
    assert kind_of(source) is KINDS["slack"]


def packed(content):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a.json", content)
        archive.writestr("b.txt", "words")
    return out.getvalue()


def members(content):
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def test_what_lies_in_an_archive_is_damaged_and_its_sums_are_right(fuzz, scripts):
    damage, good = scripts("fuzz_damage"), packed('{"a": 1}')
    result = []
    for seed in range(40):
        content = damage._damage_zip(good, np.random.default_rng(seed))
        with contextlib.suppress(zipfile.BadZipFile, NotImplementedError, OSError, RuntimeError):
            result.append(members(content))  # compares the sums
    assert len(result) > 25
    assert sum(dict(each).get("a.json", b"") != b'{"a": 1}' for each in result) > 5
    assert {len(each) for each in result} == {1, 2, 3}


def test_a_header_is_damaged_and_its_length_is_right(fuzz, scripts):
    damage = scripts("fuzz_damage")
    [seed] = fuzz.READERS["weights"].seeds()
    changed = set()
    for number in range(40):
        rng = np.random.default_rng(number)
        content = damage._damage_safetensors(seed["model.safetensors"], rng)
        size = int.from_bytes(content[:8], "little")
        changed.add(json.dumps(json.loads(content[8 : 8 + size])))
    assert len(changed) > 25


def test_fields_of_a_message_are_damaged_and_their_lengths_are_right(fuzz, scripts):
    from sentencepiece import sentencepiece_model_pb2 as proto

    damage = scripts("fuzz_damage")
    model = fuzz.READERS["sentencepiece"].seeds()[1]["spiece.model"]
    result = set()
    for number in range(40):
        content = damage._damage_message(model, np.random.default_rng(number))
        with contextlib.suppress(Exception):
            result.add(proto.ModelProto.FromString(content).SerializeToString())
    assert len(result - {model}) > 20


def test_records_are_damaged_and_their_hashes_are_right(fuzz, scripts, tmp_path):
    import grain

    damage = scripts("fuzz_damage")
    [files] = fuzz.READERS["metadata"].seeds()
    [name] = [name for name in files if name.endswith(".array_record")]
    path, result = tmp_path / name, set()
    for number in range(12):
        path.write_bytes(damage._damage_records(files[name], np.random.default_rng(number)))
        source = grain.sources.ArrayRecordDataSource(str(path))
        result |= {source[index] for index in range(len(source))}
    assert len(result) > 8


def test_the_same_number_makes_the_same_files(fuzz, tmp_path):
    seeds = fuzz.READERS["config"].seeds()
    for folder in ("one", "two"):
        fuzz.write_case(seeds, 0, 7, tmp_path / folder)
    files = [{p.name: p.read_bytes() for p in (tmp_path / x).iterdir()} for x in ("one", "two")]
    assert files[0] == files[1]
    fuzz.write_case(seeds, 0, 8, tmp_path / "three")
    assert files[0] != {p.name: p.read_bytes() for p in (tmp_path / "three").iterdir()}


def test_failures_are_found(fuzz, scripts, tmp_path, monkeypatch):
    def read(folder):
        if int.from_bytes((folder / "a").read_bytes()[:1], "big") % 2:
            raise ZeroDivisionError("a bug")
        raise InputError("a sentence")

    make = scripts("fuzz_readers").Reader
    monkeypatch.setitem(fuzz.READERS, "broken", make(lambda: [{"a": b"\x01"}], read))
    result = [failure for _, failure in fuzz.read_cases("broken", 0, range(40), tmp_path / "x")]
    problems = [failure.problem for failure in result if failure]
    assert 0 < len(problems) < 40
    assert problems[0].startswith("ZeroDivisionError at test_fuzz.py:")


@pytest.mark.parametrize(
    ("harm", "problem"),
    [
        (lambda folder: os.system("true"), "does os.system"),
        (lambda folder: (folder.parent / "outside").write_text("a"), "does open"),
        (lambda folder: None, "takes more than a gigabyte"),
        (lambda folder: (folder / "inside").write_text("a"), None),
        (lambda folder: Path(os.devnull).write_text("a"), None),
    ],
)
def test_harm_is_seen(fuzz, scripts, tmp_path, monkeypatch, harm, problem):
    peak = iter([0, 2**31 if problem and "gigabyte" in problem else 0])
    monkeypatch.setattr(fuzz, "_peak_bytes", lambda: next(peak))
    make = scripts("fuzz_readers").Reader
    monkeypatch.setitem(fuzz.READERS, "harm", make(lambda: [{"a": b"a"}], harm))
    [(_, failure)] = fuzz.read_cases("harm", 0, range(1), tmp_path / "x")
    assert (failure and failure.problem[: len(problem)]) == problem


def test_seconds_of_a_worker_are_those_of_the_processor(fuzz):
    """A machine that others use, too, makes no file slow; one that waits for ever ends, too."""
    script = "import time; {}; print('done')"
    for work, patience, ends in (
        ("time.sleep(1.5)", 0.5, b"done\n"),
        ("[x for x in iter(int, 1)]", 0.5, None),
        ("time.sleep(60)", 0.1, None),
    ):
        command = [sys.executable, "-c", script.format(work)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
            try:
                assert fuzz._Lines(worker).get(patience) == ends
            finally:
                worker.kill()


@pytest.mark.slow
def test_a_reader_runs_in_a_process_of_its_own(fuzz, monkeypatch):
    clock = SimpleNamespace(monotonic=itertools.count().__next__)  # files instead of seconds
    monkeypatch.setattr(fuzz, "time", clock)
    done, failures = fuzz.fuzz("weights", 0, start=5, seconds=30, patience=30.0)
    assert done > 12
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
