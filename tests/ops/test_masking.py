import jax
import numpy as np
import pytest

from longsum_jax.ops.masking import mask_tokens
from longsum_jax.typing import IGNORED_LABEL

IDS = np.arange(20_000).reshape(20, 1000) % 50 + 10  # 10 to 59
CANDIDATES = IDS % 10 != 3
MASK, REPLACEMENTS = 1, np.array([70, 71, 72])


def masked(seed=0, **options):
    key = jax.random.key(seed)
    options = {"mask_id": MASK, "replacements": REPLACEMENTS, **options}
    return map(np.asarray, mask_tokens(key, IDS, CANDIDATES, **options))


def test_shares_of_chosen_masked_random_and_kept_tokens():
    inputs, labels = masked()
    selected = labels != IGNORED_LABEL
    assert selected.sum() / CANDIDATES.sum() == pytest.approx(0.15, abs=0.01)
    hidden, drawn, retained = (
        inputs == MASK,
        np.isin(inputs, REPLACEMENTS),
        selected & (inputs == IDS),
    )
    assert [x.sum() / selected.sum() for x in (hidden, drawn, retained)] == pytest.approx(
        [0.8, 0.1, 0.1], abs=0.03
    )
    np.testing.assert_array_equal(hidden | drawn | retained, selected)
    assert set(inputs[drawn]) == {70, 71, 72}


def test_only_candidates_are_chosen_and_the_others_stay():
    inputs, labels = masked(probability=1.0)
    np.testing.assert_array_equal(labels, np.where(CANDIDATES, IDS, IGNORED_LABEL))
    np.testing.assert_array_equal(inputs[~CANDIDATES], IDS[~CANDIDATES])


def test_masks_follow_the_key():
    first, again, other = (next(masked(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_shares_as_given():
    inputs, labels = masked(masked=0.0, random=0.0)
    np.testing.assert_array_equal(inputs, IDS)
    assert (labels != IGNORED_LABEL).any()
    inputs, labels = masked(masked=1.0, random=0.0)
    assert (inputs[labels != IGNORED_LABEL] == MASK).all()
