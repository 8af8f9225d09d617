import numpy as np
import pytest

from longsum_jax.experiment.objectives.segments import _count_segments


@pytest.mark.parametrize("count", [0, 1, 3])
def test_segments_are_counted_up_to_the_last_one_of_any_document(count):
    mask = np.zeros((2, 3, 4), bool)
    mask[1, max(count - 1, 0), 0] = count > 0
    assert _count_segments({"attention_mask": mask}) == count
