"""Ids and scores of transformers' generate, replayed (tests/golden/make_decoding.py)."""

import json
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from longsum_jax.decoding.options import GenerationOptions
from longsum_jax.decoding.search import trim

_GOLDEN = np.load(pathlib.Path(__file__).parents[1] / "golden" / "decoding" / "generate.npz")
_CASES = json.loads(str(_GOLDEN["cases"]))


def _two_tables(documents, ids, length):
    near, far = jnp.asarray(_GOLDEN["near"]), jnp.asarray(_GOLDEN["far"])
    before_last = jnp.where(length > 1, far[documents, ids[:, :, length - 2]], 0.0)
    return near[documents, ids[:, :, length - 1]] + before_last


# Length penalties between those of other cases, and random options whose values others have, too.
_FURTHER = {24, 25, 26, 30, 31, 35, 36, 39, *range(41, 47)}


@pytest.mark.parametrize(
    "index",
    [
        pytest.param(index, marks=pytest.mark.weekly) if index in _FURTHER else index
        for index in range(len(_CASES))
    ],
)
def test_ids_and_scores_equal_those_of_transformers(decode, index):
    options = GenerationOptions.from_config(_CASES[index])
    expected = _GOLDEN[f"ids_{index}"].copy()
    if options.pad_token_id == 0 and options.num_beams > 1:
        # transformers' beam search fills with the end-of-sequence id where the padding id is 0; we
        # pad.
        assert np.any(np.cumsum(expected == 1, axis=1) > 1)
        expected[np.cumsum(expected == 1, axis=1) > 1] = 0
    generated = decode(_two_tables, range(6), options)
    np.testing.assert_array_equal(trim(generated), expected)
    np.testing.assert_allclose(generated.scores, _GOLDEN[f"scores_{index}"], rtol=1e-5, atol=1e-5)


def test_the_golden_cases_vary():
    assert len(_CASES) >= 40
    outcomes = {_GOLDEN[f"ids_{index}"].tobytes() for index in range(len(_CASES))}
    assert len(outcomes) > 0.75 * len(_CASES)
