"""The state-space operation: kernel generation beside the materialised form, memory, error and
time; its backends.

    python benchmarks/ssm.py --out=ssm.json
    python benchmarks/ssm.py --tables=backends --repeats=2 --out=ssm_backends.json
    python benchmarks/ssm.py --tables=gradients --out=ssm_gradients.json
    python benchmarks/ssm.py --tables=gpus --out=ssm_gpus.json
    python benchmarks/ssm.py --tables=tpus --out=ssm_tpus.json
    python benchmarks/ssm.py --tables=costs --out=ssm_costs.json

Sizes are those of the base model (H = 768 channels, M = 256 modes, B = 1, float32) except where a
row says otherwise: the materialised kernel would not fit at full width, so both of its forms are
timed at half of it. The table of ``ops.ssm.backends.choose_backend`` comes from the rows of
"backends"; channels do not affect one another, so these have few, unless --size names a model,
whose channels a GPU needs to be busy. They are of bfloat16, on a CPU of float32; started again with
the same --out, the script adds missing rows. ``cpu_seconds`` is the processor time of all threads,
which other work on the machine affects less. "gradients" compiles for a TPU v5e, "tpus" for three
TPUs and "gpus" for two GPUs, forward and backward together; they run nothing, and need the extras
`plan-tpu` and `plan-cuda`. "costs" compiles nothing, either: it counts a forward pass of the
published model (M = 256) in bfloat16 by hand, as docs/design/ssm.md derives it.
"""

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from common import Statistic, add_median_flag, print_table, rows_before, write_report
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh
from models import SIZES

from longsum_jax.ops.ssm import backends, chunked, convolution, matmul
from longsum_jax.ops.ssm.convolution import ssm_convolution
from longsum_jax.ops.ssm.kernel import DiagonalSSM, Modes, ssm_kernel, ssm_kernel_direct
from longsum_plan.devices import GPUS, TPUS, find_target, set_environment
from longsum_plan.plan import plan_program, roofline
from longsum_plan.program import AbstractProgram
from longsum_plan.program_work import Work

CHANNELS, MODES = 768, 256
KERNEL_CHANNELS, KERNEL_LENGTH = 384, 4096
MEMORY_LENGTHS = (4096, 65_536, 262_144, 2**20)
ERROR_LENGTHS = (4096, 65_536)
TIME_LENGTHS = (4096, 16_384)
BACKEND_CHANNELS, BACKEND_BATCHES, BACKEND_LENGTHS = 96, (1, 8), tuple(4**n for n in range(4, 10))
GRADIENT_DEVICE, GRADIENT_LENGTH = "v5e", 4096
# Devices of "gpus", and batch and length of inputs.
GPU_NAMES, GPU_INPUTS = ("h200", "a100-80"), ((32, 4096), (8, 16_384), (2, 65_536), (1, 2**20))
# Devices of "tpus", and batch and length of inputs. Errors are of a shorter input, which has four
# chunks: interpreted kernels take long.
TPU_NAMES, TPU_ERROR_LENGTH = ("v5e", "v5p", "v6e"), 2048
TPU_INPUTS = ((1, 4096), (8, 4096), (2, 65_536), (1, 2**20))
# Devices and backends of "costs".
COSTS = (("v5e", "matmul"), ("v5e", "fused"), ("h200", "fft"), ("h200", "matmul"))
COST_INPUTS = ((1, 4096), *GPU_INPUTS)
BACKEND_TOKENS = 2**19  # batch times length, at most
BACKENDS = ("fft", "matmul", "fused")
GIB = 2**30

Row = dict[str, Any]


def random_ssm(channels: int, decay: float = 0.5) -> DiagonalSSM:
    """Channels as at the start of training, both directions; ``decay`` is -A_real."""
    rng = np.random.default_rng(0)
    shape = (1, channels, MODES)
    return DiagonalSSM(
        jnp.asarray(rng.uniform(np.log(1e-3), np.log(1e-1), shape[:2]), jnp.float32),
        jnp.full(shape, -decay, jnp.float32),
        jnp.broadcast_to(jnp.float32(np.pi) * jnp.arange(MODES), shape),
        jnp.broadcast_to(jnp.array([1.0, 0.0], jnp.float32), (*shape, 2)),
        jnp.asarray(rng.normal(size=(2, channels, MODES, 2)) * 0.5**0.5, jnp.float32),
    )


def seconds(
    fn: Callable,
    *args: Any,
    repeats: int,
    statistic: Statistic = min,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The fastest of ``repeats`` calls, or another statistic, after one that is not counted."""
    times = []
    for _ in range(repeats + 1):
        start = clock()
        jax.block_until_ready(fn(*args))
        times.append(clock() - start)
    return statistic(times[1:])


def convolution_gradient(u: jax.Array, ssm: DiagonalSSM, D: jax.Array, **options: Any) -> Any:
    """Forward and backward, with respect to input and parameters."""
    y, pull_back = jax.vjp(partial(ssm_convolution, **options), u, ssm, D)
    return pull_back(y)


def kernel_rows(timing: Row) -> Iterator[Row]:
    ssm = random_ssm(KERNEL_CHANNELS)
    where = {"table": "kernel", "channels": KERNEL_CHANNELS, "length": KERNEL_LENGTH}
    fast, slow = (
        seconds(jax.jit(lambda ssm, form=form: form(ssm, KERNEL_LENGTH)), ssm, **timing)
        for form in (ssm_kernel, ssm_kernel_direct)
    )
    yield {**where, "what": "two-level", "seconds": fast}
    yield {**where, "what": "materialized", "seconds": slow, "ratio": slow / fast}


def memory_rows() -> Iterator[Row]:
    ssm = jax.eval_shape(lambda: random_ssm(CHANNELS))
    D = jax.ShapeDtypeStruct((CHANNELS,), jnp.float32)
    for length in MEMORY_LENGTHS:
        u = jax.ShapeDtypeStruct((1, length, CHANNELS), jnp.float32)
        for what, fn in (("forward", ssm_convolution), ("forward+backward", convolution_gradient)):
            memory = jax.jit(fn).lower(u, ssm, D).compile().memory_analysis()
            yield {
                "table": "memory",
                "what": what,
                "channels": CHANNELS,
                "length": length,
                "temp_gib": memory.temp_size_in_bytes / GIB,
            }


def error_rows(channels: int = 4) -> Iterator[Row]:
    """Relative L2 distance of float32 kernels from float64 ones, with usual and with slowly
    decaying modes."""
    for decay in (0.5, 0.02):
        ssm = random_ssm(channels, decay)
        exact = kernel_float64(ssm, max(ERROR_LENGTHS))
        for length in ERROR_LENGTHS:
            kernel = np.asarray(ssm_kernel(ssm, length), np.float64)
            error = np.linalg.norm(kernel - exact[..., :length]) / np.linalg.norm(
                exact[..., :length]
            )
            row = {
                "table": "error",
                "what": f"A_real = -{decay}",
                "channels": channels,
                "length": length,
            }
            yield {**row, "relative_l2": error}


def kernel_float64(ssm: DiagonalSSM, length: int) -> np.ndarray:
    """[2, H, L] by the defining sum, in float64 from exp(log_dt) on."""
    log_dt, A_real, A_imag, B, C = (np.asarray(x, np.float64) for x in ssm)
    A = A_real[0] + 1j * A_imag[0]
    dt_A = np.exp(log_dt[0])[:, None] * A
    coefficient = (B[..., 0] + 1j * B[..., 1]) * (C[..., 0] + 1j * C[..., 1]) * np.expm1(dt_A) / A
    chunks = np.split(np.arange(length), range(1024, length, 1024))
    powers = (np.exp(dt_A[..., None] * lags) for lags in chunks)
    return np.concatenate(
        [2 * np.einsum("chm,hml->chl", coefficient, power).real for power in powers], -1
    )


def time_rows(timing: Row) -> Iterator[Row]:
    ssm, D = random_ssm(CHANNELS), jnp.ones(CHANNELS)
    for length in TIME_LENGTHS:
        u = jax.random.normal(jax.random.key(0), (1, length, CHANNELS))
        for what, fn in (("forward", ssm_convolution), ("forward+backward", convolution_gradient)):
            taken = seconds(jax.jit(fn), u, ssm, D, **timing)
            yield {
                "table": "time",
                "what": what,
                "channels": CHANNELS,
                "length": length,
                "seconds": taken,
            }


def backend_rows(timing: Row, channels: int, before: Sequence[Row]) -> Iterator[Row]:
    """Yields the times of all backends; ``ratio`` is the time of "fft" divided by "matmul".

    Args:
        timing: options of ``seconds``.
        channels: channels of the inputs.
        before: rows that are not made again.
    """
    ssm, D = random_ssm(channels), jnp.ones(channels)
    platform = jax.default_backend()
    dtype = "float32" if platform == "cpu" else "bfloat16"
    settings = {"platform": platform, "dtype": dtype, "channels": channels}
    same = [row for row in before if settings.items() <= row.items()]
    done = {(row["batch"], row["length"], row["what"]) for row in same}
    clock, unit = (
        (time.process_time, "cpu_seconds") if platform == "cpu" else (time.perf_counter, "seconds")
    )
    for batch, length in itertools.product(BACKEND_BATCHES, BACKEND_LENGTHS):
        if batch * length > BACKEND_TOKENS:
            continue
        u = jax.random.normal(jax.random.key(0), (batch, length, channels), dtype)
        for what, fn in (("forward", ssm_convolution), ("forward+backward", convolution_gradient)):
            if (batch, length, what) in done:
                continue
            row = {"table": "backends", "what": what} | settings
            row |= {"batch": batch, "length": length}
            for backend in BACKENDS:
                if backend == "fused" and not backends.can_fuse(batch, length, dtype):
                    continue
                compiled = jax.jit(partial(fn, backend=backend))
                row[f"{backend}_{unit}"] = seconds(compiled, u, ssm, D, **timing, clock=clock)
            yield row | {"ratio": row[f"fft_{unit}"] / row[f"matmul_{unit}"]}


# Form of a gradient to what it replaces in the library.
GRADIENTS: dict[str, tuple[tuple[Any, str, Any], ...]] = {
    "as now": (),
    "derived by JAX, blocks of the forward pass": (
        (backends, "_GRADIENT_BLOCKS", {}),
        (matmul, "_from_other_chunks", matmul._from_other_chunks.fun),
    ),
}


def gradient_rows() -> Iterator[Row]:
    """Traffic and roofline times of the gradient by products in several forms, in bfloat16."""
    for form, replacements in GRADIENTS.items():
        with contextlib.ExitStack() as stack:
            for replaced in replacements:
                stack.enter_context(mock.patch.object(*replaced))
            row = planned_gradient(GRADIENT_DEVICE, 1, GRADIENT_LENGTH, "matmul")
        yield row | {"what": form, "table": "gradients"}


def gpu_rows() -> Iterator[Row]:
    """Traffic and roofline times of the backends on GPUs, in bfloat16."""
    compile_for(GPU_NAMES[0])  # before the first computation
    yield from error_rows_of(("fft", "fused"), "gpu errors", backends.LONGEST_FUSED)
    for device in GPU_NAMES:
        compile_for(device)
        for (batch, length), backend in itertools.product(GPU_INPUTS, BACKENDS):
            if backend != "fused" or (device == "h200" and length <= backends.LONGEST_FUSED):
                row = planned_gradient(device, batch, length, backend)
                yield {"batch": batch, "backend": backend} | row | {"table": "gpus"}


def tpu_rows() -> Iterator[Row]:
    """Traffic and roofline times of the backends on TPUs, in bfloat16."""
    with mock.patch.object(convolution, "_fused_kernels", return_value=chunked):
        yield from error_rows_of(("fused",), "tpu errors", TPU_ERROR_LENGTH)
    for device, (batch, length) in itertools.product(TPU_NAMES, TPU_INPUTS):
        compile_for(device)
        for backend in ("matmul", "fused"):
            row = planned_gradient(device, batch, length, backend)
            yield {"batch": batch, "backend": backend} | row | {"table": "tpus"}


def compile_for(name: str) -> None:
    """Prepares this process to compile programs for a device that is not here."""
    set_environment(name, os.environ)
    # JAX has read the environment; with plan-cuda, it would look for a GPU.
    jax.config.update("jax_platforms", os.environ["JAX_PLATFORMS"])


def error_rows_of(
    names: Sequence[str], table: str, length: int, channels: int = 4
) -> Iterator[Row]:
    """Errors of bfloat16 outputs and gradients of inputs from float64, and the share of entries
    that are the nearest ones, by backend. Kernels of "fused" are interpreted."""
    ssm = random_ssm(channels)
    rng = np.random.default_rng(0)
    u, dy = jnp.asarray(rng.normal(size=(2, 2, length, channels)), jnp.bfloat16)
    D = jnp.asarray(rng.normal(size=channels), jnp.float32)
    forward, backward = kernel_float64(ssm, length)
    forward[:, 0] += np.asarray(D) + backward[:, 0]
    lags = np.concatenate([forward, np.zeros((channels, 1)), backward[:, :0:-1]], 1)
    spectrum = np.fft.fft(lags)[..., None]

    def convolved(x: jax.Array, spectrum: np.ndarray) -> np.ndarray:
        padded = np.fft.fft(np.asarray(x, np.float64).swapaxes(1, 2), 2 * length)[..., None]
        return np.fft.ifft(padded * spectrum, axis=2).real[:, :, :length, 0].swapaxes(1, 2)

    exact = convolved(u, spectrum), convolved(dy, spectrum.conj())
    for backend in names:
        y, pull_back = jax.vjp(partial(ssm_convolution, ssm=ssm, D=D, backend=backend), u)
        row = {"table": table, "backend": backend, "channels": channels, "length": length}
        for name, value, expected in zip(("y", "du"), (y, *pull_back(dy)), exact, strict=True):
            difference = np.asarray(value, np.float64) - expected
            error = np.linalg.norm(difference) / np.linalg.norm(expected)
            row[f"{name}_error"] = float(error)
            nearest = np.asarray(value == jnp.asarray(expected.astype(jnp.bfloat16)))
            row[f"{name}_nearest"] = float(nearest.mean())
        yield row


def cost_rows() -> Iterator[Row]:
    """A forward pass by formulas: operations, bytes, serial steps; and times three dense maps."""
    for (name, backend), (batch, length) in itertools.product(COSTS, COST_INPUTS):
        hardware = (TPUS | GPUS)[name]
        platform = "tpu" if name in TPUS else "gpu"
        device = AbstractDevice(hardware.kinds[0], None, platform)
        mesh = AbstractMesh((1,), ("batch",), axis_types=(AxisType.Auto,), abstract_device=device)
        shape = batch, length, CHANNELS
        Ct = jax.ShapeDtypeStruct((1, CHANNELS, 2, MODES), jnp.complex64)
        modes = Modes(None, None, None, None, Ct)
        with use_abstract_mesh(mesh):
            plan = backends.plan_convolution(
                shape, modes, backend=backend, block=None, dtype=jnp.bfloat16
            )
            chunk = min(matmul.chunk_length(batch, length), length)
            if backend == "fused":
                chunk = -(-length // backends.count_fused_chunks(length))
        blocks = -(-CHANNELS // plan.block)
        if backend == "fft":
            costs = fft_costs(batch, length, blocks)
        elif backend == "fused":
            costs = chunked_costs(batch, length, chunk, blocks)
        else:
            costs = matmul_costs(batch, length, chunk, plan, blocks)
        work, steps = costs
        times = roofline(work, hardware)
        dense = Work({"bfloat16": 6.0 * batch * length * CHANNELS**2}, 0.0)
        maps = roofline(dense, hardware)["compute"]
        row = {"table": "costs", "device": hardware.title, "backend": backend, "batch": batch}
        row |= {"length": length, "chunk": None if backend == "fft" else chunk}
        row |= {"tflop": work.operations / 1e12, "gb": work.num_bytes / 1e9, "steps": steps}
        row |= {f"{part}_ms": 1e3 * times[part] for part in ("memory", "compute")}
        yield row | {"maps_ms": 1e3 * maps, "ratio": 1 + max(times.values()) / maps}


def fft_costs(batch: int, length: int, blocks: int) -> tuple[Work, int]:
    """FFTs of inputs and kernels, and back; three complex arrays are written and read."""
    rows, padded = CHANNELS * (2 * batch + 1), 2 * length
    operations = 2.5 * rows * padded * np.log2(padded)
    num_bytes = CHANNELS * length * batch * (2 * 2 + 3 * 2 * 8)
    return Work({"float32, highest": operations}, num_bytes), blocks


def chunked_costs(batch: int, length: int, chunk: int, blocks: int) -> tuple[Work, int]:
    """Returns the work of a forward pass with "fused" on TPUs, and its serial steps.

    Passes of bfloat16 products: two inside of chunks and into states, three out of states.
    """
    elements = batch * length * CHANNELS
    operations = elements * (2 * 2 * chunk + (2 + 3) * 8 * MODES)
    # Inputs and outputs are read and written in both orders of their axes, inputs three times.
    # Two directions write and read states, and read the table of powers twice.
    num_bytes = 16 * elements + 2 * 2 * 8 * MODES * elements / chunk
    num_bytes += 5 * chunked._TABLE_ROWS * 8 * MODES * CHANNELS
    tile = backends.chunks_per_tile(batch, length // chunk)
    assert tile is not None, "backends.can_fuse accepts such inputs"
    return Work({"bfloat16": float(operations)}, num_bytes), blocks * -(-length // (chunk * tile))


def matmul_costs(batch: int, length: int, chunk: int, plan: Any, blocks: int) -> tuple[Work, int]:
    """Products inside chunks, into states and out of states; states are written and read unless
    they stay on the chip."""
    elements = CHANNELS * length * batch
    inside, states = 2.0 * chunk * elements, 8.0 * MODES * elements
    num_bytes, assembled = 4.0 * elements, 0.0
    if plan.precision == jax.lax.Precision.HIGH:
        tile = matmul._TILE
        assembled = CHANNELS * (2 * chunk // tile - 1) * 2.0 * tile**2 * (2 * tile - 1)
        products = {"mixed, high": inside + states + assembled, "float32, high": states}
    else:
        num_bytes += 2 * 4 * (CHANNELS * chunk**2 + elements * 4 * MODES / chunk)
        products = {"mixed, highest": inside + states, "float32, highest": states}
    groups = -(-length // (chunk * plan.group))
    segment = matmul._chunks_per_segment(plan.group)
    in_group = plan.group
    if segment < plan.group:
        in_group = 2 * segment + plan.group // segment
    return Work(products, num_bytes), blocks * groups * in_group


def planned_gradient(name: str, batch: int, length: int, backend: str) -> Row:
    """Returns the plan of a convolution of the base model with its gradient."""
    target = find_target(name)
    [device] = target.devices
    place = jax.sharding.SingleDeviceSharding(device)

    def on_device(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place)

    ssm = jax.tree.map(on_device, jax.eval_shape(lambda: random_ssm(CHANNELS)))
    D = on_device(jax.ShapeDtypeStruct((CHANNELS,), jnp.float32))
    u = on_device(jax.ShapeDtypeStruct((batch, length, CHANNELS), jnp.bfloat16))
    with jax.default_device(device):
        jax.clear_caches()
        gradient = jax.jit(partial(convolution_gradient, backend=backend))
        lower = partial(gradient.lower, u, ssm, D)
        plan = plan_program(AbstractProgram("gradient", lower, {}), target)
    row = {"device": target.title, "channels": CHANNELS, "length": length}
    row |= {"moved_gb": plan.work.num_bytes / 1e9, "tflop": plan.work.operations / 1e12}
    row |= {f"{name}_ms": 1e3 * plan.seconds[name] for name in ("memory", "compute")}
    return row | {
        "temporary_gb": plan.memory["temporary"] / 1e9,
        "compile_seconds": plan.compile_seconds,
    }


# Name to rows, by options of ``seconds``, channels of "backends", and its rows before.
TABLES: dict[str, Callable[[Row, int, Sequence[Row]], Iterator[Row]]] = {
    "kernel": lambda timing, *_: kernel_rows(timing),
    "memory": lambda *_: memory_rows(),
    "error": lambda *_: error_rows(),
    "time": lambda timing, *_: time_rows(timing),
    "backends": backend_rows,
    "gradients": lambda *_: gradient_rows(),
    "gpus": lambda *_: gpu_rows(),
    "tpus": lambda *_: tpu_rows(),
    "costs": lambda *_: cost_rows(),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", help='JSON report to write; "backends" goes on with it')
    parser.add_argument(
        "--repeats",
        type=int,
        default=5,
        help="timed calls, of which the fastest counts; default: 5",
    )
    add_median_flag(parser)
    parser.add_argument(
        "--size",
        choices=SIZES,
        help=f'of a model, whose channels "backends" has; default: {BACKEND_CHANNELS} channels',
    )
    default = ",".join(list(TABLES)[:-5])
    parser.add_argument(
        "--tables", default=default, help=f"of {','.join(TABLES)}; default: all but the last five"
    )
    args = parser.parse_args()
    channels = SIZES[args.size][0][0] if args.size else BACKEND_CHANNELS
    timing = {"repeats": args.repeats, "statistic": args.statistic}
    names = args.tables.split(",")
    before = []
    if "backends" in names:
        before = [row for row in rows_before(args.out) if row.get("table") == "backends"]
    rows = []
    for name in names:
        part = list(before) if name == "backends" else []
        for row in TABLES[name](timing, channels, before):
            part.append(row)
            if args.out:
                write_report(args.out, rows + part)
        print_table(part)
        print(flush=True)
        rows += part


if __name__ == "__main__":
    main()
