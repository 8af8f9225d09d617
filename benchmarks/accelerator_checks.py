"""Checks of what a GPU or a TPU computes, which ``accelerator.py`` makes before it measures.

Losses and gradients of the tiny models of eight families are compared with the same program on this
machine's CPU in float32, and must be finite in bfloat16. The backends of the state-space operation
are compared with the FFT, and values and gradients of each attention kernel with the reference.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from common import GIB, device_bytes, print_table, write_report

# Differences from the CPU, of the largest entry. Products of float32 are formed in full here.
MOST = {"float32": 1e-3, "bfloat16": 2e-2}
FAMILIES = ("t5", "longt5", "locost", "bart", "pegasus", "pegasus_x", "led", "bigbird_pegasus")
LENGTH, TARGET = 256, 16  # tokens of the tiny models
ATTENTION = (2, 321, 2, 64)  # batch, an odd length, heads, head_dim
NOTE = 500  # characters of an error that a row retains
LAST_CHECK = "all of them"
PEER_CHECK = "PyTorch"
Row = dict[str, Any]


def check_rows(families: tuple[str, ...], backend: str = "auto") -> Iterator[Row]:
    """Yields a row for each comparison of the device with the CPU, and whether it holds."""
    import jax

    from longsum_jax.ops.ssm.backends import FUSED_FROM

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
        # Other devices use it only if it is asked for.
        yield row | {"optional": device.device_kind not in FUSED_FROM}
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
    """Returns the largest difference of a backend's outputs and gradients from the FFT.

    It is a share of the largest entry of an array.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np

    from longsum_jax.ops.ssm.convolution import ssm_convolution
    from longsum_jax.ops.ssm.kernel import DiagonalSSM

    rng = np.random.default_rng(0)
    channels, modes, length = 4, 8, 1100  # three chunks of the kernels for TPUs
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)  # noqa: E731
    with jax.default_device(device):
        decay = -jnp.exp(draw(1, channels, modes))
        frequency = jnp.broadcast_to(jnp.pi * jnp.arange(modes, dtype=jnp.float32), decay.shape)
        log_dt = draw(1, channels) - 4
        inputs = (decay, frequency, draw(1, channels, modes, 2), draw(2, channels, modes, 2))
        ssm, u, D = DiagonalSSM(log_dt, *inputs), draw(2, length, channels), draw(channels)

        @partial(jax.jit, static_argnames="backend")
        def with_gradients(u: jax.Array, dy: jax.Array, *, backend: str) -> Any:
            y, pull_back = jax.vjp(partial(ssm_convolution, backend=backend), u, ssm, D)
            return y, pull_back(dy)

        u, dy = u.astype(dtype), draw(2, length, channels).astype(dtype)
        results = (with_gradients(u, dy, backend=name) for name in (backend, "fft"))
        pairs = zip(*map(jax.tree.leaves, results), strict=True)
        return largest(jnp.abs(a - b).max() / jnp.abs(b).max() for a, b in pairs)


def kernel_checks(device: Any, backend: str = "auto") -> Iterator[tuple[str, Callable[[], float]]]:
    """Yields names, and functions of the error, of attentions that a kernel of a device computes.

    Values and gradients in bfloat16 are compared with the reference on the CPU, in
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
        # Made of queries, whose gradients then include the gradient of the bias.
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
