"""What changes of an index cost: `python -m bench.index_changes [ITEMS COLUMNS]`.

Prints a table: a fit and a save, then add, remove, save and open of an index that changed by 1,000
rows, each as a share of fit + save; the resident memory that a process gains by opening it; and one
line about merging small parts. 1,000,000 x 128 by default; medians of five changes. Every change is
checked by a search. A minute on two cores.
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from bench.clock import TURNS, seconds
from bench.inputs import gaussian
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
    rows = gaussian(n, d)
    SimilarityIndex().fit(rows[:5000]).save(folder / "small")  # compiles
    index, random = SimilarityIndex(), np.random.default_rng(1)
    fit, save = seconds(lambda: index.fit(rows)), seconds(lambda: index.save(folder / "index"))
    turns = []
    for turn in range(TURNS):
        new = random.standard_normal((CHANGED, d), dtype=np.float32)
        gone = random.choice(n // TURNS, CHANGED, replace=False) + turn * (n // TURNS)
        taken = [seconds(lambda new=new: index.add(new))]
        check(index, new)
        taken.append(seconds(lambda gone=gone: index.remove(gone)))
        check(index, new)
        turns.append([*taken, seconds(lambda: index.save(folder / "index"))])
    check(SimilarityIndex.open(folder / "index"), new)
    found = [in_new_process(opened, folder) for _ in range(TURNS)]
    opening, gained = np.median(found, axis=0)
    print(f"{n:,} x {d}, float32; changes of {CHANGED:,} rows\n")
    print("| call | ms | share of fit + save |\n|---|---:|---:|")
    print(f"| fit | {1e3 * fit:,.0f} | |\n| save | {1e3 * save:,.0f} | |")
    for name, taken in zip(
        ("add", "remove", "save", "open"), (*np.median(turns, axis=0), opening), strict=True
    ):
        print(f"| {name} | {1e3 * taken:.1f} | 1/{(fit + save) / taken:,.0f} |")
    print(f"\nresident memory gained by open: {gained:.1f} MiB")


def merged():
    """One row at a time: what a change costs while small parts are merged."""
    rows = gaussian(5000, 128)
    index = SimilarityIndex().fit(rows[:4000])
    turns = [seconds(lambda i=i: index.add(rows[i : i + 1])) for i in range(4000, 4090)]
    print(f"add of one row to a part of 4,000 x 128: {1e3 * np.median(turns):.1f} ms")


if __name__ == "__main__":
    n_items, columns = map(int, sys.argv[1:] or (1_000_000, 128))
    with tempfile.TemporaryDirectory() as place:
        changed(n_items, columns, Path(place))
    merged()
