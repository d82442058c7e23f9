"""Groups of equal rows. Rows that occur many times are searched only once.

Copies of a row have equal scores. Without groups, every row of a group of g copies would have the
g - 1 other copies as neighbours with the same score, which no bound can separate, so all g^2 pairs
would be scored in float64.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k, records
from fastcos.search.filters import ExcludedItems
from fastcos.search.plan import pays_grouping
from fastcos.search.rankings import Ranking, unfilled
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Integers

# The number of rows that are compared at once, which stay in the cache.
_CHUNK = 4096
# The number of queries whose groups are expanded at once.
_EXPANDED_ROWS = 1024


class DuplicateGroups(NamedTuple):
    """Groups of equal rows, in the order of their first rows.

    first (u,) holds the lowest row of each group. group_of (p,) holds the number of the group of
    each row. The rows of group g are members[starts[g] : starts[g + 1]], ascending, where members
    has the shape (n,) and starts (u + 1,).
    """

    first: Integers
    group_of: Integers
    starts: Integers
    members: Integers


def find_duplicates(encoded: EncodedRows) -> DuplicateGroups | None:
    """Return the groups of duplicate rows (with equal bias), or None if there are few copies.

    The function takes O(n d) time. Callers first ask ``packing.norms_repeat``, which takes less
    time and returns False if equal rows are so rare that this function would return None.
    """
    n = len(encoded.norms)
    hashes = _hashes(encoded)
    order = np.argsort(hashes, kind="stable")
    # A collision of hashes may split a group, which does no harm.
    is_same = hashes[order[1:]] == hashes[order[:-1]]
    places = np.flatnonzero(is_same)
    for at in range(0, len(places), _CHUNK):
        chunk = places[at : at + _CHUNK]
        left, right = order[chunk], order[chunk + 1]
        is_same[chunk] = (encoded.rows[left] == encoded.rows[right]).all(axis=1)
        if len(encoded.bias):
            is_same[chunk] &= encoded.bias[left] == encoded.bias[right]
    ends = np.flatnonzero(~is_same) + 1
    if not pays_grouping(ends, n):
        return None
    first = order[np.append(0, ends)]
    by_first = np.argsort(first)
    number = np.empty(len(first), np.int64)
    number[by_first] = np.arange(len(first))
    group_of = np.empty(n, np.int64)
    group_of[order] = np.repeat(number, np.diff([0, *ends, n]))
    members = np.argsort(group_of, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(group_of))).astype(np.int64)
    groups = (first[by_first], group_of, starts, members)
    return DuplicateGroups(*map(validation.read_only, groups))


def find_duplicates_among(encoded: EncodedRows, numbers: Integers) -> DuplicateGroups | None:
    """Return the groups of duplicates among the rows with these ascending row numbers."""
    if len(numbers) == len(encoded.rows):
        return find_duplicates(encoded)
    subset_groups = find_duplicates(encoded.take(numbers))
    if subset_groups is None:
        return None
    group_of = np.zeros(len(encoded.rows), np.int64)
    group_of[numbers] = subset_groups.group_of
    first, members = numbers[subset_groups.first], numbers[subset_groups.members]
    groups = first, group_of, subset_groups.starts, members
    return DuplicateGroups(*map(validation.read_only, groups))


def _hashes(encoded: EncodedRows) -> npt.NDArray[np.uint64]:
    """Return a hash of every row and its bias: a random linear map of their bits, modulo 2^64."""
    words = encoded.rows.view(f"u{min(4, encoded.rows.itemsize)}")
    weights = np.random.default_rng(0).integers(2**64, size=words.shape[1] + 1, dtype=np.uint64)
    bias = encoded.bias if len(encoded.bias) else np.zeros(len(words))
    hashes: npt.NDArray[np.uint64] = bias.view(np.uint64) * weights[-1]
    for at in range(0, len(words), _CHUNK):
        chunk = slice(at, at + _CHUNK)
        hashes[chunk] += words[chunk].astype(np.uint64) @ weights[:-1]
    return hashes


def expand(
    items: DuplicateGroups,
    exclusions: ExcludedItems,
    group_of_query: Integers,
    groups: Ranking,
    k: int,
    n_threads: int,
) -> Ranking:
    """Expand the best groups of every distinct query to row numbers and raw scores (n, k).

    group_of_query (n,) holds the number of the distinct query of each query. groups holds, for each
    distinct query, the row numbers of the first members of its k + 1 best groups, and their raw
    scores. Of the exclusions, only ``self_rows`` is used. The best k + 1 groups suffice, for the
    following reason. Every group that ranks above the group of an item contains a row that ranks
    above the item. The group of one of the best k items is therefore among the best k groups, or
    among the best k + 1 groups if one of the rows above the item is the query itself.
    """
    n = len(group_of_query)
    best_groups, best_scores = groups
    columns, scores = unfilled(n, k)
    parallel.run(
        exhaustive_top_k.expand_copies, parallel.row_blocks(n, _EXPANDED_ROWS),
        records.DistinctResults(group_of_query, best_groups, best_scores),
        validation.read_only(exclusions.self_rows),
        records.CopyGroups(items.group_of, items.starts, items.members), scores, columns,
        n_threads=n_threads,
    )  # fmt: skip
    return columns, scores
