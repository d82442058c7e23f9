"""Draws without replacement, one after the other, each in proportion to the weights that are left.

An item of cluster c weighs preference[i, c] * weight for row i, so that no row needs the weights
of all items. Two routes have this law, and so has every change from the first to the second:

Repeated draws: draw with replacement, skip what has come before. A draw costs O(log p).
Exponential race: the k largest of log weight + Gumbel noise (Yellott 1977; Efraimidis and
Spirakis 2006; arXiv:1903.06059). O(p), on logarithms: no weight is too small.

Given the items drawn so far, the items that repeated draws would add next are a sample without
replacement from the rest. A race among the rest may thus take over at any time.
"""

import math

import numpy as np

from .jit import kernel
from .philox import uniform_pair
from .select import kth_largest

_REPEATED, _RACE = 0, 1


@kernel
def _first_above(running, first, last, target):
    """Return the first t in [first, last) with running[t] > target, or last - 1."""
    last -= 1
    while first < last:
        middle = (first + last) >> 1
        if running[middle] > target:
            last = middle
        else:
            first = middle + 1
    return first


@kernel
def _draw_repeatedly(
    i, preference, starts, item_at, running, key_0, key_1, max_draws, mass, taken, drawn
):
    """Draw distinct items into drawn, at most max_draws times; returns how many came."""
    n_clusters, count = len(starts) - 1, 0
    total = 0.0
    for c in range(n_clusters):
        if starts[c + 1] > starts[c]:
            total += preference[i, c] * running[starts[c + 1] - 1]
        mass[c] = total
    for step in range(max_draws):
        if count == len(drawn):
            break
        u, v = uniform_pair(step, _REPEATED, i, key_0, key_1)
        c = _first_above(mass, 0, n_clusters, u * total)
        first, last = starts[c], starts[c + 1]
        item = item_at[_first_above(running, first, last, v * running[last - 1])]
        if not taken[item]:
            taken[item] = True
            drawn[count] = item
            count += 1
    return count


@kernel
def _draw_by_race(
    i, preference, starts, item_at, log_weight, key_0, key_1, taken, drawn, racers, keys, order
):
    """Fill drawn with items that are not taken."""
    count, v = 0, 0.0
    for c in range(len(starts) - 1):
        if not preference[i, c] > 0:
            continue
        log_preference = math.log(preference[i, c])
        for t in range(starts[c], starts[c + 1]):
            if taken[item_at[t]] or log_weight[t] == -np.inf:
                continue
            if count & 1:
                u = v
            else:
                u, v = uniform_pair(count >> 1, _RACE, i, key_0, key_1)
            racers[count] = item_at[t]
            keys[count] = log_preference + log_weight[t] - math.log(-math.log(u))
            order[count] = keys[count]
            count += 1
    last_key = kth_largest(order, count, len(drawn))
    came = 0
    for t in range(count):
        if keys[t] > last_key:
            drawn[came] = racers[t]
            came += 1
    for t in range(count):
        if keys[t] == last_key and came < len(drawn):
            drawn[came] = racers[t]
            came += 1
    for t in range(len(drawn)):
        taken[drawn[t]] = True


@kernel
def _sort_and_release(drawn, taken):
    """Sort drawn and clear its marks."""
    if 16 * len(drawn) < len(taken):
        drawn.sort()
        for t in range(len(drawn)):
            taken[drawn[t]] = False
        return
    count = 0
    for item in range(len(taken)):
        if taken[item]:
            taken[item] = False
            drawn[count] = item
            count += 1


@kernel
def sample_rows(
    lo,
    hi,
    preference,
    starts,
    item_at,
    running,
    log_weight,
    key_0,
    key_1,
    race_from,
    max_draws,
    indptr,
    indices,
):
    """Draw indptr[i + 1] - indptr[i] different items for rows lo .. hi; sorted within the row.

    preference (n, C) float64; the items of cluster c are item_at[starts[c] : starts[c + 1]],
    running (p,) float64 the running sums of their weights inside the cluster, log_weight (p,)
    float64 the logarithms (-inf: never drawn). indptr (n + 1,) int64; indices (nnz,) int, out. A
    row may ask for at most as many items as have weight for it. Rows of race_from items or more
    race at once, others after max_draws repeated draws. The numbers of row i are those of the
    words key_0, key_1 and of i alone.

    A repeated draw rounds a probability by at most p 2^-52; the race has no such bound to keep.
    O(k log p) for k items that hold a small part of the mass, else O(max_draws log p + p) time;
    O(p + C) scratch per call.
    """
    n_items = len(item_at)
    mass = np.empty(len(starts) - 1)
    taken = np.zeros(n_items, np.bool_)
    racers = np.empty(n_items, np.int64)
    keys, order = np.empty(n_items), np.empty(n_items)
    for i in range(lo, hi):
        drawn = indices[indptr[i] : indptr[i + 1]]
        count = 0
        if len(drawn) < race_from:
            count = _draw_repeatedly(
                i, preference, starts, item_at, running, key_0, key_1, max_draws, mass, taken, drawn
            )
        if count < len(drawn):
            rest = drawn[count:]
            _draw_by_race(
                i,
                preference,
                starts,
                item_at,
                log_weight,
                key_0,
                key_1,
                taken,
                rest,
                racers,
                keys,
                order,
            )
        _sort_and_release(drawn, taken)
