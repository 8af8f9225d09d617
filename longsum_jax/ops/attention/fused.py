"""Attention by fused kernels of accelerators: scores stay on the chip, never in its memory.

Two kernels compute what ``dense.dot_product_attention`` does without a bias and without dropout:

    "splash"    JAX's Pallas kernel for TPUs; a program for other devices interprets it, for tests
    "cudnn"     flash attention of cuDNN, on NVIDIA's GPUs from the A100 on

Both go over blocks of keys with a running softmax, and compute scores again for the gradients
(FlashAttention, Dao et al. 2022). What they cannot do by themselves is done around them: lengths
off the block are padded, queries without a key get zeros, masks that differ by head are masks of
sequences with one head each, and cuDNN, which knows numbers of keys alone, gets the real ones first
(without later keys to hide, their order does not matter).
"""

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.errors import InputError
from longsum_jax.ops.platform import target_kind, target_platform
from longsum_jax.ops.remat import MARK
from longsum_jax.typing import AnyArray

Kernel = Literal["splash", "cudnn"]
AttentionBackend = Literal["auto", "reference", "splash", "cudnn"]

# Fewer queries, such as the beams of a document, or fewer keys have few scores, and would fill
# little of a kernel's block.
MIN_QUERIES, MIN_KEYS = 64, 128
_LANES = 128  # lengths of blocks are multiples of it on TPUs
_MAX_BLOCK = 512  # queries and keys of a block on TPUs
# GPUs with compute capability 8 and more, by the beginnings of JAX's names of them.
_CUDNN_GPUS = ("A10", "A40", "L4", "H100", "H200", "GH200", "B200", "GB200")
_CUDNN_MAX_HEAD_DIM = 128
_CUDNN_DTYPES = (jnp.bfloat16, jnp.float16)


def choose_kernel(
    backend: AttentionBackend,
    dtype: Any,
    *,
    num_queries: int,
    num_keys: int,
    head_dim: int,
    causal: bool,
    has_mask: bool,
) -> Kernel | None:
    """Returns the kernel for attention without a bias and dropout, None for the reference.

    Args:
        backend: "auto" for the kernel of the devices that the program is made for, if it computes
            no less exactly than the reference; "reference" for none; or a kernel, wherever it can.
        dtype: of queries, keys and values.
        num_queries, num_keys, head_dim: their sizes.
        causal: queries see no later keys.
        has_mask: keys are masked.

    Raises:
        InputError: "cudnn" in a program for other devices than GPUs.
    """
    if backend == "cudnn" and target_platform() != "gpu":
        raise InputError(
            f'attention_backend is "cudnn", but the program is for the platform '
            f'"{target_platform()}"; give "auto" for the kernel of its devices'
        )
    if backend == "reference" or num_queries < MIN_QUERIES or num_keys < MIN_KEYS:
        return None
    dtype = jnp.dtype(dtype)
    kernel = _kernel_of_target(dtype) if backend == "auto" else backend
    if kernel == "cudnn":
        head_fits = head_dim % 8 == 0 and head_dim <= _CUDNN_MAX_HEAD_DIM
        can = head_fits and dtype in _CUDNN_DTYPES and not (causal and has_mask)
    else:
        can = dtype != jnp.float16  # which TPUs do not have
    return kernel if can else None


def _kernel_of_target(dtype: Any) -> Kernel | None:
    platform = target_platform()
    if platform == "tpu" and dtype == jnp.bfloat16:
        return "splash"
    is_capable = target_kind().removeprefix("NVIDIA ").startswith(_CUDNN_GPUS)
    if platform == "gpu" and is_capable and dtype in _CUDNN_DTYPES:
        return "cudnn"
    return None


def fused_attention(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length heads head_dim"],
    v: Float[AnyArray, "batch key_length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #key_length"] | None = None,
    *,
    kernel: Kernel,
    causal: bool = False,
    scale: float = 1.0,
    spec: PartitionSpec | None = None,
) -> Float[Array, "batch query_length heads head_dim"]:
    """Computes softmax(scale q k) v by a fused kernel.

    Args:
        q, k, v: queries, keys and values; as many queries as keys if ``causal``.
        mask: True on the keys that a head reads; a query without a key gets zeros.
        kernel: of ``choose_kernel``.
        causal: queries see no later keys.
        scale: factor of the products.
        spec: mesh axes of (batch, length, heads, head_dim) of the active mesh, where there is one.
            XLA cannot partition a kernel: each device computes its rows and heads, and lengths are
            not sharded.

    Returns:
        The attended values in the type of ``v``.
    """
    if mask is not None:
        mask = jnp.broadcast_to(mask, (len(k), mask.shape[1], k.shape[1]))

    def attend(q: AnyArray, k: AnyArray, v: AnyArray, mask: AnyArray | None) -> Array:
        return _attend(q, k, v, mask, kernel, causal, scale)

    if spec is None:
        return attend(q, k, v, mask)
    batch, _, heads, _ = (*spec, *[None] * 4)[:4]
    layout = PartitionSpec(batch, None, heads, None)
    masked_heads = heads if mask is not None and mask.shape[1] > 1 else None
    return jax.shard_map(
        attend,
        in_specs=(layout, layout, layout, PartitionSpec(batch, masked_heads, None)),
        out_specs=layout,
        check_vma=False,  # Pallas does not say on which axes the results of a kernel vary
    )(q, k, v, mask)


def _attend(
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray | None,
    kernel: Kernel,
    causal: bool,
    scale: float,
) -> Array:
    """Computes ``fused_attention`` on one device; ``mask`` is [batch, 1 or heads, key_length]."""
    batch, _, heads, _ = q.shape
    differs_by_head = mask is not None and mask.shape[1] > 1
    if differs_by_head:
        q, k, v = (_heads_as_rows(x) for x in (q, k, v))
    row_mask = None if mask is None else mask.reshape(len(q), -1)
    if kernel == "splash":
        out = _splash_attention(q, k, v, row_mask, causal=causal, scale=scale)
    else:
        out = _cudnn_attention(q, k, v, row_mask, causal=causal, scale=scale)
    if row_mask is not None:
        # A kernel gives a mean of values to a query without a key. These are not read, so that
        # they have no gradients either.
        reads_any = row_mask.cumsum(-1) > 0 if causal else row_mask.any(-1, keepdims=True)
        out = jnp.where(reads_any[..., None, None], out, 0)
    return _rows_as_heads(out, batch, heads) if differs_by_head else out


def _heads_as_rows(x: AnyArray) -> Array:
    """[batch, length, heads, head_dim] -> [batch * heads, length, 1, head_dim]."""
    _, length, _, head_dim = x.shape
    return x.swapaxes(1, 2).reshape(-1, length, 1, head_dim)


def _rows_as_heads(x: AnyArray, batch: int, heads: int) -> Array:
    """[batch * heads, length, 1, head_dim] -> [batch, length, heads, head_dim]."""
    _, length, _, head_dim = x.shape
    return x.reshape(batch, heads, length, head_dim).swapaxes(1, 2)


# TPUs


def _splash_attention(
    q: Float[AnyArray, "rows query_length heads head_dim"],
    k: Float[AnyArray, "rows key_length heads head_dim"],
    v: Float[AnyArray, "rows key_length heads head_dim"],
    mask: Bool[AnyArray, "rows key_length"] | None,
    *,
    causal: bool,
    scale: float,
) -> Float[Array, "rows query_length heads head_dim"]:
    # Here, because importing Pallas takes a third of a second.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    rows, num_queries, heads, _ = q.shape
    num_keys = k.shape[1]
    query_block, padded_queries = _blocks(num_queries)
    key_block, padded_keys = _blocks(num_keys)
    if mask is None and padded_keys > num_keys and not causal:
        mask = jnp.ones((rows, num_keys), bool)  # padding is later than all queries if causal

    segments = None
    if mask is not None:
        # Queries see the keys of their own segment: all of them are in segment 1.
        keys = jnp.pad(mask, ((0, 0), (0, padded_keys - num_keys))).astype(jnp.int32)
        segments = splash.SegmentIds(jnp.ones((rows, padded_queries), jnp.int32), keys)
    shape = (padded_queries, padded_keys)
    pairs = masks.CausalMask(shape) if causal else masks.FullMask(shape)
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
        residual_checkpoint_name=MARK,  # as ``save_for_backward``
        interpret=target_platform() != "tpu",
    )
    q = _padded_heads_first(q * scale, padded_queries)
    k = _padded_heads_first(k, padded_keys)
    v = _padded_heads_first(v, padded_keys)
    out = _call_splash(kernel, q, k, v, segments)
    return out[:, :, :num_queries].swapaxes(1, 2)


@jax.custom_vjp
def _call_splash(kernel: Callable[..., Array], *arrays: Any) -> Array:
    """Calls a kernel and its gradients with the products that its operands allow.

    Mosaic refuses bfloat16 operands under a default precision above that of bfloat16, under which
    their products are exact already.
    """
    return _call_splash_forward(kernel, *arrays)[0]


def _call_splash_forward(kernel: Callable[..., Array], *arrays: Any) -> tuple[Array, Any]:
    with _products_of(arrays[0].dtype):
        return jax.vjp(jax.vmap(kernel), *arrays)


def _call_splash_backward(pull_back: Any, gradient: AnyArray) -> tuple[Any, ...]:
    with _products_of(gradient.dtype):
        return None, *pull_back(gradient)  # a kernel is a tree of tables of blocks


_call_splash.defvjp(_call_splash_forward, _call_splash_backward)


def _products_of(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    is_narrow = dtype == jnp.bfloat16
    return jax.default_matmul_precision("default") if is_narrow else contextlib.nullcontext()


def _blocks(length: int) -> tuple[int, int]:
    """Returns the size of equal blocks for ``length`` positions, and the length padded to them."""
    num_blocks = -(-length // _MAX_BLOCK)
    lanes = -(-length // (num_blocks * _LANES))
    return lanes * _LANES, lanes * _LANES * num_blocks


def _padded_heads_first(x: AnyArray, length: int) -> Array:
    """[rows, positions, heads, head_dim] -> [rows, heads, length, head_dim], zeros at the end."""
    x = x.swapaxes(1, 2)
    return jnp.pad(x, ((0, 0), (0, 0), (0, length - x.shape[2]), (0, 0)))


# GPUs


def _cudnn_attention(
    q: Float[AnyArray, "rows query_length heads head_dim"],
    k: Float[AnyArray, "rows key_length heads head_dim"],
    v: Float[AnyArray, "rows key_length heads head_dim"],
    mask: Bool[AnyArray, "rows key_length"] | None,
    *,
    causal: bool,
    scale: float,
) -> Float[Array, "rows query_length heads head_dim"]:
    counts = None
    if mask is not None:
        order = jnp.argsort(~mask, axis=1, stable=True)
        k, v = _permute(k, order), _permute(v, order)
        counts = mask.sum(1)
        # Nothing that a kernel may read or write behind the last key gets any further.
        is_key = (jnp.arange(mask.shape[1]) < counts[:, None])[..., None, None]
        k, v = jnp.where(is_key, k, 0), jnp.where(is_key, v, 0)
        counts = jnp.maximum(counts, 1).astype(jnp.int32)
    # Not marked by ``save_for_backward``: what the gradients need besides has no name in JAX, so
    # that layers that are computed again run the forward kernel again in any case.
    return jax.nn.dot_product_attention(
        q,
        k,
        v,
        scale=scale,
        is_causal=causal,
        key_value_seq_lengths=counts,
        implementation="cudnn",
    )


@jax.custom_vjp
def _permute(
    x: Float[AnyArray, "rows length heads head_dim"], order: Int[AnyArray, "rows length"]
) -> Float[Array, "rows length heads head_dim"]:
    """Returns position ``order[i]`` at position i; its gradient is a gather, too, no scatter."""
    return jnp.take_along_axis(x, order[..., None, None], axis=1)


def _permute_forward(x: AnyArray, order: AnyArray) -> tuple[Array, AnyArray]:
    return _permute(x, order), order


def _permute_backward(order: AnyArray, gradient: AnyArray) -> tuple[Array, None]:
    inverse = jnp.argsort(order, axis=1)
    return jnp.take_along_axis(gradient, inverse[..., None, None], axis=1), None


_permute.defvjp(_permute_forward, _permute_backward)
