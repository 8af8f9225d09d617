"""Runs of tiny encoders over rows of a test."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tiny_runs import *  # noqa: F403  # its fixtures
