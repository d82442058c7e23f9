"""asv's views: timed (one class per workload), quality, and starting."""

import sys
from pathlib import Path

# asv puts this folder's parent on the path, not the root; the root comes last, after the installed
# fastcos
sys.path.append(str(Path(__file__).parents[2]))

import numpy as np

import bench  # noqa: F401  it chooses the code cache
import fastcos

# asv forks this process for every case: each would import these parts, and load this code, anew.
# One thread: others would not survive the fork
for name in fastcos.__all__:
    getattr(fastcos, name)
fastcos.top_k(np.eye(64, dtype=np.float32), k=3, n_threads=1)
