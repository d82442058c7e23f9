"""Benchmarks: the asv suite, the performance regression gate, and other libraries.

    asv, check, suite     times and errors of fastcos, one class per situation
    gate/                 is one commit slower than another, with calibrate.py
    competitors/, tables  ratios to other libraries, answers compared first
    *_costs, *_exactness, beyond_memory, cluster_*, sharded_svd, first_run
                          scripts: measurements that docs/ quotes

Every benchmark compares its answer with a reference (answers.py) before it is timed. How to run
each: README.md.
"""

import contextlib
import os
import sys
from pathlib import Path

# asv puts this folder on the path, not the root; the root comes last, after the installed fastcos
sys.path.append(str(Path(__file__).parents[1]))

# asv installs one commit after another into one environment: each needs a code cache of its own
if "ASV_COMMIT" in os.environ:
    _caches = Path(os.environ["ASV_ENV_DIR"], "fastcos-cache")
    os.environ["FASTCOS_CACHE_DIR"] = str(_caches / os.environ["ASV_COMMIT"])

# the kernels are timed, not their stand-in; earlier commits have none
with contextlib.suppress(ImportError):
    from fastcos.engine import uncompiled

    uncompiled.work_left = 0
