"""Batches that are split over devices give what one device gives."""

from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("devices_worker.py")


@pytest.mark.slow
def test_rows_are_split_and_summaries_stay(small_model, run_worker):
    report = run_worker(WORKER, small_model)
    assert (report["devices"], report["shard"][0]) == (4, 1)
    assert (report["rows"], report["rows without"]) == ([4, 4, 8], [1, 5])
    assert report["difference"] < 1e-5
    assert len(report["parallel"]) == 6
    assert report["parallel"] == report["alone"]
