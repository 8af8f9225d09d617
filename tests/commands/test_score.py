import json
import re

import numpy as np
import pytest

from longsum_jax.commands import judge, score
from longsum_jax.errors import InputError
from longsum_jax.evaluation.rouge import rouge
from longsum_jax.evaluation.scrolls import SCROLLS_TASKS, ZERO_SCROLLS_TASKS

ROWS = [
    {"id": name, "document": f"The cat {name} sat on a mat.", "summary": f"the cat {name} sat"}
    for name in "abcdefgh"
]
GOOD = {row["id"]: row["summary"] for row in ROWS}
BAD = {row["id"]: "a dog sat" for row in ROWS} | {"a": ""}


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes files into the working directory, which commands then name."""
    monkeypatch.chdir(tmp_path)

    def write_file(name, rows):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        return name

    return write_file


def predictions(texts):
    return [{"id": name, "prediction": text} for name, text in texts.items()]


@pytest.fixture
def files(write):
    """References, a system that repeats them and a bad one."""
    write("test.jsonl", ROWS)
    write("good.jsonl", predictions(GOOD))
    write("bad.jsonl", predictions(BAD))


def test_two_systems_are_compared(files, tmp_path, capsys):
    against = ["--against=bad.jsonl", "--metrics=rouge,novelty", "--out=scores", "--rounds=2000"]
    score.main(["good.jsonl", "--references=test.jsonl", *against])
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["good.jsonl", "bad.jsonl"]
    cells = out[1].split()
    mean = np.mean([rouge(text, GOOD[name])["rouge1"] for name, text in BAD.items()])
    assert cells[:4] == ["rouge1", "100.00", "[100.00,", "100.00]"]
    assert cells[4] == f"{mean:.2f}"
    assert cells[6].endswith("]*")
    assert out[-5:-2] == [
        "8 documents, intervals of 95 %",
        "* differs from good.jsonl at p < 0.05 (randomization, 2000 rounds, Holm over 1)",
        "bad.jsonl: 1 prediction is empty and was scored like the others",
    ]
    assert out[-2].startswith("rouge|stem:no|")
    assert "rouge.splitter=lines" in out[-1]
    result = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert result["examples"] == 8
    assert result["systems"]["bad.jsonl"]["scores"]["rouge1"] == pytest.approx(mean)
    results = result["systems"]["bad.jsonl"]["against"]["rouge1"]
    assert results["difference"] == pytest.approx(100 - mean)
    assert results["low"] < results["difference"] < results["high"]
    assert results["p_value"] == 2 / 2**8  # all 256 exchanges; only none and all are as large
    assert result["metrics"]["novelty"]["sizes"] == [1, 2, 3, 4]
    lines = (tmp_path / "scores" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == list(GOOD)
    row = json.loads(lines[1])["scores"]
    assert row["bad.jsonl"]["rouge1"] == rouge(BAD["b"], GOOD["b"])["rouge1"]


def test_references_beside_predictions(write, capsys):
    """As longsum evaluate writes them, several if there are."""
    rows = [{"id": "a", "prediction": "a cat", "reference": "x", "references": ["x", "a cat"]}]
    for name in ("one/predictions.jsonl", "two/predictions.jsonl"):
        write(name, rows)
    against = "--against=two/predictions.jsonl"
    score.main(["one/predictions.jsonl", against, "--metric_option=rouge.references=mean"])
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["one/predictions.jsonl", "two/predictions.jsonl"]
    assert out.splitlines()[1].split()[1] == "50.00"
    assert "refs:mean" in out


def test_an_empty_list_of_references(write, capsys):
    write(
        "some.jsonl", [{"id": "a", "prediction": "a cat", "references": [], "reference": "a cat"}]
    )
    score.main(["some.jsonl"])
    assert capsys.readouterr().out.splitlines()[1].split()[1] == "100.00"


def test_different_references_of_an_id_are_refused(write, capsys):
    row = {"id": "1", "prediction": "a cat", "references": ["a cat", "one cat"]}
    write("one.jsonl", [row])
    write("two.jsonl", [row | {"references": ["one cat"]}])
    write("other.jsonl", [row | {"references": ["a dog"]}])
    write("none.jsonl", [{"id": "1", "prediction": "cats"}])
    score.main(["one.jsonl", "--against=two.jsonl", "--against=none.jsonl"])
    message = r'other\.jsonl: the reference of "1" differs from the one in one\.jsonl; give predict'
    with pytest.raises(InputError, match=message):
        score.main(["one.jsonl", "--against=other.jsonl"])
    write("test.jsonl", [{"id": "1", "summary": "a cat"}])
    score.main(["one.jsonl", "--against=other.jsonl", "--references=test.jsonl"])


def test_several_references_of_a_data_set(write, capsys):
    write("test.jsonl", [{"id": "a", "summary": ["x y", "a cat"]}])
    write("some.jsonl", predictions({"a": "a cat"}))
    score.main(["some.jsonl", "--references=test.jsonl"])
    assert capsys.readouterr().out.splitlines()[1].split()[1] == "100.00"


def test_a_data_set_of_scrolls(write, tmp_path, capsys):
    rows = [
        {"id": "a", "pid": "a_0", "input": "Who?", "output": "me"},
        {"id": "a", "pid": "a_1", "input": "Who?", "output": "the cat"},
    ]
    write("qasper/validation.jsonl", rows)
    (tmp_path / "answers.json").write_text('{"a": "A cat."}')
    flags = ["--scrolls=qasper", "--references=qasper", "--out=scores"]
    score.main(["answers.json", *flags])
    out = capsys.readouterr().out.splitlines()
    assert out[2].split()[:2] == ["answer_f1", "100.00"]
    assert out[-1] == "the score of qasper is answer_f1"
    result = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert result["scrolls"] == {"task": "qasper", "column": "answer_f1"}
    score.main(["answers.json", *flags, "--metrics=answers,length"])
    assert "summary_words" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--scrolls=qaspr",), '--scrolls=qaspr is unknown; did you mean "qasper"'),
        (("--scrolls=qmsum",), "--scrolls=qmsum needs --references=qmsum.zip"),
        (
            ("--scrolls=qmsum", "--references=x", "--metrics=length"),
            "--metrics=length must name rouge with --scrolls",
        ),
        (
            ("--scrolls=qmsum", "--references=x", '--metric_option=rouge.types=["rouge1"]'),
            "--scrolls=qmsum is scored by geometric_rouge; leave out --metric_option=rouge.types",
        ),
    ],
)
def test_scrolls_refuses(write, flags, problem):
    with pytest.raises(InputError, match=problem):
        score.main(["x.json", *flags])


@pytest.fixture
def scrolls(write, tmp_path):
    """One example of every task, and a prediction of half of its words."""
    (tmp_path / "predictions").mkdir()
    for number, task in enumerate(SCROLLS_TASKS):
        row = {"id": f"{task}1", "input": "Who?", "output": "red cat blue dog"}
        (tmp_path / "releases" / task).mkdir(parents=True)
        write(f"releases/{task}/validation.jsonl", [row | {"pid": "x"}])
        text = "red cat blue dog" if number % 2 else "red cat"
        write(f"predictions/{task}.jsonl", predictions({f"{task}1": text}))


def test_all_of_scrolls_and_its_mean(scrolls, tmp_path, capsys):
    flags = ["--scrolls=all", "--references=releases"]
    score.main(["predictions", *flags, "--out=scores"])
    out = capsys.readouterr().out.splitlines()
    # Of two of four words in their order: ROUGE-1 and -L 2/3, ROUGE-2 1/2; F1 2/3; no exact match.
    rouge_half, half = 100 * (2 / 3 * 2 / 3 * 1 / 2) ** (1 / 3), 100 * 2 / 3
    expected = [rouge_half, 100, rouge_half, 100, half, 100, 0]
    assert [float(line.split()[-1]) for line in out[1:-1]] == pytest.approx(expected, abs=0.005)
    assert out[1].split()[:2] == ["gov_report", "(geometric_rouge)"]
    assert out[-1].split() == ["mean", f"{np.mean(expected):.2f}"]
    result = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert result["mean"] == pytest.approx(np.mean(expected))
    score.main(["predictions", *flags, "--submission=scrolls.csv"])
    assert capsys.readouterr().out == (
        "scrolls.csv: 7 predictions of 7 tasks, ids match validation\n"
    )
    lines = (tmp_path / "scrolls.csv").read_text().splitlines()
    assert lines[:2] == ["Task,ID,Prediction", "gov_report,gov_report1,red cat"]


def test_all_of_zero_scrolls_and_its_submission(write, tmp_path, capsys):
    right = {"quality": "(C)", "space_digest": "40%", "book_sum_sort": "2, 1, 3"}
    answers = {"quality": "B or C", "space_digest": "60%", "book_sum_sort": "1, 2, 3"}
    scores = {"quality": 0, "space_digest": 25, "book_sum_sort": 100 * 2 / 3}
    (tmp_path / "predictions").mkdir()
    for task in ZERO_SCROLLS_TASKS:
        row = {"id": "1", "pid": "1_0", "input": "Who?", "output": right.get(task, "red cat dog")}
        (tmp_path / "releases" / task).mkdir(parents=True)
        write(f"releases/{task}/validation.jsonl", [row])
        write(f"predictions/{task}.jsonl", predictions({"1": answers.get(task, "red cat dog")}))
    flags = ["--zero_scrolls=all", "--references=releases"]
    score.main(["predictions", *flags, "--out=scores"])
    lines = capsys.readouterr().out.splitlines()[1:]
    expected = [scores.get(task, 100) for task in ZERO_SCROLLS_TASKS]
    assert [float(line.split()[-1]) for line in lines[:-1]] == pytest.approx(expected, abs=0.005)
    assert lines[-1].split() == ["mean", f"{np.mean(expected):.2f}"]
    score.main(["predictions", *flags, "--submission=zero.csv"])
    assert "10 predictions of 10 tasks" in capsys.readouterr().out
    assert (tmp_path / "zero.csv").read_text().splitlines()[-1] == 'book_sum_sort,1,"1, 2, 3"'
    one = ["predictions/quality.jsonl", "--zero_scrolls=quality", "--references=releases/quality"]
    score.main(one)
    assert "the score of quality is choice_accuracy" in capsys.readouterr().out
    with pytest.raises(InputError, match="--scrolls and --zero_scrolls are two suites; give one"):
        score.main([*one, "--scrolls=quality"])


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--scrolls=all",), "--scrolls=all needs --references=DIR with TASK.zip of every task"),
        (
            ("--scrolls=all", "--references=releases", "--metrics=rouge"),
            "--metrics cannot be combined with --scrolls=all; score one task instead",
        ),
        (
            ("--scrolls=all", "--references=releases", "--stemmer"),
            "--stemmer cannot be combined with",
        ),
        (
            ("--scrolls=all", "--submission=x.csv", "--out=x"),
            "--out cannot be combined with --scrolls",
        ),
        (
            ("--scrolls=all", "--submission=x.csv", "--on_missing=skip"),
            "--on_missing=skip cannot be combined with --submission, which needs all ids",
        ),
        (
            ("--submission=x.csv",),
            "--submission=x.csv needs --scrolls=all or --zero_scrolls=all",
        ),
        (
            ("--scrolls=all", "--submission=no/x.csv"),
            "no/x.csv: cannot be written (No such file or directory); give another --submission",
        ),
        (("--scrolls=all", "--references=predictions"), "predictions: no gov_report.zip or gov_"),
    ],
)
def test_all_of_scrolls_refuses(scrolls, flags, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        score.main(["predictions", *flags])


def test_ids_that_are_not_everywhere_can_be_left_out(files, write, capsys):
    write("some.jsonl", predictions({"a": "x", "z": "y"}))
    score.main(["some.jsonl", "--references=test.jsonl", "--on_missing=skip"])
    out = capsys.readouterr().out
    assert "1 document, intervals of 95 %, 7 documents left out" in out
    assert ", 1 document without references left out\n" in out


def test_tasks_say_what_they_leave_out(scrolls, write, capsys):
    write("predictions/qmsum.jsonl", predictions({"qmsum1": "red cat", "z": "x"}))
    score.main(["predictions", "--scrolls=all", "--references=releases", "--on_missing=skip"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "qmsum, 1 document without references left out"


def test_halves_of_characters_are_shown_as_what_replaces_them(write, tmp_path, capsys):
    """JSON can hold them, UTF-8 cannot, so that they must not end what writes files."""
    texts = {"a\ud800": "the cat \udc00 sat", "b": "red \ud83d"}
    write("test.jsonl", [{"id": name, "document": "a cat", "summary": "x"} for name in texts])
    write("some.jsonl", predictions(texts))
    flags = ["--references=test.jsonl", "--out=scores", "--report=report.html"]
    score.main(["some.jsonl", *flags])
    lines = (tmp_path / "scores" / "scores.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ["a\ufffd", "b"]
    (tmp_path / "all").mkdir()
    for task in SCROLLS_TASKS:
        write(f"all/{task}.jsonl", predictions(texts))
    score.main(["all", "--scrolls=all", "--submission=scrolls.csv"])
    assert "gov_report,b,red \ufffd" in (tmp_path / "scrolls.csv").read_text().splitlines()
    both = ["some.jsonl", "--references=test.jsonl", "--documents=2"]
    judge.main(["sheets", *both, "--out=people"])
    judge.main(["prompts", *both, "--model=x", "--out=chat"])
    assert "the cat \ufffd sat" in (tmp_path / "people/sheets/judge-1.csv").read_text()
    assert "the cat \ufffd sat" in (tmp_path / "chat/requests.jsonl").read_text()


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (
            ("good.jsonl", "--report=x.html"),
            "--report=x.html needs the documents; give --references=FILE",
        ),
        (
            ("good.jsonl", "--references=test.jsonl", "--report=no/x.html", "--rounds=10"),
            "--report=no/x.html: directory no does not exist; create it first",
        ),
        (("good.jsonl",), 'the prediction of "a" has no "reference"; give --references'),
        (
            ("good.jsonl", "--metrics=rouge,novelty"),
            "--metrics=novelty needs the documents; give --references=FILE",
        ),
        (
            ("good.jsonl", "--references=test.jsonl", "--against=./good.jsonl"),
            "--against=./good.jsonl names a file twice; give each once",
        ),
        (
            ("good.jsonl", "--references=test.jsonl", "--prediction_key=summary"),
            'no text under "summary", only id, prediction; write rows',
        ),
        (("few.jsonl", "--references=test.jsonl"), "few.jsonl: 7 of 8 ids have no predictions"),
    ],
)
def test_score_refuses(files, write, flags, problem):
    write("few.jsonl", predictions({"a": "x"}))
    with pytest.raises(InputError) as caught:
        score.main(list(flags))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_rows_of_papers_below_the_scores(files, tmp_path, capsys):
    types = '--metric_option=rouge.types=["rouge1","rouge2","rougeLsum"]'
    flags = ["--references=test.jsonl", "--rounds=50", types, "--out=scores"]
    flags += ["--report=report.html"]
    score.main(["bad.jsonl", *flags, "--published=lsg:arxiv", "--published=awesome:table9"])
    first, four, *others, lsg, awesome = capsys.readouterr().out.split("\n\n")
    value = first.splitlines()[1].split()[1]
    lines = four.splitlines()
    assert lines[0] == "lsg, table 4: arxiv, test"
    assert lines[1].split() == ["rouge1", "rouge2", "rougeL", "rougeLsum"]
    assert lines[2].split()[:2] == ["bad.jsonl", value]
    assert lines[2].split()[3] == "-"
    assert lines[3].split() == ["PEGASUS", "(1K)", "44.70", "17.27", "25.80", "-"]
    assert lines[-1] == "not scored here: rougeL; see --metrics and --metric_option"
    heads = [other.splitlines()[0] for other in others]
    assert heads[0] == "lsg, table 11: arxiv, test"
    names = ("qmsum", "arxiv", "booksum_fullbooks")
    assert heads[1:] == [f"awesome, table 9: {name}, test" for name in names]
    absent = "not scored here: entity_graph; see --metrics and --metric_option"
    assert {other.split("\n", 1)[1] for other in others[1:]} == {absent}
    remedy = "lsg: stemming differs from the paper; give --stemmer for the same ROUGE"
    assert lsg.splitlines()[1:] == [remedy]
    assert awesome.startswith("awesome: ")
    assert "stemming differs" not in awesome  # the paper does not state it
    result = json.loads((tmp_path / "scores" / "scores.json").read_text())
    assert len(result["published"]) == 5
    block = result["published"][0]
    assert block["systems"]["LED (4K)"] == {"rouge1": 44.4, "rouge2": 17.94, "rougeLsum": 39.76}
    assert (block["paper"], block["table"], block["dataset"]) == ("lsg", "4", "arxiv")
    assert 'id="published"' in (tmp_path / "report.html").read_text()


def test_a_file_with_the_name_of_a_published_system(files, tmp_path, capsys):
    (tmp_path / "bad.jsonl").rename(tmp_path / "LED (4K)")
    flags = ["--references=test.jsonl", "--rounds=50", "--published=lsg:arxiv"]
    score.main(["LED (4K)", *flags])
    first, four, *_ = capsys.readouterr().out.split("\n\n")
    values = [line.split("LED (4K)")[1].split() for line in four.splitlines() if "LED (4K)" in line]
    assert values[0][0] == first.splitlines()[1].split()[1]
    assert values[1][:2] == ["(lsg)", "44.40"]


def test_plain_rouge_l_is_compared_with_plain_rouge_l(files, capsys):
    types = '--metric_option=rouge.types=["rouge1","rougeL","rougeLsum"]'
    flags = ["--references=test.jsonl", "--rounds=50", types, "--stemmer"]
    score.main(["bad.jsonl", *flags, "--published=lsg:multinews"])
    first, news, remarks = capsys.readouterr().out.split("\n\n")
    row = next(line for line in first.splitlines() if line.split()[:1] == ["rougeL"])
    assert news.splitlines()[1].split() == ["rouge1", "rouge2", "rougeL"]
    assert news.splitlines()[2].split()[3] == row.split()[1]
    assert "LSG-BART (4K)      47.10      18.94      25.22" in news
    assert remarks.startswith("lsg: stemmed")
    assert "stemming differs" not in remarks
    assert "not scored here: rouge2;" in news


def test_unknown_rows_of_papers_are_refused_before_anything_is_read(capsys):
    with pytest.raises(InputError, match=r'--published=lsg:arxv: "arxv" is unknown .* "arxiv"'):
        score.main(["absent.jsonl", "--published=lsg:arxv"])


@pytest.mark.parametrize("name", ["scores.json", "scores.jsonl"])
@pytest.mark.parametrize("flag", ["FILE", "--against", "--references"])
def test_out_does_not_replace_an_input(files, write, tmp_path, name, flag):
    rows = ROWS if flag == "--references" else predictions(GOOD)
    path = write(f"results/{name}", rows)
    before = (tmp_path / path).read_text()
    inputs = {"FILE": "good.jsonl", "--against": "bad.jsonl", "--references": "test.jsonl"}
    inputs[flag] = path
    first, *others = inputs.values()
    flags = [f"--against={others[0]}", f"--references={others[1]}", "--out=results"]
    with pytest.raises(
        InputError, match=f"--out=results/{name} is read by this command; give another --out"
    ):
        score.main([first, *flags])
    assert (tmp_path / path).read_text() == before


def test_an_unusable_out_is_refused_before_scoring(files, tmp_path, monkeypatch, capsys):
    flags = ["good.jsonl", "--references=test.jsonl"]
    with pytest.raises(InputError, match=r"good.jsonl: cannot be used .*; give another --out"):
        score.main([*flags, "--out=good.jsonl"])
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(InputError, match="scores: cannot be written; give another --out"):
        score.main([*flags, "--out=scores"])
    assert "scoring" not in capsys.readouterr().err
