import json
import sys

import pytest

from longsum_jax.tokenizers import load_tokenizer

SENTENCES = [
    "The harbour was built in 1888 by the city.",
    "Ships brought coffee and tea from the south.",
    "A fire took the great store in the spring.",
    "Masons raised new walls of the store within a year.",
    "Coffee is still sold in the harbour every spring.",
    "Nobody has counted the gulls of the northern pier.",
]
SUMMARY = "The city built a harbour in 1888. A fire took the store in spring."


@pytest.fixture
def write(scripts, tmp_path, monkeypatch):
    """Runs the script over a document with flags, and returns its rows."""
    data = tmp_path / "documents.jsonl"
    document = {"id": "harbour", "document": " ".join(SENTENCES), "summary": SUMMARY}

    def run(*flags, **fields):
        data.write_text(json.dumps(document | fields) + "\n")
        out = tmp_path / "rows.jsonl"
        out.unlink(missing_ok=True)
        arguments = [f"--data={data}", *flags, f"--out={out}"]
        monkeypatch.setattr(sys, "argv", ["summary_rows.py", *arguments])
        scripts("summary_rows").main()
        return [json.loads(line) for line in out.read_text().splitlines()]

    return run


def test_extracts_have_the_summary_as_their_target(write):
    rows = write("--words=10-40", "--times=4", query="What happened to the store?")
    assert [row["id"] for row in rows] == [f"harbour-{time}-0" for time in range(4)]
    for row in rows:
        selected = row["document"].splitlines()
        assert selected == [sentence for sentence in SENTENCES if sentence in selected]
        assert row["summary"] == SUMMARY
        assert row["query"] == "What happened to the store?"
    assert len({row["document"] for row in rows}) > 1
    assert rows == write("--words=10-40", "--times=4", query="What happened to the store?")
    assert rows != write(
        "--words=10-40", "--times=4", "--seed=1", query="What happened to the store?"
    )


def test_segments_have_the_sentences_that_they_cover(write):
    rows = write("--words=100-100", "--segment_length=140", "--tokenizer=bytes")
    tokenizer = load_tokenizer("bytes")
    assert len(rows) > 1
    for row in rows:
        assert len(tokenizer.add_special_tokens(tokenizer.encode(row["document"]))) <= 140
        assert "query" not in row
    by_target = {row["summary"]: row["document"] for row in rows}
    assert "built in 1888" in by_target["The city built a harbour in 1888."]
    assert "A fire took" in by_target["A fire took the store in spring."]
    assert "gulls" not in " ".join(by_target.values())  # covers nothing of the summary


def test_bad_flags_are_told(write, capsys):
    for flags, message in (
        (["--words=40"], '"40" is no A-B with A from 1 to B, such as 320-480'),
        (["--words=9-8"], '"9-8" is no A-B'),
        (["--times=0"], "0 gives no row; give 1 or more"),
        (["--segment_length=9"], "--segment_length and --tokenizer go together"),
        (["--tokenizer=bytes"], "--segment_length and --tokenizer go together"),
        (["--tokenizer=missing", "--segment_length=99"], "missing"),
    ):
        with pytest.raises(SystemExit):
            write(*flags)
        assert message in capsys.readouterr().err
