"""The benchmark of strategies on two small data sets."""

import json

import numpy as np
import pytest

from longsum_jax.summarization.registry import STRATEGIES


def test_a_small_run(report, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        text = " ".join(f"In {name} the item{i} costs {i} coins." for i in range(40))
        rows = [{"document": "Too short.", "summary": "a"}, {"document": text, "summary": text}]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (tmp_path / name / "test.jsonl").write_text(lines)
    flags = ("--input=100", "--written=20", "--length=30", "--sets", "one", "two")
    result = report("strategies", f"--data={tmp_path}", *flags)["rows"]
    assert len(result) == 3 * 2 * (len(STRATEGIES) - 1)
    for row in result:
        assert 0 < row["words"] <= 30
        assert row["read"] == (
            1
            if row["strategy"] in ("segments", "hierarchical", "refine")
            else pytest.approx(100 / 280, abs=0.08)
        )
    for mean in result[-2 * (len(STRATEGIES) - 1) :]:
        alike = [
            row
            for row in result[: -2 * (len(STRATEGIES) - 1)]
            if (row["writer"], row["strategy"]) == (mean["writer"], mean["strategy"])
        ]
        assert mean["rouge"] == pytest.approx(np.mean([row["rouge"] for row in alike]), abs=0.01)
