"""Retrieval by label: do the neighbours of an item have its label."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats, Integers, packed, unit_rows


class MapAtR(NamedTuple):
    """Mean average precision at R.

    Attributes
    ----------
    value : float
        In [0, 1].
    n_left_out : int
        Rows that are no queries: zero rows, and the only rows of their label.
    """

    value: float
    n_left_out: int


def map_at_r(items: Any, labels: Any, *, n_threads: int | None = None) -> MapAtR:
    """Mean over items of (1/R) sum over ranks i <= R of rel(i) P(i), with R = n_c - 1.

    Every item's list ranks all other rows by descending cosine, equal cosines by lower row; zero
    rows have cosine 0. rel(i) is 1 if rank i has the item's label; P(i) is the mean of rel up to i.
    The denominator is R, not the number of hits. O(p p k) time, O(p k) memory. The same bits on any
    number of threads.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.

    Returns
    -------
    MapAtR
        (value, n_left_out).

    Raises
    ------
    ValueError
        As in :func:`pair_auc`.

    Notes
    -----
    Source: Musgrave, Belongie and Lim, ECCV 2020, arXiv:2003.08505, section 3.2.

    Examples
    --------
    >>> from fastcos.metrics import map_at_r
    >>> map_at_r([[1, 0], [2, 0], [0, 1], [0, 3], [1, 1]], ["a", "a", "b", "b", "b"])
    MapAtR(value=0.8, n_left_out=0)
    """
    values = average_precisions_at_r(items, labels, n_threads=n_threads)
    used = ~np.isnan(values)
    return MapAtR(float(values[used].mean()), int(len(values) - used.sum()))


def average_precisions_at_r(items: Any, labels: Any, *, n_threads: int | None = None) -> Floats:
    """The terms of map_at_r, (p,) float64; NaN for rows that are no queries."""
    given = validation.as_rows("items", items)
    codes = validation.as_labels("labels", labels, len(given))
    filled = given.any(axis=1)
    checks.as_shared_labels("labels", codes[filled])
    sizes = np.bincount(codes)
    queries = np.flatnonzero(filled & (sizes[codes] > 1))
    rows = validation.read_only(unit_rows(given))
    found = parallel.unfilled(len(queries), np.float64)
    parallel.run(
        pair_reductions.average_precisions_at_r, parallel.row_blocks(len(queries), 48),
        validation.read_only(queries), rows, packed(rows, n_threads), codes,
        validation.read_only(sizes.astype(np.int64)), found, n_threads=n_threads,
    )  # fmt: skip
    values = np.full(len(given), np.nan)
    values[queries] = found
    return values


class NeighborPurity(NamedTuple):
    """Precision at k.

    Attributes
    ----------
    value : float
        Mean share of neighbours with the label of the query.
    baseline : float
        Chance level: the share of ordered pairs with one label.
    """

    value: float
    baseline: float


def neighbor_purity(
    neighbors: Any, labels: Any, *, query_labels: Any = None, k: int | None = None
) -> NeighborPurity:
    """Share of same-label items among the k nearest: precision at k.

    It is near 1 for most embeddings with clusters; :func:`map_at_r` then differs more.

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them.
    labels : array_like (p,), int or str
        The cluster of every item.
    query_labels : array_like (n,), int or str, optional
        The clusters of the lists' queries. Default: the queries are the items in their order.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    NeighborPurity
        (value, baseline).

    Raises
    ------
    ValueError
        Lists with other numbers than 0 .. p - 1, or with a repeated item; labels of another length
        than the lists, without query_labels.

    Examples
    --------
    >>> from fastcos.metrics import neighbor_purity
    >>> neighbor_purity([[1], [0], [1], [2]], ["a", "a", "b", "b"])
    NeighborPurity(value=0.75, baseline=0.3333333333333333)
    """
    names = np.asarray(labels)
    codes = validation.as_labels("labels", names, len(names))
    lists = checks.as_neighbor_lists("neighbors", neighbors, k, n_items=len(codes))
    if query_labels is None:
        checks.check_same_length("labels", len(codes), "neighbors", len(lists))
        queries = codes
    else:
        queries = _codes_of("query_labels", query_labels, names, len(lists))
    sizes = np.bincount(codes).astype(np.float64)
    baseline = (sizes * (sizes - 1)).sum() / (len(codes) * (len(codes) - 1.0))
    return NeighborPurity(float((codes[lists] == queries[:, None]).mean()), float(baseline))


def _codes_of(name: str, labels: Any, known: npt.NDArray[Any], length: int) -> Integers:
    """Return labels (length,) as the codes that as_labels gives to known."""
    array = np.asarray(labels)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    if known.dtype.kind == "O":
        known, array = known.astype(str), array.astype(str)
    values = np.unique(known)
    codes = np.minimum(np.searchsorted(values, array), len(values) - 1)
    unknown = np.flatnonzero(values[codes] != array)
    if len(unknown):
        raise ValueError(f"{name} must be among the labels, got {array[unknown].tolist()[0]!r}")
    return codes.astype(np.int64)
