"""Attention by fused kernels of accelerators: scores stay in on-chip memory.

Four kernels compute what ``dense.dot_product_attention`` does; only ours have
biases, by distance (``StepBias``), dropout, and segments of packed rows:

    "splash"    JAX's Pallas kernel for TPUs
    "mosaic"    a Pallas kernel of this package for TPUs, for position biases,
                dropout, packed rows, parts of the keys, and heads of fewer than
                128 dimensions (splash pads these to 128, and XLA copies them
                for it)
    "cudnn"     flash attention of cuDNN, on NVIDIA's GPUs in ``_GPUS``
    "triton"    a Pallas kernel of this package for these GPUs, for cases that
                cuDNN does not support: windows and other patterns, masks in
                causal attention, soft caps of scores, position biases,
                dropout, packed rows, parts of the keys, and heads of more than
                128 dimensions

The Pallas kernels are interpreted on other devices, for tests. All kernels
loop over blocks of keys with a running softmax, and recompute scores for the
gradients (FlashAttention, Dao et al. 2022). Wrappers handle what they do not
support: lengths are padded to whole blocks, for cuDNN to even ones; queries
without a key get zeros; except for kernels of this package, masks that differ
by head become masks of sequences with one head each; and for cuDNN, which takes
the number of keys and no mask, real keys are moved to the front (their order
does not matter in attention that is not causal).

Sparse attention is expressed as attention of rows of queries, each with
separate keys under one softmax: the keys of its part of the text with a margin
on either side, followed by keys that all rows share, such as global tokens. A
``Pattern`` defines which keys of its row a query reads; it is the same for all
rows, so that its table of blocks is small for texts of any length. Two rows of
four queries with a window of one token on either side and a global token:

    queries          keys
    row 0  [0 1 2 3]   [. 0 1 2 3 4 g]       query 0 reads  [. 0 1 - - - g]
    row 1  [4 5 6 7]   [3 4 5 6 7 . g]       query 5 reads  [- 4 5 6 - - g]

If a mesh shards the text, every device has rows of its part, and its margins
come from the neighboring devices.
"""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Shaped

from longsum_jax.errors import InputError
from longsum_jax.ops.attention.dense import (
    Scale,
    product_factor,
    score_cap,
)
from longsum_jax.ops.attention.key_sets import (
    KeySet,
    PartialSoftmax,
    WeightDropout,
)
from longsum_jax.ops.attention.relative_position import StepBias
from longsum_jax.ops.packing import SegmentIds
from longsum_jax.ops.padding import append_zeros, zero_unless
from longsum_jax.ops.platform import LANES, target_kind, target_platform
from longsum_jax.ops.random_masks import head_words
from longsum_jax.typing import AnyArray

Kernel = Literal["splash", "mosaic", "cudnn", "triton"]
AttentionBackend = Literal[
    "auto", "reference", "splash", "mosaic", "cudnn", "triton"
]
# Function of int32 positions of queries and of keys in a row, which broadcast;
# returns True if a query reads a key. It is hashable and only uses operations
# that NumPy and kernels have (no integer division).
Pattern = Callable[[Any, Any], Any]
# Computes ``fused_attention`` by a selected kernel.
FusedAttention = Callable[..., Array]
# Computes ``fused_part`` by a selected kernel.
FusedPart = Callable[..., PartialSoftmax]


class KeyCounts(NamedTuple):
    """A mask of the first keys of every row, from ``move_keys_first``.

    Attributes:
        counts: number of keys that the queries of a row read.
    """

    counts: Int[AnyArray, " rows"]


class KernelChoice(NamedTuple):
    """The kernel selected for an attention, or the reason for the reference implementation.

    Attributes:
        kernel: selected kernel; None for the reference.
        reason: reason for the reference; "" if a kernel would not help.
    """

    kernel: Kernel | None
    reason: str = ""


_CHOICES: ContextVar[dict[str, KernelChoice] | None] = ContextVar(
    "choices", default=None
)

# Below these sizes, as with the beams of a document, there are too few scores to
# fill a block of a kernel.
MIN_QUERIES, MIN_KEYS = 64, 128
# Maximum number of queries of a row. Tables of blocks grow with it; but rows copy
# their margins, and XLA for TPUs copies a text several times to divide it.
MAX_ROW, _MAX_ROW_OF_TPUS = 2**12, 2**14
# JAX's names of GPUs with compute capability 8 or higher: A100, L4, H100, GB200
# and their like, GeForce RTX from the 30 series, and workstations' RTX A6000.
_GPUS = re.compile(r"NVIDIA ((A|L|H|B|GH|GB)\d|GeForce RTX [3-9]0|RTX )")
_CUDNN_MAX_HEAD_DIM, _TRITON_MAX_HEAD_DIM = 128, 256
_MOSAIC_MIN_HEAD_DIM = 8
_GPU_DTYPES = (jnp.bfloat16, jnp.float16)
# The kernels that lack a feature.
_WITHOUT: Mapping[str, tuple[Kernel, ...]] = {
    "patterns": ("cudnn",),
    "soft caps": ("cudnn",),
    "position biases": ("splash", "cudnn"),
    "dropout": ("splash", "cudnn"),
    "packed rows": ("splash", "cudnn"),
    "parts of the keys": ("splash", "cudnn"),
}


@contextlib.contextmanager
def noted_choices() -> Iterator[dict[str, KernelChoice]]:
    """Collects the choices of programs that are traced inside, by layer name."""
    choices: dict[str, KernelChoice] = {}
    token = _CHOICES.set(choices)
    try:
        yield choices
    finally:
        _CHOICES.reset(token)


def note_choice(layer: str, choice: KernelChoice) -> None:
    """Records a choice for ``noted_choices``, if choices are being collected."""
    choices = _CHOICES.get()
    if choices is not None:
        choices[layer] = choice


def choose_kernel(
    backend: AttentionBackend,
    dtype: Any,
    *,
    num_queries: int,
    num_keys: int,
    head_dim: int,
    causal: bool,
    has_mask: bool,
    has_pattern: bool = False,
    has_cap: bool = False,
    has_bias: bool = False,
    has_dropout: bool = False,
    has_segments: bool = False,
    has_parts: bool = False,
) -> KernelChoice:
    """Selects the kernel for an attention.

    Args:
        backend: "auto" for the kernel of the target's devices, if it is at
            least as exact as the reference; "reference" for no kernel; or the
            name of a kernel, used if it supports the arguments and these are
            not too small.
        dtype: dtype of queries, keys and values.
        num_queries, num_keys, head_dim: sizes of the arrays.
        causal: True if queries see no later keys.
        has_mask: True if keys are masked.
        has_pattern: True if queries read different keys of a row.
        has_cap: True if scores have a soft cap.
        has_bias: True if scores have a bias by distance (``StepBias``).
        has_dropout: True if weights are dropped.
        has_segments: True if rows are packed.
        has_parts: True for attention to parts of the keys, see ``fused_part``.

    Raises:
        InputError: "cudnn" in a program for devices other than GPUs.
    """
    if backend == "cudnn" and target_platform() != "gpu":
        raise InputError(
            f'attention_backend is "cudnn", but the program is for the platform '
            f'"{target_platform()}"; give "auto" for the kernel of its devices'
        )
    if backend == "reference":
        return KernelChoice(None, 'attention_backend is "reference"')
    if num_queries < MIN_QUERIES or num_keys < MIN_KEYS:
        return KernelChoice(None)
    dtype = jnp.dtype(dtype)
    features = {
        "patterns": has_pattern,
        "soft caps": has_cap,
        "position biases": has_bias,
        "dropout": has_dropout,
        "packed rows": has_segments,
        "parts of the keys": has_parts,
    }
    needs_triton = (
        bool(_missing("cudnn", features))
        or (causal and has_mask)
        or head_dim > _CUDNN_MAX_HEAD_DIM
    )
    if backend == "auto":
        needs_mosaic = bool(_missing("splash", features))
        kernel = _kernel_of_target(
            dtype, num_queries, head_dim, needs_mosaic, needs_triton
        )
    else:
        kernel = backend
    if kernel is None:
        platform = target_platform()
        # CPUs never have a fused kernel, which needs no explanation.
        reason = ""
        if platform != "cpu":
            reason = f"no kernel for {dtype} on this {platform}"
        return KernelChoice(None, reason)
    missing = _missing(kernel, features)
    if missing:
        reason = f'the kernel "{kernel}" has no {" and no ".join(missing)}'
    elif kernel in ("cudnn", "triton"):
        reason = _refusal_of_gpus(kernel, dtype, head_dim, needs_triton)
    elif dtype == jnp.float16:
        reason = "TPUs have no float16"
    elif kernel == "mosaic":
        reason = _refusal_of_mosaic(num_queries, head_dim, dtype.itemsize)
    else:
        reason = ""
    return KernelChoice(None if reason else kernel, reason)


def _missing(kernel: Kernel, features: Mapping[str, bool]) -> list[str]:
    """Returns the features in use that a kernel lacks."""
    return [
        name
        for name, is_used in features.items()
        if is_used and kernel in _WITHOUT[name]
    ]


def _refusal_of_gpus(
    kernel: Kernel, dtype: Any, head_dim: int, needs_triton: bool
) -> str:
    """Returns why a kernel of GPUs does not support an attention; "" if it does."""
    is_supported = head_dim % 8 == 0 and head_dim <= _TRITON_MAX_HEAD_DIM
    if not is_supported or dtype not in _GPU_DTYPES:
        return (
            f"kernels of GPUs have no heads of {head_dim} dimensions in {dtype}"
        )
    if kernel == "cudnn" and needs_triton:
        return (
            'the kernel "cudnn" has no masks in causal attention, and no heads of '
            f"more than {_CUDNN_MAX_HEAD_DIM} dimensions"
        )
    return ""


def _refusal_of_mosaic(num_queries: int, head_dim: int, itemsize: int) -> str:
    """Returns why our kernel of TPUs does not support an attention; "" if it does."""
    from longsum_jax.ops.attention.kernel_blocks import tpu_block

    if head_dim < _MOSAIC_MIN_HEAD_DIM:
        return (
            f"the kernel of TPUs has no heads of fewer than {_MOSAIC_MIN_HEAD_DIM} "
            "dimensions"
        )
    if tpu_block(num_queries, head_dim, itemsize) is None:
        return (
            f"{num_queries} queries of {head_dim} dimensions do not fit in the "
            "on-chip memory of a TPU"
        )
    return ""


def _kernel_of_target(
    dtype: Any,
    num_queries: int,
    head_dim: int,
    needs_mosaic: bool,
    needs_triton: bool,
) -> Kernel | None:
    platform = target_platform()
    if platform == "tpu" and dtype == jnp.bfloat16:
        # splash pads heads to whole lanes, ours does not
        is_padded = head_dim < LANES and not _refusal_of_mosaic(
            num_queries, head_dim, dtype.itemsize
        )
        return "mosaic" if needs_mosaic or is_padded else "splash"
    is_capable = _GPUS.match(target_kind()) is not None
    if platform == "gpu" and is_capable and dtype in _GPU_DTYPES:
        return "triton" if needs_triton else "cudnn"
    return None


def fused_attention(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length heads head_dim"],
    v: Float[AnyArray, "batch key_length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #key_length"] | KeyCounts | None = None,
    *,
    kernel: Kernel,
    causal: bool = False,
    pattern: Pattern | None = None,
    biases: Sequence[StepBias] = (),
    dropout: WeightDropout | None = None,
    segment_ids: SegmentIds | None = None,
    scale: Scale = 1.0,
    spec: PartitionSpec | None = None,
) -> Float[Array, "batch query_length heads head_dim"]:
    """Computes softmax(scale q k) v by a fused kernel.

    Args:
        q, k, v: queries, keys and values; as many queries as keys if
            ``causal``.
        mask: True on the keys that a head reads; a query without a key gets
            zeros. ``KeyCounts`` only for "cudnn".
        kernel: kernel from ``choose_kernel``.
        causal: True if queries see no later keys.
        pattern: keys that each query reads, among the keys in the mask; not for
            "cudnn".
        biases: biases by distance, of different keys; only for "mosaic" and
            "triton".
        dropout: dropout of the weights, only for "mosaic" and "triton".
        segment_ids: segments of the keys (source) and queries (target) of
            packed rows, whose queries only read keys of their segment; only
            for "mosaic" and "triton".
        scale: factor of the query-key products, possibly with a soft cap, which
            "cudnn" does not support.
        spec: mesh axes of (batch, length, heads, head_dim) of the active mesh,
            if there is one. XLA cannot partition a kernel: each device computes
            its rows and heads, and lengths are not sharded.

    Returns:
        The attended values in the type of ``v``.

    Raises:
        InputError: arguments that the kernel does not support.
    """
    features = {
        "patterns": pattern is not None,
        "soft caps": score_cap(scale) is not None,
        "position biases": bool(biases),
        "dropout": dropout is not None and dropout.rate > 0,
        "packed rows": segment_ids is not None,
    }
    missing = _missing(kernel, features)
    if missing:
        raise InputError(
            f'the kernel "{kernel}" has no {" and no ".join(missing)}; take the '
            "kernel that choose_kernel returns for these arguments"
        )
    if causal and pattern is not None:
        pattern = _CausalPattern(pattern)
    if mask is not None and not isinstance(mask, KeyCounts):
        mask = jnp.broadcast_to(mask, (len(k), mask.shape[1], k.shape[1]))

    def attend(
        q: AnyArray,
        k: AnyArray,
        v: AnyArray,
        mask: AnyArray | KeyCounts | None,
        values: Sequence[AnyArray],
        positions: Sequence[AnyArray | None],
        words: AnyArray | None,
        segment_ids: SegmentIds | None,
    ) -> Array:
        local = [
            dataclasses.replace(bias, values=x, queries=y)
            for bias, x, y in zip(biases, values, positions, strict=True)
        ]
        return _attend(
            q,
            k,
            v,
            mask,
            kernel,
            words=words,
            share=share,
            biases=local,
            segment_ids=segment_ids,
            causal=causal,
            pattern=pattern,
            scale=scale,
        )

    values = [bias.values for bias in biases]
    positions = [bias.queries for bias in biases]
    # For all devices, so that their number does not change what is dropped.
    share, words = _dropout_words(dropout, q)
    if spec is None:
        return attend(q, k, v, mask, values, positions, words, segment_ids)
    batch, heads, layout, of_mask = _layouts(spec, mask)
    return jax.shard_map(
        attend,
        in_specs=(
            layout,
            layout,
            layout,
            of_mask,
            PartitionSpec(heads, None),
            PartitionSpec(batch, None),
            PartitionSpec(batch, heads, None),
            PartitionSpec(batch, None),
        ),
        out_specs=layout,
        # Pallas does not declare over which axes the results of a kernel vary
        check_vma=False,
    )(q, k, v, mask, values, positions, words, segment_ids)


def fused_part(
    q: Float[AnyArray, "batch query_length heads head_dim"],
    k: Float[AnyArray, "batch key_length heads head_dim"],
    v: Float[AnyArray, "batch key_length heads head_dim"],
    mask: Bool[AnyArray, "#batch #heads #key_length"] | None = None,
    *,
    kernel: Kernel,
    pattern: Pattern | None = None,
    dropout: WeightDropout | None = None,
    scale: Scale = 1.0,
    spec: PartitionSpec | None = None,
) -> PartialSoftmax:
    """Computes ``fused_attention`` to some of the keys, to be merged with attention to the others.

    Args:
        q, k, v, mask, pattern, dropout, scale, spec: see ``fused_attention``.
        kernel: "mosaic" or "triton".

    Returns:
        ``out`` [batch, query_length, heads, head_dim] in the type of ``v``, and
        the log-sum-exp of the scores [batch, query_length, heads].
    """
    if mask is not None:
        mask = jnp.broadcast_to(mask, (len(k), mask.shape[1], k.shape[1]))
    share, words = _dropout_words(dropout, q)
    attend = functools.partial(
        _kernel_of_package(kernel), pattern=pattern, share=share, scale=scale
    )

    def run(
        q: AnyArray,
        k: AnyArray,
        v: AnyArray,
        mask: AnyArray | None,
        words: AnyArray | None,
    ) -> tuple[Array, Array]:
        softmax = attend(q, k, v, mask, words=words)
        return softmax.out, softmax.log_sum_exp

    arrays = q, k, v, mask, words
    if spec is None:
        return PartialSoftmax(*run(*arrays))
    batch, heads, layout, of_mask = _layouts(spec, mask)
    of_words = PartitionSpec(batch, heads, None)
    result = jax.shard_map(
        run,
        in_specs=(layout, layout, layout, of_mask, of_words),
        out_specs=(layout, PartitionSpec(batch, None, heads)),
        check_vma=False,  # as in ``fused_attention``
    )(*arrays)
    return PartialSoftmax(*result)


def _layouts(
    spec: PartitionSpec, mask: AnyArray | KeyCounts | None
) -> tuple[Any, Any, PartitionSpec, PartitionSpec]:
    """Returns the mesh axes of rows and of heads, and the layouts of queries and of the mask."""
    batch, _, heads, _ = (*spec, *[None] * 4)[:4]
    layout = PartitionSpec(batch, None, heads, None)
    if isinstance(mask, KeyCounts):
        return batch, heads, layout, PartitionSpec(batch)
    masked_heads = None
    if mask is not None and mask.shape[1] > 1:
        masked_heads = heads
    return batch, heads, layout, PartitionSpec(batch, masked_heads, None)


def _dropout_words(
    dropout: WeightDropout | None, q: AnyArray
) -> tuple[float, Array | None]:
    """Returns the share of the weights that dropout keeps, and its ``head_words``."""
    if dropout is None or dropout.rate == 0:
        return 1.0, None
    words = head_words(dropout.rng, len(q), q.shape[2])
    return 1 - dropout.rate, words


def _kernel_of_package(kernel: Kernel) -> Callable[..., PartialSoftmax]:
    """Returns the function of a kernel of this package."""
    if kernel == "triton":
        from longsum_jax.ops.attention.triton import triton_attention

        return triton_attention
    from longsum_jax.ops.attention.mosaic import mosaic_attention

    return mosaic_attention


@dataclasses.dataclass(frozen=True)
class _CausalPattern:
    """A pattern without the keys after a query."""

    pattern: Pattern

    def __call__(self, queries: AnyArray, keys: AnyArray) -> AnyArray:
        return self.pattern(queries, keys) & (keys <= queries)


def _attend(
    q: AnyArray,
    k: AnyArray,
    v: AnyArray,
    mask: AnyArray | KeyCounts | None,
    kernel: Kernel,
    *,
    words: AnyArray | None,
    share: float,
    biases: Sequence[StepBias],
    segment_ids: SegmentIds | None,
    **options: Any,
) -> Array:
    """Computes ``fused_attention`` on one device; ``mask`` is [batch, 1 or heads, key_length]."""
    if isinstance(mask, KeyCounts):
        factor = product_factor(options["scale"])
        return _cudnn_attention(
            q, k, v, mask, causal=options["causal"], scale=factor
        )
    if kernel in ("mosaic", "triton"):
        options |= {"biases": biases, "share": share, "words": words}
        options["segment_ids"] = segment_ids
        return _kernel_of_package(kernel)(q, k, v, mask, **options).out
    batch, _, heads, _ = q.shape
    differs_by_head = mask is not None and mask.shape[1] > 1
    # These kernels take one mask per row, so every head becomes a row.
    if differs_by_head:
        q, k, v = (_heads_as_rows(x) for x in (q, k, v))
    if mask is None:
        row_mask = None
    else:
        row_mask = mask.reshape(len(q), -1)
    if kernel == "splash":
        from longsum_jax.ops.attention.splash import splash_attention

        out = splash_attention(q, k, v, row_mask, **options)
    else:
        factor = product_factor(options["scale"])
        out = _cudnn_attention(
            q, k, v, row_mask, causal=options["causal"], scale=factor
        )
    if differs_by_head:
        return _rows_as_heads(out, batch, heads)
    return out


def _heads_as_rows(x: AnyArray) -> AnyArray:
    """Reshapes [batch, length, heads, head_dim] to [batch * heads, length, 1, head_dim]."""
    _, length, _, head_dim = x.shape
    return x.swapaxes(1, 2).reshape(-1, length, 1, head_dim)


def _rows_as_heads(x: Array, batch: int, heads: int) -> Array:
    """Reshapes [batch * heads, length, 1, head_dim] to [batch, length, heads, head_dim]."""
    _, length, _, head_dim = x.shape
    return x.reshape(batch, heads, length, head_dim).swapaxes(1, 2)


# Sparse attention


def row_size(length: int, *, margin: int, multiple: int = 8) -> int:
    """Returns the number of queries per row of a text, at least the number of margin keys of a row.

    Args:
        length: number of tokens of the text.
        margin: number of keys of a row outside its queries, on both sides
            together.
        multiple: divisor of the result.
    """
    largest = _MAX_ROW_OF_TPUS if target_platform() == "tpu" else MAX_ROW
    num_rows = max(1, min(-(-length // largest), length // max(margin, 1)))
    size = -(-length // num_rows)
    return size + -size % multiple


def fused_key_sets(
    q: Float[AnyArray, "batch num_rows query_length heads head_dim"],
    key_sets: Sequence[KeySet],
    attend: FusedAttention,
    **options: Any,
) -> Float[Array, "batch num_rows query_length heads head_dim"]:
    """Computes ``blockwise.attend_key_sets`` by a kernel, each row with the keys of all its sets.

    Args:
        q: rows of queries.
        key_sets: sets, whose biases are not read, with masks [batch or 1, num_rows or 1,
            heads or 1, 1, num_keys].
        attend: kernel function.
        **options: keyword arguments of ``fused_attention``; the pattern is over
            the keys of all sets, concatenated.
    """
    rows = q.shape[:2]

    def of_rows(x: AnyArray) -> Array:
        x = x[:, None] if x.ndim == 4 else x
        return jnp.broadcast_to(x, (*rows, *x.shape[2:]))

    def flat(x: AnyArray) -> AnyArray:
        return x.reshape(-1, *x.shape[2:])

    mask = None
    if any(key_set.mask is not None for key_set in key_sets):
        masks = [_row_mask(key_set, rows) for key_set in key_sets]
        heads = max(x.shape[2] for x in masks)
        masks = [jnp.broadcast_to(x, (*rows, heads, x.shape[3])) for x in masks]
        mask = flat(jnp.concatenate(masks, 3))
    k = jnp.concatenate([of_rows(key_set.k) for key_set in key_sets], 2)
    v = jnp.concatenate([of_rows(key_set.v) for key_set in key_sets], 2)
    return attend(flat(q), flat(k), flat(v), mask, **options).reshape(q.shape)


def _row_mask(
    key_set: KeySet, rows: tuple[int, ...]
) -> Bool[Array, "batch num_rows mask_heads num_keys"]:
    if key_set.mask is None:
        return jnp.ones((*rows, 1, key_set.k.shape[-3]), bool)
    mask = key_set.mask[:, :, :, 0]
    return jnp.broadcast_to(mask, (*rows, *mask.shape[2:]))


# GPUs


def _cudnn_attention(
    q: Float[AnyArray, "rows query_length heads head_dim"],
    k: Float[AnyArray, "rows key_length heads head_dim"],
    v: Float[AnyArray, "rows key_length heads head_dim"],
    mask: Bool[AnyArray, "rows key_length"] | KeyCounts | None,
    *,
    causal: bool,
    scale: float,
) -> Float[Array, "rows query_length heads head_dim"]:
    counts: AnyArray | None = None
    num_queries, num_keys = q.shape[1], k.shape[1]
    q, k, v = (_of_even_length(x) for x in (q, k, v))
    # A causal query never reads the padded key.
    if mask is None and num_keys % 2 and not causal:
        counts = jnp.full(len(k), num_keys, jnp.int32)
    if isinstance(mask, KeyCounts):
        counts = mask.counts
    elif mask is not None:
        counts = _count_keys(mask)
        order = _real_first(_of_even_length(mask))
        k, v = (permute(x, *order) for x in (k, v))
        # Nothing that the kernel reads after the last key has an effect.
        k, v = (_keep_first(x, counts) for x in (k, v))
    if mask is not None:
        assert counts is not None
        k, v = (_without_other_gradients(x, counts) for x in (k, v))
        has_key = counts > 0
        counts = jnp.maximum(counts, 1)
    # Not marked by ``save_for_backward``: the other residuals of the kernel
    # have no name in JAX, so that rematerialized layers run the forward kernel
    # again in any case.
    out = jax.nn.dot_product_attention(
        q,
        k,
        v,
        scale=scale,
        is_causal=causal,
        key_value_seq_lengths=counts,
        implementation="cudnn",
    )[:, :num_queries]
    if mask is None:
        return out
    # The kernel returns a mean of values for a query without a key. Masking it
    # also masks its gradients.
    return zero_unless(has_key[:, None, None, None], out)


def move_keys_first(
    x: Shaped[AnyArray, "rows length ..."],
    mask: Bool[AnyArray, "rows length"],
) -> tuple[Shaped[Array, "rows even ..."], KeyCounts]:
    """Moves the positions of ``mask`` to the front, in their order, with zeros after them.

    If keys and values are maps of such states, the kernel of cuDNN takes them as
    they are. The result has an even length.
    """
    counts = _count_keys(mask)
    order = _real_first(_of_even_length(mask))
    moved = permute(_of_even_length(x), *order)
    return _keep_first(moved, counts), KeyCounts(counts)


def _count_keys(mask: AnyArray) -> Int[Array, " rows"]:
    return jnp.sum(mask, 1, dtype=jnp.int32)


def _real_first(
    mask: AnyArray,
) -> tuple[Int[Array, "rows length"], Int[Array, "rows length"]]:
    """Returns the positions in the mask, followed by the others, and the inverse of this order."""
    order = jnp.argsort(~mask, axis=1, stable=True)
    return order, jnp.argsort(order, axis=1)


def _keep_first(
    x: Shaped[AnyArray, "rows length ..."], counts: Int[AnyArray, " rows"]
) -> Shaped[Array, "rows length ..."]:
    """Returns ``x`` with zeros after the first ``counts`` positions."""
    is_first = jnp.arange(x.shape[1]) < counts[:, None]
    return zero_unless(
        is_first.reshape(*is_first.shape, *(1,) * (x.ndim - 2)), x
    )


@jax.custom_vjp
def _without_other_gradients(
    x: Float[AnyArray, "rows length heads head_dim"],
    counts: Int[AnyArray, " rows"],
) -> Float[AnyArray, "rows length heads head_dim"]:
    """Returns ``x``; its gradient is 0 after the first ``counts`` positions.

    The kernel may write anything there.
    """
    return x


def _without_other_gradients_forward(
    x: AnyArray, counts: AnyArray
) -> tuple[AnyArray, AnyArray]:
    return x, counts


def _without_other_gradients_backward(
    counts: AnyArray, gradient: AnyArray
) -> tuple[Array, None]:
    return _keep_first(gradient, counts), None


_without_other_gradients.defvjp(
    _without_other_gradients_forward, _without_other_gradients_backward
)


def _of_even_length(
    x: Shaped[AnyArray, "rows length ..."],
) -> Shaped[Array, "rows even ..."]:
    """Appends zeros if the length is odd, for which cuDNN has no gradients."""
    return append_zeros(x, x.shape[1] % 2)


@jax.custom_vjp
def permute(
    x: Shaped[AnyArray, "rows length ..."],
    order: Int[AnyArray, "rows length"],
    inverse: Int[AnyArray, "rows length"],
) -> Shaped[Array, "rows length ..."]:
    """Returns position ``order[i]`` at position i; its gradient is also a gather, not a scatter.

    Args:
        x: sequences.
        order, inverse: a permutation of the positions, and its inverse.
    """
    order = order.reshape(*order.shape, *(1,) * (x.ndim - 2))
    return jnp.take_along_axis(x, order, axis=1)


def _permute_forward(
    x: AnyArray, order: AnyArray, inverse: AnyArray
) -> tuple[Array, tuple[AnyArray, AnyArray]]:
    return permute(x, order, inverse), (order, inverse)


def _permute_backward(
    residuals: tuple[AnyArray, AnyArray], gradient: AnyArray
) -> tuple[Array, None, None]:
    order, inverse = residuals
    return permute(gradient, inverse, order), None, None


permute.defvjp(_permute_forward, _permute_backward)
