"""Data sets of SCROLLS, and values that the documentation of its scorer gives."""

import csv
import json
import os
import re
import zipfile

import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.answers import answer_words
from longsum_jax.evaluation.comparison import Prediction
from longsum_jax.evaluation.predictions import Pair
from longsum_jax.evaluation.registry import METRICS, make_metrics
from longsum_jax.evaluation.scrolls import (
    SCROLLS_TASKS,
    SUITES,
    ZERO_SCROLLS_TASKS,
    read_all_predictions,
    read_ids,
    read_scrolls,
    score_task,
    write_submission,
)

ROWS = [
    {"id": "a", "pid": "a_0", "input": "Who?", "output": "exact match example"},
    {"id": "b", "pid": "b_0", "input": "What?", "output": "hello"},
    {"id": "c", "pid": "c_0", "input": "Where?", "output": "commander kenobi"},
    {"id": "b", "pid": "b_1", "input": "What?", "output": "hi there"},
]
PREDICTIONS = ["exact match example", "hello there", "general kenobi"]
# metrics/scrolls.py of tau/scrolls, in its examples.
PUBLISHED = {"qmsum": 55.8136, "quality": 33.3333, "qasper": 72.2222}


def lines(rows=ROWS):
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def release(tmp_path):
    """Writes a zip as it is released."""

    def write(content=None, split="validation"):
        path = tmp_path / "qmsum.zip"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"qmsum/{split}.jsonl", lines() if content is None else content)
            archive.writestr("__MACOSX/other.txt", "x")
        return path

    return write


def test_zips_directories_and_files(release, tmp_path):
    expected = {
        "a": Pair("a", "Who?", "exact match example"),
        "b": Pair("b", "What?", "hello", other_references=("hi there",)),
        "c": Pair("c", "Where?", "commander kenobi"),
    }
    assert read_scrolls(release()) == expected
    (tmp_path / "test.jsonl").write_text(lines())
    assert read_scrolls(tmp_path, "test") == read_scrolls(tmp_path / "test.jsonl") == expected


@pytest.mark.parametrize("task", PUBLISHED)
def test_scores_are_the_published_ones(release, task):
    pairs = read_scrolls(release())
    predictions = dict(zip(pairs, map(Prediction, PREDICTIONS), strict=True))
    assert round(score_task(task, predictions, pairs), 4) == PUBLISHED[task]


@pytest.mark.parametrize("suite", SUITES)
def test_every_task_has_a_metric_with_its_column(suite):
    for name, column, options in SUITES[suite].values():
        assert name in METRICS
        assert column in make_metrics([name], {name: options})[name].columns


# Answers, the right ones, and the score: of the formulas in section 3.3 of Shaham et al. (2023).
ZERO_SCROLLS = {
    # The first letter from A to D that is a word of its own.
    "quality": [
        ("The answer is (B), not C.", "(B) a cat", 100),
        ("A cat.", "(B) a cat", 0),
        ("none of them; BC, b", "(B) a cat", 0),
    ],
    # Halved for every 10 points; the example is the paper's.
    "space_digest": [
        (
            "Out of 50 reviews, 20 are positive and 30 are negative, so 40% of the reviews are "
            "positive 60% are negative.",
            "40%",
            100,
        ),
        ("50%", "40%", 50),
        ("37.5%", "40%", 100 * 2 ** (-10 * 0.025)),
        ("0%", "100%", 100 / 1024),
        ("forty percent, or 40", "40%", 0),
    ],
    # Pairs in the right order over all pairs; not a permutation: 0.
    "book_sum_sort": [
        ("Order: 2, 1,3", "2, 1, 3", 100),
        ("02, 1, 3", "2, 1, 3", 100),
        ("1" * 5000, "2, 1, 3", 0),
        ("3, 1, 2", "2, 1, 3", 0),
        ("1, 2, 3, 4", "2, 1, 3, 4", 100 * 5 / 6),
        ("4, 1, 2, 3.", "1, 2, 3, 4", 50),
        ("1, 2, 2", "2, 1, 3", 0),
        ("1, 2", "2, 1, 3", 0),
        ("1 2, 3", "2, 1, 3", 100 * 2 / 3),
        ("2, 1, 3,", "2, 1, 3", 100),
        ("2\n1\n3\n", "2, 1, 3", 100),
        ("no order", "2, 1, 3", 0),
        ("", "2, 1, 3", 0),
    ],
    "musique": [("The café in Orléans", "cafe, Orleans", 200 * 2 / 5), ("Łódź", "Lodz", 0)],
}


@pytest.mark.parametrize("task", ZERO_SCROLLS)
def test_scores_of_zero_scrolls(task):
    rows = ZERO_SCROLLS[task]
    pairs = {str(i): Pair(str(i), "x", right) for i, (_, right, _) in enumerate(rows)}
    for i, (answer, _, score) in enumerate(rows):
        pair = {str(i): pairs[str(i)]}
        given = {str(i): Prediction(answer)}
        assert score_task(task, given, pair, tasks=ZERO_SCROLLS_TASKS) == pytest.approx(score)
    given = {str(i): Prediction(answer) for i, (answer, _, _) in enumerate(rows)}
    mean = sum(score for _, _, score in rows) / len(rows)
    assert score_task(task, given, pairs, tasks=ZERO_SCROLLS_TASKS) == pytest.approx(mean)


def test_squality_takes_the_best_of_several_references_for_each_type():
    pairs = {"a": Pair("a", "x", "red cat", other_references=("cat red blue dog", "sun"))}
    given = {"a": Prediction("red cat blue dog")}
    # ROUGE-1 of the second is 100; ROUGE-2 and -L of the second are 1/3 and 3/4, of the first 1/2
    # and 2/3.
    best = 100 * (1 * 1 / 2 * 3 / 4) ** (1 / 3)
    assert score_task("squality", given, pairs, tasks=ZERO_SCROLLS_TASKS) == pytest.approx(best)


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ("quality", 'right answer "a cat" does not name A, B, C or D'),
        ("space_digest", 'right answer "a cat" has no percentage, such as 40%'),
        ("book_sum_sort", 'right answer "a cat" is not a list of numbers, such as 2, 1, 3'),
    ],
)
def test_right_answers_that_are_none(task, problem):
    pairs = {"a": Pair("a", "x", "a cat")}
    with pytest.raises(InputError, match=re.escape(problem)):
        score_task(task, {"a": Prediction("B")}, pairs, tasks=ZERO_SCROLLS_TASKS)


def test_halves_of_characters_are_replaced(release, tmp_path):
    row = {"id": "a\ud800", "input": "Who\udfff?", "output": "x\ud83d"}
    pairs = read_scrolls(release(lines([row])))
    assert pairs == {"a\ufffd": Pair("a\ufffd", "Who\ufffd?", "x\ufffd")}
    assert read_ids(release(lines([row])), "validation") == ["a\ufffd"]


def test_words_of_answers():
    assert answer_words("The  U.S. Army, an\tarmy -- a theory!") == ["us", "army", "army", "theory"]
    [metric] = make_metrics(["answers"]).values()
    scores = metric.score(
        ["The cat.", "a cat sat", "", "the"], ["cat", "cat ran", "x", "a"], [""] * 4
    )
    assert scores == [
        {"exact_match": 100, "answer_f1": 100},
        {"exact_match": 0, "answer_f1": 50},
        {"exact_match": 0, "answer_f1": 0},
        {"exact_match": 100, "answer_f1": 0},
    ]


@pytest.mark.parametrize(
    ("content", "split", "problem"),
    [
        (None, "test", "qmsum.zip: no test.jsonl inside, only qmsum/validation.jsonl; give"),
        ('{"id": "a"', "validation", "qmsum/validation.jsonl:1: not valid JSON"),
        ("3\n", "validation", "qmsum/validation.jsonl:1: not a JSON object; fetch the file"),
        (
            '{"id": "a", "input": "x", "output": null}',
            "validation",
            'qmsum/validation.jsonl:1: no text under "output", which test sets lack; give another',
        ),
        ('{"id": "a"}', "validation", ':1: no text under "input"; give another --split'),
    ],
)
def test_releases_that_do_not_fit(release, content, split, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        read_scrolls(release(content), split)


def test_files_that_are_no_releases(tmp_path):
    with pytest.raises(InputError, match=r"no\.zip: no such file; check the path"):
        read_scrolls(tmp_path / "no.zip")
    (tmp_path / "bad.zip").write_text("x")
    with pytest.raises(InputError, match=r"bad\.zip: cannot be read \(File is not a zip file\)"):
        read_scrolls(tmp_path / "bad.zip")


def test_a_damaged_name_in_a_zip_is_one_sentence(release):
    path = release(split="ü")
    path.write_bytes(path.read_bytes().replace("ü".encode(), b"\xff\xff"))
    with pytest.raises(InputError, match=r"qmsum\.zip: cannot be read \(.*invalid start byte"):
        read_scrolls(path)


@pytest.fixture
def predictions():
    texts = {"a": 'say "x", then\ny\rz', "b": "", "c": "Ж; é"}
    return {
        task: {f"{task}-{name}": Prediction(text) for name, text in texts.items()}
        for task in SCROLLS_TASKS
    }


def test_submissions_hold_every_prediction(predictions, tmp_path):
    path = tmp_path / "scrolls.csv"
    ids = {task: list(reversed(each)) for task, each in predictions.items()}
    assert write_submission(path, predictions, ids) == 21
    with path.open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["Task", "ID", "Prediction"]
    assert [tuple(row) for row in rows] == [
        (task, name, prediction.text)
        for task, each in predictions.items()
        for name, prediction in each.items()
    ]


def test_submissions_without_a_task(predictions, tmp_path):
    del predictions["qasper"]
    with pytest.raises(InputError, match="no predictions of qasper; a submission needs all tasks"):
        write_submission(tmp_path / "scrolls.csv", predictions)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        ("abcd", "qmsum: 1 ids have no prediction, qmsum-d; give predictions of all 4 examples"),
        ("ab", "qmsum: 1 ids are not of this split, qmsum-c; give predictions of all 2 examples"),
    ],
)
def test_submissions_of_other_ids(predictions, tmp_path, wanted, problem):
    ids = {"qmsum": [f"qmsum-{name}" for name in wanted]}
    with pytest.raises(InputError, match=problem):
        write_submission(tmp_path / "scrolls.csv", predictions, ids)
    assert not list(tmp_path.iterdir())


def test_predictions_that_do_not_survive_csv(predictions, tmp_path):
    predictions["qmsum"]["a"] = Prediction("x" * (csv.field_size_limit() + 1))
    with pytest.raises(
        InputError, match=r"cannot be stored as CSV \(field larger than field limit"
    ):
        write_submission(tmp_path / "scrolls.csv", predictions)


def test_ids_are_read_without_outputs(release):
    rows = [{key: row[key] for key in ("id", "pid", "input")} for row in ROWS]
    assert read_ids(release(lines(rows), "test")) == ["a", "b", "c"]
    with pytest.raises(
        InputError, match=r'test\.jsonl:1: no text under "id"; fetch the file again'
    ):
        read_ids(release(lines([{"pid": "x"}]), "test"))


def test_a_directory_has_one_file_for_each_task(tmp_path):
    for task in SCROLLS_TASKS:
        (tmp_path / f"{task}.json").write_text('{"a": "x"}')
    (tmp_path / "qmsum.json").unlink()
    with pytest.raises(InputError, match=r"no qmsum\.json or qmsum\.jsonl; give one for each task"):
        read_all_predictions(tmp_path)
    (tmp_path / "qmsum.jsonl").write_text('{"id": "b", "prediction": "y"}')
    result = read_all_predictions(tmp_path)
    assert result["qmsum"] == {"b": Prediction("y")}
    assert result["quality"] == {"a": Prediction("x")}
    (tmp_path / "qmsum.json").write_text('{"a": "x"}')
    with pytest.raises(InputError, match=r"both qmsum\.json or qmsum\.jsonl; give one"):
        read_all_predictions(tmp_path)


@pytest.mark.parametrize("target", [None, "/dev/zero"])
def test_pipes_and_devices_are_not_read(tmp_path, target):
    for name in ("a.zip", "validation.jsonl"):
        path = tmp_path / name
        os.mkfifo(path) if target is None else path.symlink_to(target)
        with pytest.raises(InputError, match="a directory, pipe or device"):
            read_scrolls(path if name == "a.zip" else tmp_path)
