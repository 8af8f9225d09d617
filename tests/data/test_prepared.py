import dataclasses
import importlib.util
import itertools
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from longsum_jax import checksums
from longsum_jax.atomic import UnfinishedError
from longsum_jax.commands import verify
from longsum_jax.data import parallel, preparation, spool
from longsum_jax.data.examples.base import pack, unpack
from longsum_jax.data.preparation import write_prepared
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.data.sources import documents
from longsum_jax.data.stores import ExampleStream, load_examples
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError
from longsum_jax.tokenizers.loading import load_tokenizer


@pytest.fixture
def directory(tmp_path, report_task, tokenizer):
    write_prepared(tmp_path / "out", report_task, tokenizer, "train", num_shards=4, progress=False)
    return tmp_path / "out"


def assert_same_examples(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            np.testing.assert_array_equal(value, other[key])
            assert np.asarray(value).dtype == np.asarray(other[key]).dtype


def names(path):
    return sorted(item.name for item in path.iterdir())


@pytest.mark.parametrize("num_shards", [1, 4, 30])
def test_round_trip_in_the_order_of_the_documents(tmp_path, report_task, tokenizer, num_shards):
    expected = load_examples(report_task, tokenizer, "train")
    write_prepared(tmp_path / "out", report_task, tokenizer, "train", num_shards, progress=False)
    result = PreparedExamples(tmp_path / "out")
    assert_same_examples(result, expected)
    np.testing.assert_array_equal(result.lengths, expected.lengths)
    assert result.counts == expected.counts
    with pytest.raises(IndexError):
        result[25]


def test_more_shards_than_a_process_may_open_at_first(tmp_path, report_task, tokenizer):
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    for function in (
        lambda: write_prepared(
            tmp_path / "out", report_task, tokenizer, "train", 300, progress=False
        ),
        lambda: list(PreparedExamples(tmp_path / "out")),
    ):
        resource.setrlimit(resource.RLIMIT_NOFILE, (280, limits[1]))
        try:
            function()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_several_processes_write_the_same(directory, tmp_path, report_task, tokenizer):
    write_prepared(tmp_path / "two", report_task, tokenizer, "train", 4, workers=2, progress=False)
    assert_same_examples(PreparedExamples(tmp_path / "two"), PreparedExamples(directory))
    assert (
        json.loads((tmp_path / "two/metadata.json").read_text())
        == PreparedExamples(directory).metadata
    )


def test_a_killed_worker_leaves_the_work_to_continue_from(tmp_path, report_task, tokenizer):
    tokenizer.save(tmp_path / "tokenizer")
    chunk = next(parallel.document_chunks(documents(report_task, "train")))
    chunks = parallel.make_chunks(
        report_task, tokenizer, tmp_path / "tokenizer", itertools.repeat(chunk), seed=0, workers=2
    )
    next(chunks)
    multiprocessing.active_children()[0].kill()
    with pytest.raises(UnfinishedError, match="one of the 2 worker processes was killed"):
        for _ in chunks:
            pass


@pytest.mark.parametrize("workers", [1, 2])
def test_pieces_are_those_of_the_list_and_the_stream(tmp_path, report_task, tokenizer, workers):
    task = dataclasses.replace(report_task, piece_words=20)
    expected = load_examples(task, tokenizer, "train")
    write_prepared(tmp_path / "out", task, tokenizer, "train", 3, workers=workers, progress=False)
    result = PreparedExamples(tmp_path / "out")
    assert_same_examples(result, expected)
    assert result.counts == expected.counts
    assert len({example["id"] for example in result}) == len(result) > 29
    stream = ExampleStream(task, tokenizer, "train", window=4)
    assert_same_examples([stream[i] for i in range(len(expected))], expected)
    with pytest.raises(IndexError):
        stream[len(expected)]
    assert stream.counts == expected.counts


def test_files_and_metadata(directory, tokenizer):
    shards = [f"train-{i:05d}-of-00004.array_record" for i in range(4)]
    assert names(directory) == sorted(
        [*shards, checksums.SUMS, "lengths.npy", "metadata.json", "tokenizer"]
    )
    assert names(directory.parent) == ["out"]
    metadata = json.loads((directory / "metadata.json").read_text())
    assert metadata["format_version"] == 1
    assert metadata["task"]["max_source_length"] == 64
    assert metadata["task"]["gap_sentences"]["ratio"] == 0.5
    assert metadata["counts"]["read"] == 29
    assert metadata["tokenizer"]["fingerprint"] == tokenizer.fingerprint
    assert load_tokenizer(directory / "tokenizer").fingerprint == tokenizer.fingerprint


def test_a_missing_package_is_named_at_once(
    tmp_path, directory, report_task, tokenizer, monkeypatch
):
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(InputError, match=r"to read shards, pip install 'longsum_jax\[shards\]'"):
        PreparedExamples(directory)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "not read: shards need" in verify._proof(next(directory.glob("*.array_record")))
    with pytest.raises(InputError, match=r"to write shards, pip install 'longsum_jax\[shards\]'"):
        write_prepared(tmp_path / "a", report_task, tokenizer, "train", 1)
    assert names(tmp_path) == ["out"]


@pytest.mark.slow
def test_reading_needs_no_tensorflow(directory):
    code = (
        "import sys\n"
        "from longsum_jax.data.prepared import PreparedExamples\n"
        "from longsum_jax.data.batches import Batches\n"
        f"store = PreparedExamples({str(directory)!r})\n"
        "next(Batches(store, batch_size=2, source_lengths=(64,), target_length=12))\n"
        "blocked = {'tensorflow', 'tensorflow_datasets', 'seqio', 'torch', 'transformers'}\n"
        "assert not blocked & set(sys.modules), blocked & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_finished_directory_is_not_overwritten_by_accident(directory, report_task, tokenizer):
    with pytest.raises(InputError, match="is prepared already"):
        write_prepared(directory, report_task, tokenizer, "train", progress=False)
    write_prepared(directory, report_task, tokenizer, "train", 2, overwrite=True, progress=False)
    assert PreparedExamples(directory).metadata["num_shards"] == 2
    assert names(directory.parent) == ["out"]


def test_other_files_are_never_touched(tmp_path, report_task, tokenizer):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter1.tex").write_text("hours of work")
    with pytest.raises(InputError, match="holds other files"):
        write_prepared(tmp_path / "thesis", report_task, tokenizer, "train", overwrite=True)
    with pytest.raises(InputError, match="is a file"):
        write_prepared(tmp_path / "thesis/chapter1.tex", report_task, tokenizer, "train")


def test_failure_half_way_leaves_nothing_behind(tmp_path, report_task, tokenizer, monkeypatch):
    packed = []

    def fail_at_ten(example):
        packed.append(example)
        if len(packed) == 10:
            raise OSError("No space left on device")
        return b"record"

    monkeypatch.setattr(preparation, "pack", fail_at_ten)
    with pytest.raises(
        InputError, match=r"cannot write .*/out: No space left on device; nothing was written"
    ):
        write_prepared(tmp_path / "out", report_task, tokenizer, "train", progress=False)
    assert names(tmp_path) == []


def test_a_full_disk_is_noticed_when_the_shards_are_closed(tmp_path):
    """A limit on the size of files stands in for the disk; it must hold for a process of its
    own."""
    code = (
        "import resource, signal\n"
        "from longsum_jax.data.preparation import write_prepared\n"
        "from longsum_jax.data.tasks import get_task\n"
        "from longsum_jax.errors import InputError\n"
        "from longsum_jax.tokenizers.loading import load_tokenizer\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "task, tokenizer = get_task('embedded'), load_tokenizer('bytes')\n"
        "try:\n"
        f"    out = {str(tmp_path / 'out')!r}\n"
        "    write_prepared(out, task, tokenizer, 'train', 1, progress=False)\n"
        "except InputError as error:\n"
        "    assert 'cannot write' in str(error) and 'too large' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('nothing was noticed')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
    assert names(tmp_path) == []


def test_a_full_disk_is_noticed_when_a_shard_is_closed(tmp_path):
    code = (
        "import resource, signal\n"
        "from pathlib import Path\n"
        "from longsum_jax.data.preparation import _write_shard\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "try:\n"
        f"    _write_shard(Path({str(tmp_path / 'shard')!r}), [bytes(200_000)])\n"
        "except OSError as error:\n"
        "    assert 'too large' in str(error), error\n"
        "else:\n"
        "    raise SystemExit('nothing was noticed')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_failing_overwrite_keeps_what_was_there(directory, report_task, tokenizer, monkeypatch):
    before = list(PreparedExamples(directory))
    monkeypatch.setattr(preparation, "pack", lambda example: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_prepared(directory, report_task, tokenizer, "train", overwrite=True, progress=False)
    assert_same_examples(PreparedExamples(directory), before)
    assert names(directory.parent) == ["out"]


def test_a_split_without_a_usable_document(tmp_path, tokenizer):
    from longsum_jax.data.tasks import get_task

    (tmp_path / "a.jsonl").write_text('{"text": "One sentence."}\n')
    task = get_task("c4", source=f"json:{tmp_path}/a.jsonl")
    with pytest.raises(InputError, match=r"none of 1 documents gives an example.*short_documents"):
        write_prepared(tmp_path / "out", task, tokenizer, "train", progress=False)
    assert names(tmp_path) == ["a.jsonl"]


def edit_metadata(directory, **changes):
    path = directory / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "metadata.json").unlink(), "is not a prepared directory"),
        (lambda d: (d / "metadata.json").write_text("{"), r"metadata\.json cannot be read"),
        (lambda d: (d / "metadata.json").write_text("[]"), "format_version is None"),
        (lambda d: edit_metadata(d, format_version=True), "format_version is True, .* reads 1"),
        (lambda d: edit_metadata(d, format_version=2), "format_version is 2, .* reads 1"),
        (lambda d: edit_metadata(d, split="é" * 300), r"'é{80}\.\.\.' is not a file name in it"),
        (lambda d: (d / "lengths.npy").unlink(), r"lengths\.npy is missing or damaged"),
        (lambda d: (d / "lengths.npy").write_bytes(b"no"), r"lengths\.npy is missing or damaged"),
        (
            lambda d: np.save(d / "lengths.npy", np.zeros((3, 2))),
            r"has shape \(3, 2\), not \(25, 2\)",
        ),
        (
            lambda d: np.save(d / "lengths.npy", np.full((25, 2), -1, np.int32)),
            r"lengths\.npy contains numbers that are not lengths",
        ),
        (
            lambda d: np.save(d / "lengths.npy", np.ones((25, 2))),
            r"lengths\.npy contains numbers that are not lengths",
        ),
        (lambda d: edit_metadata(d, num_shards=10**9), "00000-of-1000000000.* is missing"),
        (
            lambda d: edit_metadata(d, tokenizer={"fingerprint": "x", "vocab_size": "9"}),
            r"tokenizer\.vocab_size is not a number",
        ),
        (lambda d: pipe(d / "lengths.npy"), "pipe or device; give"),
        (lambda d: pipe(d / "train-00002-of-00004.array_record"), "00002-of-00004.* is missing"),
        (
            lambda d: (d / "train-00002-of-00004.array_record").unlink(),
            "00002-of-00004.* is missing",
        ),
        (
            lambda d: (d / "train-00001-of-00004.array_record").write_bytes(
                (d / "train-00000-of-00004.array_record").read_bytes()
            ),
            r"00001-of-00004.* holds 7 examples, but metadata\.json lists 6",
        ),
        (
            lambda d: (d / "train-00001-of-00004.array_record").write_bytes(b"\0" * 10),
            r"00001-of-00004.* is damaged",
        ),
        (
            lambda d: os.truncate(d / "train-00003-of-00004.array_record", 70_000),
            r"00003-of-00004.* is damaged",
        ),
    ],
)
def test_damage_without_sums_is_named(directory, damage, message):
    (directory / checksums.SUMS).unlink()
    damage(directory)
    with pytest.raises(InputError, match=message):
        PreparedExamples(directory)


def test_a_directory_without_sums_is_refused(directory):
    (directory / checksums.SUMS).unlink()
    with pytest.raises(InputError, match=r"SHA256SUMS is missing, .* --unverified"):
        PreparedExamples(directory)


@pytest.mark.parametrize(
    "name", ["metadata.json", "lengths.npy", "tokenizer/tokenizer_config.json"]
)
def test_a_flipped_bit_is_found_when_a_directory_is_opened(directory, name):
    flip(directory / name, 100)
    with pytest.raises(InputError, match=f"{name}: changed since it was written"):
        PreparedExamples(directory)


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_a_flipped_bit_of_an_example_is_found_when_it_is_read(directory):
    path = directory / "train-00001-of-00004.array_record"
    expected = PreparedExamples(directory)[1]["input_ids"].tobytes()
    start = path.read_bytes().index(expected)
    flip(path, 8 * start + 3)
    result = PreparedExamples(directory)
    assert len(result[0]["input_ids"]) > 0  # of another shard
    with pytest.raises(InputError, match=r"00001-of-00004.* is damaged"):
        result[1]


def test_another_tokenizer_is_refused(directory):
    with pytest.raises(InputError, match=r"was prepared with tokenizer .*, this run uses 0123"):
        PreparedExamples(directory, "0123")


def test_bad_numbers_and_unwritable_parent(tmp_path, report_task, tokenizer):
    with pytest.raises(InputError, match="num_shards=0"):
        write_prepared(tmp_path / "out", report_task, tokenizer, "train", 0)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        InputError, match=r"cannot write .*file/out: Not a directory; .* choose another directory"
    ):
        write_prepared(tmp_path / "file/out", report_task, tokenizer, "train")


TEXT = "Cats sleep all day long. They dream of mice. Rain falls on the hills. Rivers carry it off."
SEGMENTS = {"min_tokens": 30, "max_tokens": 40, "segment_length": 96, "num_vectors": 60}


@pytest.fixture(scope="module")
def segment_task(tmp_path_factory):
    path = tmp_path_factory.mktemp("segments") / "train.jsonl"
    rows = [{"document": TEXT * (i + 1), "summary": "Rain falls. Cats sleep."} for i in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return get_task(
        "summaries",
        source=f"json:{path}",
        objective="summarize_segments",
        max_source_length=96,
        segments=SEGMENTS | {"salient": "vectors"},
    )


def test_segments_are_those_of_the_list_and_of_no_other_run(segment_task, tokenizer, tmp_path):
    expected = load_examples(segment_task, tokenizer, "train")
    made_by = {"extractor": "0123"}
    options = {"fingerprints": made_by, "progress": False}
    write_prepared(tmp_path / "out", segment_task, tokenizer, "train", 2, **options)
    result = PreparedExamples(tmp_path / "out")
    assert [example["id"] for example in result] == [example["id"] for example in expected]
    for example, wanted in zip(result, expected, strict=True):
        jax.tree.map(np.testing.assert_array_equal, dict(example), dict(wanted))
    np.testing.assert_array_equal(result.lengths, expected.lengths)

    result.check_content()
    result.check_task(segment_task, "train", made_by)
    # An extractor counts by its weights, not by its place.
    moved = dataclasses.replace(segment_task.segments, extractor="elsewhere")
    result.check_task(dataclasses.replace(segment_task, segments=moved), "train", made_by)
    with pytest.raises(InputError, match=r'auxiliary\.extractor \("0123" there, "4567" here\)'):
        result.check_task(segment_task, "train", {"extractor": "4567"})
    for changes, problem in (
        ({"max_target_length": 64}, r"max_target_length \(512 there, 64 here\)"),
        ({"prefix": "say: "}, "prefix"),
        ({"segments": dataclasses.replace(moved, train_empty=True)}, r"segments\.train_empty"),
        ({"segments": dataclasses.replace(moved, max_tokens=41)}, r"segments\.max_tokens"),
    ):
        with pytest.raises(InputError, match=problem):
            result.check_task(dataclasses.replace(segment_task, **changes), "train", made_by)
    with pytest.raises(InputError, match=r'split \("train" there, "test" here\)'):
        result.check_task(segment_task, "test", made_by)


def test_texts_are_those_of_no_other_run(segment_task, tokenizer, tmp_path):
    task = dataclasses.replace(segment_task, objective="summarize")
    write_prepared(tmp_path / "out", task, tokenizer, "train", 1, progress=False)
    result = PreparedExamples(tmp_path / "out")
    result.check_task(task, "train", {})
    result.check_task(dataclasses.replace(task, source="json:elsewhere.jsonl"), "train", {})
    for changes, problem in (
        ({"prefix": "say: "}, r'prefix \("" there, .*or give --config\.task\.prefix=\'\'$'),
        ({"max_source_length": 4096}, r"max_source_length \(\d+ there, 4096 here\)"),
        ({"objective": "gap_sentences"}, "objective"),
        ({"source": "json:one.jsonl", "held_out": 0.1}, r"held_out \(0.0 there, 0.1 here\)"),
        (
            {"query_key": None},
            r'"query" there, null here.*or give --config\.task\.query_key=query$',
        ),
        ({"leading_query": True}, "leading_query.*; prepare it again, or change the config$"),
    ):
        with pytest.raises(InputError, match=problem):
            result.check_task(dataclasses.replace(task, **changes), "train", {})
    with pytest.raises(InputError, match=r'split \("train" there, "test" here\)'):
        result.check_task(task, "test", {})
    with pytest.raises(InputError, match=r"or give --config\.data\.split=train$"):
        result.check_task(task, "test", {})


def rewrite(path, change):
    """Writes a shard anew, with right hashes and another first example."""
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    source = grain.sources.ArrayRecordDataSource(str(path))
    records = [source[index] for index in range(len(source))]
    records[0] = change(unpack(records[0]))
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for record in records:
        writer.write(record)
    writer.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda example: b"\x93\x01\x02\x03", "is damaged"),  # a list
        (lambda example: b"\xc1", "is damaged"),  # nothing
        (lambda example: pack({"id": "a"}), "is damaged .*input_ids"),
        (
            lambda example: pack(example | {"labels": example["labels"][1:]}),
            r"example 1 has the lengths .*, but lengths\.npy",
        ),
        (
            lambda example: pack(example | {"input_ids": example["input_ids"] + 10**6}),
            "example 1 has ids outside of 0 to",
        ),
        (
            lambda example: pack(example | {"input_ids": -1 - example["input_ids"]}),
            "example 1 has ids outside of 0 to",
        ),
        (
            lambda example: pack(example | {"input_ids": example["input_ids"] / 2}),
            "example 1 has input_ids that are not a row of int32",
        ),
    ],
)
def test_examples_that_somebody_made_are_not_used(directory, change, message):
    rewrite(directory / "train-00001-of-00004.array_record", change)
    result = PreparedExamples(directory)
    assert len(result[0]["input_ids"]) > 0
    with pytest.raises(InputError, match=message):
        result[1]


def test_content_that_changed_is_found_by_its_checksum(directory):
    PreparedExamples(directory).check_content()
    first, second = (directory / f"train-0000{i}-of-00004.array_record" for i in (1, 2))
    first.write_bytes(second.read_bytes())  # which holds as many examples
    with pytest.raises(InputError, match=r"00001-of-00004.*: changed since it was written"):
        PreparedExamples(directory).check_content()


def test_records_hold_the_vectors_of_segments():
    slots, reads = np.array([[0, -1], [-1, 1]], np.int32), np.array([[1], [0]], np.int32)
    example = {
        "id": "a",
        "segment_lengths": np.array([2, 2], np.int32),
        "vectors": (slots, reads),
    }
    result = unpack(pack(example))
    assert result.keys() == example.keys()
    assert isinstance(result["vectors"], tuple)
    for array, expected in zip(result["vectors"], example["vectors"], strict=True):
        np.testing.assert_array_equal(array, expected)


class TestContinuing:
    """Preparing that is killed or interrupted, and started again."""

    @pytest.fixture
    def interrupted(self, tmp_path, report_task, tokenizer, monkeypatch):
        """Prepares up to an interruption; returns the path and the restart."""
        monkeypatch.setattr(parallel, "CHUNK", 4)
        monkeypatch.setattr(spool, "SECONDS", 0)
        out = tmp_path / "out"

        def prepare(task=report_task, num_shards=4):
            write_prepared(out, task, tokenizer, "train", num_shards, progress=False)

        def interrupt(module, name, call):
            original, calls = getattr(module, name), []

            def count(*args):
                calls.append(args)
                if len(calls) == call:
                    raise KeyboardInterrupt
                return original(*args)

            with monkeypatch.context() as patch:
                patch.setattr(module, name, count)
                with pytest.raises(KeyboardInterrupt):
                    prepare()

        return out, interrupt, prepare

    @pytest.mark.parametrize(
        ("module", "name", "call"),
        [
            (preparation, "pack", 1),
            (preparation, "pack", 14),
            (preparation, "_write_shard", 1),
            (preparation, "_write_shard", 3),
            (preparation, "remove_progress", 1),
        ],
    )
    def test_files_are_equal_to_an_uninterrupted_run(
        self, interrupted, directory, monkeypatch, module, name, call
    ):
        out, interrupt, prepare = interrupted
        expected = (directory / checksums.SUMS).read_bytes()
        os.rename(directory, directory.with_name("whole"))
        interrupt(module, name, call)
        assert not out.exists()
        packed = []
        monkeypatch.setattr(preparation, "pack", lambda one: packed.append(one) or pack(one))
        prepare()
        assert (out / checksums.SUMS).read_bytes() == expected
        assert len(packed) == {1: 25, 14: 14, 3: 0}[call if name == "pack" else 3]
        assert names(out.parent) == ["out", "whole"]

    def test_other_settings_or_documents_begin_again(self, interrupted, report_task, tmp_path):
        out, interrupt, prepare = interrupted
        interrupt(preparation, "pack", 14)
        prepare(num_shards=2)
        assert PreparedExamples(out).num_shards == 2
        source = Path(report_task.source.removeprefix("json:"))
        changed = tmp_path / "changed.jsonl"
        text = source.read_text(encoding="utf-8")
        changed.write_text(text, encoding="utf-8")
        task = dataclasses.replace(report_task, source=f"json:{changed}")
        shutil.rmtree(out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(preparation, "remove_progress", interrupt_now)
            with pytest.raises(KeyboardInterrupt):
                prepare(task)
        changed.write_text(text.replace("Part 1 ", "Part 0 "), encoding="utf-8")
        prepare(task)
        first = bytes(PreparedExamples(out)[1]["input_ids"].astype(np.uint8) - 3)
        assert b"Part 0 " in first


def interrupt_now(*args):
    raise KeyboardInterrupt
