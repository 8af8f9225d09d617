"""Attention over sharded sequences equals that over whole ones, and moves no more than it must."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # a worker that compiles every attention for 8 devices

WORKER = Path(__file__).with_name("sharding_worker.py")

# Collectives of values and gradients: keys and values come from both sides, their gradients go
# back, masks only come.
HALO = {"collective-permute": 10}
WANTED = {
    "window": HALO,
    "wide window": {"collective-permute": 20},  # the shards next door are too short
    "pattern": HALO,
    "transient_global": HALO,
    "longformer": HALO,
    "block_staggered": {
        "collective-permute": 14
    },  # queries, too, whose blocks may cross the border
    "lsg norm": {
        "collective-permute": 30
    },  # a window, and sparse keys on either side from two shards each
    "linear": {},
    "performer": {},
    "cross": {},
    "cross by states": {},
    "cross by strided states": {},
    "block_sums": {},
    "block_sums of blocks in two shards": {},
    "gather": {},
}


WEEKLY = {"lsg bos_pooling": {"collective-permute": 20}, "efficient": {}}


@pytest.fixture(scope="module")
def report(run_worker):
    """What the worker found on 8 virtual devices."""
    return run_worker(WORKER)


def test_halos_are_the_neighbours_of_the_whole_sequence(report):
    assert set(report["halo_exchange"].values()) == {0.0}


BIASED = ("biased mosaic", "biased triton")


@pytest.mark.parametrize("name", [*WANTED, "uneven window", "pieces", "fused", *BIASED])
def test_values_and_gradients_are_those_of_the_whole_sequence(report, name):
    assert report[name]["difference"] < 1e-5


def test_kernels_of_rows_and_heads_exchange_nothing(report):
    assert report["fused"]["moved"] == {}
    for name in BIASED:
        assert set(report[name]["moved"]) == {"all-reduce"}  # the bias's gradient, over rows


def check_fused_windows(found):
    for name, case in found.items():
        assert case["difference"] < 1e-5, name
        if name != "uneven window":  # its last shards are cut, which gathers them
            assert set(case["moved"]) <= {"collective-permute", "all-reduce"}, name


def test_kernels_compute_windows_of_shards(report):
    """Halos come from the neighbours; nothing is gathered."""
    assert len(report["fused windows"]) == 3
    check_fused_windows(report["fused windows"])


def test_every_shard_drops_other_weights(report):
    assert report["dropout"]["different"] == 8
    assert abs(report["dropout"]["mean"] - 1) < 0.1


def collectives(case):
    """But for sums of few rows: globals, their queries, results that all devices have."""
    return {name: count for name, count in case["moved"].items() if name != "all-reduce"}


@pytest.mark.parametrize("name", WANTED)
def test_neighbours_are_exchanged_and_nothing_is_gathered(report, name):
    assert collectives(report[name]) == WANTED[name]


@pytest.mark.weekly
def test_further_attentions(run_worker):
    report = run_worker(WORKER, "weekly")
    windows = report.pop("fused windows")
    assert len(windows) == 4
    check_fused_windows(windows)
    assert {name: collectives(case) for name, case in report.items()} == WEEKLY
    assert all(case["difference"] < 1e-5 for case in report.values())
