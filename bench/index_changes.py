"""What changes of an index cost: `python -m bench.index_changes [--items 1000000] [--columns 128]`.

Prints a table: a fit and a save, then add, remove, save and open of an index that changed by 1,000
rows, each as a share of fit + save; the resident memory that a process gains by opening it; and one
line about merging small parts. Medians of five changes. Every change is checked by a search.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

from bench.clock import TURNS, seconds
from bench.worker import in_new_process, resident_mib
from fastcos import SimilarityIndex

CHANGED = 1000


def check(index, queries):
    """The new rows find themselves."""
    found = index.search(queries[:5], 3)
    assert (found.scores[:, 0] > 0.999).all(), found.scores


def opened(folder):
    """Return the seconds of opening the index in this process, and the resident MiB gained."""
    SimilarityIndex.open(folder / "small")  # imports are done
    before, kept = resident_mib("VmRSS"), []
    taken = seconds(lambda: kept.append(SimilarityIndex.open(folder / "index")))
    return taken, resident_mib("VmRSS") - before


def changed(n, d, folder):
    """Print the table for an index of n rows of d columns."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((n, d), dtype=np.float32)
    SimilarityIndex().fit(rows[:5000]).save(folder / "small")  # compiles
    index, times, gained = SimilarityIndex(), {"add": [], "remove": [], "save": [], "open": []}, []
    whole = {"fit": seconds(lambda: index.fit(rows))}
    whole["save"] = seconds(lambda: index.save(folder / "index"))
    for turn in range(TURNS):
        new = random.standard_normal((CHANGED, d), dtype=np.float32)
        times["add"].append(seconds(lambda new=new: index.add(new)))
        check(index, new)
        gone = random.choice(n // TURNS, CHANGED, replace=False) + turn * (n // TURNS)
        times["remove"].append(seconds(lambda gone=gone: index.remove(gone)))
        check(index, new)
        times["save"].append(seconds(lambda: index.save(folder / "index")))
    for _ in range(TURNS):
        taken, mib = in_new_process("bench.index_changes", "--opened", folder)
        times["open"].append(taken)
        gained.append(mib)
    check(SimilarityIndex.open(folder / "index"), new)
    print(f"{n:,} x {d}, float32; changes of {CHANGED:,} rows\n")
    print("| call | ms | share of fit + save |\n|---|---:|---:|")
    for name, taken in whole.items():
        print(f"| {name} | {1e3 * taken:,.0f} | |")
    for name, turns in times.items():
        median = np.median(turns)
        print(f"| {name} | {1e3 * median:.1f} | 1/{sum(whole.values()) / median:,.0f} |")
    print(f"\nresident memory gained by open: {np.median(gained):.1f} MiB")


def merged():
    """One row at a time: what a change costs while small parts are merged."""
    rows = np.random.default_rng(0).standard_normal((5000, 128), dtype=np.float32)
    index = SimilarityIndex().fit(rows[:4000])
    turns = [seconds(lambda i=i: index.add(rows[i : i + 1])) for i in range(4000, 4090)]
    print(f"add of one row to a part of 4,000 x 128: {1e3 * np.median(turns):.1f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--opened", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.opened:
        print(json.dumps(opened(given.opened)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            changed(given.items, given.columns, Path(folder))
        merged()
