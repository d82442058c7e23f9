"""Interactions drawn without replacement, in the time and memory of the interactions."""

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.kernels.sampling import sample_rows

# repeated draws are not tried by users who ask for this share of the items, and are given up
# after as many as there are items: a race costs about that
_RACE_SHARE = 4
_WORK_PER_BLOCK = 100_000
_LARGEST_INT32 = 2**31 - 1


def sample_interactions(
    preference: npt.NDArray[np.float64],
    item_cluster: npt.NDArray[np.int64],
    popularity: npt.NDArray[np.float64],
    wanted: npt.NDArray[np.int64],
    *,
    key: tuple[int, int],
    n_threads: int | None = None,
    progress: parallel.Progress | None = None,
) -> Any:
    """Draw wanted[u] items for every user u, by preference[u, c_i] popularity[i]; a binary CSR.

    preference (n, C), item_cluster (p,), popularity (p,), wanted (n,); key: two words of 32 bits.
    A user for whom fewer items have weight gets all of those.
    """
    n_items, n_clusters = len(item_cluster), preference.shape[1]
    item_at = np.argsort(item_cluster, kind="stable")
    starts = np.searchsorted(item_cluster[item_at], np.arange(n_clusters + 1)).astype(np.int64)
    weights = popularity[item_at]
    running = np.empty(n_items)
    for first, last in pairwise(starts.tolist()):
        np.cumsum(weights[first:last], out=running[first:last])
    with np.errstate(divide="ignore"):
        log_weight = np.log(weights)
    with_weight = np.bincount(item_cluster[popularity > 0], minlength=n_clusters)

    indptr = np.zeros(len(wanted) + 1, np.int64)
    np.cumsum(np.minimum(wanted, (preference > 0) @ with_weight), out=indptr[1:])
    n_drawn = int(indptr[-1])
    index_type = np.int32 if max(n_drawn, n_items) <= _LARGEST_INT32 else np.int64
    indices = parallel.unfilled(n_drawn, index_type)
    parallel.run(
        sample_rows,
        # a block starts by clearing marks of all items
        parallel.work_blocks(indptr, max(_WORK_PER_BLOCK, 4 * n_items)),
        *map(validation.read_only, (preference, starts, item_at, running, log_weight)),
        *key,
        -(-n_items // _RACE_SHARE),
        n_items,
        validation.read_only(indptr),
        indices,
        n_threads=n_threads,
        progress=progress,
    )
    ones = np.ones(n_drawn, np.float32)
    return sp.csr_array((ones, indices, indptr.astype(index_type)), shape=(len(wanted), n_items))
