"""Checks a GPU or a TPU, and measures the most important times, within a few minutes.

    python benchmarks/accelerator.py --minutes=9 --out=accelerator.json

First, losses and gradients of the tiny models of eight families are compared with the same program
on this machine's CPU in float32, and must be finite in bfloat16. The backends of the state-space
operation are compared with the FFT, and values and gradients of each attention kernel with the
reference. The checks take two or three minutes on a GPU, most of it compilation. If one fails,
nothing is measured, with two exceptions: the fused state-space kernel, which no model uses by
default, and PyTorch, without which only longsum_jax is measured. If an attention kernel fails, give
--attention_backend=reference and another --out to measure without kernels.

Then the other scripts run, one case after another in separate processes until --minutes are over,
the most important ones first: training steps, compared with PyTorch's classes, plain and compiled;
encoders up to a million tokens; searches, compared with PyTorch's with static caches; the
operations that take longest; the backends of the state-space operation and of attention. Times are
medians of at least five calls. PyTorch's training steps have separate processes, so that nearly all
memory is available to them. On a row of longsum_jax, `ratio` is its speed relative to the fastest
`peer`, `memory_share` its memory relative to the peer's, and `difference` the relative distance of
the first losses if the weights are the same. `compile_seconds` of a program that an earlier case
compiled are the time to load it. The remaining minutes are for a training on generated text.

The report is written after every case. Start the command again to continue: checks that have passed
and finished cases are not repeated, and a stopped case continues after its last row. Cases that
failed, took longer than three minutes or were stopped twice come last; cases that failed twice
without a new row are left out. The training continues from its folder next to the report
(accelerator.training).
"""

import argparse
import importlib.util
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from common import GIB, device_bytes, numbers, print_table, rows_before, write_report

HERE = Path(__file__).resolve().parent
# Processes find the packages of this checkout, which need not be installed.
PATHS = (str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")]))
# Programs that several cases have, such as those that make the weights, are compiled once.
CACHE = {"JAX_COMPILATION_CACHE_DIR": str(Path(tempfile.gettempdir(), "longsum_jax_programs"))}
ENVIRONMENT = CACHE | os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)}
# Ends a process when its parent is killed: it would keep the device from the next start.
SETPRIV = shutil.which("setpriv")
WITH_PARENT = (SETPRIV, "--pdeathsig=TERM") if SETPRIV else ()
# Modules of all dependencies, and of the peers.
MODULES = ("flax", "google.protobuf", "jax", "jaxtyping", "lazy_loader", "markdown_it")
MODULES += ("ml_collections", "nltk", "numpy", "optax", "orbax", "rouge_score", "sentencepiece")
MODULES += ("torch", "tqdm", "transformers")
# Differences from the CPU, of the largest entry. Products of float32 are formed in full here.
MOST = {"float32": 1e-3, "bfloat16": 2e-2}
FAMILIES = ("t5", "longt5", "locost", "bart", "pegasus", "pegasus_x", "led", "bigbird_pegasus")
LENGTH, TARGET = 256, 16  # tokens of the tiny models
ATTENTION = (2, 321, 2, 64)  # batch, an odd length, heads, head_dim
SUMMARY = 512  # tokens of a target
# Tokens of a training step for a GiB that JAX may take, three quarters of the device: a step of
# LongT5 takes about 5 GiB for 4,096, PyTorch's 11, which should fit.
ROW_TOKENS = 384
MOST_ROWS = 8
NUM_TEXTS = 100_000  # 24 words each, for the training; the tokenizer reads all of them first
STEPS = 1_000_000  # of the training, which the minutes end
LEAST_CASE, LEAST_TRAINING = 45.0, 120.0  # seconds that must be left to start
LONGEST_CASE = 180.0  # seconds: one that hangs leaves time for the others
MOST_TRIES = 2  # of a case that fails
SAVING = 20.0  # seconds for the last checkpoint
NOTE = 500  # characters of an error that a row retains
LAST_CHECK = "all of them"
PEER_CHECK = "PyTorch"
STOPPED, TOO_LONG = "no time was left", f"stopped after {LONGEST_CASE:.0f} s"
OURS = "longsum_jax"
PEERS = {"locost": "longt5"}  # of models that PyTorch lacks
SETTINGS = ("dtype", "batch", "peak_flops")  # of a script's report, for its rows
# of a case that did not begin, or that has just made progress
NOTHING = {"tries": 0, "failures": 0, "report": None}
NESTED = ("losses", "operations")  # columns that the printed table leaves out
Row = dict[str, Any]


class Case(NamedTuple):
    """One measurement by another script of this folder."""

    name: str
    script: str
    flags: tuple[str, ...]


def cases(
    size: str,
    lengths: tuple[int, ...],
    device_gib: float,
    backend: str = "auto",
    *,
    platform: str = "gpu",
    has_peers: bool = True,
) -> Iterator[Case]:
    """Yields the measurements, those first that settle most.

    Args:
        size: size of the models, see ``models.SIZES``.
        lengths: tokens of the documents of training steps, the first one also of other cases.
        device_gib: memory that JAX may take; a step of ours takes about a third of the device's.
        backend: attention kernels of our models.
        platform: JAX's name of the device, which decides the kernels.
        has_peers: True to measure PyTorch, too.
    """
    attention = f"--attention_backend={backend}"
    sized = (f"--size={size}", "--repeats=5", "--median")
    # Turns are not cut short: a call that takes long is not begun.
    ours = (*sized, "--peers=none", "--enough=inf", "--budget_seconds=20", attention)
    theirs = (*sized, "--enough=inf")
    first = lengths[0]

    def step(model: str, length: int) -> tuple[str, ...]:
        rows = min(max(int(device_gib * ROW_TOKENS / length), 1), MOST_ROWS)
        size_of_step = (f"--lengths={length}", f"--target={SUMMARY}", f"--batch={rows}")
        return (f"--models={model}", *size_of_step)

    def trainings(side: str, steps: list[tuple[str, int]]) -> Iterator[Case]:
        for model, length in steps:
            name, flags = f"train {model} {length}", step(model, length)
            if side == "ours":
                yield Case(name, "train_step.py", (*flags, *ours))
            elif has_peers and model not in PEERS:
                flags = (*flags, *theirs, f"--alone={side}")
                yield Case(f"{name}, PyTorch {side}", "train_step.py", flags)

    models = ("locost", "longt5", "led")
    shorter = [(model, first) for model in (*models, "t5")]
    longest = [(model, length) for length in lengths[1:] for model in models]
    yield from trainings("ours", shorter + longest)
    yield from trainings("plain", shorter + longest)
    # torch.compile takes minutes for a step: at the other lengths it comes last.
    yield from trainings("compiled", shorter)
    longer = ",".join(str(first * 4**power) for power in range(5))
    for model in models:
        flags = (f"--models={model}", f"--lengths={longer}", *ours)
        yield Case(f"encode {model}", "encode.py", flags)
    compared = ("--static",) if has_peers else ("--peers=none",)
    for model, length in (("bart", first // 4), ("led", 4 * first)):
        for beams in (1, 4):
            flags = (f"--models={model}", f"--lengths={length}", f"--beams={beams}", *sized)
            flags += (attention, "--batches=1,16", "--new_tokens=128", *compared)
            yield Case(f"decode {model} {length}, beams {beams}", "decode.py", flags)
    flags = (*step("locost", first), *ours, "--profile")
    yield Case(f"profile train {first}", "train_step.py", flags)
    flags = ("--models=locost", f"--lengths={256 * first}", *ours, "--profile")
    yield Case(f"profile encode {256 * first}", "encode.py", flags)
    yield Case("state-space backends", "ssm.py", ("--tables=backends", *sized))
    longer = ",".join(str(length) for length in (first // 4, first, 4 * first))
    # with "reference", kernels may be wrong
    is_gpu = platform == "gpu" and backend != "reference"
    kernels = ("triton", "cudnn") if is_gpu else (backend,)
    for name in dict.fromkeys((*kernels, "reference")):
        flags = ("--models=bart", f"--lengths={longer}", *ours[:-1], f"--attention_backend={name}")
        yield Case(f"attention {name}", "encode.py", flags)
    yield from trainings("compiled", longest)


def check_rows(families: tuple[str, ...], backend: str = "auto") -> Iterator[Row]:
    """Yields what the device computes beside the CPU; a row that does not hold says so."""
    import jax

    device = jax.devices()[0]
    with jax.default_matmul_precision("highest"):
        for name in families:
            yield _checked(f"{name}, float32", lambda name=name: _beside_cpu(name, device))
        yield _checked(
            "state-space products beside FFT",
            lambda: _error(backends_error(device, "matmul", "float32"), "float32"),
        )
        row = _checked(
            "state-space kernel beside FFT",
            lambda: _error(backends_error(device, "fused", "bfloat16"), "bfloat16"),
        )
        yield row | {"optional": True}  # no model uses it unless it is asked for
        for name, compute in kernel_checks(device, backend):
            yield _checked(name, lambda compute=compute: _error(compute(), "bfloat16"))
    row = _checked(PEER_CHECK, lambda: _same_device(device))
    yield row | {"optional": True}  # ours is then measured alone
    for name in families:
        yield _checked(f"{name}, bfloat16", lambda name=name: _is_finite(name, device, backend))


def _checked(name: str, compute: Callable[[], Row]) -> Row:
    """Returns the row of a check, which an error of any kind does not keep from the others."""
    try:
        return {"check": name, **compute()}
    except Exception as error:
        note = f"{type(error).__name__}: {str(error)[:NOTE]}"
        return {"check": name, "note": note, "holds": False}


def _error(error: float, dtype: str) -> Row:
    return {"error": error, "holds": error < MOST[dtype]}  # False if it is not a number, too


def largest(errors: Iterable[float]) -> float:
    """Returns the largest error, or NaN if there is one, which Python's `max` would pass over."""
    import numpy as np

    return float(np.max(list(errors)))


def _beside_cpu(name: str, device: Any) -> Row:
    import jax

    cpu = jax.devices("cpu")[0]
    pairs = zip(*(loss_and_norm(name, "float32", place) for place in (device, cpu)), strict=True)
    return _error(largest(abs(a / b - 1) for a, b in pairs), "float32")


def _is_finite(name: str, device: Any, backend: str) -> Row:
    values = loss_and_norm(name, "bfloat16", device, backend)
    return {"values": list(values), "holds": all(map(math.isfinite, values))}


def _same_device(device: Any) -> Row:
    """Returns a row that holds if PyTorch uses the same kind of device, so that times compare."""
    import torch_peers

    holds = torch_peers.has_device_of(device.platform)
    return {"device": torch_peers.device(), "holds": holds}


def loss_and_norm(name: str, dtype: str, device: Any, backend: str = "auto") -> tuple[float, float]:
    """Returns the loss of a family's tiny model, and the norm of its gradient, on a device."""
    import dataclasses

    import jax
    import numpy as np
    from flax.core import meta

    from longsum_jax.models.registry import get_family
    from longsum_jax.training.optimizers import global_norm

    family = get_family(name)
    options = {"dtype": dtype, "attention_backend": backend}
    config = dataclasses.replace(family.presets["tiny"], **options)
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


def backends_error(device: Any, backend: str, dtype: str) -> float:
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


def kernel_checks(device: Any, backend: str = "auto") -> Iterator[tuple[str, Callable[[], float]]]:
    """Yields names, and functions of the error, of attentions that a kernel of a device computes.

    Values and gradients in bfloat16 are compared with those of the reference on the CPU, in
    float32; the error is a share of the largest entry.

    Args:
        device: to compute on.
        backend: of ``choose_kernel``; "auto" has no kernels on CPUs.
    """
    import jax
    import jax.numpy as jnp

    from longsum_jax.ops.attention.fused import choose_kernel

    length, head_dim = ATTENTION[1], ATTENTION[3]
    sizes = {"num_queries": length, "num_keys": length, "head_dim": head_dim}
    for name, attend, asked in _attentions():
        with jax.default_device(device):
            kernel = choose_kernel(backend, jnp.bfloat16, **sizes, **asked).kernel
        if kernel is not None:
            yield f"attention, {name}: {kernel}", partial(kernel_error, device, kernel, attend)


def kernel_error(device: Any, kernel: str, attend: Any) -> float:
    """Returns the largest difference of a kernel's values and gradients from the reference."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.normal(size=ATTENTION), jnp.bfloat16) for _ in range(4)]
    length = ATTENTION[1]
    mask = np.stack([np.arange(length) >= 5, np.arange(length) < 200])

    def with_gradients(*arrays: Any, kernel: str | None) -> Any:
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
    result = [np.asarray(x, np.float32) for x in result]
    pairs = zip(result, map(np.asarray, expected), strict=True)
    return largest(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)


def _attentions() -> Iterator[tuple[str, Any, Row]]:
    """Yields name, function of (q, k, v, mask, kernel or None), and what ``choose_kernel`` asks."""
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


def measure(case: Case, seconds: float, before: Row | None = None) -> tuple[str, Row | None]:
    """Runs a case for at most some seconds.

    Args:
        before: unfinished report, which the script continues.

    Returns:
        A note, "" if the case is finished; and its report, None if there is none yet.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        if before is not None:
            out.write_text(json.dumps(before))
        command = [sys.executable, str(HERE / case.script), *case.flags, f"--out={out}"]
        note = run_for(command, seconds)
        return note, json.loads(out.read_text()) if out.exists() else None


def run_for(command: list[str], seconds: float) -> str:
    """Runs a command for at most some seconds.

    Returns:
        "" if it succeeded, otherwise ``STOPPED`` or the end of what it wrote.
    """
    # A file, because processes that outlive the command would keep a pipe open.
    with tempfile.TemporaryFile() as log:
        try:
            options = {"stdout": log, "stderr": log, "timeout": seconds, "env": ENVIRONMENT}
            status = subprocess.run([*WITH_PARENT, *command], **options).returncode
        except subprocess.TimeoutExpired:
            return STOPPED
        log.seek(0)
        text = log.read().decode(errors="replace").strip()
    return f"exit status {status}: {text[-NOTE:]}" if status else ""


def train(directory: Path, size: str, seconds: float) -> Row:
    """Trains a LOCOST to copy generated words for some seconds; a later call continues.

    Returns:
        A row with the losses by step, if there are any, and with a note if the training failed.
    """
    texts, workdir = directory / "words.jsonl", directory / "run"
    if not texts.exists():
        write_words(texts)
    config = "configs/locost_small.py:copy" + (",size=10m" if size == "base" else "")
    command = [sys.executable, "-m", "longsum_jax.train", f"--config={HERE.parent / config}"]
    command += [f"--workdir={workdir.name}", f"--config.training.steps={STEPS}"]
    # A path of this machine would keep another one from continuing.
    command += [f"--config.task.source=json:{texts.name}"]
    process = subprocess.Popen([*WITH_PARENT, *command], cwd=directory, env=ENVIRONMENT)
    try:
        process.wait(seconds - SAVING)
    except subprocess.TimeoutExpired:
        process.terminate()  # it writes a checkpoint
        try:
            process.wait(SAVING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    row: Row = {"case": f"train {config}"}
    log = workdir / "metrics.jsonl"
    lines = log.read_text().splitlines(keepends=True) if log.exists() else []
    entries = [json.loads(line) for line in lines if line.endswith("\n")]  # a kill leaves half
    losses = {entry["step"]: entry["loss"] for entry in entries if "loss" in entry}
    if process.returncode or not losses:
        row["note"] = f"exit status {process.returncode} after {len(losses)} losses"
    if losses:
        row |= {"steps": max(losses), "loss": losses[max(losses)], "losses": losses}
    return row


def write_words(path: Path) -> None:
    """Writes rows of random words, which are their own summaries."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(0)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(5000)]
    unfinished = path.with_suffix(".new")
    with unfinished.open("w") as file:
        for _ in range(NUM_TEXTS):
            text = " ".join(rng.choices(words, k=24))
            file.write(json.dumps({"document": text, "summary": text}) + "\n")
    unfinished.replace(path)


def write_checks(families: str, backend: str, out: str, **settings: str) -> None:
    """Checks the device, and writes the report after every row."""
    import jax

    rows: list[Row] = []
    for row in check_rows(tuple(families.split(",")), backend):
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
        write_report(out, rows, **settings)
    holds = all(row["holds"] or row.get("optional", False) for row in rows)
    last = {"check": LAST_CHECK, "holds": holds}
    last |= {"device_gib": device_bytes() / GIB, "platform": jax.default_backend()}
    write_report(out, [*rows, last], **settings)
    if not holds:
        print_table(rows)
        sys.exit("a check does not hold, so nothing is measured; see the table")


def pending(cases: Iterator[Case], rows: list[Row], unfinished: Row) -> list[Case]:
    """Returns the cases to run; those last that failed, or were stopped twice."""
    failed = {name for name, x in unfinished.items() if x["note"] != STOPPED}
    late = failed | {name for name, x in unfinished.items() if x["tries"] > 1}
    given_up = {name for name in failed if unfinished[name]["failures"] >= MOST_TRIES}
    done = {row.get("case") for row in rows} - (unfinished.keys() - given_up)
    left = [case for case in cases if case.name not in done]
    return sorted(left, key=lambda case: case.name in late)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="in all; default: 9")
    parser.add_argument("--size", default="base", help="of the measured models; default: base")
    parser.add_argument("--lengths", default="4096,16384", help="default: 4096,16384")
    parser.add_argument("--families", default=",".join(FAMILIES), help="to check; default: all")
    parser.add_argument(
        "--attention_backend", default="auto", help="of our models; reference: without kernels"
    )
    parser.add_argument("--only_checks", action="store_true", help="measure nothing")
    parser.add_argument("--out", required=True, help="JSON report to write or continue")
    args = parser.parse_args()
    end = time.monotonic() + 60 * args.minutes
    settings = {"size": args.size, "attention_backend": args.attention_backend}
    has_checks = _has_checks(rows_before(args.out, **settings))
    if args.only_checks:
        if not has_checks:  # a report that has them may have measurements, too
            write_checks(args.families, args.attention_backend, args.out, **settings)
        return
    if missing := [name for name in MODULES if not is_installed(name)]:
        say(f"not installed, and some cases may fail: {', '.join(missing)}", end)
    if not has_checks:
        say("checks, two or three minutes on a GPU", end)
        command = [sys.executable, __file__, *sys.argv[1:], "--only_checks"]
        # A process of its own, which leaves the device's memory to the others.
        if status := subprocess.run([*WITH_PARENT, *command], env=ENVIRONMENT).returncode:
            sys.exit(status)
    measure_all(args, settings, end)


def measure_all(args: argparse.Namespace, settings: Row, end: float) -> None:
    """Measures the cases that a report does not have, and trains until the end."""
    out = Path(args.out)
    report = json.loads(out.read_text())
    rows, unfinished = report["rows"], report.get("unfinished", {})
    [last] = [row for row in rows if row.get("check") == LAST_CHECK]
    lengths = tuple(numbers(args.lengths))
    [peer] = [row for row in rows if row.get("check") == PEER_CHECK]
    every = cases(
        args.size,
        lengths,
        last["device_gib"],
        args.attention_backend,
        platform=last.get("platform", "gpu"),
        has_peers=peer["holds"],
    )
    extra = settings | {"unfinished": unfinished, "machine": report["machine"]}

    def add(name: str, new: list[Row]) -> None:
        rows[:] = [*(row for row in rows if row.get("case") != name), *new]
        compare(rows)
        write_report(out, rows, **extra)

    left = pending(every, rows, unfinished)
    for number, case in enumerate(left):
        seconds = end - time.monotonic()
        if seconds < LEAST_CASE:
            break
        say(f"{case.name}, one of {len(left) - number} cases", end)
        before = NOTHING | unfinished.pop(case.name, {})
        note, part = measure(case, min(seconds, LONGEST_CASE), before["report"])
        if note == STOPPED and seconds > LONGEST_CASE:
            note = TOO_LONG
        new = rows_of(case, part)
        if note:
            if count_rows(part) > count_rows(before["report"]):
                before = NOTHING
            unfinished[case.name] = {
                "note": note,
                "tries": before["tries"] + 1,
                "failures": before["failures"] + (note != STOPPED),
                "report": part,
            }
            new.append({"case": case.name, "note": note})
        for row in new:
            print(json.dumps(row), file=sys.stderr, flush=True)
        add(case.name, new)
    if end - time.monotonic() > LEAST_TRAINING:
        say("training", end)
        row = train(out.with_suffix(".training"), args.size, end - time.monotonic())
        add(row["case"], [row])
    print_table([{key: row[key] for key in row if key not in NESTED} for row in rows])


def count_rows(report: Row | None) -> int:
    """Returns the number of a report's rows, 0 without a report."""
    return 0 if report is None else len(report["rows"])


def rows_of(case: Case, report: Row | None) -> list[Row]:
    """Returns the rows of a case's report, none without one, with what holds for all of them."""
    if report is None:
        return []
    common = {"case": case.name} | {key: report[key] for key in SETTINGS if key in report}
    return [common | row for row in report["rows"]]


def compare(rows: list[Row]) -> None:
    """Adds to training steps of ours how they compare with the fastest peer of the length."""
    steps = [row for row in rows if row.get("case", "").startswith("train ") and "seconds" in row]
    for row in filter(lambda row: row["by"] == OURS, steps):
        peer = f"PyTorch {PEERS.get(row['model'], row['model'])}"
        by = [x for x in steps if x["by"].startswith(peer) and x["length"] == row["length"]]
        if not by:
            continue
        best = min(by, key=lambda x: x["seconds"])
        row |= {"peer": best["by"], "ratio": best["seconds"] / row["seconds"]}
        row["memory_share"] = row["gib"] / best["gib"]
        if row["model"] not in PEERS and "loss" in row and "loss" in best:
            row["difference"] = abs(row["loss"] / best["loss"] - 1)


def is_installed(module: str) -> bool:
    """Returns True if a module can be imported, without importing the module itself."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def say(what: str, end: float) -> None:
    """Prints what starts, and the most that it may take."""
    seconds = end - time.monotonic()
    print(f"{time.strftime('%X')} {what}: {seconds:.0f} s left", file=sys.stderr, flush=True)


def _has_checks(rows: list[Row]) -> bool:
    """Returns True if all checks of a report were made, and hold."""
    return any(row.get("check") == LAST_CHECK and row["holds"] for row in rows)


if __name__ == "__main__":
    main()
