"""What benchmarks/precision.py makes of losses and parameters."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def precision(scripts):
    return scripts("precision")


def test_every_step_is_in_one_row(precision):
    wide = [float(step) for step in range(25)]
    narrow = list(wide)
    narrow[7] += 0.5
    narrow[24] -= 0.25
    rows = precision.losses_by_part(wide, narrow, [loss + 2 for loss in wide])
    assert [row["last_step"] for row in rows] == [3, 6, 9, 12, 15, 17, 19, 21, 23, 25]
    assert [row["largest_difference"] for row in rows] == [0, 0, 0.5, *[0] * 6, 0.25]
    assert {row["of_another_seed"] for row in rows} == {2}
    assert (rows[2]["wide"], rows[2]["narrow"]) == pytest.approx((7, 7 + 0.5 / 3))


def test_distance_of_parameters(precision):
    expected = {"a": np.array([3.0, 0.0]), "b": {"c": np.array([[4.0]])}}
    result = {"a": np.array([3.0, 1.0]), "b": {"c": np.array([[4.0]])}}
    assert precision.distance(result, expected) == pytest.approx(0.2)
    assert precision.distance(expected, expected) == 0
