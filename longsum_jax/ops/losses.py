"""Losses of token predictions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from longsum_jax.typing import IGNORED_LABEL, AnyArray


def token_cross_entropy(
    logits: Float[AnyArray, "*batch length vocab"],
    labels: Int[AnyArray, "*batch length"],
    *,
    label_smoothing: float = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the cross-entropy over all labels but IGNORED_LABEL.

    Args:
        logits: scores of the vocabulary, any float type; the loss is computed in float32.
        labels: ids of the correct tokens; IGNORED_LABEL is left out.
        label_smoothing: probability mass spread evenly over the vocabulary.

    Returns:
        (loss_sum, weight), float32 scalars; their ratio is the mean per token that PyTorch reports.
    """
    mask = jnp.asarray(labels != IGNORED_LABEL)
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    indices = jnp.where(mask, labels, 0)[..., None]
    label_log_probs = jnp.take_along_axis(log_probs, indices, axis=-1)[..., 0]
    loss = -(1 - label_smoothing) * label_log_probs
    if label_smoothing:
        loss = loss - label_smoothing * log_probs.mean(-1)
    return jnp.where(mask, loss, 0.0).sum(), mask.sum().astype(jnp.float32)


def class_cross_entropy(
    logits: Float[AnyArray, "batch classes"],
    labels: Int[AnyArray, " batch"] | Float[AnyArray, "batch classes"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the losses of a classification over all rows without IGNORED_LABEL.

    Args:
        logits: scores of the classes.
        labels: ids of the classes, [batch], for softmax cross-entropy; or ones and zeros, [batch,
            classes], for the mean over the classes of binary cross-entropies (as PyTorch's
            BCEWithLogitsLoss). IGNORED_LABEL marks rows to leave out.

    Returns:
        (loss_sum, weight), float32 scalars.
    """
    if labels.ndim == 1:
        return token_cross_entropy(logits[:, None], labels[:, None])
    mask = jnp.asarray(labels[:, 0] != IGNORED_LABEL)
    logits = logits.astype(jnp.float32)
    # -log sigmoid(x) = softplus(-x), -log(1 - sigmoid(x)) = softplus(x) = softplus(-x) + x
    losses = jax.nn.softplus(-logits) + (1 - labels) * logits
    return jnp.where(mask, losses.mean(-1), 0.0).sum(), mask.sum().astype(jnp.float32)


def shift_right(
    labels: Int[AnyArray, "*batch length"], *, start_id: int, pad_id: int
) -> Int[Array, "*batch length"]:
    """Returns the decoder inputs for ``labels``: the start token, then all labels but the last.

    Ignored labels become padding.
    """
    shifted = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)
    return jnp.where(shifted == IGNORED_LABEL, pad_id, shifted)
