"""Tests of benchgate. `pytest bench/gate` in a clone, or `pytest` in this folder; no import of fastcos."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE.parent / "src", HERE):
    sys.path.insert(0, str(folder))
