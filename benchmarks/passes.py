"""Products of the state-space operation in six, three, two and one bfloat16 passes, as on TPUs,
emulated exactly on a CPU.

    python benchmarks/passes.py --out=ssm_passes.json [--steps=1000]

A pass multiplies one bfloat16 part of each factor and sums in float32. Six passes are float32; two
keep two parts of powers and matrices, and one of inputs, states and gradients. Rows are

    layer      relative L2 distances of a layer's outputs for bfloat16 inputs from float64, and of
               the gradients of its parameters from six passes
    training   losses of the smallest LOCOST in bfloat16, which reads bytes of the documentation and
               predicts the next ones: mean of the last tenth of the steps, and the largest
               difference from six passes at any step
"""

import argparse
import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import print_table, rows_before, write_report
from flax.core import meta
from ssm import kernel_float64, random_ssm

from longsum_jax.models.locost import PRESETS
from longsum_jax.models.t5 import T5
from longsum_jax.ops.ssm import matmul
from longsum_jax.ops.ssm.kernel import discretize

# Passes to the parts of the first and of the second factor that they multiply.
PASSES = {
    6: ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)),
    3: ((0, 0), (0, 1), (1, 0)),
    2: ((0, 0), (1, 0)),
    1: ((0, 0),),
}
NAMES = {passes: "1 pass" if passes == 1 else f"{passes} passes" for passes in PASSES}
CHANNELS, LENGTH = 4, 4096
READ, WRITTEN, ROWS = 128, 32, 4  # bytes, bytes, documents of a step of training
FIRST_BYTE = 3  # after the special tokens
CHUNK = 32  # positions, so that short documents have several chunks


def parts(x: jax.Array) -> list[jax.Array]:
    """Three bfloat16 parts, whose sum is x."""
    result = []
    for _ in range(3):
        result.append(jax.lax.reduce_precision(x, 8, 7))
        x = x - result[-1]
    return result


def emulated(passes: int) -> Any:
    """Returns the replacement of ``matmul._product``."""

    def summed(axes: str, a: jax.Array, b: jax.Array) -> jax.Array:
        a, b = parts(a), parts(b)
        pairs = [(a[i], b[j]) for i, j in PASSES[passes]]
        return sum(jnp.einsum(axes, *pair, precision="highest") for pair in pairs)

    @partial(jax.custom_vjp, nondiff_argnums=(0,))
    def product(axes: str, a: jax.Array, b: jax.Array) -> jax.Array:
        return summed(axes, a, b)

    def forward(axes: str, a: jax.Array, b: jax.Array) -> tuple[jax.Array, Any]:
        return summed(axes, a, b), (a, b)

    def backward(axes: str, factors: Any, dy: jax.Array) -> tuple[jax.Array, jax.Array]:
        a, b = factors
        inputs, of_y = axes.split("->")
        of_a, of_b = inputs.split(",")
        return summed(f"{of_y},{of_b}->{of_a}", dy, b), summed(f"{of_a},{of_y}->{of_b}", a, dy)

    product.defvjp(forward, backward)
    return lambda axes, a, b, precision: product(axes, jnp.float32(a), jnp.float32(b))


@contextlib.contextmanager
def with_passes(passes: int) -> Iterator[None]:
    """Computes products by ``passes`` inside."""
    jax.clear_caches()
    with (
        mock.patch.object(matmul, "_product", emulated(passes)),
        mock.patch.object(matmul, "CHUNK_ON_CPU", CHUNK),
    ):
        yield
    jax.clear_caches()


def distance(result: Any, expected: Any) -> float:
    """Returns the largest relative L2 distance of two trees' arrays."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    return max(float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs)


def layer_rows() -> Iterator[dict[str, Any]]:
    """A layer of ``CHANNELS`` channels with 256 modes, at the start of training."""
    ssm, rng = random_ssm(CHANNELS), np.random.default_rng(0)
    u, dy = (
        jnp.asarray(rng.normal(size=(1, LENGTH, CHANNELS)), jnp.bfloat16).astype(jnp.float32)
        for _ in range(2)
    )
    exact = exact_outputs(ssm, np.asarray(u[0], np.float64).T).T[None]
    rounded = np.asarray(jnp.asarray(exact, jnp.bfloat16), np.float64)
    yield {"table": "layer", "what": "exact, rounded", "output": distance(rounded, exact)}

    def convolve(u: jax.Array, ssm: Any) -> jax.Array:
        return matmul.convolve_by_matmul(u, discretize(ssm), jnp.zeros(CHANNELS))

    gradients = None
    for passes in PASSES:
        with with_passes(passes):
            y, pull_back = jax.vjp(jax.jit(convolve), u, ssm)
            result = jax.tree.map(np.asarray, jax.jit(pull_back)(dy))
        gradients = gradients or result
        row = {"table": "layer", "what": NAMES[passes]}
        row["output"] = distance(np.asarray(y, np.float64), exact)
        yield row | {"gradients": distance(result, gradients) if passes < 6 else 0.0}


def exact_outputs(ssm: Any, u: np.ndarray) -> np.ndarray:
    """[channels, length] in float64, without the skip."""
    past, future = kernel_float64(ssm, LENGTH)
    future = np.concatenate([future[:, :1], np.zeros_like(past), future[:, :0:-1]], 1)
    past = np.concatenate([past, np.zeros_like(past)], 1)
    spectrum = np.fft.rfft(u, 2 * LENGTH) * np.fft.rfft(past + future)
    return np.fft.irfft(spectrum, 2 * LENGTH)[:, :LENGTH]


def training_rows(steps: int) -> Iterator[dict[str, Any]]:
    """The same run for every number of passes, and with other weights."""
    losses = {}
    # Read once: pages that change between runs would be other data.
    pages = sorted((Path(__file__).parents[1] / "docs").rglob("*.md"))
    text = np.frombuffer(b"".join(page.read_bytes() for page in pages), np.uint8).astype(np.int32)
    runs = [(NAMES[passes], passes, 0) for passes in PASSES] + [("6 passes, other weights", 6, 1)]
    for name, passes, seed in runs:
        with with_passes(passes):
            losses[name] = trained(steps, seed, text)
        difference = losses[name] - losses[NAMES[6]]
        row = {"table": "training", "what": name, "first_loss": float(losses[name][0])}
        row["loss"] = float(losses[name][-steps // 10 :].mean())
        yield row | {"largest_difference": float(np.abs(difference).max())}


def trained(steps: int, seed: int, text: np.ndarray) -> np.ndarray:
    """Losses of a model that reads bytes of the documentation and predicts the next ones."""
    config = PRESETS["tiny"].replace(ssm_backend="matmul", dtype="bfloat16")
    module, optimizer = (
        T5(config),
        optax.adam(optax.warmup_cosine_decay_schedule(0, 2e-3, 50, steps)),
    )
    starts = np.random.default_rng(0).integers(0, len(text) - READ - WRITTEN, (steps, ROWS))
    rows = jnp.asarray(text[starts[..., None] + np.arange(READ + WRITTEN)] + FIRST_BYTE)

    def loss(params: Any, row: jax.Array) -> jax.Array:
        source, target = row[:, :READ], row[:, READ:]
        before = jnp.pad(target[:, :-1], ((0, 0), (1, 0)))
        logits = module.apply(params, source, source > 0, before)
        return optax.softmax_cross_entropy_with_integer_labels(logits, target).mean()

    def step(state: Any, row: jax.Array) -> tuple[Any, jax.Array]:
        params, moments = state
        value, gradient = jax.value_and_grad(loss)(params, row)
        changes, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(params, changes), moments), value

    first = rows[0]
    params = meta.unbox(module.init(jax.random.key(seed), first, first > 0, first))
    state = params, optimizer.init(params)
    return np.asarray(jax.jit(lambda state: jax.lax.scan(step, state, rows)[1])(state), np.float64)


TABLES = {
    "layer": lambda steps: layer_rows(),
    "training": training_rows,
}


def main() -> None:
    """Prints tables and writes a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", default=",".join(TABLES), help="default: all")
    parser.add_argument("--steps", type=int, default=1000, help="of training; default: 1000")
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    # Operations this small take several times as long when threads share them.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    rows = rows_before(args.out, steps=args.steps)
    measured = {row["table"] for row in rows}
    for name in args.tables.split(","):
        if name not in measured:
            rows += TABLES[name](args.steps)
        if args.out:
            write_report(args.out, rows, steps=args.steps)
    print_table(rows)


if __name__ == "__main__":
    main()
