"""Memory of one pass over a long document, from compiled programs."""

import dataclasses
import functools
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.slow


def test_a_program_is_run(scripts, report, monkeypatch):
    million = scripts("million_tokens")
    small = dataclasses.replace(million.PRESETS["tiny"], num_layers=1, num_decoder_layers=1)
    monkeypatch.setitem(million.PRESETS, "tiny", small)
    lowered = million.lowered

    @functools.cache
    def compiled_once(*arguments):
        result = dict(lowered(*arguments))
        compiles = {name: functools.cache(program.compile) for name, program in result.items()}
        return [(name, SimpleNamespace(compile=compile)) for name, compile in compiles.items()]

    monkeypatch.setattr(million, "lowered", compiled_once)  # for its memory, then to be run
    rows = report(
        "million_tokens",
        "--preset=tiny",
        "--lengths=256",
        "--strides=4",
        "--new_tokens=2",
        "--run=256",
    )["rows"]
    assert [row["program"] for row in rows] == ["encode", "read", "search", "generate, run"]
    assert rows[-1]["seconds"] > 0
    assert all(row["stride"] == 4 for row in rows)


@pytest.fixture(scope="module")
def totals(scripts, optimized_compilation):
    """GB of every program of a small model, by length."""
    million = scripts("million_tokens")
    config = million.PRESETS["tiny"].replace(length_chunk=1024, num_layers=1, num_decoder_layers=1)

    def at(length):
        return {row["program"]: row["total_gb"] for row in million.memory_rows(config, length, 4)}

    return {length: at(length) for length in (32_768, 65_536)}


def test_memory_grows_with_the_length_and_no_faster(totals):
    short, long = totals.values()
    for program, total in long.items():
        assert 1.2 < total / short[program] < 2.1, program


def test_a_token_takes_what_a_few_streams_take(totals):
    stream = 65_536 * 64 * 4 / 1e9
    assert totals[65_536]["encode"] < 12 * stream
    assert totals[65_536]["read"] < 20 * stream
    assert totals[65_536]["search"] < 20 * stream
