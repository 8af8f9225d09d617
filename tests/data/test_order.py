import numpy as np
import pytest

from longsum_jax.data.order import ExampleOrder


class Store:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size


def indices(size, shuffle, seed=0, epoch=0):
    order = ExampleOrder(Store(size), seed=seed, shuffle=shuffle)
    result = [order.index_at(epoch, position) for position in range(size + 3)]
    assert result[size:] == [None] * 3
    return result[:size]


@pytest.mark.parametrize("size", [1, 7, 8, 9, 24])
@pytest.mark.parametrize("width", [1, 3, 8, 100])
def test_blocks_are_permuted_within_themselves(size, width):
    result = indices(size, width)
    for start in range(0, size, width):
        block = result[start : start + width]
        assert sorted(block) == list(range(start, min(start + width, size)))


def test_all_is_a_permutation_that_really_mixes():
    result = np.array(indices(1000, "all"))
    assert sorted(result) == list(range(1000))
    assert abs(np.corrcoef(result, np.arange(1000))[0, 1]) < 0.1


def test_blocks_differ_from_each_other():
    result = np.array(indices(200, 50)).reshape(4, 50) - 50 * np.arange(4)[:, None]
    assert len({tuple(block) for block in result.tolist()}) == 4


def test_positions_can_be_asked_for_in_any_order():
    order = ExampleOrder(Store(20), seed=1, shuffle=6)
    backwards = [order.index_at(0, position) for position in reversed(range(20))]
    assert backwards[::-1] == indices(20, 6, seed=1)


def test_order_never_changes_between_versions():
    # The numbers themselves: a checkpoint of today must resume in the same order for ever.
    assert indices(8, "all", seed=0, epoch=0) == PINNED_FIRST
    assert indices(8, 4, seed=7, epoch=2) == PINNED_BLOCKS


PINNED_FIRST = [2, 6, 0, 4, 1, 3, 5, 7]
PINNED_BLOCKS = [1, 3, 2, 0, 4, 6, 7, 5]
