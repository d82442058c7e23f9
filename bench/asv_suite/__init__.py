"""asv's views: timed (one class per workload), quality, and starting."""

import sys
from pathlib import Path

# asv puts this folder's parent on the path, not the root; the root comes last, after the installed
# fastcos
sys.path.append(str(Path(__file__).parents[2]))

import bench  # noqa: F401  it chooses the code cache
