"""Benchmarks: views of one set of workloads, the performance regression gate, and scripts.

    workloads/            what is measured, once: input, call, error, work; inputs, answers
    test_throughput.py    pytest-benchmark: fastcos and competitors (libraries, worker)
    asv_suite/            asv: the history of time, throughput, percent of limit, quality
    tables, roofline      README and docs, from pytest-benchmark's JSON; markdown writes tables
    gate/                 is one commit slower than another, for any project; calibrate.py
    large, curves         up to 1e9 non-zeros; time and memory by size, with fitted exponents
    others                scripts: measurements that docs/ quotes

Every answer is compared with a reference before it is timed. How to run each: README.md.
"""

import contextlib
import os
from pathlib import Path

# where asv.conf.json compiled the kernels of a commit
if "ASV_ENV_DIR" in os.environ:
    os.environ["FASTCOS_CACHE_DIR"] = str(Path(os.environ["ASV_ENV_DIR"], "fastcos-cache"))

# the kernels are timed, not their stand-in; earlier commits have none
with contextlib.suppress(ImportError):
    from fastcos.engine import uncompiled

    uncompiled.work_left = 0
