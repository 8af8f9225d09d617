"""Small models for metrics over a model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "evaluation"))

from tiny_models import *  # noqa: F403  # its fixtures
