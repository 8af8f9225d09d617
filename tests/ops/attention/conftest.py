"""Makes sparse_twins.py and two_sets.py, which several tests of this folder share, importable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def whole():
    """Attention to the two sets of keys at once, with the gradients of all inputs."""
    from two_sets import tensors, value_and_gradients  # importable from here on

    return value_and_gradients(tensors())
