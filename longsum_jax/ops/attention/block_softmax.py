"""The softmax of blocks over several sets of keys, by plain products, without loops or gradients.

``attend_at_once`` computes all blocks and heads together, ``attend_one_block``
one block of one head without batch dimensions; ``block_loops`` has loops for
both. Both have the signature ``Attend``, as do the results of
``with_folded_masks``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from longsum_jax.ops.attention.dense import (
    CappedScale,
    Scale,
    product_factor,
    scaled_scores,
)
from longsum_jax.ops.attention.key_sets import (
    FOLDED_MASK,
    KeySet,
    PartialSoftmax,
    WeightDropout,
    softmax_of_values,
)
from longsum_jax.typing import AnyArray


class BlockInputs(NamedTuple):
    """The inputs of blockwise attention: queries in blocks, and their keys.

    Attributes:
        q: queries [batch, num_blocks, block_size, heads, head_dim].
        key_sets: sets of keys in the layouts of ``prepare``.
        log_sum_exp: log-sum-exp of the forward pass, [batch, num_blocks,
            block_size, heads], or None in the forward pass; see
            ``key_sets.softmax_of_values``.
        scale: factor of the query-key products, possibly with a soft cap.
        dropout: dropout of the weights.
    """

    q: AnyArray
    key_sets: Sequence[KeySet]
    log_sum_exp: AnyArray | None
    scale: Scale
    dropout: WeightDropout | None


# Computes attention; results have the layouts of ``q`` and ``log_sum_exp``.
Attend = Callable[[BlockInputs], PartialSoftmax]


def prepare(key_set: KeySet) -> KeySet:
    """Transposes the arrays to the layouts of this module, once for all pieces.

    Masks and biases get all five axes. Shared keys become [batch, heads,
    head_dim, num_keys], the layout in which products are fastest on CPUs, and
    their values [batch, heads, num_keys, head_dim].
    """
    k, v, mask, bias = key_set
    if k.ndim == 4:
        k, v = jnp.transpose(k, (0, 2, 3, 1)), jnp.swapaxes(v, 1, 2)
    return KeySet(k, v, _with_five_axes(mask), _with_five_axes(bias))


def _with_five_axes(x: Any) -> Any:
    if hasattr(x, "ndim"):
        return x.reshape((1,) * (5 - x.ndim) + x.shape)
    return x


def attend_at_once(inputs: BlockInputs) -> PartialSoftmax:
    """Computes the attention of all blocks and heads."""

    def mix(weights: AnyArray, v: AnyArray) -> Array:
        values = "bnwhk" if v.ndim == 5 else "bhwk"
        return jnp.einsum(
            f"bnhcw,{values}->bnhck",
            weights,
            v,
            preferred_element_type=jnp.float32,
        )

    q, key_sets, log_sum_exp, scale, dropout = inputs
    scores = [_scores(q, key_set, scale) for key_set in key_sets]
    # [batch, num_blocks, heads, block_size], like the scores.
    if log_sum_exp is not None:
        log_sum_exp = log_sum_exp.swapaxes(2, 3)
    softmax = softmax_of_values(scores, key_sets, log_sum_exp, dropout, mix)
    # Back to the layout of ``q``, with the heads after the queries of a block.
    return PartialSoftmax(*(jnp.moveaxis(x, 2, 3) for x in softmax))


def _scores(q: AnyArray, key_set: KeySet, scale: Scale) -> Array:
    """Returns float32 scores [batch, num_blocks, heads, block_size, num_keys]."""
    keys = "bnwhk" if key_set.k.ndim == 5 else "bhkw"
    products = jnp.einsum(
        f"bnchk,{keys}->bnhcw", q, key_set.k, preferred_element_type=jnp.float32
    )
    return _biased(scaled_scores(products, scale), key_set)


def attend_one_block(inputs: BlockInputs) -> PartialSoftmax:
    """Computes the attention of one block of one head of one sequence."""
    dot = partial(jnp.dot, preferred_element_type=jnp.float32)
    q, key_sets, log_sum_exp, scale, dropout = inputs
    sets = [_of_one_block(key_set) for key_set in key_sets]
    products = [scaled_scores(dot(q[0, 0, :, 0], s.k), scale) for s in sets]
    scores = [_biased(x, s) for x, s in zip(products, sets, strict=True)]
    if log_sum_exp is not None:
        log_sum_exp = log_sum_exp[0, 0, :, 0]
    softmax = softmax_of_values(scores, sets, log_sum_exp, dropout, dot)
    # Restores the axes of batch, blocks and heads.
    return jax.tree.map(lambda x: x[None, None, :, None], softmax)


def _of_one_block(key_set: KeySet) -> KeySet:
    """Squeezes the axes of size 1.

    Returns:
        k [head_dim, num_keys], v [num_keys, head_dim], mask and bias
        [block_size or 1, num_keys].
    """
    k, v, mask, bias = key_set.k, key_set.v, key_set.mask, key_set.bias_of_all()
    if k.ndim == 5:
        k, v = (k[0, 0, :, 0].T, v[0, 0, :, 0])
    else:
        k, v = (k[0, 0], v[0, 0])
    mask, bias = (None if x is None else x[0, 0, 0] for x in (mask, bias))
    return KeySet(k, v, mask, bias)


def _biased(scores: Array, key_set: KeySet) -> Array:
    bias = key_set.bias_of_all()
    if bias is None:
        return scores
    return scores + bias.astype(jnp.float32)


def with_folded_masks(attend: Attend) -> Attend:
    """Returns ``attend`` with scale and key masks folded into the products of queries and keys.

    On CPUs, XLA does not fuse them with the matrix product or the maximum, so
    that each would take another pass over the scores. Instead, the queries are
    scaled beforehand and get an additional feature, 1. This feature is 0 for
    keys, or a large negative number m for masked keys:

        (a b 1) . (c d 0) = a c + b d            (a b 1) . (c d m) = m, up to rounding
    """

    def attend_folded(inputs: BlockInputs) -> PartialSoftmax:
        q, key_sets = inputs.q, inputs.key_sets
        # A soft cap would cap the score of a masked key.
        is_capped = isinstance(inputs.scale, CappedScale)
        has_masks = any(map(_is_mask_of_keys, key_sets))
        if q.dtype != jnp.float32 or is_capped or not has_masks:
            return attend(inputs)
        q = jnp.concatenate(
            [q * product_factor(inputs.scale), jnp.ones_like(q[..., :1])], -1
        )
        key_sets = [_fold_mask(key_set) for key_set in key_sets]
        return attend(inputs._replace(q=q, key_sets=key_sets, scale=1.0))

    return attend_folded


def _is_mask_of_keys(key_set: KeySet) -> bool:
    """Returns True if a prepared mask is the same for all queries of its keys."""
    if key_set.mask is None:
        return False
    _, num_blocks, heads, size, _ = key_set.mask.shape
    return heads == size == 1 and (num_blocks == 1 or key_set.k.ndim == 5)


def _fold_mask(key_set: KeySet) -> KeySet:
    """Returns prepared keys with an additional feature in place of a mask of keys."""
    k, mask = key_set.k, key_set.mask
    feature = jnp.zeros((1,) * 5)
    if mask is not None and _is_mask_of_keys(key_set):
        feature, mask = jnp.where(mask, 0.0, FOLDED_MASK), None
    if k.ndim == 5:  # [batch, num_blocks, num_keys, heads, head_dim]
        feature, axis = jnp.moveaxis(feature, 4, 2), 4
    else:  # [batch, heads, head_dim, num_keys]
        feature, axis = feature[:, 0], 2
    shape = [1 if i == axis else size for i, size in enumerate(k.shape)]
    k = jnp.concatenate(
        [k, jnp.broadcast_to(feature, shape).astype(k.dtype)], axis
    )
    return key_set._replace(k=k, mask=mask)
