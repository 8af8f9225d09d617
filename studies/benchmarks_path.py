"""Makes the modules of benchmarks/ importable: studies share its timing, tables and reports.

A study imports this module before ``common`` or another module of benchmarks/.
"""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))
