"""Time and memory of opening a saved index: `python -m bench.opening [--items N] [CHECKOUT ...]`.

The index has N x 128 float32 rows, 1,000,000 by default. This code and every other checkout of
fastcos save it and open it in five new processes each, in turns. Prints a table of medians: the
milliseconds of SimilarityIndex.open, and the MiB of resident memory that it adds. The pages of the
files are in the memory of the system, as after a first opening. A minute on two cores for each.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.clock import TURNS

COLUMNS = 128
# run by each state of the code, which may be older than bench.worker
SAVE = """
import sys, numpy as np
from fastcos import SimilarityIndex
folder, items, columns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
rows = np.random.default_rng(0).standard_normal((items, columns), dtype=np.float32)
SimilarityIndex().fit(rows).save(folder + "/index")
SimilarityIndex().fit(rows[:5000]).save(folder + "/small")
"""
OPEN = """
import json, sys, time
from pathlib import Path
from fastcos import SimilarityIndex
def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
SimilarityIndex.open(sys.argv[1] + "/small")
before, started = resident(), time.perf_counter()
index = SimilarityIndex.open(sys.argv[1] + "/index")
taken = time.perf_counter() - started
print(json.dumps([1e3 * taken, resident() - before]))
"""


def run(checkout, code, *arguments):
    """Run code in a checkout, whose fastcos is then imported; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=checkout, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def main(checkouts, items):
    """Print the table."""
    found = {checkout: [] for checkout in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        places = {one: Path(folder) / str(i) for i, one in enumerate(checkouts)}
        for one, place in places.items():
            place.mkdir()
            run(one, SAVE, place, items, COLUMNS)
            run(one, OPEN, place)
        for _ in range(TURNS):
            for one, place in places.items():
                found[one].append(json.loads(run(one, OPEN, place)))
    print(f"| checkout | open {items:,} x {COLUMNS}, ms | resident, MiB |\n|---|---:|---:|")
    for one, measured in found.items():
        milliseconds, mib = np.median(measured, axis=0)
        print(f"| {one.name} | {milliseconds:.1f} | {mib:.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, metavar="CHECKOUT")
    parser.add_argument("--items", type=int, default=1_000_000)
    given = parser.parse_args()
    main([Path(__file__).parents[1], *(one.absolute() for one in given.checkouts)], given.items)
