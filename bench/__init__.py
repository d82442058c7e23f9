"""Benchmarks: views of one set of workloads, the performance regression gate, and scripts.

README.md says what each is for, and how to run it.
"""

import contextlib
import os
from pathlib import Path

# where asv.conf.json compiled the kernels of a commit
if "ASV_ENV_DIR" in os.environ:
    os.environ["FASTCOS_CACHE_DIR"] = str(Path(os.environ["ASV_ENV_DIR"], "fastcos-cache"))

# the kernels are timed, not their stand-in; earlier commits have none
with contextlib.suppress(ImportError):
    from fastcos.engine import readiness

    readiness.compile_at_once()
