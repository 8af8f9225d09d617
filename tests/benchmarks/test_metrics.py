"""Metrics beside their reference implementations."""

import os

import pytest

from longsum_jax.evaluation.registry import METRICS

PEERS = ("transformers", "bert_score", "summac", "blanc", "longdocfactscore")
FEW = ("--pairs=2", "--words=60", "--long=300", "--documents=20", "--rounds=50", "--summaries=5")


def test_metrics_and_tests(report):
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    result = report("metrics", *FEW)
    assert cores is None or os.sched_getaffinity(0) == cores
    metrics = [row for row in result["rows"] if "metric" in row]
    assert len(metrics) == 4
    for row in metrics:
        assert row["largest_difference"] < 1e-10
        assert row["peer"].split()[0] in ("rouge_score", "nltk")
    assert metrics[0]["ratio"] > 1
    tests = [row for row in result["rows"] if "test" in row]
    assert [row["test"] for row in tests] == ["randomization", "interval"]
    assert all(row["seconds"] > 0 for row in tests)
    [many] = [row for row in result["rows"] if "many" in row]
    assert many["summaries"] == 5
    # Every metric stands in the report: beside its package, or with its definition.
    definitions = {row["definition"] for row in result["rows"] if "definition" in row}
    assert METRICS.keys() - definitions == {
        *("rouge", "meteor", "bertscore", "bartscore", "longdocfactscore", "discoscore"),
        *("factcc", "summac", "blanc", "apes"),
    }


@pytest.mark.slow
def test_metrics_over_models(report):
    result = report("metrics", *FEW, "--models=tiny", "--model_words=30")
    rows = {row["metric"]: row for row in result["rows"] if row.get("metric", "").endswith("tiny")}
    assert rows.keys() >= {"BARTScore, tiny", "DiscoScore, tiny", "FactCC, tiny"}
    for row in rows.values():
        assert row["peer"].split()[0] in PEERS
        assert row["largest_difference"] < 1e-4
