"""Dense float32 products of a base-size encoder on one core: GFLOP per CPU second, by form.

    python benchmarks/products.py --out=products.json [--rounds=8]

"inputs" x "outputs" is the kernel, and "3 x" are three kernels with the same input. Forms: one
product of matrices; the kernel stored as [outputs, inputs]; three axes, [1, rows, inputs]; 512 rows
at a time; one product with the three kernels side by side. The baseline is torch's linear function.
Forms alternate, and the fastest of all rounds counts. CPU seconds of one thread are hardly affected
by other load on the machine.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from common import print_table, write_report

KERNELS = ((768, 768, 1), (768, 768, 3), (768, 3072, 1), (3072, 768, 1))
CHUNK = 512


def contract(axis: int) -> Callable[..., Any]:
    """Returns the product of the last axis of x and an axis of the kernel."""
    return lambda x, w: jax.lax.dot_general(x, w, (((x.ndim - 1,), (axis,)), ((), ())))


def chunked(x: Any, w: Any) -> Any:
    """The product, ``CHUNK`` rows at a time."""
    return jax.lax.map(lambda rows: rows @ w, x.reshape(-1, CHUNK, x.shape[1]))


def forms(rows: int, inputs: int, outputs: int, count: int) -> dict[str, Callable[[], Any]]:
    """Returns the functions by the name of their form."""
    import torch

    torch.set_num_threads(1)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(rows, inputs)).astype(np.float32)
    kernels = [generator.normal(size=(inputs, outputs)).astype(np.float32) for _ in range(count)]
    transposed = [np.ascontiguousarray(kernel.T) for kernel in kernels]
    tensors = [torch.from_numpy(kernel) for kernel in transposed]
    states = torch.from_numpy(x)
    programs = {
        "matrices": (contract(0), x, kernels),
        "transposed": (contract(1), x, transposed),
        "three_axes": (contract(0), x[None], kernels),
    }
    if rows > CHUNK:
        programs["chunks"] = (chunked, x, kernels)
    if count > 1:
        programs["joined"] = (contract(0), x, [np.concatenate(kernels, 1)])
    functions = {
        name: compiled(product, x, kernels) for name, (product, x, kernels) in programs.items()
    }
    functions["torch"] = lambda: [torch.nn.functional.linear(states, w) for w in tensors]
    return functions


def compiled(product: Callable[..., Any], x: Any, kernels: Any) -> Callable[[], Any]:
    """Returns a call of the compiled products of x and every kernel."""
    x, kernels = jax.device_put((x, kernels))

    def products(x: Any, kernels: Any) -> Any:
        return [product(x, w) for w in kernels]

    with jax.default_matmul_precision("highest"):
        program = jax.jit(products).lower(x, kernels).compile()
    return lambda: jax.block_until_ready(program(x, kernels))


def measure(rows: int, inputs: int, outputs: int, count: int, rounds: int) -> dict[str, Any]:
    """Returns the GFLOP per CPU second of every form."""
    functions = forms(rows, inputs, outputs, count)
    seconds = dict.fromkeys(functions, float("inf"))
    for round_number in range(rounds + 1):
        for name, call in functions.items():
            start = time.process_time()
            call()
            if round_number:  # the first one warms up
                seconds[name] = min(seconds[name], time.process_time() - start)
    gflop = 2e-9 * rows * inputs * outputs * count
    shape = f"{count} x " if count > 1 else ""
    row = {"rows": rows, "kernel": f"{shape}{inputs} x {outputs}"}
    return row | {name: gflop / value for name, value in seconds.items()}


def main() -> None:
    """Measures all shapes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", default="products.json")
    parser.add_argument("--rounds", type=int, default=8, help="calls of every form; default: 8")
    args = parser.parse_args()
    # Read when JAX starts its backend.
    os.environ["XLA_FLAGS"] = (
        f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    )
    rows = [measure(rows, *kernel, args.rounds) for rows in (512, 1024, 4096) for kernel in KERNELS]
    print_table(rows)
    write_report(args.out, rows)


if __name__ == "__main__":
    main()
