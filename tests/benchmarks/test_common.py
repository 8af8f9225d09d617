"""Timing, compiled programs, reports."""

import argparse
import json
import sys

import jax.numpy as jnp
import pytest

from longsum_jax.ops.platform import target_platform
from longsum_plan.devices import find_target


def test_calls_take_turns_after_a_warm_up(scripts):
    order, fastest = [], scripts("common").fastest
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    taken = fastest(calls, 2)
    assert order == ["a", "b"] * 3
    assert all(0 <= seconds.wall < 1 for seconds in taken.values())
    order.clear()
    fastest(calls, 1, warm_ups=0, in_a_row=2)
    assert order == ["a", "a", "b", "b"]


def test_the_median_counts_if_it_is_asked_for(scripts, monkeypatch):
    common = scripts("common")
    parser = argparse.ArgumentParser()
    common.add_median_flag(parser)
    for flags, expected in (([], 1.0), (["--median"], 3.0)):
        seconds = iter([8.0, 1.0, 3.0])
        monkeypatch.setattr(common, "timed", lambda call, s=seconds: common.Seconds(next(s), 0.0))
        options = {"warm_ups": 0, "statistic": parser.parse_args(flags).statistic}
        assert common.fastest({"a": None}, 3, **options)["a"].wall == expected


def test_a_slow_call_has_fewer_turns(scripts, monkeypatch):
    common = scripts("common")
    calls, seconds = {"slow": 0, "quick": 0}, {"slow": 5.0, "quick": 0.1}

    def count(name):
        calls[name] += 1
        return common.Seconds(seconds[name] / calls[name], 0.0)

    monkeypatch.setattr(common, "timed", lambda call: call())
    taken = common.fastest(
        {name: lambda name=name: count(name) for name in calls}, 3, warm_ups=0, enough=4.0
    )
    assert calls == {"slow": 1, "quick": 3}
    assert taken["slow"].wall == 5.0
    assert taken["quick"].wall == pytest.approx(0.1 / 3)


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_programs_for_a_device_that_is_not_there_are_traced_for_it(scripts):
    platforms = []

    def function(x):
        platforms.append(target_platform())
        return x + 1

    scripts("common").compiled(function, jnp.ones(8), device=find_target("v5e").devices[0])
    assert platforms == ["tpu"]


def test_a_program_tells_its_memory(scripts):
    x = jnp.ones((256, 256), jnp.float32)
    program = scripts("common").compiled(lambda a, b: (a @ b) @ a, x, x)
    assert program().shape == x.shape
    assert program.work_bytes >= x.nbytes
    assert program.held_bytes == program.work_bytes + 3 * x.nbytes


def test_the_command_of_a_report_has_no_folders_of_this_machine(scripts, monkeypatch, tmp_path):
    monkeypatch.setattr(
        sys, "argv", ["/somewhere/benchmarks/x.py", "--data=/mine/a.jsonl", "/b", "--out=results/c"]
    )
    scripts("common").write_report(tmp_path / "out.json", [{"n": 1}], extra=2)
    report = json.loads((tmp_path / "out.json").read_text())
    assert report["command"] == "python benchmarks/x.py --data=a.jsonl b --out=results/c"
    assert report["rows"] == [{"n": 1}]
    assert report["extra"] == 2
    assert report["machine"]["packages"]["numpy"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_report_is_replaced_as_a_whole(scripts, monkeypatch, tmp_path):
    """A process that ends while it writes leaves the report before."""
    common, out = scripts("common"), tmp_path / "out.json"
    common.write_report(out, [{"n": 1}])
    before = out.read_text()
    write = type(out).write_text

    def half(path, text):
        write(path, text[: len(text) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr(type(out), "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        common.write_report(out, [{"n": 2}])
    assert out.read_text() == before


def test_a_report_names_the_instruction_sets_that_speed_depends_on(scripts, monkeypatch):
    common = scripts("common")
    fields = {"model name": "Some CPU", "flags": "fpu avx2 smep avx512f amx_bf16 sse4_2 fma"}
    monkeypatch.setattr(common, "_cpu_field", lambda *names: fields[names[0]])
    machine = common.describe_machine()
    assert machine["cpu"] == "Some CPU"
    assert machine["instruction_sets"] == ["amx_bf16", "avx2", "avx512f", "fma"]
