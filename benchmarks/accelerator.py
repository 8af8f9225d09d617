"""The first minutes on a GPU or a TPU: what it computes is checked, then the shortest measurements.

    python benchmarks/accelerator.py --minutes=9 --out=accelerator.json

First, the loss and the gradient of every family's tiny model are compared with the same program on
this machine's CPU in float32, and must be finite in bfloat16. The backends of the state-space
operation are compared with the FFT, and the values and gradients of each attention kernel with the
reference. Then the other scripts run, one case after another in a process of its own until
--minutes are over, the most important ones first: training steps, encoders and searches compared
with PyTorch's, also compiled and with caches of fixed size; the operations that take longest; the
backends; training steps without kernels. The remaining minutes are for a training on generated
text. Checks take two or three minutes on a GPU, most of them to compile. The report is written
after every part, and a later start continues it; unfinished checks begin again. Nothing is measured
on a device that computes wrongly.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common import GIB, device_bytes, print_table, write_report

HERE = Path(__file__).resolve().parent
# Differences from the CPU, of the largest entry. Products of float32 are formed in full here.
MOST = {"float32": 1e-3, "bfloat16": 2e-2}
FAMILIES = ("t5", "longt5", "locost", "bart", "pegasus", "pegasus_x", "led", "bigbird_pegasus")
LENGTH, TARGET = 256, 16  # tokens of the tiny models
ATTENTION = (2, 321, 2, 64)  # batch, an odd length, heads, head_dim
SUMMARY = 512  # tokens of a target
# Tokens of a training step for a GiB of the device: a PyTorch step of LongT5 takes about 11 GiB for
# 4,096, and should fit.
ROW_TOKENS = 256
MOST_ROWS = 8
NUM_TEXTS = 400_000  # 24 words each, for the training
LEAST_TRAINING = 60.0  # seconds
LAST_CHECK = "all of them"
NESTED = ("losses", "operations")  # columns that the printed table leaves out
Row = dict[str, Any]


class Case(NamedTuple):
    """One measurement by another script of this folder."""

    name: str
    script: str
    flags: tuple[str, ...]


def cases(size: str, lengths: tuple[int, ...], device_gib: float) -> Iterator[Case]:
    """Yields the measurements, those first that settle most.

    Args:
        size: size of the models, see ``models.SIZES``.
        lengths: tokens of the documents of training steps, the first one also of other cases.
        device_gib: memory of the device, of which the models of a step take about a third.
    """
    sized = (f"--size={size}", "--repeats=5")
    first = lengths[0]
    for length in lengths:
        rows = min(max(int(device_gib * ROW_TOKENS / length), 1), MOST_ROWS)
        step = (f"--lengths={length}", *sized, f"--target={SUMMARY}", f"--batch={rows}")
        for model in ("locost", "longt5", "led", *(("t5",) if length == first else ())):
            flags = (f"--models={model}", *step, "--compile")
            yield Case(f"train {model} {length}", "train_step.py", flags)
    for model in ("locost", "longt5", "led"):
        flags = (f"--models={model}", f"--lengths={first}", *sized, "--compile")
        yield Case(f"encode {model} {first}", "encode.py", flags)
    for model in ("locost", "longt5", "led"):
        longer = ",".join(str(first * 4**power) for power in range(1, 5))
        flags = (f"--models={model}", f"--lengths={longer}", *sized, "--peers=none")
        yield Case(f"encode {model}, longer", "encode.py", flags)
    for model, length in (("bart", first // 4), ("led", 4 * first)):
        for beams in (1, 4):
            flags = (f"--models={model}", f"--lengths={length}", f"--beams={beams}")
            flags += ("--batches=1,16", "--new_tokens=128", f"--size={size}", "--static")
            yield Case(f"decode {model} {length}, beams {beams}", "decode.py", flags)
    profiled = (*sized, "--peers=none", "--profile")
    step = (f"--lengths={first}", f"--target={SUMMARY}", *profiled)
    yield Case("profile train", "train_step.py", ("--models=locost", *step))
    million = f"--lengths={256 * first}"
    yield Case("profile encode", "encode.py", ("--models=locost", million, *profiled))
    yield Case("state-space backends", "ssm.py", ("--tables=backends", "--repeats=2"))
    reference = (*step[:-1], "--attention_backend=reference")
    for model in ("t5", "longt5", "led"):
        flags = (f"--models={model}", *reference)
        yield Case(f"train {model} {first} without kernels", "train_step.py", flags)


def check_rows(families: tuple[str, ...]) -> Iterator[Row]:
    """Yields what the device computes beside the CPU; a row that does not hold says so."""
    import jax

    device, cpu = jax.devices()[0], jax.devices("cpu")[0]
    with jax.default_matmul_precision("highest"):
        for name in families:
            ours, expected = (
                loss_and_norm(name, "float32", device),
                loss_and_norm(name, "float32", cpu),
            )
            error = max(abs(a / b - 1) for a, b in zip(ours, expected, strict=True))
            yield {"check": f"{name}, float32", "error": error, "holds": error < MOST["float32"]}
        for compared, backend, dtype in (
            ("products", "matmul", "float32"),
            ("kernel", "fused", "bfloat16"),
        ):
            error = backends_error(device, backend, dtype)
            row = {"check": f"state-space {compared} beside FFT", "error": error}
            yield row | {"holds": error < MOST[dtype]}
        yield from kernel_rows(device)
    for name in families:
        values = loss_and_norm(name, "bfloat16", device)
        is_finite = all(abs(value) < float("inf") for value in values)
        yield {"check": f"{name}, bfloat16", "values": list(values), "holds": is_finite}


def loss_and_norm(name: str, dtype: str, device: Any) -> tuple[float, float]:
    """Returns the loss of a family's tiny model, and the norm of its gradient, on a device."""
    import dataclasses

    import jax
    import numpy as np
    from flax.core import meta

    from longsum_jax.models.registry import get_family
    from longsum_jax.training.optimizers import global_norm

    family = get_family(name)
    config = dataclasses.replace(family.presets["tiny"], dtype=dtype)
    module = family.module_class(config)
    rng = np.random.default_rng(0)
    ids = rng.integers(3, config.vocab_size, (2, LENGTH))
    labels = rng.integers(3, config.vocab_size, (2, TARGET))
    mask = np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 56]])

    def loss(params: Any) -> jax.Array:
        arguments = (ids, mask, labels)
        scores = module.apply({"params": params}, *arguments, method="score_targets")
        return scores.losses.mean()

    @jax.jit
    def run(params: Any) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(loss)(params)
        return value, global_norm(gradient)

    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        params = meta.unbox(jax.jit(family.init_params(config))(jax.random.key(0)))
    with jax.default_device(device):
        value, norm = run(jax.device_put(params, device))
    return float(value), float(norm)


def backends_error(device: Any, backend: str = "matmul", dtype: str = "float32") -> float:
    """Returns the difference of a backend and the FFT, as a share of the largest output."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from longsum_jax.ops.ssm.convolution import ssm_convolution
    from longsum_jax.ops.ssm.kernel import DiagonalSSM

    rng = np.random.default_rng(0)
    channels, modes, length = 4, 8, 1000
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    with jax.default_device(device):
        decay = -jnp.exp(draw(1, channels, modes))
        frequency = jnp.broadcast_to(jnp.pi * jnp.arange(modes, dtype=jnp.float32), decay.shape)
        log_dt = draw(1, channels) - 4
        inputs = (decay, frequency, draw(1, channels, modes, 2), draw(2, channels, modes, 2))
        ssm, u, D = DiagonalSSM(log_dt, *inputs), draw(2, length, channels), draw(channels)
        convolve = jax.jit(ssm_convolution, static_argnames="backend")
        u = u.astype(dtype)
        outputs = [convolve(u, ssm, D, backend=name) for name in ("fft", backend)]
        return float(jnp.abs(outputs[0] - outputs[1]).max() / jnp.abs(outputs[0]).max())


def kernel_rows(device: Any, backend: str = "auto") -> Iterator[Row]:
    """Yields a row for every attention that a kernel of the device computes, in bfloat16.

    Values and gradients are compared with those of the reference on the CPU, in float32.

    Args:
        device: to compute on.
        backend: of ``choose_kernel``; "auto" has no kernels on CPUs.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from longsum_jax.ops.attention.fused import choose_kernel

    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=ATTENTION), jnp.bfloat16) for _ in range(4)]
    length, head_dim = ATTENTION[1], ATTENTION[3]
    mask = np.stack([np.arange(length) >= 5, np.arange(length) < 200])
    sizes = {"num_queries": length, "num_keys": length, "head_dim": head_dim}
    for name, attend, asked in _attentions():
        with jax.default_device(device):
            kernel = choose_kernel(backend, jnp.bfloat16, **sizes, **asked).kernel
        if kernel is None:
            continue

        def with_gradients(*arrays: Any, kernel: str | None, attend: Any = attend) -> Any:
            *qkv, gradient = arrays
            out, pull_back = jax.vjp(lambda q, k, v: attend(q, k, v, mask, kernel), *qkv)
            return out, *pull_back(gradient)

        run = jax.jit(with_gradients, static_argnames="kernel")
        with jax.default_device(device):
            result = run(*jax.device_put(arrays, device), kernel=kernel)
        cpu = jax.devices("cpu")[0]
        with jax.default_device(cpu):
            exact = [x.astype(jnp.float32) for x in jax.device_put(arrays, cpu)]
            expected = run(*exact, kernel=None)
        pairs = [
            (np.asarray(a, np.float32), np.asarray(b))
            for a, b in zip(result, expected, strict=True)
        ]
        error = max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)
        holds = error < MOST["bfloat16"]  # False where it is not a number, too
        yield {"check": f"attention, {name}: {kernel}", "error": error, "holds": holds}


def _attentions() -> Iterator[tuple[str, Any, Row]]:
    """Yields name, function of (q, k, v, mask, kernel or None), and what ``choose_kernel`` asks."""
    from functools import partial

    import jax
    import jax.numpy as jnp
    import numpy as np

    from longsum_jax.ops.attention.dense import dot_product_attention
    from longsum_jax.ops.attention.fused import fused_attention
    from longsum_jax.ops.attention.key_sets import WeightDropout
    from longsum_jax.ops.attention.local import local_attention
    from longsum_jax.ops.attention.relative_position import StepBias, bucket_steps
    from longsum_jax.ops.random_masks import drop_entries, head_words, keep_pairs

    scale = ATTENTION[3] ** -0.5

    def attend(
        q: Any, k: Any, v: Any, mask: Any, kernel: Any, *, causal: bool, masked: bool
    ) -> Any:
        key_mask = mask[:, None] if masked else None
        if kernel is not None:
            options = {"kernel": kernel, "causal": causal, "scale": scale}
            return fused_attention(q, k, v, key_mask, **options)
        seen = np.tri(len(mask[0]), dtype=bool) if causal else np.ones((1, 1), bool)
        seen = seen & key_mask[:, :, None] if masked else seen[None, None]
        return dot_product_attention(q, k, v, mask=seen, scale=scale)

    def window(q: Any, k: Any, v: Any, mask: Any, kernel: Any) -> Any:
        fused = None if kernel is None else partial(fused_attention, kernel=kernel)
        return local_attention(q, k, v, mask, radius=40, scale=scale, fused=fused)

    def biased(q: Any, k: Any, v: Any, mask: Any, kernel: Any) -> Any:
        starts, buckets = bucket_steps(bidirectional=True, num_buckets=32, max_distance=128)
        # Made of queries, whose gradients then contain those of the bias.
        values = q[0, : len(buckets), :, 0].T.astype(jnp.float32)
        dropout = WeightDropout(jax.random.key(0), 0.1)
        if kernel is not None:
            options = {"biases": [StepBias(values, starts)], "dropout": dropout, "scale": scale}
            return fused_attention(q, k, v, mask[:, None], kernel=kernel, **options)
        queries, keys = np.arange(q.shape[1])[:, None], np.arange(k.shape[1])[None]
        bias = values[None, :, np.searchsorted(starts, keys - queries, side="right")]
        draw = partial(keep_pairs, queries=queries, keys=keys, share=0.9)
        words = head_words(dropout.rng, len(q), q.shape[2])
        keep = jax.vmap(jax.vmap(lambda x: draw((x[0], x[1]))))(words)
        options = {"bias": bias, "dropout": lambda x: drop_entries(x, keep, 0.9), "scale": scale}
        return dot_product_attention(q, k, v, mask=mask[:, None, None], **options)

    for causal, masked in ((False, True), (True, False), (True, True)):
        name = f"{'causal' if causal else 'all keys'}{', masked' if masked else ''}"
        asked = {"causal": causal, "has_mask": masked}
        yield name, partial(attend, causal=causal, masked=masked), asked
    yield "window", window, {"causal": False, "has_mask": True, "has_pattern": True}
    asked = {"causal": False, "has_mask": True, "has_bias": True, "has_dropout": True}
    yield "position bias, dropout", biased, asked


def measure(case: Case, seconds: float) -> list[Row]:
    """Returns the rows of a case, or one with a note where it failed or took too long."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, str(HERE / case.script), *case.flags, f"--out={out}"]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return [{"case": case.name, "note": "no time was left"}]
        except subprocess.CalledProcessError as error:
            return [{"case": case.name, "note": error.stderr.decode()[-500:]}]
        return [{"case": case.name, **row} for row in json.loads(out.read_text())["rows"]]


def train(directory: Path, size: str, seconds: float) -> Row:
    """Trains a LOCOST to copy generated words for some seconds; a later call goes on.

    Returns:
        A row with the losses by step, or with a note if the training failed.
    """
    texts, workdir = directory / "words.jsonl", directory / "run"
    if not texts.exists():
        directory.mkdir(exist_ok=True)
        write_words(texts)
    config = "configs/locost_small.py:copy" + (",size=10m" if size == "base" else "")
    command = [sys.executable, "-m", "longsum_jax.train", f"--config={config}"]
    command += [f"--workdir={workdir}", f"--config.task.source=json:{texts.resolve()}"]
    process = subprocess.Popen(command, cwd=HERE.parent)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.terminate()  # it writes a checkpoint
        process.wait()
    name = {"case": f"train {config}"}
    log = workdir / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    entries = [json.loads(line) for line in lines]
    losses = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    if process.returncode or not losses:
        return name | {"note": f"exit status {process.returncode} after {len(losses)} losses"}
    return name | {"steps": max(losses), "loss": losses[max(losses)], "losses": losses}


def write_words(path: Path) -> None:
    """Writes rows of random words, which are their own summaries."""
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    with path.open("w") as file:
        for _ in range(NUM_TEXTS):
            text = " ".join(rng.choices(words, k=24))
            file.write(json.dumps({"document": text, "summary": text}) + "\n")


def check(families: str, out: Path) -> int:
    """Runs the checks in a process of its own, which leaves the device's memory to the others.

    Returns:
        Its exit status: 0 if everything holds.
    """
    command = [sys.executable, __file__, "--only_checks", f"--families={families}", f"--out={out}"]
    return subprocess.run(command).returncode


def write_checks(families: str, out: Path) -> None:
    """Checks the device, and writes the report after every row."""
    rows: list[Row] = []
    for row in check_rows(tuple(families.split(","))):
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
        write_report(out, rows)
    holds = all(row["holds"] for row in rows)
    last = {"check": LAST_CHECK, "holds": holds, "device_gib": device_bytes() / GIB}
    write_report(out, [*rows, last])
    if not holds:
        print_table(rows)
        sys.exit("the device computes something else than this machine's CPU; see the table")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="in all; default: 9")
    parser.add_argument("--size", default="base", help="of the measured models; default: base")
    parser.add_argument("--lengths", default="4096,16384", help="default: 4096,16384")
    parser.add_argument("--families", default=",".join(FAMILIES), help="to check; default: all")
    parser.add_argument("--only_checks", action="store_true", help="measure nothing")
    parser.add_argument("--out", required=True, help="JSON report to write or continue")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    out = Path(args.out)
    if args.only_checks:
        write_checks(args.families, out)
        return
    if not _has_checks(out) and (status := check(args.families, out)):
        sys.exit(status)
    report = json.loads(out.read_text())
    lengths = tuple(map(int, args.lengths.split(",")))
    # A case that failed or had no time begins again; a peer without enough memory does not.
    rows = [row for row in report["rows"] if "note" not in row or "by" in row]
    [last] = [row for row in report["rows"] if row.get("check") == LAST_CHECK]
    if "device_gib" not in last:
        sys.exit(f"{out} is of an earlier version of this script; give another --out")
    for case in cases(args.size, lengths, last["device_gib"]):
        left = end - time.monotonic()
        if left <= 0:
            break
        if any(row.get("case") == case.name for row in rows):
            continue
        rows += measure(case, left)
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
        write_report(out, rows, machine=report["machine"])
    left = end - time.monotonic()
    if left > LEAST_TRAINING:
        row = train(out.with_suffix(".training"), args.size, left)
        rows = [*(before for before in rows if before.get("case") != row["case"]), row]
        write_report(out, rows, machine=report["machine"])
    print_table([{key: row[key] for key in row if key not in NESTED} for row in rows])


def _has_checks(out: Path) -> bool:
    """Returns whether all checks of a report were made, and hold."""
    rows = json.loads(out.read_text())["rows"] if out.exists() else []
    return any(row.get("check") == LAST_CHECK and row["holds"] for row in rows)


if __name__ == "__main__":
    main()
