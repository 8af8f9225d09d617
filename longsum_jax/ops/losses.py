"""Losses of token predictions."""

import jax
import jax.numpy as jnp

from longsum_jax.typing import IGNORED_LABEL, Array


def token_cross_entropy(
    logits: Array, labels: Array, *, label_smoothing: float = 0.0
) -> tuple[Array, Array]:
    """Sums the cross-entropy over all labels but IGNORED_LABEL.

    Args:
        logits: [B, T, V].   labels: int [B, T]; IGNORED_LABEL is left out.
        label_smoothing: probability mass spread evenly over the vocabulary.

    Returns:
        (loss_sum, weight), float32 scalars; their ratio is the mean per token that PyTorch reports.
    """
    counted = labels != IGNORED_LABEL
    log_probs = jax.nn.log_softmax(logits.astype(jnp.float32), axis=-1)
    picked = jnp.take_along_axis(log_probs, jnp.where(counted, labels, 0)[..., None], axis=-1)[
        ..., 0
    ]
    loss = -(1 - label_smoothing) * picked
    if label_smoothing:
        loss = loss - label_smoothing * log_probs.mean(-1)
    return jnp.where(counted, loss, 0.0).sum(), counted.sum().astype(jnp.float32)


def class_cross_entropy(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Sums the losses of a classification over all rows without IGNORED_LABEL.

    Args:
        logits: [B, n].
        labels: int [B], the classes, for softmax cross-entropy; or float [B, n], ones and zeros,
            for the mean over the classes of binary cross-entropies (as PyTorch's
            BCEWithLogitsLoss). IGNORED_LABEL marks rows to leave out.

    Returns:
        (loss_sum, weight), float32 scalars.
    """
    if labels.ndim == 1:
        return token_cross_entropy(logits[:, None], labels[:, None])
    counted = labels[:, 0] != IGNORED_LABEL
    logits = logits.astype(jnp.float32)
    # -log sigmoid(x) = softplus(-x), -log(1 - sigmoid(x)) = softplus(x) = softplus(-x) + x
    losses = jax.nn.softplus(-logits) + (1 - labels) * logits
    return jnp.where(counted, losses.mean(-1), 0.0).sum(), counted.sum().astype(jnp.float32)


def shift_right(labels: Array, *, start_id: int, pad_id: int) -> Array:
    """Returns the decoder inputs for ``labels`` [B, T]: the start token, then all labels but the
    last.

    Ignored labels become padding.
    """
    shifted = jnp.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=start_id)
    return jnp.where(shifted == IGNORED_LABEL, pad_id, shifted)
