import json
import sys

import numpy as np
import pytest

SENTENCES = [
    "The harbour was built in 1888 by the city.",
    "Ships brought coffee and tea from the south.",
    "A fire took the great store in the spring.",
    "The store was built again by the city in 1901.",
    "Coffee is still sold in the harbour every spring.",
]
TEXT = " ".join(SENTENCES)


@pytest.fixture(scope="module")
def mix(scripts):
    return scripts("pretraining_mix")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_copied_words_are_shuffled(mix, rng):
    source, target = mix.copy(SENTENCES, rng)
    assert source == f"copy: {target}"
    assert target != TEXT
    assert sorted(target.split()) == sorted(TEXT.split())


def test_targets_are_what_the_source_asks_for(mix, rng):
    for _ in range(20):
        source, target = mix.lead(SENTENCES, rng)
        asked, _, text = source.partition(": ")
        assert (text, target) == (TEXT, " ".join(SENTENCES[: int(asked.removeprefix("lead "))]))
        source, target = mix.marked(SENTENCES, rng)
        parts = [part.split(" >>")[0] for part in source.split("<< ")[1:]]
        assert target == " ".join(parts)
        source, target = mix.find(SENTENCES, rng)
        beginning = source.partition(": ")[0].removeprefix("find ")
        assert target in SENTENCES
        assert target.startswith(beginning)


def test_mended_texts_are_whole_again(mix, rng):
    made = [mix.mend(SENTENCES, rng) for _ in range(20)]
    for source, target in filter(None, made):
        text = source.removeprefix("mend: ")
        for words in target.split(" _ "):
            text = text.replace("_", words, 1)
        assert text == TEXT
    assert any(made)


def test_gaps_and_ranked_sentences_are_those_of_the_text(mix, rng):
    source, target = mix.gap(SENTENCES, rng)
    assert target in SENTENCES
    assert target not in source
    source, target = mix.rank(SENTENCES, rng)
    assert source == f"summarize: {TEXT}"
    assert all(line in TEXT for line in target.splitlines())


def test_rows_depend_on_the_seed_alone(mix, tmp_path, monkeypatch, capsys):
    data = tmp_path / "texts.jsonl"
    data.write_text(json.dumps({"text": TEXT * 9}) + "\n" + json.dumps({"document": TEXT}) + "\n")

    def rows(name, seed, *flags):
        out = tmp_path / name
        arguments = [f"--data={data}", "--words=40", "--examples=30", f"--seed={seed}", *flags]
        monkeypatch.setattr(sys, "argv", ["pretraining_mix.py", *arguments, f"--out={out}"])
        mix.main()
        return out

    result = [json.loads(line) for line in rows("a.jsonl", 0).read_text().splitlines()]
    assert len(result) == 30
    assert all(row["document"] and row["summary"] for row in result)
    assert len({row["id"] for row in result}) == 30
    assert {row["id"].partition("-")[0] for row in result} <= set(mix.TASKS)
    again = rows("b.jsonl", 0).read_text()
    assert again == (tmp_path / "a.jsonl").read_text() != rows("c.jsonl", 1).read_text()
    assert "0 rows" in capsys.readouterr().err
    copied = rows("e.jsonl", 0, "--tasks=copy").read_text().splitlines()
    assert all(json.loads(line)["id"].startswith("copy-") for line in copied)
    with pytest.raises(SystemExit):
        rows("f.jsonl", 0, "--tasks=copy,draw")
    assert '"draw" is none of copy, lead' in capsys.readouterr().err
    flags = ("--pieces=extract", "--words=60", "--tasks=marked", "--most_copied=1")
    extracts = [json.loads(line) for line in rows("i.jsonl", 0, *flags).read_text().splitlines()]
    assert all(row["summary"] and set(row["summary"]) <= set(TEXT) for row in extracts)
    lengths = {row["document"].count(".") for row in extracts}
    assert len(lengths) > 1  # of several lengths
    parts = [rows(f"g{part}.jsonl", 0, f"--part={part}/2") for part in range(2)]
    halves = [[json.loads(line) for line in part.read_text().splitlines()] for part in parts]
    assert not {row["id"] for row in halves[0]} & {row["id"] for row in halves[1]}
    for flags, message in (
        (["--part=2/2"], '"2/2" is no I/N with I from 0 to N - 1'),
        (["--part=2/3"], "texts.jsonl has no text for part 2 of 3; ask for fewer parts"),
        (["--most_copied=2"], "2.0 is no share; give 1 at most, and above 0"),
        (["--words=1", "--tasks=rank"], "gave no row; pieces of 1 words need 3 sentences"),
    ):
        with pytest.raises(SystemExit):
            rows("h.jsonl", 0, *flags)
        assert message in capsys.readouterr().err
    data.write_text("")
    with pytest.raises(SystemExit):
        rows("d.jsonl", 0)
    assert "texts.jsonl" in capsys.readouterr().err
    assert not (tmp_path / "d.jsonl").exists()
