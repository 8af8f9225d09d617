"""benchmarks/soak.py for two seconds."""

import itertools

import pytest


@pytest.fixture(scope="module")
def soak(scripts):
    return scripts("soak")


def test_rows_say_what_a_process_holds(soak):
    held = []
    batches = ([str(i)] * 2 for i in itertools.count())
    rows = soak.soak(lambda batch: held.append(bytearray(2**20)), batches, lambda: 3, 0.5)
    assert [row["part"] for row in rows] == list(range(1, 11))
    assert {row["programs"] for row in rows} == {3}
    assert sum(row["documents"] for row in rows) == 2 * len(held)
    assert all(row["files"] > 2 and row["threads"] >= 1 for row in rows)


def test_growth_is_seen(soak):
    rows = [{"resident_mib": size} for size in (50.0, 100.0, 100.0, 103.0)]
    assert soak.growth(rows) == pytest.approx(0.03)


@pytest.mark.slow
def test_programs_are_counted_and_bounded(soak):
    """Documents of one padded length are decoded by the same programs."""
    model = soak.make_model("t5", 0)
    counts = []
    for batch in itertools.islice(soak.warm_up(16, 1), 1):
        for _ in range(3):
            model.summaries(batch, max_new_tokens=2)
            counts.append(soak.compiled_programs(model))
    assert counts[0] == counts[1] == counts[2] > 0
    assert len(next(soak.documents(32, 3, 0))) == 3
