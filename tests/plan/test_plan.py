import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from longsum_jax.errors import InputError
from longsum_plan import devices
from longsum_plan.compilation import compile_program
from longsum_plan.plan import (
    ProgramPlan,
    device_bytes,
    plan_program,
    refused_bytes,
    roofline,
)
from longsum_plan.printing import print_faster, print_trials
from longsum_plan.program import AbstractProgram
from longsum_plan.program_work import Traffic, Work
from longsum_plan.tables import (
    collectives_table,
    memory_table,
    milliseconds,
    parts_table,
    work_table,
)
from longsum_plan.trials import Trial, fastest, find_fit

CHIP = devices.Hardware(
    "chip",
    ("Chip",),
    1000,
    bandwidth=100.0,
    link=10.0,
    host_link=2.0,
    products={"bfloat16": 1000.0, "float32": 500.0, "float32, highest": 50.0},
)
REFUSAL = (
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.50G of 15.75G hbm. "
    "Exceeded hbm capacity by 4.75G."
)
ON_CHIP = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. "
    "Used 256.00M of 128.00M vmem. Exceeded vmem capacity by 128.00M."
)
TEMPORARIES = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries "
    "(17.13G) exceeds available HBM (15.75G)."
)


def cpu(memory=10**9, hardware=None):
    return devices.Target("cpu", jax.devices("cpu")[:1], hardware, memory)


def program(function, *shapes, parts=None, **settings):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    jitted = jax.jit(function, **settings)
    return AbstractProgram("it", lambda: jitted.lower(*arguments), parts or {})


PRODUCT = program(lambda x, w: jnp.tanh(x @ w), (64, 128), (128, 32))


def test_notes_are_entries_of_the_report():
    plan = plan_program(program(jnp.sin, (2,)), cpu())
    noted = dataclasses.replace(plan, notes={"attention": {"a": "splash"}})
    assert noted.report() == plan.report() | {"attention": {"a": "splash"}}


class Counted:
    """A lowered program that counts its compilations."""

    def __init__(self, function, *others, **settings):
        self.lowered = program(function, (2, 3), *others, **settings).lower()
        self.in_avals = self.lowered.in_avals
        self._lowering = self.lowered._lowering
        self.count = 0

    def as_text(self, **options):
        return self.lowered.as_text(**options)

    def compile(self):
        self.count += 1
        return self.lowered.compile()


def chip(version="1"):
    device = types.SimpleNamespace(
        platform="tpu",
        device_kind="Chip",
        client=types.SimpleNamespace(platform_version=version),
    )
    return devices.Target("chip", [device], CHIP, 10**9)


def test_a_program_is_compiled_once_if_there_is_a_cache(monkeypatch, tmp_path):
    lowered = Counted(jnp.sin)
    without = compile_program(lowered, chip())
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "cache"))
    first = compile_program(lowered, chip())
    assert compile_program(lowered, chip()) == first
    assert lowered.count == 2
    assert first._replace(seconds=0) == without._replace(seconds=0)
    assert first.is_used == [True]
    assert first.memory["arguments"] == 4 * 2 * 3

    other = Counted(jnp.cos)
    assert compile_program(other, chip()).text != first.text
    compile_program(lowered, chip(version="2"))
    assert (other.count, lowered.count) == (1, 3)
    compile_program(lowered, cpu())
    assert lowered.count == 4
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=b")
    compile_program(lowered, chip())
    assert lowered.count == 5


def test_programs_that_differ_in_unused_arguments_are_not_confused(monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))

    def first_sine(x, *others):
        return jnp.sin(x)

    # Lines are part of a program's text.
    used = [compile_program(Counted(first_sine, *x), chip()).is_used for x in ((), ((4,),))]
    assert used == [[True], [True, False]]


def test_programs_that_differ_in_options_of_the_compiler_are_not_confused(monkeypatch, tmp_path):
    """The text of a program before it is compiled does not contain them."""
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    for is_fast in (True, False, True):
        options = {"xla_cpu_enable_fast_math": is_fast}
        compile_program(Counted(jnp.sin, compiler_options=options), chip())
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-9], lambda content: content[:40] + b"\xff" * 40]
)
def test_a_damaged_entry_of_the_cache_is_written_again(damage, monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    lowered = Counted(jnp.sin)
    first = compile_program(lowered, chip())
    (entry,) = tmp_path.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    second = compile_program(lowered, chip())
    assert (lowered.count, second.text) == (2, first.text)
    assert compile_program(lowered, chip()) == second
    assert list(tmp_path.iterdir()) == [entry]


def test_roofline_is_work_over_peaks():
    collectives = {"all-gather": Traffic(1, 80, 60, 0), "all-reduce": Traffic(1, 50, 50, 30)}
    work = Work({"bfloat16": 2000.0, "float32, highest": 100.0}, 700.0, collectives)
    seconds = roofline(work, CHIP)
    assert seconds == {
        "compute": 2000 / 1000 + 100 / 50,
        "memory": 700 / 100,
        "links": (60 + 20) / 10 + 30 / 2,
    }
    plan = ProgramPlan("train", {"total": 1}, True, work, seconds)
    assert (plan.bound, plan.least_seconds) == ("links", 23)


def test_memory_and_work_of_a_program():
    shapes = (64, 128), (128, 32)
    parts = {"parameters": jax.ShapeDtypeStruct(shapes[1], jnp.float32)}
    plan = plan_program(program(lambda x, w: x @ w, *shapes, parts=parts), cpu(hardware=CHIP))
    arguments, results = 4 * (64 * 128 + 128 * 32), 4 * 64 * 32
    assert plan.memory["arguments"] == arguments
    assert plan.memory["results"] == results
    assert plan.memory["parameters"] == 4 * 128 * 32
    assert plan.total == arguments + results + plan.memory["temporary"] + plan.memory["code"]
    assert plan.work.operations == 2 * 64 * 128 * 32
    assert plan.seconds["compute"] == 2 * 64 * 128 * 32 / 500
    assert plan.fits
    assert plan_program(program(lambda x: x + 1, (64,)), cpu(memory=100)).fits is False
    assert plan_program(program(lambda x: x + 1, (64,)), cpu(memory=0)).fits is None


def test_arguments_that_a_result_takes_the_place_of_count_once():
    lower = jax.jit(lambda x: x + 1, donate_argnums=0).lower
    shape = jax.ShapeDtypeStruct((1000,), jnp.float32)
    plan = plan_program(AbstractProgram("it", lambda: lower(shape), {}), cpu())
    assert plan.memory["results"] == 0
    assert 4000 <= plan.total < 8000


def test_bytes_on_one_device_of_a_mesh():
    mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    cut = jax.ShapeDtypeStruct((8, 6), jnp.bfloat16, sharding=NamedSharding(mesh, P("x", "y")))
    whole = jax.ShapeDtypeStruct((8, 6), jnp.float32, sharding=NamedSharding(mesh, P()))
    assert device_bytes({"cut": cut, "whole": whole}) == 2 * 3 * 2 + 8 * 6 * 4
    assert device_bytes([jax.ShapeDtypeStruct((3,), jnp.int32)]) == 12


def test_a_program_that_the_compiler_refuses_has_the_bytes_of_its_message():
    assert refused_bytes(REFUSAL) == int(20.5 * 2**30)
    assert refused_bytes(TEMPORARIES) == int(17.13 * 2**30)
    assert refused_bytes(TEMPORARIES, 1000) == int(17.13 * 2**30) + 1000
    assert refused_bytes(REFUSAL, 1000) == int(20.5 * 2**30)
    assert refused_bytes("RESOURCE_EXHAUSTED: something else") is None
    assert refused_bytes("INVALID_ARGUMENT: Used 20.50G of 15.75G hbm") is None
    assert refused_bytes(ON_CHIP) is None  # of a kernel, whatever the device's memory

    def compile_(message):
        def fail():
            raise jax.errors.JaxRuntimeError(message)

        return AbstractProgram("train", lambda: types.SimpleNamespace(compile=fail), {})

    plan = plan_program(compile_(REFUSAL), cpu())
    assert (plan.total, plan.fits, plan.work) == (int(20.5 * 2**30), False, None)
    assert "NO" in str(memory_table([plan], cpu()))
    assert "it" not in str(work_table([plan]))
    held = jnp.ones(250)
    of_temporaries = compile_(TEMPORARIES)._replace(parts={"parameters": held}, idle=held)
    assert plan_program(of_temporaries, cpu()).total == int(17.13 * 2**30) + 2 * 1000
    with pytest.raises(jax.errors.JaxRuntimeError, match="other"):
        plan_program(compile_("INTERNAL: other"), cpu())


def planned(total, limit=100):
    return ProgramPlan("train", {"total": total}, total <= limit, None)


def test_changes_that_help_are_kept_until_the_program_fits():
    totals = {
        (): 400,
        ("remat",): 300,
        ("remat", "useless"): 299,
        ("remat", "accumulation"): 200,
        ("remat", "accumulation", "last"): 100,
    }

    def plan_with(values):
        if "refused" in values:
            raise InputError("no such mesh")
        return planned(totals[tuple(values)])

    names = ("remat", "useless", "refused", "accumulation", "last", "never tried")
    changes = [({name: 1}, name) for name in names]
    trials = list(find_fit(plan_with, planned(400), changes, tries=9))
    assert [trial.says for trial in trials] == list(names[:-1])
    assert [tuple(trial.values) for trial in trials if trial.plan] == list(totals)[1:]
    assert trials[2].refusal == "no such mesh"
    assert trials[-1].plan.fits
    assert trials[-1].flags == "--config.remat=1 --config.accumulation=1 --config.last=1"
    assert len(list(find_fit(plan_with, planned(400), changes, tries=2))) == 2


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([], 0),
        ([(0.98, 10)], 1),
        ([(0.995, 12)], 0),  # less than 1 % faster, with more memory
        ([(1.009, 8)], 1),  # less than 1 % slower, with less memory
        ([(1.011, 8)], 0),
        ([(0.995, 10)], 1),
        ([(0.5, 200)], 0),  # does not fit
        ([(1.0, 10)], 0),
        # Steps are compared with the fastest, not one after the other.
        ([(0.992, 9), (1.001, 8), (0.985, 12)], 1),
    ],
)
def test_of_programs_that_are_as_fast_the_smallest_is_the_fastest(others, expected):
    seconds_and_bytes = [(1.0, 10), *others]
    trials = [
        Trial({}, "", dataclasses.replace(planned(total), seconds={"memory": seconds}))
        for seconds, total in seconds_and_bytes
    ]
    refused = Trial({}, "", None, "no such mesh")
    assert fastest([*trials, refused]) is trials[expected]
    assert fastest([refused, Trial({}, "", planned(10))]) is None


def test_a_program_without_a_change_that_saves_memory_is_said_not_to_fit():
    lines = []
    assert list(print_trials([], "read", lines.append)) == []
    assert lines == ["read does not fit; take more devices, or devices with more memory"]


@pytest.mark.parametrize(
    ("seconds", "gain"), [(0.9, ", 10% less, with"), (0.996, ", with"), (1.005, ", with")]
)
def test_a_gain_is_printed_if_it_is_one(seconds, gain):
    """A step that is as fast within 1 % may be taken for its memory."""
    start, other = (
        Trial({"x": time}, "", ProgramPlan("train", {"total": size}, True, None, {"memory": time}))
        for time, size in ((1.0, 10**9), (seconds, 5 * 10**8))
    )
    lines = []
    assert list(print_faster([other], start, "train", lines.append)) == [other]
    assert f"in place of 1,000{gain}" in lines[-1]
    assert "0.50 GB in place of 1.00" in lines[-1]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.0123456, "12.3"), (0.9994, "999"), (0.9997, "1,000"), (1.2345, "1,234"), (0, "0")],
)
def test_times_have_three_digits_and_no_exponent(seconds, expected):
    assert milliseconds(seconds) == expected


def test_the_longest_parts_of_a_program_by_the_roofline_of_each():
    def function(x, w):
        return jnp.tanh(jax.named_call(jnp.matmul, name="map")(x, w)).sum()

    plan = plan_program(program(function, (64, 128), (128, 32)), cpu(hardware=CHIP))
    result = {part.part.module: part for part in plan.parts}
    assert result["map"].part.work.operations == plan.work.operations
    assert result["map"].seconds == roofline(result["map"].part.work, CHIP)
    times = [part.least_seconds for part in plan.parts]
    assert times == sorted(times, reverse=True)
    assert sum(part.part.work.num_bytes for part in plan.parts) == plan.work.num_bytes

    heading, *lines = str(parts_table(plan, 1)).splitlines()
    assert heading.startswith("it, longest parts")
    (line,) = lines
    longest = plan.parts[0]
    assert line.split()[:2] == [longest.part.module or "(no", longest.part.stage]
    assert f"{longest.least_seconds / sum(times):.0%}" in line
    assert parts_table(plan, 0) is None

    reported = plan.report()["parts"]
    assert [row["module"] for row in reported] == [part.part.module for part in plan.parts]
    # Without the peaks of a device, parts are in the order of the bytes that they move.
    moved = [part.part.work.num_bytes for part in plan_program(PRODUCT, cpu()).parts]
    assert moved == sorted(moved, reverse=True)
    assert "-" in str(parts_table(plan_program(PRODUCT, cpu()), 3))


def test_tables_hold_every_program():
    work = Work({"bfloat16": 3e12}, 2e9, {"all-gather": Traffic(24, 3e9, 2e9, 0)})
    memory = {"arguments": 10**9, "results": 0, "temporary": 5 * 10**8, "idle": 25 * 10**7}
    memory["total"] = sum(memory.values())
    plan = ProgramPlan("train", memory, True, work, roofline(work, devices.GPUS["h200"]), 12.3)
    lines = str(memory_table([plan], cpu(2 * 10**9))).splitlines()
    sizes = ["-", "-", "1.00", "0.00", "0.50", "0.25", "1.75", "2.00"]
    assert lines[1].split() == ["train", *sizes, "yes"]
    lines = str(work_table([plan])).splitlines()
    least = 1000 * max(3e12 / 989e12, 2e9 / 4.8e12, 2e9 / 450e9)
    assert lines[1].split() == [
        "train",
        "3",
        "2.00",
        "2.00",
        f"{least:.3g}",
        "ms",
        "links",
        "12",
        "s",
    ]
    lines = str(collectives_table([plan])).splitlines()
    assert lines[1].split() == ["train", "all-gather", "24", "3.00", "2.00"]
    assert collectives_table([planned(3)]) is None
    report = plan.report()
    assert report["memory_bytes"] == memory
    assert report["collectives"]["all-gather"]["count"] == 24
