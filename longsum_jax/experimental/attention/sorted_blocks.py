"""Fused kernels for attention among tokens or blocks that are not in the order of the text."""

from typing import Any

from longsum_jax.layers.attention.multi_head import MultiHeadAttention


def kernel_of_blocks(
    attention: MultiHeadAttention,
    batch: int,
    rows: tuple[int, int],
    *,
    block: int,
    has_bias: bool,
    deterministic: bool,
    has_parts: bool = False,
) -> Any:
    """Returns the kernel for blocks of tokens, see ``MultiHeadAttention.fused_rows``, or None.

    Args:
        attention: layer.
        batch: number of texts.
        rows: numbers of queries and of keys per row of the kernel.
        block: number of tokens of a block; kernels compute powers of two.
        has_bias: True if scores have a bias by distance, which kernels only have
            in the order of the text.
        deterministic: False in training.
        has_parts: see ``MultiHeadAttention.fused_rows``.
    """
    if has_bias:
        attention.without_kernel("position biases between sorted tokens")
        return None
    if block & (block - 1):
        attention.without_kernel(
            f"blocks of {block} tokens, which is not a power of two"
        )
        return None
    return attention.fused_rows(
        batch,
        *rows,
        has_bias=False,
        has_parts=has_parts,
        has_pattern=True,
        deterministic=deterministic,
        by_heads=True,
    )
