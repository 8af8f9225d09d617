"""Attention over some of the keys at a time, merged into one softmax afterwards.

For sets of keys that want queries in different orders, such as windows and strides, or rounds of hashing: each part
keeps the logarithm of its sum of exponentials, and parts are averaged by those sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from longsum_jax.ops.attention import masked_exponentials
from longsum_jax.ops.blocks import from_blocks, to_blocks
from longsum_jax.ops.key_sets import BlockBias, Dropout, KeySet, max_score_bytes
from longsum_jax.typing import Array

NEVER = -1e30  # a score that no other can be lower than; finite, so that differences stay numbers


class Partial(NamedTuple):
    """The softmax over some keys: out [..., H, K] and the log of the sum of exponentials [..., H], both float32."""

    out: Array
    log_total: Array

    def map(self, function) -> "Partial":
        """Both arrays reordered alike; ``function`` sees [..., H, K] and [..., H, 1]."""
        return Partial(function(self.out), function(self.log_total[..., None])[..., 0])


def merge_partials(parts: Sequence[Partial]) -> Array:
    """The mean of the values under one softmax over the keys of all parts, float32; zeros where none saw a key."""
    log_totals = jnp.stack([part.log_total for part in parts])
    shares = jax.nn.softmax(log_totals, axis=0)
    return sum(part.out * share[..., None] for part, share in zip(parts, shares, strict=True))


def attend_partially(
    q: Array, key_set: KeySet, *more: KeySet, scale: float = 1.0, dropout: Dropout | None = None
) -> Partial:
    """``ops.key_sets.attend_key_sets`` with what is needed to merge it; same shapes, [B, N, C, H, K] queries.

    Scores that would take too much memory at once are computed for some blocks at a time, and again for gradients.
    """
    key_sets, blocks = (key_set, *more), q.shape[1]
    arrays, tree = jax.tree.flatten(_arrays(key_sets))
    own = [x.ndim != 4 and x.shape[1] == blocks for x in arrays]  # four axes: keys that all blocks share

    def attend(piece) -> Partial:
        number, q, *rows = piece
        rows = iter(rows)
        parts = [next(rows) if mine else x for x, mine in zip(arrays, own, strict=True)]
        return _attend(q, key_sets, jax.tree.unflatten(tree, parts), scale, dropout and dropout.fold(number))

    rows = [q, *(x for x, mine in zip(arrays, own, strict=True) if mine)]
    width = sum(s.k.shape[-3] for s in key_sets)
    pieces = min(blocks, -(-4 * q.size // q.shape[-1] * width // max_score_bytes()))
    if pieces <= 1:
        return attend((0, *rows))
    size = -(-blocks // pieces)
    xs = [to_blocks(x, size).swapaxes(0, 1) for x in rows]
    # The loop itself keeps a piece from being merged with its second computation.
    out = lax.map(jax.checkpoint(attend, prevent_cse=False), (jnp.arange(xs[0].shape[0]), *xs))
    return Partial(*(from_blocks(x.swapaxes(0, 1), blocks) for x in out))


def _arrays(key_sets: Sequence[KeySet]) -> list[tuple]:
    """Keys, values, mask and bias (or what it is made of) of each set; those of single blocks have five axes."""
    five = lambda x: None if x is None else x.reshape((1,) * (5 - x.ndim) + x.shape)  # noqa: E731
    biases = [s.bias.blocks if isinstance(s.bias, BlockBias) else five(s.bias) for s in key_sets]
    return [(s.k, s.v, five(s.mask), bias) for s, bias in zip(key_sets, biases, strict=True)]


def _attend(q: Array, key_sets: Sequence[KeySet], arrays, scale: float, dropout: Dropout | None) -> Partial:
    scores, masks = [], []
    for key_set, (k, _, mask, bias) in zip(key_sets, arrays, strict=True):
        keys = "bnwhk" if k.ndim == 5 else "bwhk"
        part = jnp.einsum(f"bnchk,{keys}->bnhcw", q, k, preferred_element_type=jnp.float32) * scale
        if bias is not None:
            part += key_set.bias.function(bias) if isinstance(key_set.bias, BlockBias) else bias
        scores.append(part)
        masks.append(jnp.ones(part.shape, bool) if mask is None else jnp.broadcast_to(mask, part.shape))
    scores, mask = jnp.concatenate(scores, -1), jnp.concatenate(masks, -1)
    weights, total = masked_exponentials(scores, mask)
    top = lax.stop_gradient(jnp.where(mask, scores, jnp.finfo(scores.dtype).min).max(-1))
    log_total = jnp.where(mask.any(-1), top + jnp.log(total[..., 0]), NEVER)
    out = _mix(weights if dropout is None else dropout(weights), arrays)
    return Partial(jnp.moveaxis(out / total, 2, 3), jnp.moveaxis(log_total, 2, 3))


def _mix(weights: Array, arrays) -> Array:
    """[B, N, H, C, K] float32."""
    out, start = 0.0, 0
    for _, v, _, _ in arrays:
        values, width = "bnwhk" if v.ndim == 5 else "bwhk", v.shape[-3]
        part = weights[..., start : start + width].astype(v.dtype)
        out += jnp.einsum(f"bnhcw,{values}->bnhck", part, v, preferred_element_type=jnp.float32)
        start += width
    return out
