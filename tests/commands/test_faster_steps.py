import itertools

import pytest

from longsum_jax.commands.faster_steps import FasterSteps
from longsum_jax.errors import InputError
from longsum_jax.experiment.config import run_config
from longsum_jax.experiment.config_files import read_config, with_changes
from longsum_plan.plan import ProgramPlan
from longsum_plan.trials import Trial, fastest

REMATS = (True, "attention", "projections", False)
SAVED = {True: 20, "attention": 30, "projections": 200, False: 400}
# Less is computed again, or what is saved takes longer to read than to compute, as on an H200.
WORK = {
    "compute": {True: 4.0, "attention": 3.5, "projections": 3.1, False: 3.0},
    "memory": {True: 4.0, "attention": 3.0, "projections": 3.2, False: 3.4},
}
FSDP = {"mesh.preset": "fsdp", "mesh.tensor": 1, "mesh.sequence": 1}
REPLICATED = FSDP | {"mesh.preset": "replicated", "mesh.batch": -1, "mesh.fsdp": 1}


def described(**values):
    return run_config(with_changes(read_config("configs/locost_c4.py", {}), values))


def plan_of(seconds, total, memory, parameters=0):
    sizes = {"parameters": parameters, "total": total}
    return ProgramPlan("train", sizes, total <= memory, None, seconds)


def attempts(plan_with, values, memory, num_devices=1, num_hosts=1, platform="gpu"):
    """All attempts from ``values``, the first."""
    start = Trial({}, "", plan_with(values))
    steps = FasterSteps(
        described(**values),
        lambda changes: plan_with(values | changes),
        start.plan,
        {},
        memory=memory,
        platform=platform,
        num_devices=num_devices,
        num_hosts=num_hosts,
    )
    return [start, *steps]


@pytest.mark.parametrize("memory", [30, 45, 60, 110, 220, 450, 1000])
@pytest.mark.parametrize("remat", REMATS)
@pytest.mark.parametrize("bound", WORK)
def test_the_search_finds_the_fastest_of_all_settings(memory, remat, bound):
    """With a model of memory and time in place of a compiler, and cheap micro-batches."""

    def planned(values):
        remat, pieces = values["model.remat"], values["training.accumulation"]
        seconds = {bound: WORK[bound][remat] + 0.001 * pieces}
        return plan_of(seconds, 10 + SAVED[remat] // pieces, memory, parameters=10)

    tried = attempts(planned, {"model.remat": remat, "training.accumulation": 32}, memory)
    assert tried[0].plan.fits
    every = itertools.product(REMATS, [2**k for k in range(9)])
    keys = "model.remat", "training.accumulation"
    candidates = [planned(dict(zip(keys, values, strict=True))) for values in every]
    least = min(x.least_seconds for x in candidates if x.fits)
    best = fastest(tried).plan
    assert best.fits
    assert best.least_seconds <= 1.01 * least
    assert len(tried) <= 9
    # no config twice
    assert len({str(sorted(trial.values.items())) for trial in tried}) == len(tried)


def test_a_slower_setting_that_does_not_fit_is_not_tried_in_smaller_pieces():
    def planned(values):
        remat, pieces = values["model.remat"], values["training.accumulation"]
        slower = {True: 3.0, "attention": 3.5}.get(remat, 2.0)
        return plan_of({"memory": slower}, 40 if remat is True else 600 // pieces, memory=90)

    tried = attempts(planned, {"model.remat": True, "training.accumulation": 4}, memory=90)
    changes = [trial.values for trial in tried[1:4]]
    assert changes == [
        {"model.remat": "attention"},
        {"model.remat": "projections"},
        {"model.remat": "projections", "training.accumulation": 8},
    ]


def test_half_as_many_micro_batches_may_be_faster_than_the_fewest():
    times = {16: 1.0, 8: 0.9, 4: 0.8, 2: 0.85, 1: 1.1}

    def planned(values):
        return plan_of({"memory": times[values["training.accumulation"]]}, total=1, memory=99)

    values = {"model.remat": False, "training.accumulation": 16}
    counts = [
        trial.values["training.accumulation"]
        for trial in attempts(planned, values, memory=99)
        if "training.accumulation" in trial.values
    ]
    assert counts == [1, 8, 4, 2]


def meshes_of(num_devices, num_hosts, **mesh):
    """The meshes that are tried, as (batch, fsdp)."""
    plan = plan_of({"memory": 1.0}, total=1, memory=100)
    values = FSDP | {"training.accumulation": 1} | mesh
    tried = attempts(lambda values: plan, values, 100, num_devices, num_hosts)[1:]
    tried = [trial.values for trial in tried if "mesh.fsdp" in trial.values]
    return [(x["mesh.batch"], x["mesh.fsdp"]) for x in tried]


def test_devices_may_share_parameters_in_smaller_groups():
    whole = {"mesh.batch": 1, "mesh.fsdp": -1}
    # rows of 16 x 16 chips, hosts of four, no groups
    assert meshes_of(256, 64, **whole) == [(16, -1), (64, -1), (-1, 1)]
    assert meshes_of(16, 2, **whole) == [(2, -1), (4, -1), (-1, 1)]
    assert meshes_of(4, 1, **whole) == [(2, -1), (-1, 1)]
    assert meshes_of(2, 1, **whole) == [(-1, 1)]
    assert meshes_of(1, 1, **whole) == []
    assert meshes_of(256, 64, **{"mesh.batch": 16, "mesh.fsdp": -1}) == [(64, -1), (-1, 1)]
    assert meshes_of(8, 1, **REPLICATED) == [(1, -1), (4, -1)]
    # Documents that are sharded may not fit otherwise.
    sequence = whole | {"mesh.preset": "fsdp+sequence", "mesh.sequence": 2}
    assert meshes_of(8, 1, **sequence) == []


def test_meshes_are_tried_with_the_setting_that_is_the_fastest_without_links():
    """With the first mesh all settings wait for links; the smallest would not be faster then."""

    def planned(values):
        remat = values["model.remat"]
        links = 3.5 if values["mesh.batch"] == 1 else 2.0
        return plan_of({"links": links, "memory": WORK["compute"][remat]}, SAVED[remat], 999)

    values = {"model.remat": True, "training.accumulation": 1, "mesh.batch": 1, "mesh.fsdp": -1}
    tried = attempts(planned, FSDP | values, memory=999, num_devices=16, num_hosts=4)
    best = fastest(tried)
    assert (best.values["model.remat"], best.values["mesh.batch"]) == (False, 4)
    assert len(tried) == 1 + 3 + 2


@pytest.mark.parametrize(
    ("platform", "bound", "expected"),
    [("tpu", "memory", [64]), ("gpu", "memory", []), ("tpu", "compute", [])],
)
def test_rows_one_by_one_on_tpus_that_wait_for_memory(platform, bound, expected):
    """Saved results are dear in large micro-batches and cheap in small ones."""

    def planned(values):
        pieces, remat = values["training.accumulation"], values["model.remat"]
        seconds = {"compute": 0.5 * WORK["compute"][remat], "memory": WORK["memory"][remat]}
        if pieces == 64:
            seconds["memory"] /= 3
        seconds[bound] += 3
        return plan_of(seconds, 1, 99)

    values = {"model.remat": True, "training.accumulation": 1, "mesh.batch": 1, "mesh.fsdp": -1}
    tried = attempts(planned, FSDP | values, 99, num_devices=4, platform=platform)
    counts = [trial.values.get("training.accumulation") for trial in tried]
    assert [count for count in dict.fromkeys(counts) if count] == expected
    if expected:
        best = fastest(tried).values
        assert (best["model.remat"], best["training.accumulation"]) == (False, 64)


def test_the_smallest_micro_batches_may_have_several_rows():
    """96 rows on four devices are divided into at most 8 micro-batches, each of 12."""
    plan = plan_of({"memory": 1.0}, 1, 99)
    values = FSDP | {"training.accumulation": 1, "mesh.batch": 1, "mesh.fsdp": -1}
    values |= {"data.batch_size": 96}
    tried = attempts(lambda values: plan, values, 99, num_devices=4, platform="tpu")
    assert "micro-batches of 12 rows" in [trial.says for trial in tried]


def test_dense_maps_may_be_computed_in_one_piece():
    plan = plan_of({"memory": 1.0}, total=1, memory=4)
    values = {"training.accumulation": 1, "model.length_chunk": 512}
    tried = attempts(lambda values: plan, values, memory=4)
    assert tried[-1].values == {"model.length_chunk": 0}


def test_a_refused_setting_does_not_end_the_search():
    def planned(values):
        if values["model.remat"] == "projections":
            raise InputError("no")
        seconds = {"compute": WORK["compute"][values["model.remat"]]}
        return plan_of(seconds, 40, 100)

    start = {"model.remat": True, "training.accumulation": 1}
    tried = attempts(planned, start, 100)
    assert [trial.refusal for trial in tried].count("no") == 1
    assert fastest(tried).values["model.remat"] is False
