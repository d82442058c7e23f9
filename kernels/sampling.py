"""Sampling of items without replacement, one after another, in proportion to their weights.

For row i, the weight of an item is a product of two factors. The first factor is preference[i, c],
where c is the cluster of the item. The second factor does not depend on the row. Therefore, the
weights of the p items need not be stored separately for each row. This module contains two
algorithms for sampling in proportion to the weights:

- In repeated draws, one item after another is drawn with replacement, and an item that was drawn
  before is skipped. A draw takes O(log p) time.
- The exponential race selects the k items with the largest sum of log weight and Gumbel noise
  (Yellott 1977; Efraimidis and Spirakis 2006; arXiv:1903.06059). The race takes O(p) time. The race
  adds logarithms of weights, which do not underflow, so weights may be arbitrarily small.

Suppose that repeated draws have selected some items. Further draws then select a sample without
replacement from the remaining items. Repeated draws may therefore be stopped at any time. The rest
of the sample may then be selected by a race among the remaining items.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from .jit import borrowing_kernel, kernel
from .philox import uniform_pair
from .select import kth_largest, sort_ascending

# The numbers of the random streams; the two algorithms draw from different streams.
_REPEATED = 0
_RACE = 1


class Clusters(NamedTuple):
    """The items of each cluster, with their weights.

    The items of cluster c are item_at[starts[c] : starts[c + 1]], where `starts` (C + 1,) and
    `item_at` (p,) are int64. `cumulative` (p,) float64 holds the running sums of the weights within
    each cluster. `log_weight` (p,) float64 holds the logarithms of the weights, or -inf for items
    that are never drawn.
    """

    starts: Any
    item_at: Any
    cumulative: Any
    log_weight: Any


@borrowing_kernel
def _first_above(cumulative, first, last, target):
    """Return the first t in [first, last) with cumulative[t] > target, or else last - 1."""
    last -= 1
    while first < last:
        middle = (first + last) >> 1
        if cumulative[middle] > target:
            last = middle
        else:
            first = middle + 1
    return first


@borrowing_kernel
def _draw_repeatedly(i, preference, clusters, key_0, key_1, max_draws, mass, is_taken, sample):
    """Draw distinct items for row i, with at most max_draws draws; return the number of items.

    The items are written to `sample`, and marked in `is_taken`. `mass` has one entry per cluster
    and is overwritten. The other arguments are described in sample_rows.
    """
    starts, item_at, cumulative, _ = clusters
    n_clusters, count = len(starts) - 1, 0
    total = 0.0
    for c in range(n_clusters):
        if starts[c + 1] > starts[c]:
            total += preference[i, c] * cumulative[starts[c + 1] - 1]
        mass[c] = total
    for step in range(max_draws):
        if count == len(sample):
            break
        u, v = uniform_pair(step, _REPEATED, i, key_0, key_1)
        c = _first_above(mass, 0, n_clusters, u * total)
        first, last = starts[c], starts[c + 1]
        item = item_at[_first_above(cumulative, first, last, v * cumulative[last - 1])]
        if not is_taken[item]:
            is_taken[item] = True
            sample[count] = item
            count += 1
    return count


@borrowing_kernel
def _draw_by_race(i, preference, clusters, key_0, key_1, is_taken, sample, racers, keys, order):
    """Fill `sample` for row i by an exponential race of all items that are not marked in is_taken.

    `racers`, `keys` and `order` have one entry per item and are overwritten.
    """
    starts, item_at, _, log_weight = clusters
    count, v = 0, 0.0
    for c in range(len(starts) - 1):
        if not preference[i, c] > 0:
            continue
        log_preference = math.log(preference[i, c])
        for t in range(starts[c], starts[c + 1]):
            if is_taken[item_at[t]] or log_weight[t] == -np.inf:
                continue
            if count & 1:
                u = v
            else:
                u, v = uniform_pair(count >> 1, _RACE, i, key_0, key_1)
            racers[count] = item_at[t]
            keys[count] = log_preference + log_weight[t] - math.log(-math.log(u))
            order[count] = keys[count]
            count += 1
    last_key = kth_largest(order, count, len(sample))
    n_drawn = 0
    for t in range(count):
        if keys[t] > last_key:
            sample[n_drawn] = racers[t]
            n_drawn += 1
    for t in range(count):
        if keys[t] == last_key and n_drawn < len(sample):
            sample[n_drawn] = racers[t]
            n_drawn += 1
    for t in range(len(sample)):
        is_taken[sample[t]] = True


@borrowing_kernel
def _sort_and_clear(sample, is_taken):
    """Sort the sampled items, and clear their marks in is_taken."""
    if 16 * len(sample) < len(is_taken):
        sort_ascending(sample)
        for t in range(len(sample)):
            is_taken[sample[t]] = False
        return
    count = 0
    for item in range(len(is_taken)):
        if is_taken[item]:
            is_taken[item] = False
            sample[count] = item
            count += 1


@kernel
def sample_rows(lo, hi, preference, clusters, drawing, indptr, indices):
    """Draw indptr[i + 1] - indptr[i] different items for each row i from lo to hi, and sort them.

    `preference` (n, C) is float64, `clusters` is a Clusters, `drawing` is a Drawing, and `indptr`
    (n + 1,) is int64. The items are written to `indices` (nnz,) int. In every row, the number of
    items with a positive weight must be at least the number of items to draw. The items drawn for
    row i depend on i and on the key (the words key_0 and key_1 of `drawing`), but not on the other
    rows.

    In repeated draws, the rounding error of the probability of an item is at most p * 2^-52.
    Drawing k items for a row takes O(k log p) time if these items carry a small part of the total
    weight, and otherwise O(max_draws log p + p) time. The kernel allocates O(p + C) memory.
    """
    key_0, key_1, max_draws = drawing.key_0, drawing.key_1, drawing.max_draws
    n_items = len(clusters.item_at)
    mass = np.empty(len(clusters.starts) - 1)
    is_taken = np.empty(n_items, np.bool_)
    for item in range(n_items):
        is_taken[item] = False
    racers = np.empty(n_items, np.int64)
    keys, order = np.empty(n_items), np.empty(n_items)
    for i in range(lo, hi):
        sample = indices[indptr[i] : indptr[i + 1]]
        count = 0
        if len(sample) < drawing.race_from:
            count = _draw_repeatedly(
                i, preference, clusters, key_0, key_1, max_draws, mass, is_taken, sample
            )
        if count < len(sample):
            _draw_by_race(
                i, preference, clusters, key_0, key_1, is_taken, sample[count:], racers, keys, order
            )
        _sort_and_clear(sample, is_taken)
