"""Tests of benchgate. Run `pytest bench/gate` in a clone, or `pytest` here; fastcos is not needed."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
for folder in (HERE.parent / "src", HERE):
    sys.path.insert(0, str(folder))
