"""longsum judge, from files of predictions to what people and chat models found."""

import csv
import json
import re

import pytest

from longsum_jax.commands import judge, score
from longsum_jax.errors import InputError

ROWS = [
    {
        "id": name,
        "document": f"The cat {name} sat on it.",
        "summary": f"The cat {name} sat. It sat.",
    }
    for name in "abcdef"
]
SUMMARIES = ["good.jsonl", "bad.jsonl", "--references=test.jsonl"]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Documents, a system that repeats their references and a worse one."""
    monkeypatch.chdir(tmp_path)
    texts = {"good": lambda row: row["summary"], "bad": lambda row: f"{row['id']} mat."}
    write("test.jsonl", ROWS)
    for name, text in texts.items():
        write(f"{name}.jsonl", [{"id": row["id"], "prediction": text(row)} for row in ROWS])
    return tmp_path


def write(path, rows):
    with open(path, "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def fill(path, answer):
    """Fills a sheet as a spreadsheet does: ``answer(question, row, is_good)`` for every cell.

    Items are good if any of their sentences has the word "sat".
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    good = {row["item"] for row in rows if "sat" in row["text"]}
    with open(path, "w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        for row in rows:
            empty = [name for name, cell in row.items() if cell == "" and name not in FIXED]
            writer.writerow(row | {name: answer(name, row, row["item"] in good) for name in empty})


FIXED = ("sentence", "text")


def test_figure_2_of_awesome_from_sheets_to_correlations(files, capsys):
    (files / "guide.txt").write_text("Be fair.")
    flags = ["--protocol=awesome", "--documents=4", "--prompt_file=guide.txt", "--out=people"]
    judge.main(["sheets", *SUMMARIES, *flags])
    assert capsys.readouterr().out.splitlines() == [
        "people/sheets/judge-1.html and judge-1.csv",
        "people/sheets/judge-2.html and judge-2.csv",
        "people/sheets/judge-3.html and judge-3.csv",
        "people/key.json names the systems: keep it from the judges",
    ]
    assert (files / "people/sheets/instructions.txt").read_text() == "Be fair.\n"
    sheets = [f"people/sheets/judge-{number}.csv" for number in (1, 2, 3)]
    for number, path in enumerate(sheets):

        def answer(name, row, is_good, number=number):
            if name == "rank":
                return 1 if is_good else 2
            # The second sentence of a good summary is incoherent to the first judge.
            is_first = row["sentence"] == "1"
            return int(is_good and (is_first or number > 0 or name == "faithful"))

        fill(path, answer)
    score.main(["good.jsonl", "--against=bad.jsonl", "--references=test.jsonl", "--out=scores"])
    capsys.readouterr()
    flags = ["--scores=scores/scores.jsonl", "--rounds=100", "--out=result.json"]
    judge.main(["aggregate", "people/key.json", *sheets, *flags])
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["good.jsonl", "bad.jsonl"]
    assert re.search(r"incoherent % +16\.67 \[16\.67, 16\.67\] +100\.00 \[100", out)
    assert re.search(r"incoherent, majority % +0\.0 +100\.0\n", out)
    assert re.search(r"incoherent, any judge % +50\.0 +100\.0\n", out)
    assert re.search(r"rank +1\.00 \[1\.00, 1\.00\] +2\.00 \[2\.00, 2\.00\]\n", out)
    assert "4 documents, 3 judges, 95 % intervals\n" in out
    assert "faithful: Krippendorff's alpha 1.00 over 12 units, 0 answers missing\n" in out
    assert "rank: Krippendorff's alpha 1.00 over 8 units, 0 answers missing\n" in out
    result = json.loads((files / "result.json").read_text())
    assert result["systems"]["incoherent"]["good.jsonl"]["majority"] == 0
    assert result["correlations"]["unfaithful"]["rouge1"]["pearson"] == pytest.approx(-1)
    assert result["aspects"] == {}
    judge.main(["aggregate", "people/key.json", sheets[1], "--rounds=100"])
    out = capsys.readouterr().out
    assert out.endswith("no sheet of judge 1, 3 of 3\n")
    assert "faithful: Krippendorff's alpha none (no unit has ratings of two raters" in out


def test_table_6_and_figure_5_of_hepos(files, capsys):
    judge.main(["sheets", *SUMMARIES, "--documents=4", "--aspects=pubmed", "--out=people"])
    sheets = [f"people/sheets/judge-{number}.csv" for number in (1, 2)]
    for number, path in enumerate(sheets):

        def answer(name, row, is_good, number=number):
            if name.startswith("informativeness"):
                return 5 if is_good else 2
            if name == "aspect":
                return int(row["sentence"])
            return int(name == "deletion" and (not is_good or number == 0))

        fill(path, answer)
    capsys.readouterr()
    judge.main(["aggregate", "people/key.json", *sheets, "--rounds=100", "--out=result.json"])
    out = capsys.readouterr().out
    assert re.search(r"\n +deletion % +50\.00 \[50\.00, 50\.00\] +100\.00 \[", out)
    assert re.search(r"\n +deletion, majority % +0\.0 +100\.0\n", out)
    assert re.search(r"\n +deletion, any judge % +100\.0 +100\.0\n", out)
    assert re.search(r"\n +informativeness +5\.00 \[5\.00, 5\.00\] +2\.00 \[", out)
    by_aspect = out[out.index("\nby aspect, as most judges see it\n") :]
    assert re.search(r"\n +Methods: sentences % +50\.0 +0\.0\n", by_aspect)
    assert re.search(r"\n +Introduction: with errors % +0\.0 +100\.0\n", by_aspect)
    assert re.search(r"\n +Methods: with errors % +0\.0 +-\n", by_aspect)
    assert re.search(r"\n +sentences without a majority +0 +0\n", by_aspect)
    result = json.loads((files / "result.json").read_text())
    assert result["aspects"]["Results"]["bad.jsonl"] == {
        "informativeness": 2.0,
        "sentences": 0.0,
        "errors": None,
    }
    assert result["without_aspect"] == {"good.jsonl": 0, "bad.jsonl": 0}


def test_chat_models_from_requests_to_answers(files, capsys):
    judge.main(["prompts", *SUMMARIES, "--documents=6", "--model=any", "--out=chat"])
    assert capsys.readouterr().out == "chat/requests.jsonl: 12 requests\n"
    replies = []
    for line in (files / "chat" / "requests.jsonl").read_text().splitlines():
        request = json.loads(line)
        assert request["body"]["temperature"] == 0
        is_good = "Summary: The cat" in request["body"]["messages"][0]["content"]
        text = (
            "Relevance: 5, Consistency: 5, Fluency: 5, Coherence: 5" if is_good else "Relevance: 2"
        )
        replies.append({"custom_id": request["custom_id"], "content": text})
    write("answers.jsonl", replies[1:])
    judge.main(["answers", "chat/key.json", "answers.jsonl", "--out=result.json", "--rounds=100"])
    out = capsys.readouterr().out
    assert re.search(r"relevance +5\.00 \[5\.00, 5\.00\] +2\.00 \[2\.00, 2\.00\]\n", out)
    assert re.search(r"fluency +5\.00 \[5\.00, 5\.00\] +-\n", out)
    assert "\n6 documents, 1 judge, 95 % intervals\n" in out
    result = json.loads((files / "result.json").read_text())
    unparsable = 6 - (replies[0]["content"] == "Relevance: 2")
    assert len(result["unparsable"]) == unparsable
    assert result["missing_replies"] == [replies[0]["custom_id"]]
    assert out.endswith(
        f"12 requests: 1 without a reply, {unparsable} replies that leave questions open\n"
    )


def test_a_chat_request_by_a_prompt_file(files):
    (files / "prompt.txt").write_text("{summary} of {document}?")
    flags = ["--documents=1", "--model=any", "--prompt_file=prompt.txt", "--out=chat"]
    judge.main(["prompts", *SUMMARIES, *flags])
    requests = (files / "chat" / "requests.jsonl").read_text().splitlines()
    contents = [json.loads(line)["body"]["messages"][0]["content"] for line in requests]
    assert any(
        re.fullmatch(r"The cat . sat\. It sat\. of The cat . .*\?", text) for text in contents
    )


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("sheets", *SUMMARIES, "--out=x"), "50 documents to judge, but there are 6; give --doc"),
        (("sheets", *SUMMARIES, "--out=x", "--documents=0"), "--documents=0 must be at least 1"),
        (("sheets", "./bad.jsonl", *SUMMARIES, "--out=x"), "a file is named twice; give each once"),
        (
            ("sheets", *SUMMARIES, "--documents=2", "--out=test.jsonl"),
            "test.jsonl: cannot be written",
        ),
        (
            ("prompts", *SUMMARIES, "--model=m", "--out=x"),
            "500 documents to judge, but there are 6; give --documents=6",
        ),
        (
            ("prompts", *SUMMARIES, "--model=m", "--out=x", "--prompt_file=test.jsonl"),
            "test.jsonl: no placeholder {document}; put it where the document of a request stands",
        ),
        (
            ("sheets", *SUMMARIES, "--protocol=awesome", "--aspects=pubmed", "--out=x"),
            "--aspects has no effect with --protocol=awesome; leave it out",
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


def test_out_does_not_replace_an_input(files):
    write("key.json", [])
    write("filled.csv", [])
    for command in ("aggregate", "answers"):
        for path in ("key.json", "filled.csv"):
            with pytest.raises(InputError, match=f"--out={path} is read by this command"):
                judge.main([command, "key.json", "filled.csv", f"--out={path}"])
