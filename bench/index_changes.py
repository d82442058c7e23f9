"""What changes of an index cost: `python -m bench.index_changes [--items 1000000] [--columns 128]`.

Prints a table: a fit and a save, then add, remove, save and open of an index that changed by 1,000
rows, each as a share of fit + save; the resident memory that a process gains by opening it; and one
line about merging small parts. Medians of five changes. Every change is checked by a search.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from fastcos import SimilarityIndex

CHANGED = 1000
CALLS = 5
# opens the index in a new process: milliseconds, resident MiB gained, the first search
OPENED = """
import sys, time
from pathlib import Path
import numpy as np
from fastcos import SimilarityIndex
import fastcos.neighbors.index

def resident():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024

SimilarityIndex.open(sys.argv[2])  # imports are done
before, start = resident(), time.perf_counter()
index = SimilarityIndex.open(sys.argv[1])
seconds = time.perf_counter() - start
print(1e3 * seconds, resident() - before)
"""


def timed(call):
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


def check(index, queries, k=3):
    """The new rows find themselves."""
    found = index.search(queries[:5], k)
    assert (found.scores[:, 0] > 0.999).all(), found.scores


def measured(n, d, folder):
    random = np.random.default_rng(0)
    rows = random.standard_normal((n, d), dtype=np.float32)
    SimilarityIndex().fit(rows[:5000]).save(folder / "small")  # compiles
    fit_seconds, index = timed(lambda: SimilarityIndex().fit(rows))
    save_seconds, _ = timed(lambda: index.save(folder / "index"))
    times = {"add": [], "remove": [], "save": [], "open": []}
    for call in range(CALLS):
        new = random.standard_normal((CHANGED, d), dtype=np.float32)
        times["add"].append(timed(lambda new=new: index.add(new))[0])
        check(index, new)
        gone = random.choice(n // CALLS, CHANGED, replace=False) + call * (n // CALLS)
        times["remove"].append(timed(lambda gone=gone: index.remove(gone))[0])
        check(index, new)
        times["save"].append(timed(lambda: index.save(folder / "index"))[0])
    gained = []
    for _ in range(CALLS):
        printed = subprocess.run(
            [sys.executable, "-c", OPENED, str(folder / "index"), str(folder / "small")],
            capture_output=True, text=True, check=True,
        ).stdout.split()  # fmt: skip
        times["open"].append(float(printed[0]) / 1e3)
        gained.append(float(printed[1]))
    check(SimilarityIndex.open(folder / "index"), new)
    whole = fit_seconds + save_seconds
    print(f"{n:,} x {d}, float32; changes of {CHANGED:,} rows\n")
    print("| call | ms | share of fit + save |\n|---|---:|---:|")
    print(f"| fit | {1e3 * fit_seconds:,.0f} | |\n| save | {1e3 * save_seconds:,.0f} | |")
    for name, seconds in times.items():
        ms = 1e3 * statistics.median(seconds)
        print(f"| {name} | {ms:.1f} | 1/{1e3 * whole / ms:,.0f} |")
    print(f"\nresident memory gained by open: {statistics.median(gained):.1f} MiB")


def merging():
    """One row at a time: what a change costs while small parts are merged."""
    rows = np.random.default_rng(0).standard_normal((5000, 128), dtype=np.float32)
    index = SimilarityIndex().fit(rows[:4000])
    seconds = [timed(lambda i=i: index.add(rows[i : i + 1]))[0] for i in range(4000, 4090)]
    print(f"add of one row to a part of 4,000 x 128: {1e3 * statistics.median(seconds):.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=128)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measured(given.items, given.columns, Path(folder))
    merging()
