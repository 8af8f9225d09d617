"""Metrics beside their reference implementations."""

import pytest


def test_metrics_and_tests(report):
    flags = ("--pairs=2", "--words=60", "--long=300", "--documents=20", "--rounds=50")
    found = report("metrics", *flags)
    metrics = [row for row in found["rows"] if "metric" in row]
    assert len(metrics) == 4
    for row in metrics:
        assert row["largest_difference"] < 1e-10
        assert row["peer"].split()[0] in ("rouge_score", "nltk")
    assert metrics[0]["ratio"] > 1
    tests = [row for row in found["rows"] if "test" in row]
    assert [row["test"] for row in tests] == ["randomization", "interval"]
    assert all(row["seconds"] > 0 for row in tests)


@pytest.mark.slow
def test_metrics_over_models(report):
    flags = ("--pairs=2", "--words=60", "--long=300", "--documents=20", "--rounds=50")
    found = report("metrics", *flags, "--models=tiny")
    (row,) = [row for row in found["rows"] if row.get("metric") == "BARTScore, tiny"]
    assert row["peer"].startswith("transformers")
    assert row["largest_difference"] < 1e-4
