"""How arbitrary are these cosines? One card of numbers about item embeddings.

Predictions do not change when a rescaling D acts on users and D^-1 on items, but neighbours by
cosine do. The card says how many neighbours are certain to survive such rescalings and how many are
known not to, what other conventions would have shown instead, and what to compare instead.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics, parallel, validation
from fastcos.auditing import certificates, checks, variants
from fastcos.auditing.label_recovery import searched_range
from fastcos.auditing.parametrization import convention
from fastcos.auditing.report import Audit, Comparison, Recovery
from fastcos.auditing.robustness import survival
from fastcos.auditing.variant_scores import Judge
from fastcos.kernels import intervals
from fastcos.measures.row_transforms import fingerprints
from fastcos.neighbors.search import top_k
from fastcos.storage import memmap

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
    progress: parallel.Progress | None = None,
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
    given = _as_given(items, users, labels, popularity, k, condition, seed)
    side, d = given.side, given.side.items.shape[1]
    lists, linear = _neighbors(given, n_threads, progress)
    drawn = _drawn(given)
    index, shares = _local_index(side._replace(rows=drawn.indexed), lists, n_threads)
    recovery = _recovery(given, drawn)
    judge = Judge(side._replace(rows=drawn.listed), lists[drawn.listed], drawn.labelled)
    own = variants.moments(side.items)
    others = None if given.users is None else variants.moments(given.users)
    spectrum = np.diag(variants.singular_values(own.second))
    centred = np.diag(variants.singular_values(own.covariance))
    certified = side._replace(rows=drawn.certified)

    def compared(variant: variants.Variant) -> Comparison:
        return judge.compare(variant, n_threads)

    return Audit(
        n_items=len(lists),
        n_dimensions=d,
        k=given.k,
        condition=given.condition,
        n_zero=len(lists) - len(given.directed),
        n_duplicates=_n_duplicates(side),
        n_sampled=len(drawn.certified),
        n_listed=len(drawn.listed),
        convention=convention(own, others),
        arbitrariness=index,
        random_basis=_in_random_bases(certified, lists, given.generator, n_threads),
        dimensions=shares,
        survival=survival(certified, linear, given.k, given.condition, n_threads),
        given=compared(variants.AS_GIVEN),
        family=tuple(map(compared, variants.rescaled(own, others))),
        alternatives=tuple(map(compared, variants.unfree(own, others))),
        recovery=recovery,
        hubness=metrics.hubness(lists),
        popularity=(
            None
            if given.popularity is None
            else metrics.popularity_bias(side.items, given.popularity, lists)
        ),
        mean_cosine=metrics.mean_cosine(side.items).value,
        effective_rank=metrics.effective_rank(spectrum),
        isoscore=(metrics.participation_ratio(centred) - 1) / (d - 1) if d > 1 else None,
    )


class _Given(NamedTuple):
    """Checked arguments, and the items that have a direction.

    codes: numbers of the labels, -1 for none.
    """

    side: certificates.Side
    users: Any
    codes: Integers | None
    popularity: Floats | None
    k: int
    condition: float
    generator: np.random.Generator
    directed: Integers


class _Drawn(NamedTuple):
    """Items, in rising order, for what is not looked at for all; labelled with their labels."""

    indexed: Integers
    certified: Integers
    listed: Integers
    labelled: tuple[Integers, Integers] | None


def _as_given(
    items: Any, users: Any, labels: Any, popularity: Any, k: Any, condition: Any, seed: Any
) -> _Given:
    side, k, condition = certificates.as_edges(items, k, condition, None)
    p = len(side.norms)
    queries = None if users is None else memmap.as_mapped_rows("users", users)
    if queries is not None:
        validation.check_same_width("users", queries, "items", side.items)
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    counts = None if popularity is None else validation.as_vector("popularity", popularity, p)
    generator = validation.as_generator("seed", seed)
    directed = np.flatnonzero(side.norms > 0)
    checks.as_many("items", len(directed), k + 1)
    return _Given(side, queries, codes, counts, k, condition, generator, directed)


def _neighbors(
    given: _Given,
    n_threads: int | None,
    progress: parallel.Progress | None,
) -> tuple[Integers, Floats]:
    """The k nearest (p, k) of all items, and the radii (p, k) of these edges under linear maps."""
    side, k = given.side, given.k
    length = min(k + 1, len(side.items) - 1)
    found = top_k(side.items, k=length, n_threads=n_threads, progress=progress).indices
    _, linear = certificates.linear_radii(side, found, k, n_threads)
    return validation.read_only(np.ascontiguousarray(found[:, :k])), linear


def _drawn(given: _Given) -> _Drawn:
    generator, directed = given.generator, given.directed
    indexed = _draw(generator, directed, _INDEXED_ROWS)
    certified = _draw(generator, directed, _CERTIFIED_ROWS)
    listed = _draw(generator, directed, _LISTED_ROWS)
    labelled = None
    if given.codes is not None:
        rows = _draw(generator, directed[given.codes[directed] >= 0], _LABELLED_ROWS)
        labelled = rows, given.codes[rows]
    return _Drawn(indexed, certified, listed, labelled)


def _draw(generator: np.random.Generator, rows: Integers, most: int) -> Integers:
    chosen = generator.choice(rows, min(most, len(rows)), replace=False)
    return validation.read_only(np.sort(chosen))


def _recovery(given: _Given, drawn: _Drawn) -> Recovery | None:
    if drawn.labelled is None:
        return None
    rows, codes = drawn.labelled
    labelled = memmap.take_rows("items", given.side.items, rows)
    return searched_range(labelled, codes, given.condition, given.generator)


def _local_index(
    side: certificates.Side, lists: Integers, n_threads: int | None
) -> tuple[float, Floats]:
    """The local index of the rows of side, of whose items no more are in memory than named."""
    listed = lists[side.rows]
    if memmap.is_memmap(side.items):
        side, listed = certificates.named_by(side, listed)
    return local_arbitrariness(side, listed, n_threads)


def local_arbitrariness(
    side: certificates.Side, lists: Integers, n_threads: int | None = None
) -> tuple[float, Floats]:
    """Mean total-variation index of the edges, and the share of every dimension in it."""
    n, d = len(lists), side.items.shape[1]
    first_of = parallel.row_blocks(n, _ROWS_PER_PART)
    n_parts = len(first_of) - 1
    indices = parallel.unfilled(lists.shape, np.float64)
    totals = parallel.unfilled((n_parts, d), np.float64)
    parallel.run(
        intervals.edge_indices, parallel.row_blocks(n_parts, 1), *side,
        validation.read_only(lists),
        validation.read_only(first_of), indices, totals,
        n_threads=n_threads,
    )  # fmt: skip
    sums = totals.sum(axis=0)
    directed = np.isfinite(indices)
    mean = float(indices[directed].mean()) if directed.any() else 0.0
    return mean, sums / sums.sum() if sums.sum() > 0 else sums


def _n_duplicates(side: certificates.Side) -> int:
    """Rows that are not zero and stand earlier already: of the same norm and 64 bits of a hash."""
    norms, number, count = np.unique(side.norms, return_inverse=True, return_counts=True)
    shared = np.flatnonzero((count[number] > 1) & (norms[number] > 0))
    hashes = np.empty(len(shared), np.uint64)
    for lo in range(0, len(shared), _HASHED_AT_ONCE):
        some = shared[lo : lo + _HASHED_AT_ONCE]
        hashes[lo : lo + len(some)] = fingerprints(memmap.take_rows("items", side.items, some))
    order = np.lexsort((hashes, number[shared]))
    same = (np.diff(hashes[order]) == 0) & (np.diff(number[shared][order]) == 0)
    return int(same.sum())


def _in_random_bases(
    side: certificates.Side,
    lists: Integers,
    generator: np.random.Generator,
    n_threads: int | None,
) -> float:
    part, listed = certificates.named_by(side, lists[side.rows])
    values = []
    for _ in range(_RANDOM_BASES):
        turned = variants.in_random_basis(part.items, generator)
        rotated = part._replace(items=validation.read_only(turned))
        values.append(local_arbitrariness(rotated, listed, n_threads)[0])
    return float(np.mean(values))
