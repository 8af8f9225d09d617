"""Sheets, keys, filled answers and what they add up to."""

import csv
import io
import json
import re

import numpy as np
import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.agreement import kendall, krippendorff_alpha, pearson, spearman
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.judgements import (
    aggregate_answers,
    correlations,
    missing_judges,
    ratings_of,
    read_scores,
)
from longsum_jax.evaluation.judging import PROTOCOLS, make_key, read_key, write_key
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.evaluation.sheets import read_sheets, write_sheets

NAMES = [f"doc{number}" for number in range(30)]
PAIRS = {name: Pair(name, f"Text of {number}. </script>", "x") for number, name in enumerate(NAMES)}
SYSTEMS = {
    system: {
        name: Prediction(f'{number} {text}, "so"\n\rit is') for number, name in enumerate(NAMES)
    }
    for system, text in {
        "lead.jsonl": "first",
        "ours.jsonl": "<b>second",
        "best.jsonl": "third",
    }.items()
}


def key_of(protocol="awesome", **options):
    options = {"documents": 5, "seed": 1} | options
    return make_key(protocol, list(PAIRS.values()), SYSTEMS, **options)


@pytest.fixture(scope="module")
def key():
    return key_of()


def sheet(key, fill, judges=(0, 1, 2), delimiter=","):
    """A filled sheet: ``fill(item, question)`` for every cell."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    names = [question.name for question in key.questions]
    writer.writerow(["item", *names])
    for name, item in key.items.items():
        if item.judge in judges:
            writer.writerow([name, *(fill(item, question) for question in names)])
    return text.getvalue()


def some_answer(key):
    """Random answers, some of them left out."""
    generator = np.random.default_rng(5)
    answers = {}
    for item in key.items.values():
        for question in key.questions:
            is_left_out = item.judge == 1 and generator.random() < 0.3
            answer = int(generator.choice(question.answers))
            answers[item, question.name] = "" if is_left_out else answer

    return lambda item, question: answers[item, question]


def test_protocols_have_the_numbers_of_the_papers():
    numbers = {name: (each.documents, each.judges) for name, each in PROTOCOLS.items()}
    assert numbers == {"hepos": (100, 2), "awesome": (25, 3), "locost": (None, 1)}
    errors = [question.name for question in PROTOCOLS["hepos"].questions if question.is_binary]
    assert errors == ["hallucination", "deletion", "false_concatenation"]
    assert [question.name for question in key_of("locost").questions] == [
        "relevance",
        "consistency",
        "fluency",
        "coherence",
    ]
    assert key_of().questions[-1].answers == (1, 2, 3)  # places of three systems


def test_keys_are_samples_with_every_summary_once_before_every_judge(key):
    assert len(set(key.documents)) == 5
    expected = {
        (judge, name, system) for judge in range(3) for name in key.documents for system in SYSTEMS
    }
    assert set(key.items.values()) == expected
    assert len(key.items) == len(expected)
    shown = [
        tuple(item.system for item in key.items.values() if (item.judge, item.document) == place)
        for place in [(judge, name) for judge in range(3) for name in key.documents]
    ]
    assert len(set(shown)) > 3  # orders differ between documents and judges
    assert key_of() == key
    assert key_of(seed=2).documents != key.documents
    assert not key.items.keys() & key_of(seed=2).items.keys()
    assert len(make_key("hepos", list(PAIRS.values()) * 4, SYSTEMS).documents) == 100


def test_keys_are_read_as_they_were_written(key, tmp_path):
    write_key(tmp_path / "key.json", key)
    assert read_key(tmp_path / "key.json") == key


def test_sheets_show_texts_and_hide_names(key, tmp_path):
    pages = write_sheets(tmp_path, key, PAIRS, SYSTEMS)
    assert [page.name for page in pages] == ["judge-1.html", "judge-2.html", "judge-3.html"]
    for path in tmp_path.rglob("*.*"):
        content = path.read_text()
        assert not any(name in content for name in (*SYSTEMS, *NAMES))
    for number, name in enumerate(key.documents, 1):
        shown = (tmp_path / "documents" / f"{number:03d}.txt").read_text()
        assert shown == PAIRS[name].source + "\n"
    with (tmp_path / "judge-2.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    own = {name: item for name, item in key.items.items() if item.judge == 1}
    assert [row["item"] for row in rows] == list(own)
    for row in rows:
        item = own[row["item"]]
        assert row["summary"] == SYSTEMS[item.system][item.document].text
        assert key.documents[int(row["document"]) - 1] == item.document
        assert row["rank"] == ""
    page = pages[1].read_text()
    assert page.count("</script>") == 2  # those of the page, none of a document
    assert not re.search(r"https?://|src=|@import", page)
    data = json.loads(re.search(r'type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    found = [summary for each in data["documents"] for summary in each["summaries"]]
    assert {each["item"]: each["text"] for each in found} == {
        row["item"]: row["summary"] for row in rows
    }
    assert [each["text"] for each in data["documents"]] == [
        PAIRS[name].source for name in key.documents
    ]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_sheets_are_read_as_spreadsheets_save_them(key, tmp_path, delimiter):
    fill = some_answer(key)
    paths = []
    for judge in (2, 0):
        paths.append(tmp_path / f"{judge}.csv")
        paths[-1].write_text("\ufeff" + sheet(key, fill, (judge,), delimiter), newline="")
    answers = read_sheets(paths, key)
    assert missing_judges(key, answers) == [2]
    ratings = ratings_of(key, answers)
    assert np.isnan(ratings[:, 1]).all()
    for name, item in key.items.items():
        if item.judge != 1:
            expected = {question.name: fill(item, question.name) for question in key.questions}
            assert answers[name] == {
                each: float(value) for each, value in expected.items() if value != ""
            }


def test_unfilled_sheets_are_all_missing(key, tmp_path):
    write_sheets(tmp_path, key, PAIRS, SYSTEMS)
    answers = read_sheets([tmp_path / f"judge-{judge}.csv" for judge in (1, 2, 3)], key)
    assert len(answers) == len(key.items)
    assert not any(answers.values())
    with pytest.raises(InputError, match="no answer is given in any of the files; give filled"):
        aggregate_answers(key, answers)


def test_judgements_are_those_of_loops(key, tmp_path):
    (tmp_path / "all.csv").write_text(sheet(key, some_answer(key)))
    answers = read_sheets([tmp_path / "all.csv"], key)
    found = aggregate_answers(key, answers)
    for question in key.questions:
        missing = 0
        units = {}
        for name, item in key.items.items():
            value = answers[name].get(question.name)
            missing += value is None
            units.setdefault((item.system, item.document), {})[item.judge] = value
        judgement = found[question.name]
        assert judgement.missing == missing
        rows = [[unit[judge] for unit in units.values()] for judge in range(3)]
        alpha = krippendorff_alpha(np.array(rows, np.float64), question.scale)
        assert judgement.alpha == pytest.approx(alpha)
        for system, judged in judgement.systems.items():
            means, yes, level = [], [], 0
            for name in key.documents:
                given = [value for value in units[system, name].values() if value is not None]
                means.append(sum(given) / len(given))
                if 2 * sum(given) == len(given):
                    level += 1
                else:
                    yes.append(2 * sum(given) > len(given))
            assert judged.documents == 5
            assert judged.mean == pytest.approx(np.mean(means))
            assert judged.low <= judged.mean <= judged.high
            if question.is_binary:
                assert judged.level == level
                assert judged.majority == pytest.approx(100 * np.mean(yes))
            else:
                assert judged.majority is None
    assert sum(judgement.missing for judgement in found.values()) > 0
    assert any(judged.level for judged in found["faithful"].systems.values())


def test_a_system_that_nobody_judged_and_judges_that_all_say_yes(key, tmp_path):
    def fill(item, question):
        return "" if item.system == "ours.jsonl" else 1

    (tmp_path / "all.csv").write_text(sheet(key, fill))
    found = aggregate_answers(key, read_sheets([tmp_path / "all.csv"], key))["faithful"]
    assert found.systems["ours.jsonl"] == (0, None, None, None, None, None)
    assert found.systems["lead.jsonl"] == (5, 1, 1, 1, 100, 0)
    assert found.alpha is None
    assert found.no_alpha == "all ratings are 1; alpha needs at least two values"
    assert found.missing == 15


def test_metrics_are_correlated_with_means_of_judges(key, tmp_path):
    (tmp_path / "all.csv").write_text(sheet(key, some_answer(key)))
    answers = read_sheets([tmp_path / "all.csv"], key)
    draw = np.random.default_rng(0).random
    scores = {
        name: {system: {"rouge1": draw(), "constant": 3} for system in SYSTEMS} for name in NAMES
    }
    lines = [json.dumps({"id": name, "scores": each}) + "\n" for name, each in scores.items()]
    (tmp_path / "scores.jsonl").write_text("".join(lines))
    found = correlations(key, answers, read_scores(tmp_path / "scores.jsonl", key))
    for question in ("coherent", "rank"):
        metric, people = [], []
        for system in key.systems:
            for name in key.documents:
                given = [
                    answers[each].get(question)
                    for each, item in key.items.items()
                    if (item.system, item.document) == (system, name)
                ]
                people.append(np.mean([value for value in given if value is not None]))
                metric.append(scores[name][system]["rouge1"])
        expected = [function(metric, people) for function in (pearson, spearman, kendall)]
        assert found[question]["rouge1"] == pytest.approx((15, *expected))
        assert found[question]["constant"] == (15, None, None, None)


@pytest.mark.parametrize(
    ("pattern", "replacement", "problem"),
    [
        ("item", "row", "sheet.csv: no column item; give a filled sheet as CSV"),
        (",rank", "", "sheet.csv: no column rank; give a filled sheet as CSV"),
        ("-1-001-", "-9-001-", "is not in the key; give the key.json that was written with"),
        (r"(\w+-1-001.*)\n", r"\1\n\1\n", "is also at sheet.csv:2; give every sheet once"),
        (r"(-A,\d),\d", r"\1,7", '"7" under faithful; answer by one of 0, 1, or leave it empty'),
    ],
)
def test_sheets_that_do_not_fit_are_refused(
    key, tmp_path, monkeypatch, pattern, replacement, problem
):
    monkeypatch.chdir(tmp_path)
    text = sheet(key, lambda item, question: 1, (0,)).replace("\r\n", "\n")
    (tmp_path / "sheet.csv").write_text(re.sub(pattern, replacement, text, count=1))
    with pytest.raises(InputError) as caught:
        read_sheets(["sheet.csv"], key)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"protocol": "hepo"}, '--protocol=hepo is unknown; did you mean "hepos"'),
        ({"documents": 31}, "31 documents to judge, but there are 30; give --documents=30"),
    ],
)
def test_keys_that_cannot_be_made(options, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        key_of(**options)


@pytest.mark.parametrize("content", ["[]", "{}", "x", '{"items": {"a": {}}}'])
def test_files_that_are_no_keys(tmp_path, content):
    (tmp_path / "key.json").write_text(content)
    with pytest.raises(InputError, match=r"key\.json: not a key; give the key\.json that longsum"):
        read_key(tmp_path / "key.json")


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"id": "doc0"}, 'scores.jsonl:1: no "scores"; give the scores.jsonl of longsum score'),
        ({"id": "z", "scores": {}}, "no scores of 5 judged documents"),
    ],
)
def test_scores_that_do_not_fit(key, tmp_path, row, problem):
    (tmp_path / "scores.jsonl").write_text(json.dumps(row))
    with pytest.raises(InputError, match=re.escape(problem)):
        read_scores(tmp_path / "scores.jsonl", key)


def test_scores_of_other_systems(key, tmp_path):
    rows = [json.dumps({"id": name, "scores": {"lead.jsonl": {}}}) + "\n" for name in NAMES]
    (tmp_path / "scores.jsonl").write_text("".join(rows))
    with pytest.raises(InputError, match=r'no scores of the system "ours\.jsonl", only of lead'):
        read_scores(tmp_path / "scores.jsonl", key)


@pytest.mark.parametrize("values", [{}, {"rouge1": "x"}, {"rouge2": 1}])
def test_scores_of_other_columns(key, tmp_path, values):
    rows = {name: {system: {"rouge1": 1} for system in SYSTEMS} for name in NAMES}
    rows[key.documents[3]]["ours.jsonl"] = values
    lines = [json.dumps({"id": name, "scores": row}) + "\n" for name, row in rows.items()]
    (tmp_path / "scores.jsonl").write_text("".join(lines))
    with pytest.raises(InputError, match=r'by "ours\.jsonl" are not the same columns of numbers'):
        read_scores(tmp_path / "scores.jsonl", key)
