import json

from longsum_jax.experiment.evaluation_log import (
    EVALUATIONS,
    add_record,
    evaluation_record,
    read_records,
)
from longsum_jax.experiment.objectives.base import Evaluation
from longsum_jax.experiment.objectives.summarization import Summarization


class Objective(Summarization):
    metrics = {}  # noqa: RUF012


def test_a_run_that_goes_on_from_an_earlier_step_replaces_later_records(tmp_path):
    assert read_records(tmp_path) == []
    for step in (2, 4, 6, 4):
        add_record(tmp_path, {"step": step, "text": "a\u2028b\ud800"[:3]})
    assert [record["step"] for record in read_records(tmp_path)] == [2, 4]
    lines = (tmp_path / EVALUATIONS).read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["text"] == "a\u2028b"


def test_a_record_has_position_and_the_first_summaries():
    rows = [
        {"id": str(i), "reference": f"r{i}", "prediction": f"s{i}", "scores": {}} for i in range(5)
    ]
    position = {"epoch": 1, "position": 20, "pending": [3], "seed": 0}
    record = evaluation_record(Objective(None), Evaluation({"rouge1": 5.0}, rows), 7, position)
    assert record == {
        "step": 7,
        "epoch": 1,
        "position": 20,
        "documents": 5,
        "scores": {"rouge1": 5.0},
        "intervals": {},
        "samples": [{"id": str(i), "reference": f"r{i}", "summary": f"s{i}"} for i in range(3)],
    }
