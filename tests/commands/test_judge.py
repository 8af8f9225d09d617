"""longsum judge, from files of predictions to what people and chat models found."""

import csv
import json
import re

import pytest

from longsum_jax.commands import judge, score
from longsum_jax.errors import InputError

ROWS = [
    {"id": name, "document": f"The cat {name} sat on a mat.", "summary": f"the cat {name} sat"}
    for name in "abcdef"
]
SUMMARIES = ["good.jsonl", "bad.jsonl", "--references=test.jsonl"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Documents, a system that repeats their references and a worse one."""
    monkeypatch.chdir(tmp_path)
    texts = {"good": lambda row: row["summary"], "bad": lambda row: f"{row['id']} mat"}
    write("test.jsonl", ROWS)
    for name, text in texts.items():
        write(f"{name}.jsonl", [{"id": row["id"], "prediction": text(row)} for row in ROWS])
    return tmp_path


def write(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def fill(path, answers):
    """Fills a sheet as a spreadsheet does; ``answers`` are those of summaries with "sat" or not."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for row in rows:
            writer.writerow(row | answers["sat" in row["summary"]])


def test_people_from_sheets_to_correlations(files, capsys):
    judge.main(["sheets", *SUMMARIES, "--protocol=hepos", "--documents=4", "--out=people"])
    assert capsys.readouterr().out.splitlines() == [
        "people/sheets/judge-1.html and judge-1.csv",
        "people/sheets/judge-2.html and judge-2.csv",
        "people/key.json names the systems: keep it from the judges",
    ]
    errors = {"hallucination": 1, "deletion": 0, "false_concatenation": ""}
    for number in (1, 2):
        answers = {
            True: errors | {"informativeness": 5, "hallucination": 0},
            False: errors | {"informativeness": number, "deletion": number - 1},
        }
        fill(f"people/sheets/judge-{number}.csv", answers)
    score.main(["good.jsonl", "--against=bad.jsonl", "--references=test.jsonl", "--out=scores"])
    capsys.readouterr()
    sheets = ["people/sheets/judge-1.csv", "people/sheets/judge-2.csv"]
    flags = ["--scores=scores/scores.jsonl", "--rounds=100", "--out=found.json"]
    judge.main(["aggregate", "people/key.json", *sheets, *flags])
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["good.jsonl", "bad.jsonl"]
    assert re.search(r"informativeness +5\.00 \[5\.00, 5\.00\] +1\.50 \[1\.50, 1\.50\]\n", out)
    assert re.search(r"hallucination, majority % +0\.0 +100\.0\n", out)
    assert re.search(r"deletion, majority % +0\.0 +- \(4 level\)\n", out)
    assert "4 documents, 2 judges, 95 % intervals\n" in out
    assert "hallucination: Krippendorff's alpha 1.00, 0 answers missing\n" in out
    assert "alpha none (no unit has ratings of two raters; alpha compares them), 16 answers" in out
    found = json.loads((files / "found.json").read_text())
    assert found["questions"]["informativeness"]["systems"]["bad.jsonl"]["mean"] == 1.5
    assert found["correlations"]["hallucination"]["rouge1"]["pearson"] == pytest.approx(-1)
    assert found["correlations"]["false_concatenation"]["rouge1"] == {
        "summaries": 0,
        "pearson": None,
        "spearman": None,
        "kendall": None,
    }
    judge.main(["aggregate", "people/key.json", sheets[1], "--rounds=100"])
    out = capsys.readouterr().out
    assert out.endswith("no sheet of judge 1 of 2\n")
    assert "hallucination: Krippendorff's alpha none (no unit has ratings of two raters" in out


def test_chat_models_from_requests_to_answers(files, capsys):
    judge.main(["prompts", *SUMMARIES, "--model=any", "--out=chat"])
    assert capsys.readouterr().out == "chat/requests.jsonl: 12 requests\n"
    replies = []
    for line in (files / "chat" / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        assert request["body"]["temperature"] == 0
        is_good = "\nthe cat" in request["body"]["messages"][0]["content"]
        text = (
            "Relevance: 5, Consistency: 5, Fluency: 5, Coherence: 5" if is_good else "Relevance: 2"
        )
        replies.append({"custom_id": request["custom_id"], "content": text})
    write("answers.jsonl", replies[1:])
    judge.main(["answers", "chat/key.json", "answers.jsonl", "--out=found.json", "--rounds=100"])
    out = capsys.readouterr().out
    assert re.search(r"relevance +5\.00 \[5\.00, 5\.00\] +2\.00 \[2\.00, 2\.00\]\n", out)
    assert re.search(r"fluency +5\.00 \[5\.00, 5\.00\] +-\n", out)
    assert "\n6 documents, 1 judge, 95 % intervals\n" in out
    found = json.loads((files / "found.json").read_text())
    unparsable = 6 - (replies[0]["content"] == "Relevance: 2")
    assert len(found["unparsable"]) == unparsable
    assert found["missing_replies"] == [replies[0]["custom_id"]]
    assert out.endswith(
        f"12 requests: 1 without a reply, {unparsable} replies that leave questions open\n"
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("sheets", *SUMMARIES, "--out=x"), "100 documents to judge, but there are 6; give --doc"),
        (("sheets", *SUMMARIES, "--out=x", "--documents=0"), "--documents=0 must be at least 1"),
        (("sheets", "./bad.jsonl", *SUMMARIES, "--out=x"), "a file is named twice; give each once"),
        (
            ("sheets", *SUMMARIES, "--documents=2", "--out=test.jsonl"),
            "test.jsonl: cannot be written",
        ),
        (
            ("prompts", *SUMMARIES, "--protocol=awesome", "--documents=2", "--model=m", "--out=x"),
            "--protocol=awesome asks for ranks, but a request shows one summary; give another",
        ),
        (("aggregate", "test.jsonl", "test.jsonl"), "test.jsonl: not a key; give the key.json"),
        (("answers", "no.json", "test.jsonl"), "no.json: no such file; check the path"),
    ],
)
def test_judge_refuses(files, flags, problem):
    before = sorted(files.rglob("*"))
    with pytest.raises(InputError) as caught:
        judge.main(list(flags))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(files.rglob("*")) == before
