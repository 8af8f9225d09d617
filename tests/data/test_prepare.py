import json
import re
import subprocess
import sys

import pytest

from longsum_jax.commands import prepare
from longsum_jax.data.prepared import PreparedExamples
from longsum_jax.errors import InputError


def arguments(out, reports, *more):
    return [
        "--task=c4",
        f"--source=json:{reports}",
        "--tokenizer=bytes",
        f"--out={out}",
        "--quiet",
        *more,
    ]


def test_options_reach_the_task(tmp_path, reports, capsys):
    more = [
        "--num_shards=2",
        "--max_source_length=50",
        "--ratio=0.4",
        "--strategy=lead",
        "--seed=5",
    ]
    prepare.main(arguments(tmp_path / "out", reports, *more))
    metadata = PreparedExamples(tmp_path / "out").metadata
    assert (metadata["num_shards"], metadata["split"], metadata["seed"]) == (2, "train", 5)
    assert metadata["task"]["max_source_length"] == 50
    assert (
        metadata["task"]["gap_sentences"] | {"ratio": 0.4, "strategy": "lead"}
        == (metadata["task"]["gap_sentences"])
    )
    counts = metadata["counts"]
    said = capsys.readouterr().out
    assert f"{metadata['examples']} examples in" in said
    assert f"{counts['dropped_source_tokens']} of {counts['source_tokens']} tokens dropped" in said


def test_pieces_are_reported(tmp_path, reports, capsys):
    prepare.main(arguments(tmp_path / "out", reports, "--piece_words=20", "--ratio=0.5"))
    counts = PreparedExamples(tmp_path / "out").metadata["counts"]
    assert f"29 documents read and cut into {counts['pieces']} pieces," in capsys.readouterr().out


def test_embedded_corpus_needs_no_file(tmp_path):
    prepare.main(
        [
            "--task=embedded",
            "--split=validation",
            "--tokenizer=bytes",
            f"--out={tmp_path / 'out'}",
            "--quiet",
        ]
    )
    store = PreparedExamples(tmp_path / "out")
    assert 0 < len(store) <= 8
    assert store.lengths[:, 0].max() <= 4096


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--document_key=txt"], r'train\.jsonl:1: no key "txt"; did you mean "text"'),
        (["--piece_words=200", "--objective=summarize"], "piece_words=200 is only for"),
        (["--train_tokens=9"], "--train_tokens is for --objective=summarize_segments, not for gap"),
        (
            ["--objective=summarize_segments", "--salient=txt"],
            'salient: "txt" is not allowed; did you mean "text"',
        ),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, reports, more, message):
    with pytest.raises(InputError, match=message) as failure:
        prepare.main(arguments(tmp_path / "out", reports, *more))
    assert "\n" not in str(failure.value)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_line_is_named_by_file_and_line(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "One thing. " * 9}) + "\n{broken\n")
    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        prepare.main(arguments(tmp_path / "out", path))
    assert [item.name for item in tmp_path.iterdir()] == ["a.jsonl"]


def test_help_lists_every_task_in_columns(capsys):
    with pytest.raises(SystemExit):
        prepare.main(["--help-all"])
    tasks = capsys.readouterr().out.split("\ntasks (name, ")[1]
    assert re.search(
        r"^pubmed +summarize +4096 -> 512 +tfds:scientific_papers/pubmed$", tasks, re.M
    )
    assert re.search(r"^scotus +classify +4096 +parquet:lex_glue/scotus", tasks, re.M)
    sources = {
        re.search(r"(json|tfds|parquet|embedded|minutes|govreport|qmsum)[:\n]", f"{line}\n").start()
        for line in tasks.splitlines()
    }
    assert len(sources) == 1


@pytest.mark.slow
def test_as_a_command_with_several_workers(tmp_path, reports):
    flags = arguments(tmp_path / "out", reports, "--ratio=0.5")
    command = [sys.executable, "-m", "longsum_jax", "prepare", *flags, "--workers=2"]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    assert len(PreparedExamples(tmp_path / "out")) == 25
    with pytest.raises(InputError, match="is prepared already"):
        prepare.main(flags)
