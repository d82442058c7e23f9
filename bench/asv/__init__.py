"""Benchmarks for asv (airspeed velocity): `asv run` measures the speed of fastcos at each commit.

Each class is written out in full, with its parameters, setup, timed method and version. If the
workload of a class changes, raise its version; asv then discards the earlier results of the class.

Every setup makes one call, which loads or compiles the kernels and starts the threads. asv
therefore times only warm calls.
"""

import os
import sys
from pathlib import Path

# asv imports this folder from the clone of the repository. fastcos must come from the environment
# that asv has built for the commit that it measures. The root of the clone is appended to the path,
# so that Python finds `bench` in the clone and fastcos in the environment.
sys.path.append(str(Path(__file__).parents[2]))

# asv.conf.json compiles the kernels of each commit into a separate cache.
if "ASV_ENV_DIR" in os.environ:
    os.environ["FASTCOS_CACHE_DIR"] = str(Path(os.environ["ASV_ENV_DIR"], "fastcos-cache"))

try:  # Time the compiled kernels, and not the NumPy code that runs until they are compiled.
    from fastcos.parallel import readiness

    readiness.compile_at_once()
except ImportError:  # Commits before November 2026 have no such NumPy code.
    pass
