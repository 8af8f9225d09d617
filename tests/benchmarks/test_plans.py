import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plans(scripts):
    return scripts("plans")


def test_every_mode_of_every_config_has_a_case(plans):
    cases = plans.config_cases("h200")
    assert {case.partition(":")[0] for case in cases} == {
        path.stem for path in (ROOT / "configs").glob("[a-z]*.py") if "MODES" in path.read_text()
    }
    assert not [case for case in cases if case.endswith(":tiny")]
    assert cases["locost_c4:base"] == (
        "--config=configs/locost_c4.py:base",
        "--device=h200",
        "--programs=train",
    )


def test_published_rows_are_those_of_the_cases(plans):
    result = json.loads((ROOT / "benchmarks/results/config_plans.json").read_text())["rows"]
    # Plans of a data set differ by the classes of its last map alone; one stands for all.
    others = {f"lsg_classify:{data_set}" for data_set in plans.CLASSES if data_set != "imdb"}
    # The page names these two, which have not been compiled for a GPU yet.
    others |= {"long_baselines:cached", "prefer:default"}
    assert {row["case"] for row in result} == set(plans.config_cases("h200")) - others


@pytest.mark.parametrize("data_set", ["scotus", "ecthr_a"])
def test_documents_have_the_labels_of_data_sets_that_are_not_at_hand(plans, tmp_path, data_set):
    from longsum_jax.data.labels import collect_labels
    from longsum_jax.experiment.config import run_config
    from longsum_jax.experiment.config_files import read_config

    plans.write_documents(tmp_path)
    spec = plans.config_cases("h200")[f"lsg_classify:{data_set}"][0].removeprefix("--config=")
    spec = spec.replace(f"data={data_set}", f"data={tmp_path / data_set}")
    run = run_config(read_config(str(ROOT / spec), {}))
    task = collect_labels(run.task, "train")
    assert (len(task.labels), task.multi_label) == plans.CLASSES[data_set]


def test_a_refused_plan_is_a_row(plans):
    [row] = plans.plan_rows("case", ("--config=configs/locost_c4.py", "--device=v99"))
    assert row["case"] == "case"
    assert "v99" in row["note"]
