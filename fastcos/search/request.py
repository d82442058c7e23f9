"""Validate the arguments of a search: its rows, its minimal score, and what each query may find.

``as_input_rows`` validates rows, and ``as_threshold`` validates the minimal score. ``as_request``
validates the items that each query is allowed to find, and returns a ``SearchRequest``. A request
does not contain the queries: ``execute`` receives the items, the queries and the request. A
prepared search (``prepared``) skips this module, except that ``as_index_queries`` validates the
queries if the caller has passed ids that are allowed or excluded.

Queries in memory are validated before the search. Memory-mapped queries are read and validated
batch by batch (``execute.read_batch``). Low-precision queries are converted batch by batch in
``top_k``, but all at once in a search of an index. Every search method receives its queries as a
``QueryBatch``.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.search.filters import (
    ExcludedItems,
    as_pairs,
    lists_without_pairs,
    no_exclusions,
)
from fastcos.search.item_groups import QueryGroups
from fastcos.search.model_check import check_same_model
from fastcos.similarity.base import Measure, capabilities
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers, Rows

# The largest min_score that is accepted for cosine. The limit is above 1, because a cosine that a
# user has computed in float32 may exceed 1 by rounding errors.
_LARGEST_COSINE = 1.001


class QueryBatch(NamedTuple):
    """Queries that are searched together.

    Attributes
    ----------
    first_query : int
        The number of queries in all earlier batches of the search.
    total : int
        The number of queries in all batches of the search, for progress reports.
    rows : ndarray (n, d)
        The queries as valid rows in memory.
    encoded : EncodedRows
        The queries of the batch, encoded by the measure.
    exclusions : ExcludedItems
        The items that each query of the batch must not find.
    """

    first_query: int
    total: int
    rows: Rows
    encoded: EncodedRows
    exclusions: ExcludedItems

    def take(self, places: Integers) -> "QueryBatch":
        """Return a batch of these queries; ``places`` contains their indices in ascending order."""
        if len(places) == len(self.rows):
            return self
        return self._replace(
            rows=self.rows[places],
            encoded=self.encoded.take(places),
            exclusions=self.exclusions.take(places),
        )


class SearchRequest(NamedTuple):
    """What each query of a search asks of the items; all fields are validated.

    Attributes
    ----------
    k : int
        The number of neighbours per query.
    allowed_positions : ndarray or None
        The ascending positions of the items that all queries are allowed to find; None if all items
        are allowed.
    exclusions : ExcludedItems or None
        For each query, the positions that the query must not find; None if nothing is excluded.
    min_score : float or None
        The lowest score that a neighbour may have; None if there is no such limit.
    lists : tuple of ndarray (indptr, positions), or None
        The items that each query is allowed to find, if they are listed separately for each query.
        The list of query i is ``positions[indptr[i]:indptr[i + 1]]``.
    groups : QueryGroups or None
        The group of each query, if each query finds only items of its own group; otherwise None. If
        ``groups`` is not None, ``lists`` is None.
    """

    k: int
    allowed_positions: Integers | None = None
    exclusions: ExcludedItems | None = None
    min_score: float | None = None
    lists: tuple[Integers, Integers] | None = None
    groups: QueryGroups | None = None


class Threshold(Protocol):
    """An object that gives a threshold for scores, such as ``fastcos.auditing.Calibration``."""

    @property
    def measure(self) -> str:
        """The name of the measure for whose scores the threshold is valid."""

    def threshold(self) -> float:
        """Return the lowest score with which a pair qualifies."""


def as_exclude_self(exclude_self: Any, n_queries: int, n_items: int, *, has_items: bool) -> bool:
    """Return whether item i is left out of the results of query i.

    If ``exclude_self`` is None, return whether the queries are the items (``not has_items``).
    """
    if exclude_self is None:
        return not has_items
    exclude_self = validation.as_flag("exclude_self", exclude_self)
    if exclude_self and has_items and n_queries != n_items:
        raise ValueError(
            "exclude_self must be False if the numbers of queries and items differ, got True for "
            f"{n_queries} queries and {n_items} items"
        )
    return exclude_self


def as_min_score(value: Any, measure: Measure, model: str | None = None) -> float | None:
    """Validate ``min_score`` by ``as_threshold`` and return it; None stays None."""
    return None if value is None else as_threshold("min_score", value, measure, model)


def as_threshold(name: str, value: object, measure: Measure, model: str | None = None) -> float:
    """Return ``value`` if it is a score, or the threshold of ``value`` if it is a calibration.

    ValueError is raised if the calibration was made for a measure other than ``measure``, or for a
    model other than ``model``.
    """
    if not callable(getattr(value, "threshold", None)):
        score = validation.as_real(name, value)
        if measure.name == "cosine" and score > _LARGEST_COSINE:
            raise ValueError(
                f"{name} must be at most 1 for cosine, got {validation.format_value(value)}"
            )
        return score
    calibrated: Threshold = value  # type: ignore[assignment]
    if calibrated.measure != measure.name:
        raise ValueError(
            f"{name} must be calibrated for {measure.name}, got a calibration for "
            f"{calibrated.measure}"
        )
    check_same_model(name, model, getattr(value, "model", None))
    return float(calibrated.threshold())


def as_input_rows(
    name: str,
    X: Any,
    measure: Measure,
    *,
    or_vector: bool = False,
    or_empty: bool = False,
    in_memory: bool = False,
    in_blocks: bool = False,
    widen: bool = False,
    is_measured: bool = False,
) -> Any:
    """Return X as validated rows; memory-mapped rows stay on disk if the measure allows it.

    With ``or_empty=True``, the function also accepts an empty matrix (0, d), and returns it in
    float32. With ``in_memory=True``, the function reads memory-mapped rows into memory.
    Low-precision rows have one or two bytes per number. With ``in_blocks=True``, the function
    returns low-precision rows unchanged, and the caller converts them block by block. With
    ``in_blocks=True`` and ``widen=True``, the function converts low-precision rows to float32 at
    once; without ``in_blocks=True``, ``widen`` has no effect. With ``is_measured=True``, the
    function does not check float32 rows for NaN, because the caller passes the rows to
    ``encode_rows``, which finds any NaN when it computes norms. The arguments ``in_blocks``,
    ``widen`` and ``is_measured`` have an effect only if the measure has the capability ``append``.
    """
    shape: tuple[int, ...] = getattr(X, "shape", ()) if or_empty else ()
    if len(shape) == 2 and shape[0] == 0 and shape[1] > 0 and not validation.is_sparse(X):
        return np.empty(shape, np.float32)
    capability = capabilities(measure)
    return memmap.as_mapped_rows(
        name, X, on_disk=capability.blocks and not in_memory,
        narrow=in_blocks and capability.append, widen=widen,
        or_vector=or_vector, is_measured=is_measured and capability.append,
    )  # fmt: skip


def as_index_queries(X: Any, measure: Measure, width: int, *, in_memory: bool = False) -> Any:
    """Return X as validated queries for an index whose items have `width` columns."""
    Q = as_input_rows(
        "queries", X, measure, or_vector=True, or_empty=True, in_memory=in_memory, in_blocks=True,
        widen=True,
    )  # fmt: skip
    validation.check_width("queries", Q, "the items of the index", width)
    return Q


def as_request(
    k: int,
    n_queries: int,
    n_items: int,
    *,
    exclude_self: bool = False,
    allowed: Any = None,
    exclude: Any = None,
    min_score: float | None = None,
    lists: tuple[Integers, Integers] | None = None,
    groups: QueryGroups | None = None,
) -> SearchRequest:
    """Validate filters, and return the request for the k best of ``n_items`` items for each query.

    If fewer than k items are allowed, the request has a smaller k, and the caller pads the results.
    ``exclude_self=True`` means that query i is item i and must not find itself. ``lists`` and
    ``groups`` must already be validated; the docstring of ``SearchRequest`` describes them. Only
    one of ``allowed`` and ``lists`` may be given.
    """
    shape, allowed_positions = (n_queries, n_items), None
    if lists is not None:
        validation.check_none("allowed", allowed, "with lists")
    if validation.any_sparse(allowed):
        lists = as_pairs("allowed", allowed, shape)
    if lists is not None and groups is not None:
        raise ValueError(
            "allowed must be one mask or one array of positions for all queries if groups are "
            "given, got a separate list for each query"
        )
    if lists is not None:
        k = min(k, int(np.diff(lists[0]).max(initial=0)))
    elif allowed is not None:
        allowed_positions = validation.as_item_numbers("allowed", allowed, n_items)
        k = min(k, len(allowed_positions))
    exclusions = no_exclusions(n_queries, exclude_self=True) if exclude_self else None
    if exclude is not None and not validation.is_empty_list(exclude):
        self_rows = no_exclusions(n_queries, exclude_self=exclude_self).self_rows
        exclusions = ExcludedItems(self_rows, *as_pairs("exclude", exclude, shape))
    if min_score is not None:
        min_score = validation.as_real("min_score", min_score)
    if lists is not None and exclusions is not None:
        lists, exclusions = lists_without_pairs(lists, exclusions, n_items), None
    return SearchRequest(k, allowed_positions, exclusions, min_score, lists, groups)
