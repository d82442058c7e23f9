"""How arbitrary are these cosines? One card of numbers about item embeddings.

Predictions do not change when a rescaling D acts on users and D^-1 on items, but neighbours by
cosine do. The card says how many neighbours are certain to survive such rescalings and how many are
known not to, what other conventions would have shown instead, and what to compare instead.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import (
    alternatives,
    certificates,
    metrics,
    rows_on_disk,
    threads,
    validate,
    validate_audit,
)
from fastcos.card import Audit
from fastcos.conventions import convention
from fastcos.kernels import intervals
from fastcos.measure.rows import fingerprints
from fastcos.recovery import searched_range
from fastcos.spread import Judge
from fastcos.survival import survival

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# rows whose edges are certified and attacked under rescalings, whose lists are compared between
# embeddings, whose pairs are scored against labels, and whose edges give the local index
_CERTIFIED_ROWS, _LISTED_ROWS, _LABELLED_ROWS, _INDEXED_ROWS = 48, 500, 1000, 2000
_RANDOM_BASES = 3
_ROWS_PER_PART = 128
_HASHED_AT_ONCE = 8192


def audit(
    items: Any,
    users: Any = None,
    *,
    labels: Any = None,
    popularity: Any = None,
    k: int = 10,
    condition: float = 2.0,
    seed: int = 0,
    n_threads: int | None = None,
    progress: threads.Progress | None = None,
) -> Audit:
    """How much of what cosine says of these items is a choice that training never made.

    One ``top_k`` of all items, and samples of them for what costs more: 48 items for certificates
    and attacks under rescalings, 500 for lists, 1,000 for labels, 2,000 for the local index.

    Memory-mapped items and users (``np.load(path, mmap_mode="r")``) are read in blocks that fit the
    setting ``working_memory``; the card has the same numbers. Besides that memory it takes about
    30 (k + 1) bytes an item, and about 20 readings of the file.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, p > k. Zero rows have no direction: counted and left out.
    users : array_like (n, d), optional
        User or query embeddings of the same model; they make the alternatives possible that look at
        predictions.
    labels : array_like (p,), int or str, optional
        Clusters of the items, to be recovered; None for an item without.
    popularity : array_like (p,), optional
        For example the number of users of every item.
    k : int
        Neighbours per item.
    condition : float
        Largest entry of D over its smallest, for the verdict. For scale: 2.3 is between the two
        cases of the paper's section 2.2 on its own simulation.
    seed : int
        Seed of the samples.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    progress : callable, optional
        Called as progress(done, total) during the search of neighbours.

    Returns
    -------
    Audit
        The card; ``verdict`` says it in a sentence, ``to_dict()`` gives plain values.

    Raises
    ------
    ValueError
        NaN or infinity; users of another width; labels or popularity of another length; k,
        condition or seed out of range; fewer than k + 1 rows that are not zero.

    Notes
    -----
    Source: Steck, Ekanadham, Kallus, arXiv:2403.05440, for the freedom; the certificates are those
    of :func:`fastcos.certified_neighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> rng = np.random.default_rng(0)
    >>> card = audit(rng.standard_normal((300, 8)), k=5, condition=1.2)
    >>> card.n_items, 0 <= card.arbitrariness <= 1
    (300, True)
    >>> point = next(point for point in card.survival if point.condition == 1.2)
    >>> point.certified_linear <= 1 and point.certified <= point.survives_attack
    True
    """
    side, k, condition = certificates.as_edges(items, k, condition, None)
    p, d = side.items.shape
    queries = None if users is None else rows_on_disk.as_rows_on_disk("users", users)
    if queries is not None:
        validate.as_same_width("users", queries, "items", side.items)
    codes = None if labels is None else validate.as_partial_labels("labels", labels, p)
    counts = None if popularity is None else validate.as_vector("popularity", popularity, p)
    generator = validate.as_generator("seed", seed)
    directed = np.flatnonzero(side.norms > 0)
    validate_audit.as_many("items", len(directed), k + 1)

    found = certificates.nearest(side, min(k + 1, p - 1), n_threads, progress).indices
    _, linear = certificates.linear_radii(side, found, k, n_threads)
    lists = validate.read_only(np.ascontiguousarray(found[:, :k]))
    indexed = _draw(generator, directed, _INDEXED_ROWS)
    part, listed_there = side._replace(rows=indexed), lists[indexed]
    if rows_on_disk.is_on_disk(side.items):
        part, listed_there = certificates.named_by(part, listed_there)
    index, shares = local_arbitrariness(part, listed_there, n_threads)
    sample = side._replace(rows=_draw(generator, directed, _CERTIFIED_ROWS))
    listed = _draw(generator, directed, _LISTED_ROWS)
    labelled = recovery = None
    if codes is not None:
        rows = _draw(generator, np.flatnonzero((side.norms > 0) & (codes >= 0)), _LABELLED_ROWS)
        labelled = (rows, codes[rows])
        labelled_rows = rows_on_disk.taken("items", side.items, rows)
        recovery = searched_range(labelled_rows, codes[rows], condition, generator)
    judge = Judge(side._replace(rows=listed), lists[listed], labelled)
    own = alternatives.moments(side.items)
    others = None if queries is None else alternatives.moments(queries)
    as_given = alternatives.Variant("given", "the embeddings as they are", 1.0, None)
    spectrum = np.diag(alternatives.singular_values(own.second))
    centred = np.diag(alternatives.singular_values(own.covariance))
    return Audit(
        n_items=p,
        n_dimensions=d,
        k=k,
        condition=condition,
        n_zero=p - len(directed),
        n_duplicates=_n_duplicates(side),
        n_sampled=len(sample.rows),
        n_listed=len(listed),
        convention=convention(own, others),
        arbitrariness=index,
        random_basis=_in_random_bases(side, lists, sample.rows, generator, n_threads),
        dimensions=shares,
        survival=survival(sample, linear, k, condition, n_threads),
        given=judge.compare(as_given, n_threads),
        family=judge.compare_all(alternatives.rescaled(own, others), n_threads),
        alternatives=judge.compare_all(alternatives.unfree(own, others), n_threads),
        recovery=recovery,
        hubness=metrics.hubness(lists),
        popularity=None if counts is None else metrics.popularity_bias(side.items, counts, lists),
        mean_cosine=metrics.mean_cosine(side.items).value,
        effective_rank=metrics.effective_rank(spectrum),
        isoscore=(metrics.participation_ratio(centred) - 1) / (d - 1) if d > 1 else None,
    )


def local_arbitrariness(
    side: certificates.Side, lists: Integers, n_threads: int | None = None
) -> tuple[float, Floats]:
    """Mean total-variation index of the edges, and the share of every dimension in it."""
    n, d = len(lists), side.items.shape[1]
    first_of = threads.cuts_by_rows(n, _ROWS_PER_PART)
    n_parts = len(first_of) - 1
    indices = threads.poisoned(lists.shape, np.float64)
    totals = threads.poisoned((n_parts, d), np.float64)
    threads.run(
        intervals.edge_indices, threads.cuts_by_rows(n_parts, 1), *side, validate.read_only(lists),
        validate.read_only(first_of), indices, totals,
        n_threads=n_threads,
    )  # fmt: skip
    sums = totals.sum(axis=0)
    directed = np.isfinite(indices)
    mean = float(indices[directed].mean()) if directed.any() else 0.0
    return mean, sums / sums.sum() if sums.sum() > 0 else sums


def _draw(generator: np.random.Generator, rows: Integers, most: int) -> Integers:
    chosen = generator.choice(rows, min(most, len(rows)), replace=False)
    return validate.read_only(np.sort(chosen))


def _n_duplicates(side: certificates.Side) -> int:
    """Rows that are not zero and stand earlier already: of the same norm and 64 bits of a hash."""
    norms, number, count = np.unique(side.norms, return_inverse=True, return_counts=True)
    shared = np.flatnonzero((count[number] > 1) & (norms[number] > 0))
    hashes = np.empty(len(shared), np.uint64)
    for lo in range(0, len(shared), _HASHED_AT_ONCE):
        some = shared[lo : lo + _HASHED_AT_ONCE]
        hashes[lo : lo + len(some)] = fingerprints(rows_on_disk.taken("items", side.items, some))
    order = np.lexsort((hashes, number[shared]))
    same = (np.diff(hashes[order]) == 0) & (np.diff(number[shared][order]) == 0)
    return int(same.sum())


def _in_random_bases(
    side: certificates.Side,
    lists: Integers,
    rows: Integers,
    generator: np.random.Generator,
    n_threads: int | None,
) -> float:
    part, listed = certificates.named_by(side._replace(rows=rows), lists[rows])
    values = []
    for _ in range(_RANDOM_BASES):
        turned = alternatives.in_random_basis(part.items, generator)
        rotated = part._replace(items=validate.read_only(turned))
        values.append(local_arbitrariness(rotated, listed, n_threads)[0])
    return float(np.mean(values))
