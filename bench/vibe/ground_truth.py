"""Count the ground-truth lists of VIBE that would change if VIBE computed them in float64.

    python -m bench.vibe.ground_truth agnews-mxbai-1024-euclidean.hdf5 [...]

VIBE computes the true neighbours of the queries in float32 (FaissFlat). Let s be the k-th best
float64 score of a query. The list of k neighbours of the query counts as changed if it contains an
item whose float64 score is lower than s. The script needs h5py: pip install 'fastcos[io]'.
"""

import argparse
from pathlib import Path

import numpy as np

import fastcos
from bench.vibe.module import MEASURES

# The number of lists whose items are scored at once. At k = 100 and 1,024 columns, the rows of 256
# lists take 0.4 GB. Half of this memory is for float64 copies of the rows.
LISTS_PER_BLOCK = 256


def scores_of_lists(queries, items, lists, measure):
    """Return the float64 scores (n, k) of the items in the lists (n, k) of the queries (n, d)."""
    queries, listed = queries.astype(np.float64)[:, None], items[lists].astype(np.float64)
    if measure == "neg_euclidean":
        return -np.linalg.norm(listed - queries, axis=2)
    scores = np.einsum("nkd,nkd->nk", listed, np.broadcast_to(queries, listed.shape))
    if measure == "cosine":
        scores /= np.linalg.norm(listed, axis=2) * np.linalg.norm(queries, axis=2)
    return scores


def changed_lists(queries, items, lists, measure):
    """Count the lists in which the float64 score of an item is below the k-th best score."""
    changed, k = 0, lists.shape[1]
    for first in range(0, len(queries), LISTS_PER_BLOCK):
        at = slice(first, first + LISTS_PER_BLOCK)
        nearest = fastcos.top_k(queries[at], items, k, measure=measure).indices
        kth = scores_of_lists(queries[at], items, nearest, measure).min(axis=1)
        scores = scores_of_lists(queries[at], items, lists[at], measure)
        # slack is a bound on the rounding errors of a float64 sum of d products.
        slack = (items.shape[1] + 8) * 2.0**-52 * np.maximum(abs(kth), abs(scores).max(axis=1))
        changed += int((scores.min(axis=1) < kth - slack).sum())
    return changed


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="HDF5 files of VIBE")
    parser.add_argument("--k", type=int, default=100, help="neighbours of a list (default 100)")
    arguments = parser.parse_args(words)
    import h5py

    for path in arguments.files:
        if not path.exists():
            parser.error(f"FILE must be an existing file, got {path}")
        with h5py.File(path) as file:
            distance = str(file.attrs.get("distance", "cosine"))
            if distance not in MEASURES:
                parser.error(
                    f"{path} must have a distance of {', '.join(MEASURES)}, got {distance}"
                )
            queries, items, lists = file["test"][:], file["train"][:], file["neighbors"][:]
        lists = lists[:, : arguments.k].astype(np.int64)
        changed = changed_lists(queries, items, lists, MEASURES[distance])
        print(
            f"{changed:,} of {len(lists):,} lists of {lists.shape[1]} neighbours change in "
            f"float64: {path.name}, {items.shape[0]:,} x {items.shape[1]}, {distance}",
            flush=True,
        )


if __name__ == "__main__":
    main()
