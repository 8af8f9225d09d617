"""Golden arrays."""

from pathlib import Path

import numpy as np
import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "locost"


@pytest.fixture(scope="session")
def golden():
    """golden(name): the arrays of one file."""
    return lambda name: dict(np.load(GOLDEN / f"{name}.npz"))
