"""Makes sparse_twins.py, which several tests of this folder share, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
