import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.ops.losses import class_cross_entropy, shift_right, token_cross_entropy
from longsum_jax.typing import IGNORED_LABEL


def example():
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(2, 4, 7)) * 3, rng.integers(0, 7, (2, 4))
    labels[0, 2:] = IGNORED_LABEL
    return logits, labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_equals_a_loop_over_tokens(smoothing):
    logits, labels = example()
    expected, count = 0.0, 0
    for row, label in zip(logits.reshape(-1, 7), labels.ravel(), strict=True):
        if label != IGNORED_LABEL:
            log_probs = row - np.log(np.exp(row).sum())
            target = np.full(7, smoothing / 7)
            target[label] += 1 - smoothing
            expected, count = expected - target @ log_probs, count + 1
    score = jax.jit(functools.partial(token_cross_entropy, label_smoothing=smoothing))
    loss, weight = score(logits, labels)
    assert loss.dtype == weight.dtype == jnp.float32
    np.testing.assert_allclose([loss, weight], [expected, count], rtol=1e-6)


def test_ignored_labels_carry_no_gradient():
    logits, labels = example()
    gradient = jax.jit(jax.grad(lambda x: token_cross_entropy(x, labels)[0]))(logits)
    np.testing.assert_array_equal(np.abs(gradient).sum(-1) > 0, labels != IGNORED_LABEL)


def test_cross_entropy_of_nothing_is_zero():
    labels = np.full((1, 3), IGNORED_LABEL)
    loss, weight = jax.jit(token_cross_entropy)(np.ones((1, 3, 5), np.float32), labels)
    assert (loss, weight) == (0.0, 0.0)


def test_bfloat16_logits_are_summed_in_float32():
    logits, labels = example()
    narrow = jnp.asarray(logits, jnp.bfloat16)
    score = jax.jit(token_cross_entropy)
    expected = score(narrow.astype(jnp.float32), labels)
    np.testing.assert_allclose(score(narrow, labels), expected, rtol=1e-6)


def test_shift_right():
    labels = jnp.array([[5, 6, 1], [7, 1, IGNORED_LABEL]])
    expected = [[2, 5, 6], [2, 7, 1]]
    np.testing.assert_array_equal(shift_right(labels, start_id=2, pad_id=0), expected)
    ignored_inside = jnp.array([[IGNORED_LABEL, 6, 1]])
    np.testing.assert_array_equal(shift_right(ignored_inside, start_id=2, pad_id=0), [[2, 0, 6]])


def test_class_cross_entropy_with_one_label_leaves_out_padding():
    logits = np.array([[1.0, 2.0, 0.5], [0.0, 1.0, 0.0], [3.0, 1.0, 1.0]])
    loss_sum, weight = class_cross_entropy(logits, np.array([1, 0, IGNORED_LABEL]))
    expected = sum(
        -math.log(math.exp(row[k]) / sum(map(math.exp, row)))
        for row, k in zip(logits, (1, 0), strict=False)
    )
    np.testing.assert_allclose(loss_sum, expected, rtol=1e-6)
    assert weight == 2


def test_class_cross_entropy_with_several_labels_is_a_mean_of_binary_cross_entropies():
    logits = np.array([[1.0, -2.0, 60.0], [0.0, 1.0, -60.0], [9.0, 9.0, 9.0]], np.float32)
    labels = np.array([[1, 0, 1], [0, 1, 1], [IGNORED_LABEL] * 3], np.float32)
    loss_sum, weight = class_cross_entropy(logits, labels)
    # -log sigmoid(x) = log(1 + exp(-x)) for a label 1, log(1 + exp(x)) for a label 0, in float64
    signed = np.where(labels[:2] == 1, -logits[:2], logits[:2]).astype(np.float64)
    expected = np.mean(np.logaddexp(0, signed))
    np.testing.assert_allclose(loss_sum / weight, expected, rtol=1e-6)
    assert weight == 2
