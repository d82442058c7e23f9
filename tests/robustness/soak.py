"""A script: lets eight threads search an index while its items are replaced again and again.

    python -m tests.robustness.soak [--minutes 2] [--every 2]

Every answer must be the answer of top_k for one of the two sets of items; a mixture of both sets is
wrong. The script prints one JSON line: the numbers of searches, wrong answers and replacements, and
the growth of threads, descriptors and resident memory since the first tenth of the time. It exits
with status 1 if an answer was wrong.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from fastcos.search.index import SimilarityIndex
from fastcos.search.top_k import top_k

CALLERS = 8


def resources() -> dict[str, float]:
    """Return the resident MiB of this process, and its numbers of threads and open descriptors."""
    status = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if line
    )
    return {
        "threads": int(status["Threads"]),
        "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208  names only
        "resident_mib": int(status["VmRSS"].split()[0]) / 1024,
    }


def soak(seconds: float, items: Any, queries: Any, every: float = 0.0) -> dict[str, Any]:
    """Search and replace for some seconds; count searches, wrong answers and replacements."""
    index = SimilarityIndex().fit(items)
    either = [
        {top_k(queries[i : i + 1], rows, 5).indices.tobytes() for rows in (items, items[::-1])}
        for i in range(len(queries))
    ]
    searches, wrong = [0] * CALLERS, [0] * CALLERS
    started = time.monotonic()
    stop = started + seconds

    def search(caller: int) -> None:
        while time.monotonic() < stop:
            at = searches[caller] % len(queries)
            result = index.search(queries[at : at + 1], 5).indices.tobytes()
            searches[caller] += 1
            wrong[caller] += result not in either[at]

    callers = [threading.Thread(target=search, args=(caller,)) for caller in range(CALLERS)]
    for caller in callers:
        caller.start()
    numbers, replacements, before = np.arange(len(items)), 0, None
    while time.monotonic() < stop:
        replacements += 1
        index.upsert(items[::-1] if replacements % 2 else items, numbers)
        time.sleep(min(every, max(0.0, stop - time.monotonic())))
        if before is None and time.monotonic() > started + seconds / 10 and sys.platform == "linux":
            before = resources()
    grown = {}
    if before is not None:
        after = resources()
        grown = {name: round(after[name] - before[name], 1) for name in before}
    for caller in callers:
        caller.join()
    return {
        "searches": sum(searches),
        "wrong": sum(wrong),
        "replacements": replacements,
        "grown": grown,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--every", type=float, default=2.0, help="seconds between replacements")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = random.standard_normal((3000, 24)).astype(np.float32)
    result = soak(60 * options.minutes, rows, rows[:200] + np.float32(0.1), options.every)
    print(json.dumps(result))
    sys.exit(result["wrong"] > 0)
