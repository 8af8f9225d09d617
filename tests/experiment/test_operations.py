import dataclasses
import types

import jax
import jax.numpy as jnp
import pytest
from flax.core import meta

from longsum_jax.experiment import operations
from longsum_jax.experiment.operations import (
    OperationTime,
    StepOperations,
    StepProfiler,
    operations_table,
)
from longsum_jax.models.registry import get_family
from longsum_plan.devices import GPUS
from longsum_plan.program_work import program_work

PROGRAM = """HloModule jit_step

FileNames
1 "/somewhere/longsum_jax/layers/dense.py"
2 "/site/jax/_src/numpy.py"

FileLocations
1 {file_name_id=1 function_name_id=1 line=80 end_line=80 column=4}
2 {file_name_id=2 function_name_id=1 line=7 end_line=7 column=4}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=1}

ENTRY %main (x: f32[2,2]) -> f32[2,2] {
  %x = f32[2,2]{1,0} parameter(0)
  %dot.1 = f32[2,2]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="jit(step)/transpose(jvp(T5))/encoder/wi/dot_general" stack_frame_id=2}
  ROOT %add.2 = f32[2,2]{1,0} add(%dot.1, %x), \
metadata={op_name="jit(step)/add" source_file="/a/b/c/update.py" source_line=3}
}
"""


def loop_step(x):
    """Five products of 64 x 64 matrices."""
    return jax.lax.scan(lambda y, _: (y @ y, None), x, None, length=5)[0].sum()


@pytest.fixture(scope="module")
def compiled():
    return jax.jit(loop_step).lower(jnp.ones((64, 64))).compile()


def test_products_of_a_loop_are_counted_at_the_peak_rate(compiled):
    hardware = GPUS["h100"]
    seconds = StepOperations(hardware)(compiled)
    kinds = {hardware.products[kind] for kind in ("float32", "float32, highest")}
    # XLA's own cost analysis counts the body of the loop once.
    assert any(seconds == pytest.approx(5 * 2 * 64**3 / rate) for rate in kinds)


def test_devices_without_a_peak_rate_have_no_utilization(compiled):
    assert StepOperations(None)(compiled) == 0.0
    counter = StepOperations.of_devices(keeps_texts=True)  # of CPUs
    assert counter(compiled) == 0.0
    assert counter.texts == [compiled.as_text()]


def test_an_unknown_kind_of_product_does_not_stop_a_training(compiled, capsys):
    hardware = GPUS["h100"]._replace(products={})
    assert StepOperations(hardware)(compiled) == 0.0
    assert "mfu is left out" in capsys.readouterr().err


def test_the_table_names_parts_and_source_lines():
    times = [OperationTime("dot.1", 0.006, 4), OperationTime("add.2", 0.002, 2)]
    rows = operations_table(times, [PROGRAM], steps=2).splitlines()[-2:]
    assert rows == [
        "| 3.000 | 75.0% | 2 | `dot.1` (dot_general) | encoder/wi, gradient | layers/dense.py:80 |",
        "| 1.000 | 25.0% | 1 | `add.2` (add) | other, forward | b/c/update.py:3 |",
    ]


@pytest.fixture
def profiler_calls(monkeypatch):
    """Puts fakes in place of JAX's profiler and of the table; returns the calls."""
    calls = []
    fake = types.SimpleNamespace(
        start_trace=lambda directory: calls.append("start"),
        stop_trace=lambda: calls.append("stop"),
    )
    monkeypatch.setattr(operations.jax, "profiler", fake)
    monkeypatch.setattr(operations, "_write_table", lambda *args: calls.append(args[1]))
    return calls


def test_steps_after_the_compiled_one_are_profiled(profiler_calls, tmp_path):
    with StepProfiler(tmp_path, 2, StepOperations(None)) as hook:
        for step in range(5, 10):
            hook(step, None, {})
            profiler_calls.append(step)
    assert profiler_calls == ["start", 5, 6, "stop", 2, 7, 8, 9]


@pytest.mark.parametrize(
    ("last", "expected"), [(4, []), (5, ["start", "stop"]), (6, ["start", "stop", 1])]
)
def test_a_run_may_end_during_the_profile(profiler_calls, tmp_path, last, expected):
    with StepProfiler(tmp_path, 2, StepOperations(None)) as hook:
        for step in range(5, last + 1):
            hook(step, None, {})
    assert profiler_calls == expected


def test_a_trace_has_the_time_of_every_operation(compiled, tmp_path, capsys):
    step = jax.jit(loop_step)
    counter = StepOperations(None, keeps_texts=True)
    x = jnp.ones((64, 64))
    counter(step.lower(x).compile())
    with StepProfiler(tmp_path, 2, counter) as hook:
        for number in range(1, 4):
            hook(number, None, {"loss": step(x)})
    table = (tmp_path / "operations.md").read_text(encoding="utf-8")
    assert "test_operations.py:" in table
    [row] = [line for line in table.splitlines() if "dot" in line]
    assert row.split(" | ")[2] == "5"  # runs per step
    assert "profile of 2 steps" in capsys.readouterr().err


@pytest.mark.slow
def test_products_of_a_model_agree_with_the_cost_analysis_of_the_compiler():
    """A gradient without products in loops, whose bodies XLA's analysis counts once."""
    family = get_family("bart")
    config = dataclasses.replace(
        family.presets["tiny"], vocab_size=128, encoder_layers=1, decoder_layers=1
    )
    module = family.module_class(config)
    params = meta.unbox(jax.eval_shape(family.init_params(config), jax.random.key(0)))
    ids = jax.ShapeDtypeStruct((2, 64), jnp.int32)

    def loss(params, ids):
        return (module.apply({"params": params}, ids, ids > 0, ids) ** 2).mean()

    program = jax.jit(jax.grad(loss)).lower(params, ids).compile()
    products = sum(program_work(program.as_text()).products.values())
    # The analysis also counts element-wise operations.
    total = program.cost_analysis()["flops"]
    assert 0.8 * total < products <= total


def test_a_name_cannot_control_a_terminal(tmp_path, capsys):
    operations._write_table(tmp_path / "run\x1b[2J\u202e", 1, [])
    assert capsys.readouterr().err.endswith("/run[2J: no trace was written\n")
