"""Shards made on Apache Beam; its errors are tested without it."""

import sys

import pytest

from longsum_jax import atomic, beam_pipeline, checksums
from longsum_jax.commands import prepare
from longsum_jax.data import beam_preparation
from longsum_jax.data.preparation import write_prepared
from longsum_jax.errors import InputError

FLAGS = ("--direct_running_mode=in_memory",)


@pytest.mark.parametrize(
    ("workers", "message"),
    [("1", r"--beam needs Apache Beam: pip install"), ("2", "--workers=2 has no effect")],
)
def test_without_beam(monkeypatch, tmp_path, workers, message):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    flags = ["--task=embedded", "--tokenizer=bytes", f"--out={tmp_path / 'out'}"]
    with pytest.raises(InputError, match=message):
        prepare.main([*flags, "--beam=", f"--workers={workers}"])
    assert not list(tmp_path.iterdir())


def test_a_part_is_made_once(tmp_path, report_task, tokenizer, monkeypatch):
    """The files that runners and restarts share, without a runner."""
    monkeypatch.setattr("longsum_jax.data.parallel.CHUNK", 4)
    monkeypatch.setattr(beam_pipeline, "PART_CHARACTERS", 1)
    made = []

    def run(names, make, flags):
        for name in names:
            make(name)
            make(name)  # a second attempt of the runner
        made.append(len(names))

    monkeypatch.setattr(beam_pipeline, "run", run)
    write = {"num_shards": 4, "progress": False}
    write_prepared(tmp_path / "plain", report_task, tokenizer, "train", **write)
    write_prepared(tmp_path / "beam", report_task, tokenizer, "train", beam=(), **write)
    sums = [(tmp_path / name / checksums.SUMS).read_bytes() for name in ("plain", "beam")]
    assert sums[0] == sums[1]
    assert made == [8]  # of four documents, and one


class TestRunner:
    """The pipeline itself; in one process, as several take seconds to start."""

    @pytest.fixture(autouse=True)
    def beam(self, monkeypatch):
        pytest.importorskip("apache_beam")
        monkeypatch.setattr("longsum_jax.data.parallel.CHUNK", 4)
        monkeypatch.setattr(beam_pipeline, "PART_CHARACTERS", 1)

    @pytest.mark.slow
    def test_a_failed_pipeline_goes_on(self, tmp_path, report_task, tokenizer, monkeypatch):
        write = {"num_shards": 4, "progress": False}
        write_prepared(tmp_path / "plain", report_task, tokenizer, "train", **write)
        pack, calls = beam_preparation.pack, []

        def fail(example):
            calls.append(example["id"])
            if len(calls) == 14:
                raise OSError("no space left")
            return pack(example)

        monkeypatch.setattr(beam_preparation, "pack", fail)

        def prepare_with_beam():
            write_prepared(tmp_path / "beam", report_task, tokenizer, "train", beam=FLAGS, **write)

        with pytest.raises(
            atomic.UnfinishedError, match=r"no space left.*the same command goes on"
        ):
            prepare_with_beam()
        num_before = len(calls)
        prepare_with_beam()
        sums = [(tmp_path / name / checksums.SUMS).read_bytes() for name in ("plain", "beam")]
        assert sums[0] == sums[1]
        # only the interrupted part is made again
        assert num_before == 14
        assert 25 < len(calls) <= 25 + 4

    @pytest.mark.parametrize(
        ("flags", "message"),
        [
            ("--direct_num_worker=2", 'no flag --direct_num_worker=2; did you mean "--direct_num'),
            ("--direct_num_workers=x", "--direct_num_workers: invalid int value: 'x'"),
            ("--a='", "No closing quotation"),
        ],
    )
    def test_wrong_flags(self, flags, message):
        with pytest.raises(InputError, match=message):
            beam_pipeline.parse_flags(flags)
