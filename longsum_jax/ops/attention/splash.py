"""Splash attention, JAX's Pallas kernel for TPUs; other devices interpret it, for tests.

The module is imported on first use, because importing Pallas takes a third of a
second.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_kernel as splash,
)
from jax.experimental.pallas.ops.tpu.splash_attention import (
    splash_attention_mask as masks,
)
from jaxtyping import Array, Bool, Float

from longsum_jax.ops.attention.dense import (
    Scale,
    product_factor,
    score_cap,
)
from longsum_jax.ops.attention.kernel_blocks import equal_blocks
from longsum_jax.ops.attention.key_sets import MASK_VALUE
from longsum_jax.ops.platform import target_platform
from longsum_jax.ops.precision import define_gradient, scaled
from longsum_jax.ops.remat import MARK
from longsum_jax.typing import AnyArray

_MAX_BLOCK = 512  # queries and keys of a block


def splash_attention(
    q: Float[AnyArray, "rows query_length heads head_dim"],
    k: Float[AnyArray, "rows key_length heads head_dim"],
    v: Float[AnyArray, "rows key_length heads head_dim"],
    mask: Bool[AnyArray, "rows key_length"] | None,
    *,
    causal: bool = False,
    pattern: Callable[..., Any] | None = None,
    scale: Scale = 1.0,
) -> Float[Array, "rows query_length heads head_dim"]:
    """Computes ``fused.fused_attention`` for masks that all heads share."""
    num_queries, heads = q.shape[1:3]
    num_keys = k.shape[1]
    query_block, query_blocks = equal_blocks(num_queries, _MAX_BLOCK)
    key_block, key_blocks = equal_blocks(num_keys, _MAX_BLOCK)
    padded_queries = query_blocks * query_block
    padded_keys = key_blocks * key_block
    if mask is None and padded_keys > num_keys and not causal:
        # causal attention never reads the padding
        mask = jnp.ones((len(q), num_keys), bool)
    if mask is not None:
        mask = jnp.pad(mask, ((0, 0), (0, padded_keys - num_keys)))
    shape = (padded_queries, padded_keys)
    pairs: masks.Mask
    if pattern is not None:
        pairs = _PatternMask(shape, pattern)
    else:
        if causal:
            pairs = masks.CausalMask(shape)
        else:
            pairs = masks.FullMask(shape)
    kernel = splash.make_splash_mha_single_device(
        masks.MultiHeadMask([pairs] * heads),
        block_sizes=splash.BlockSizes(
            block_q=query_block,
            block_kv=key_block,
            block_kv_compute=key_block,
            block_q_dkv=query_block,
            block_kv_dkv=key_block,
            block_kv_dkv_compute=key_block,
            block_q_dq=query_block,
            block_kv_dq=key_block,
        ),
        attn_logits_soft_cap=score_cap(scale),
        # the name that ``save_for_backward`` uses
        residual_checkpoint_name=MARK,
        interpret=target_platform() != "tpu",
    )
    q = scaled(q, product_factor(scale))
    q = _padded_heads_first(q, padded_queries)
    k = _padded_heads_first(k, padded_keys)
    v = _padded_heads_first(v, padded_keys)
    # For plans of compiled programs, in which the tables of blocks are not
    # visible.
    with jax.named_scope(
        f"pairs_{_count_pairs(pairs, query_block, key_block)}"
    ):
        out = _call(kernel, q, k, v, mask)
    return out[:, :, :num_queries].swapaxes(1, 2)


class _PatternMask(masks.Mask):
    """The keys that each query reads: blocks without any are skipped, all others are computed.

    Attributes:
        q_sequence: positions of the queries, which the kernel passes to
            ``mask_function``.
        mask_function: pattern, see ``fused.Pattern``.
    """

    def __init__(
        self, shape: tuple[int, int], pattern: Callable[..., Any]
    ) -> None:
        self._shape = shape
        self.q_sequence = np.arange(shape[0], dtype=np.int32)
        self.mask_function = pattern

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    def __getitem__(self, index: tuple[slice, slice]) -> np.ndarray:
        queries, keys = index
        key_indices = np.arange(keys.start, keys.stop, dtype=np.int32)
        return self.mask_function(self.q_sequence[queries, None], key_indices)

    # JAX caches the tables of blocks of recent masks, and compares masks for
    # it.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PatternMask) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self._shape, self.mask_function


@functools.lru_cache(maxsize=12)
def _count_pairs(pairs: masks.Mask, query_block: int, key_block: int) -> int:
    """Returns the number of query-key pairs of a row that the kernel computes; half if causal."""
    num_queries, num_keys = pairs.shape
    if isinstance(pairs, masks.FullMask):
        return num_queries * num_keys
    if isinstance(pairs, masks.CausalMask):
        return num_queries * num_keys // 2
    num_blocks = 0
    for query in range(0, num_queries, query_block):
        for key in range(0, num_keys, key_block):
            block = pairs[query : query + query_block, key : key + key_block]
            num_blocks += bool(block.any())
    return num_blocks * query_block * key_block


@jax.custom_vjp
def _call(
    kernel: Callable[..., Array],
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
) -> Array:
    """Calls a kernel and its gradients with the matmul precision that its operands allow.

    Mosaic rejects bfloat16 operands under a default precision higher than
    bfloat16, although their products are exact anyway.
    """
    with _products_of(q.dtype):
        return _of_rows(kernel, q, mask)(q, k, v)


def _call_forward(
    kernel: Callable[..., Array],
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
) -> tuple[Array, Any]:
    with _products_of(q.dtype):
        return jax.vjp(_of_rows(kernel, q, mask), q, k, v)


def _of_rows(
    kernel: Callable[..., Array], q: Array, mask: Array | None
) -> Callable[..., Array]:
    """Returns a kernel of one row as a function of the arrays of all rows."""
    segments = axes = None
    if mask is not None:
        # Queries see the keys of their segment: all of them are in segment 1.
        queries = jnp.ones(q.shape[2], jnp.int32)
        segments = splash.SegmentIds(queries, mask.astype(jnp.int32))
        axes = splash.SegmentIds(None, 0)  # type: ignore[arg-type] # axes of arrays
    # A sink adds to the sum of exponentials. This one is so small that it only
    # matters for a query without a key, whose result and gradients are then
    # zeros.
    sinks = jnp.full(q.shape[1], MASK_VALUE)

    def call(q: Array, k: Array, v: Array) -> Array:
        of_rows = jax.vmap(kernel, in_axes=(0, 0, 0, axes, None))
        return of_rows(q, k, v, segments, sinks)

    return call


def _call_backward(pull_back: Any, gradient: Array) -> tuple[Any, ...]:
    with _products_of(gradient.dtype):
        # the kernel is a pytree of tables of blocks
        return None, *pull_back(gradient), None


define_gradient(_call, _call_forward, _call_backward)


def _products_of(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    is_narrow = dtype == jnp.bfloat16
    if is_narrow:
        return jax.default_matmul_precision("default")
    return contextlib.nullcontext()


def _padded_heads_first(x: AnyArray, length: int) -> Array:
    """Pads [rows, positions, heads, head_dim] with zeros to [rows, heads, length, head_dim]."""
    x = x.swapaxes(1, 2)
    return jnp.pad(x, ((0, 0), (0, 0), (0, length - x.shape[2]), (0, 0)))
