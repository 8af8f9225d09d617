"""studies/soak.py: its counts, and that known lengths compile nothing."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest


@pytest.fixture(scope="module")
def soak(scripts):
    return scripts("soak")


def test_rows_say_what_a_process_holds(soak):
    held = []
    watch = soak.Watch("summaries", 45)
    batches = ([str(i)] * 2 for i in range(23))
    rows = soak.soak(lambda batch: held.append(bytearray(2**20)), batches, watch)
    assert [row["part"] for row in rows] == list(range(1, 11))
    assert sum(row["done"] for row in rows) == 2 * len(held)
    assert all(row["files"] > 2 and row["threads"] >= 1 for row in rows)
    assert all(row["resident_mib"] > 10 for row in rows)


def test_the_least_memory_of_a_tenth_counts(soak, monkeypatch):
    sizes = iter([5, 3, 4, 7, 9, 8])
    monkeypatch.setattr(soak, "resident_bytes", lambda: next(sizes) * 2**20)
    watch = soak.Watch("training", 20)
    for _ in range(6):
        watch.add(1)
    assert [row["resident_mib"] for row in watch.rows] == [3, 4, 8]


def test_growth_is_seen(soak):
    sizes, compiled = (50.0, 80.0, 100.0, 103.0), (5, 1, 0, 0)
    rows = [{"resident_mib": x, "compiled": n} for x, n in zip(sizes, compiled, strict=True)]
    assert soak.growth(rows) == pytest.approx(0.03)


def test_memory_counts_once_all_programs_are_compiled(soak):
    def place(*compiled):
        return soak.settled([{"compiled": number} for number in compiled])

    assert (place(3, 0, 0), place(3, 0, 2, 0, 0), place(0, 0), place(1, 1)) == (1, 3, 0, 1)


def test_compilations_are_counted(soak):
    before = soak.compilations()
    function = jax.jit(lambda x: 3 * x + jnp.sin(x))
    for length in (3, 3, 4, 3):
        function(np.ones(length, np.float32))
    assert soak.compilations() == before + 2


def test_long_documents_are_spread_among_short_ones(soak):
    batches = list(soak.mixed(130, 5, 20, np.random.default_rng(0)))
    lengths = [[len(text) for text in batch] for batch in batches]
    is_long = [min(batch) >= soak.LONG[0] for batch in lengths]
    assert sum(len(batch) for batch, long in zip(lengths, is_long, strict=True) if not long) == 130
    assert is_long.count(True) == 5
    runs = [len(list(group)) for long, group in itertools.groupby(is_long) if not long]
    assert max(runs) <= 2
    assert all(max(batch) <= soak.SHORT[1] for batch in lengths if len(batch) > 1)


@pytest.mark.slow
def test_lengths_that_were_read_compile_nothing(soak):
    """Documents of one padded length are decoded by the same programs."""
    model = soak.make_model("t5", 0)
    batch = next(soak.warm_up((16, 17), 1))
    compiled = []
    for _ in range(3):
        before = soak.compilations()
        model.summaries(batch, max_new_tokens=2)
        compiled.append(soak.compilations() - before)
    assert compiled[0] > 0
    assert compiled[1:] == [0, 0]
