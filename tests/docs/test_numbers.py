"""docs/papers/numbers.md is current, and the commands on it exist."""

import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from longsum_jax.commands import COMMANDS
from longsum_jax.evaluation.published import find_published, read_published
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "papers" / "numbers.md"


@pytest.fixture
def make_numbers(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("make_numbers")


@pytest.fixture
def recipes(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    return importlib.import_module("result_pages.recipes")


def commands(recipes):
    return [
        shlex.split(command)
        for tables in recipes.RECIPES.values()
        for recipe in tables.values()
        for command in recipe.commands
    ]


def test_the_page_is_current(make_numbers, tmp_path):
    made = make_numbers.write_page(tmp_path / "numbers.md").read_text(encoding="utf-8")
    assert made == PAGE.read_text(encoding="utf-8"), "run python docs/make_numbers.py"


def test_every_score_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    for paper in read_published().values():
        for table in paper.tables.values():
            assert f"{table.number}: {table.shows}" in page
            for part in table.parts:
                for system, values in part.rows:
                    rows = re.findall(rf"^\| {re.escape(system)} \| (.*) \|$", page, re.MULTILINE)
                    rows = [row.replace(",", "").split(" | ") for row in rows]
                    shown = [[None if cell == "-" else float(cell) for cell in row] for row in rows]
                    assert any(row[: len(values)] == list(values) for row in shown), system


def test_every_recipe_is_of_a_table_and_every_table_with_numbers_has_one(recipes):
    papers = read_published()
    assert set(recipes.RECIPES) == set(papers)
    for name, paper in papers.items():
        assert set(recipes.RECIPES[name]) <= set(paper.tables)
        with_numbers = {number for number, table in paper.tables.items() if table.parts}
        assert with_numbers <= set(recipes.RECIPES[name])
    for paper, number in recipes.OURS:
        assert number in papers[paper].tables


def test_configs_of_the_commands_build(recipes):
    """All but those that start from a model, of which the same mode without it builds."""
    specs = {
        word.removeprefix("--config=")
        for command in commands(recipes)
        for word in command
        if word.startswith("--config=")
    }
    assert len(specs) > 25
    for spec in specs:
        file, colon, rest = spec.partition(":")
        retained = [part for part in rest.split(",") if not part.startswith(("model=", "data="))]
        if "lsg_classify" in file and retained[0] not in ("imdb", "json"):
            continue  # their labels are counted in the files
        if file.rpartition("/")[2] in ("factcc.py", "apes.py"):
            continue  # likewise
        run = run_config(read_config(file + colon * bool(retained) + ",".join(retained), {}))
        assert run.task.name


class NothingRunsError(Exception):
    """Raised when a command has read its flags."""


def test_flags_of_the_commands_exist(recipes, monkeypatch):
    def parse_only(parser, argv):
        _, unknown = parser.parse_known_args(argv)
        assert unknown == []
        raise NothingRunsError

    monkeypatch.setattr("argparse.ArgumentParser.parse_args", parse_only)
    result = [words for words in commands(recipes) if words[0] == "longsum"]
    assert len(result) > 30
    for _, command, *argv in result:
        assert command in COMMANDS
        with pytest.raises(NothingRunsError):
            importlib.import_module(f"longsum_jax.commands.{command}").main(argv)


def test_published_choices_and_tables_of_benchmarks_exist(recipes, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "studies"))
    tables = importlib.import_module("paper").TABLES
    for words in commands(recipes):
        for word in words:
            if word.startswith("--published="):
                assert find_published(word.removeprefix("--published="))
        if words[0] == "python" and words[1] != "-m":
            assert (ROOT / words[1]).exists()
            if words[1] == "studies/paper.py":
                assert words[2] in tables


def test_hours_are_steps_times_the_plan(make_numbers, recipes):
    plans = json.loads((ROOT / "benchmarks/results/config_plans.json").read_text())["rows"]
    milliseconds = {row["case"]: row["least_ms"] for row in plans if row["device"] == "h200"}
    # 203,037 documents in batches of 128 are 1,587 batches, 60 times.
    run = recipes.Run("locost_finetune:arxiv", ("locost", "9", "arXiv"))
    assert make_numbers.steps_of(run) == 95_220
    hours = 95_220 * milliseconds[run.case] / 3.6e6
    assert f"`{run.case}` {hours:,.1f} (95,220 steps" in PAGE.read_text(encoding="utf-8")
    assert make_numbers.steps_of(recipes.Run("hepos:arxiv")) == 20_000
    # 22,500 of 25,000 documents in batches of 32 are 704 batches, 3 times.
    [imdb] = recipes.LSG["2"].runs
    assert make_numbers.steps_of(imdb) == 2_112
    for tables in recipes.RECIPES.values():
        for recipe in tables.values():
            assert {run.case for run in recipe.runs} <= set(milliseconds)


def test_awesome_is_evaluated_on_the_test_split_of_what_it_trains_on(recipes):
    for number, mode in {"3": "govreport", "5": "qmsum", "7": "arxiv", "8": "booksum"}.items():
        words = {
            words[1]: words[2:]
            for words in map(shlex.split, recipes.AWESOME[number].commands)
            if words[0] == "longsum"
        }["evaluate"]
        task = run_config(read_config(f"configs/awesome.py:{mode}", {})).task
        assert f"--task={task.name}" in words
        assert "--split=test" in words
