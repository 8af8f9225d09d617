"""longsum corpus pairs: rows, going on, and what is refused."""

import json
from types import SimpleNamespace

import pytest

from longsum_jax.commands import corpus, noisy_pairs
from longsum_jax.data.sources import documents
from longsum_jax.data.tasks import get_task
from longsum_jax.errors import InputError

ROWS = [
    {"id": str(i), "document": f"Number {i} is said here. Then another thing.", "summary": f"S{i}."}
    for i in range(8)
]
FLAGS = ("--noise=0.5", "--min_new_tokens=4", "--max_new_tokens=4", "--batch_size=2")


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(model, data, out, *flags):
    corpus.main(
        [
            "pairs",
            f"--model={model}",
            "--task=summaries",
            f"--source=json:{data}",
            f"--out={out}",
            *FLAGS,
            *flags,
        ]
    )


@pytest.mark.slow
def test_pairs_of_a_half_are_written_and_go_on(small_model, data, tmp_path, capsys):
    out = tmp_path / "pairs"
    run(small_model, data, out, "--half=second")
    task = get_task("summaries", source=f"json:{data}", half="second")
    half = {document.id: document for document in documents(task, "train")}
    assert f"train.jsonl: {len(half)} pair" in capsys.readouterr().out
    text = (out / "train.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert {row["id"] for row in rows} == half.keys()
    for row in rows:
        assert list(row) == ["id", "document", "summary", "rejected"]
        assert (row["document"], row["summary"]) == (
            half[row["id"]].document,
            half[row["id"]].summary,
        )
        assert row["rejected"].strip()
    # They are read as pairs.
    pairs = list(documents(get_task("preferences", source=f"json:{out}/train.jsonl"), "train"))
    assert [pair.rejected for pair in pairs] == [row["rejected"] for row in rows]

    # A line cut short by a crash is made again, the same.
    (out / "train.jsonl").write_text(text[:-20])
    run(small_model, data, out, "--half=second")
    assert sorted((out / "train.jsonl").read_text().splitlines()) == sorted(text.splitlines())

    with pytest.raises(InputError, match="holds pairs made with another noise; give another --out"):
        run(small_model, data, out, "--half=second", "--noise=0.25")
    changed = text.replace("Then another", "Then one other")
    (out / "train.jsonl").write_text(changed)
    with pytest.raises(InputError, match=r"the document, query or summary of .* has changed"):
        run(small_model, data, out, "--half=second")
    (out / "train.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(InputError, match=r"train\.jsonl:1: not a row of pairs; remove the file"):
        run(small_model, data, out, "--half=second")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--noise=1.5"], r"--noise=1\.5 is a probability; give a number between 0 and 1"),
        (["--noise=nan"], "--noise=nan must be a finite number"),
        (["--half=third"], 'half: "third" is not allowed'),
        (["--split=test", "--half=first"], "--half=first is for --split=train, not for test"),
        (["--split=nothing"], 'has no split "nothing"'),
        (["--task=labels"], "--task=labels has no summaries; give a task with summaries"),
    ],
)
def test_what_does_not_fit_is_refused(data, tmp_path, flags, problem):
    with pytest.raises(InputError, match=problem):
        run("no-model", data, tmp_path / "out", *flags)


def test_a_task_is_needed(tmp_path):
    with pytest.raises(InputError, match="give --task=NAME; longsum prepare --help-all lists"):
        corpus.main(["pairs", "--model=no-model", f"--out={tmp_path}"])


def test_a_directory_is_needed():
    with pytest.raises(InputError, match="arguments are required: -o/--out"):
        corpus.main(["pairs", "--model=no-model", "--task=arxiv"])


def test_pairs_made_with_another_storage_are_not_continued():
    model = SimpleNamespace(fingerprint="f", tokenizer=SimpleNamespace(fingerprint="t"))
    flags = ["pairs", "--model=m", "--task=summaries", "--out=out", "--noise=0.5"]
    settings = []
    for storage in ("float32", "int8"):
        args = corpus._parser().parse_args([*flags, f"--decoder_storage={storage}"])
        task = SimpleNamespace(source="json:a")
        settings.append(noisy_pairs._settings(args, task, model, model, {}))
    assert settings[0] != settings[1]
