"""Losses of token predictions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from longsum_jax.ops.padding import zero_unless
from longsum_jax.typing import IGNORED_LABEL, AnyArray


class TokenScores(NamedTuple):
    """Losses of the labels under the logits, and whether they are the top prediction.

    Attributes:
        losses: cross-entropies, float32; 0 for the label IGNORED_LABEL.
        is_right: True where the label has the largest logit.
    """

    losses: Float[Array, "... length"]
    is_right: Bool[Array, "... length"]


def token_scores(
    logits: Float[AnyArray, "*batch length vocab"],
    labels: Int[AnyArray, "*batch length"],
    *,
    label_smoothing: float = 0.0,
) -> TokenScores:
    """Computes the cross-entropy of the label at every position.

    Args:
        logits: scores of the vocabulary, any float type; losses are computed in
            float32.
        labels: ids of the correct tokens; IGNORED_LABEL is left out.
        label_smoothing: probability mass spread evenly over the vocabulary.

    Returns:
        The losses of the positions, and True for each correct prediction.
    """
    mask = jnp.asarray(labels != IGNORED_LABEL)
    # Subtracting the maximum avoids overflow. It cancels in the loss and needs
    # no gradient.
    shifted = logits.astype(jnp.float32)
    shifted = shifted - lax.stop_gradient(shifted.max(-1, keepdims=True))
    log_sum = jnp.log(jnp.exp(shifted).sum(-1))
    # By comparison, because the gradient of an indexed logit would be a scatter
    # over the vocabulary.
    is_label = jnp.asarray(labels)[..., None] == np.arange(logits.shape[-1])
    right = zero_unless(is_label, shifted).sum(-1)
    # Cross-entropy with the target (1 - s) one_hot(label) + s / vocab.
    loss = log_sum - (1 - label_smoothing) * right
    if label_smoothing:
        loss = loss - label_smoothing * shifted.mean(-1)
    return TokenScores(jnp.where(mask, loss, 0.0), logits.argmax(-1) == labels)


def token_cross_entropy(
    logits: Float[AnyArray, "*batch length vocab"],
    labels: Int[AnyArray, "*batch length"],
    *,
    label_smoothing: float = 0.0,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the cross-entropy over all labels except IGNORED_LABEL.

    Args:
        logits, labels, label_smoothing: see ``token_scores``.

    Returns:
        (loss_sum, weight), float32 scalars; their ratio is the mean per token,
        as reported by PyTorch.
    """
    losses, _ = token_scores(logits, labels, label_smoothing=label_smoothing)
    return losses.sum(), count_labels(labels)


def count_labels(labels: Int[AnyArray, "*batch length"]) -> Float[Array, ""]:
    """Returns the number of labels except IGNORED_LABEL, the weight of a sum of losses."""
    return jnp.asarray(labels != IGNORED_LABEL).sum().astype(jnp.float32)


def class_cross_entropy(
    logits: Float[AnyArray, "batch classes"],
    labels: Int[AnyArray, " batch"] | Float[AnyArray, "batch classes"],
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Sums the losses of a classification over all rows without IGNORED_LABEL.

    Args:
        logits: scores of the classes.
        labels: class ids, [batch], for softmax cross-entropy; or ones and
            zeros, [batch, classes], for the mean over the classes of binary
            cross-entropies (as PyTorch's BCEWithLogitsLoss). IGNORED_LABEL
            marks rows to leave out.

    Returns:
        (loss_sum, weight), float32 scalars.
    """
    if labels.ndim == 1:
        return token_cross_entropy(logits[:, None], labels[:, None])
    mask = jnp.asarray(labels[:, 0] != IGNORED_LABEL)
    logits = logits.astype(jnp.float32)
    # -log sigmoid(x) = softplus(-x), -log(1 - sigmoid(x)) = softplus(x) =
    # softplus(-x) + x
    losses = jax.nn.softplus(-logits) + (1 - labels) * logits
    return jnp.where(mask, losses.mean(-1), 0.0).sum(), mask.sum().astype(
        jnp.float32
    )


class PreferenceScores(NamedTuple):
    """The losses and rewards of pairs of targets.

    Attributes:
        losses: negative log-probabilities that the chosen target wins, float32.
        margins: rewards of the chosen targets minus rewards of the rejected
            targets, float32.
    """

    losses: Float[Array, " batch"]
    margins: Float[Array, " batch"]


def preference_scores(
    log_probs: Float[AnyArray, "batch 2"],
    reference: Float[AnyArray, "batch 2"],
    *,
    beta: float,
) -> PreferenceScores:
    """Scores pairs of targets by direct preference optimization (Rafailov et al. 2023, eq. 7).

    The reward of a target is ``beta`` times the logarithm of its probability
    under the model divided by its probability under the reference model.

    Args:
        log_probs: log-probabilities of the chosen and the rejected target under
            the model.
        reference: log-probabilities of the same targets under the reference
            model.
        beta: factor of the rewards.
    """
    rewards = beta * jnp.asarray(log_probs - reference, jnp.float32)
    margins = rewards[:, 0] - rewards[:, 1]
    # softplus(-x) = -log sigmoid(x)
    return PreferenceScores(jax.nn.softplus(-margins), margins)


def shift_right(
    labels: Int[AnyArray, "*batch length"], *, start_id: int, pad_id: int
) -> Int[Array, "*batch length"]:
    """Returns the decoder inputs for ``labels``: the start token, then all labels but the last.

    Args:
        labels: target ids; ``IGNORED_LABEL`` becomes padding.
        start_id: id of the start token.
        pad_id: id of the padding.
    """
    shifted = jnp.pad(
        labels[:, :-1], ((0, 0), (1, 0)), constant_values=start_id
    )
    return jnp.where(shifted == IGNORED_LABEL, pad_id, shifted)
