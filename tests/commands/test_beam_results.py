"""Summaries and evaluations made on Apache Beam equal those of the plain commands."""

import json

import pytest

from longsum_jax import atomic, beam_pipeline
from longsum_jax.commands import beam_results, evaluate, summarize
from longsum_jax.errors import InputError

FLAGS = "--direct_running_mode=in_memory"


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A corpus in parts of one window each."""
    monkeypatch.setattr(beam_pipeline, "PART_CHARACTERS", 1)
    path = tmp_path / "rows.jsonl"
    rows = [
        {
            "id": str(i),
            "document": f"Costs rose in town {i}. " * (i % 3 + 1),
            "summary": f"Town {i}.",
        }
        for i in range(9)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def runs(monkeypatch):
    """The parts that each run completes, without a runner; the first run is cut short."""
    completed = []

    def run(names, make, flags):
        make.setup()
        is_first = not completed
        names = names[:1] if is_first else names
        completed.append(len(names))
        for name in names:
            make(name)
            make(name)  # a second attempt of the runner
        if is_first:
            raise atomic.UnfinishedError("killed")

    monkeypatch.setattr(beam_pipeline, "run", run)
    monkeypatch.setattr(beam_pipeline, "parse_flags", lambda flags: [flags])
    return completed


def lines(path):
    """Returns rows without the seconds, which are never the same."""
    return [
        {name: value for name, value in json.loads(line).items() if name != "seconds"}
        for line in path.read_text().splitlines()
    ]


def files(directory):
    """Returns the content of a directory of summaries, without the seconds."""
    return {
        path.name: {**json.loads(path.read_text()), "seconds": 0}
        if path.suffix == ".json"
        else path.read_text()
        for path in directory.iterdir()
    }


def test_extracts(rows, runs, tmp_path):
    summarize.main([str(rows), f"--out={tmp_path / 'plain'}", "--sources"])
    flags = [str(rows), f"--out={tmp_path / 'beam'}", "--sources", "--beam="]
    with pytest.raises(atomic.UnfinishedError):
        summarize.main(flags)
    summarize.main(flags)
    assert files(tmp_path / "beam") == files(tmp_path / "plain")
    assert runs == [1, 8]


@pytest.mark.slow
def test_model(small_model, rows, runs, tmp_path):
    flags = [f"--model={small_model}", "--batch_size=2", "--max_new_tokens=4"]
    summarize.main([str(rows), *flags, f"--out={tmp_path / 'plain'}"])
    for _ in range(2):
        try:
            summarize.main([str(rows), *flags, f"--out={tmp_path / 'beam'}", "--beam="])
        except atomic.UnfinishedError:
            assert not list((tmp_path / "beam").glob("*_summary.*"))
    assert files(tmp_path / "beam") == files(tmp_path / "plain")
    assert runs == [1, 1]  # of eight documents, and one


@pytest.mark.slow
def test_evaluation(small_model, rows, runs, tmp_path):
    flags = [f"--model={small_model}", f"--data={rows}", "--batch_size=2", "--max_new_tokens=4"]
    evaluate.main([*flags, f"--out={tmp_path / 'plain'}"])
    flags += [f"--out={tmp_path / 'beam'}", "--beam="]
    with pytest.raises(atomic.UnfinishedError):
        evaluate.main(flags)
    evaluate.main(flags)
    made = [lines(tmp_path / name / "predictions.jsonl") for name in ("beam", "plain")]
    assert made[0] == made[1]
    scores = [
        json.loads((tmp_path / name / "metrics.json").read_text())["scores"]
        for name in ("beam", "plain")
    ]
    assert scores[0] == scores[1]
    assert not (tmp_path / "beam" / beam_results.DIRECTORY).exists()


@pytest.mark.slow
def test_runner(rows, tmp_path):
    pytest.importorskip("apache_beam")
    summarize.main([str(rows), f"--out={tmp_path / 'plain'}"])
    summarize.main([str(rows), f"--out={tmp_path / 'beam'}", f"--beam={FLAGS}"])
    assert files(tmp_path / "beam") == files(tmp_path / "plain")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--beam=", "--beam writes files; give a directory for them with --out"),
        (
            "--beam= --out=out --sources --source_method=attention",
            "--source_method=attention is computed by this process",
        ),
    ],
)
def test_flags_that_beam_refuses(flags, message):
    with pytest.raises(InputError, match=message):
        summarize.main([*flags.split(), "report.txt"])
