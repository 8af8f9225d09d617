"""The loss of preferences and its gradients beside a few lines of torch over transformers' models
(Rafailov et al. 2023, eq. 7)."""

import jax
import numpy as np
import pytest
import torch
from reference import assert_close

from longsum_jax.ops.losses import preference_scores
from longsum_jax.typing import IGNORED_LABEL

BETA = 0.3


def make_batch(pad_id):
    """Ids, mask, and labels [2, rows, length] of rows of unequal lengths."""
    rng = np.random.default_rng(0)
    mask = np.arange(21) < np.array([21, 9, 14])[:, None]
    ids = np.where(mask, rng.integers(5, 99, mask.shape), pad_id)
    is_label = np.arange(7) < np.array([[7, 3, 5], [4, 6, 7]])[..., None]
    labels = np.where(is_label, rng.integers(5, 99, is_label.shape), IGNORED_LABEL)
    return ids, mask, labels


def torch_log_probs(model, ids, mask, labels):
    """The log-probabilities of targets, [rows]; the model shifts its labels itself."""
    labels = torch.tensor(labels)
    logits = model(
        input_ids=torch.tensor(ids), attention_mask=torch.tensor(mask).long(), labels=labels
    ).logits
    selected = logits.log_softmax(-1).gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    return (selected * (labels != IGNORED_LABEL)).sum(-1)


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_loss_and_gradients(name, saved, loaded, tmp_path):
    theirs, ours = saved(name)[0], loaded(name)
    ids, mask, (selected, rejected) = make_batch(ours.config.pad_token_id)
    references = np.random.default_rng(1).normal(-30, 3, (len(ids), 2)).astype(np.float32)

    theirs.eval()  # without dropout
    theirs.zero_grad()
    log_probs = torch.stack(
        [torch_log_probs(theirs, ids, mask, labels) for labels in (selected, rejected)], -1
    )
    margins = BETA * (log_probs - torch.tensor(references)) @ torch.tensor([1.0, -1.0])
    expected = -torch.nn.functional.logsigmoid(margins).sum()
    expected.backward()

    @jax.jit
    def loss(params):
        result = ours.module.apply(
            {"params": params}, ids, mask, selected, rejected, method="score_pairs"
        )
        scores = preference_scores(result, references, beta=BETA)
        return scores.losses.sum(), (result, scores.margins)

    (total, (result, found_margins)), grads = jax.value_and_grad(loss, has_aux=True)(ours.params)
    np.testing.assert_allclose(result, log_probs.detach(), rtol=1e-5)
    np.testing.assert_allclose(found_margins, margins.detach(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, expected.item(), rtol=1e-5)

    # Gradients go the way of weights into transformers' names.
    ours.with_params(jax.device_get(grads)).save(tmp_path / "gradients")
    as_weights = type(theirs).from_pretrained(tmp_path / "gradients").state_dict()
    for key, parameter in theirs.named_parameters():
        if parameter.grad is not None:
            assert_close(as_weights[key], parameter.grad)
    theirs.zero_grad()
