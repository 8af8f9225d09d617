"""Data sets of SCROLLS, and values that the documentation of its scorer gives."""

import json
import re
import zipfile

import pytest

from longsum_jax.errors import InputError
from longsum_jax.evaluation.answers import answer_words
from longsum_jax.evaluation.predictions import Pair, corpus_scores, example_scores
from longsum_jax.evaluation.registry import METRICS, make_metrics
from longsum_jax.evaluation.scrolls import SCROLLS_TASKS, read_scrolls

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
    name, column, options = SCROLLS_TASKS[task]
    metrics = make_metrics([name], {name: options})
    pairs = list(read_scrolls(release()).values())
    scores = example_scores(metrics, PREDICTIONS, pairs)
    found = corpus_scores(metrics, scores, PREDICTIONS, pairs)
    assert round(found[column], 4) == PUBLISHED[task]


def test_every_task_has_a_metric_with_its_column():
    for name, column, options in SCROLLS_TASKS.values():
        assert name in METRICS
        assert column in make_metrics([name], {name: options})[name].columns


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
            'qmsum/validation.jsonl:1: no text under "output"; test sets have none; give another',
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
