"""One step of the cosine-trained model: slopes by user, then updates by item, without a race.

A user's row is s = sum of x a over the user's items, and an interaction is scored without itself:
logit = (s - x a) . b / temperature + bias, over both norms where unit is true. Users only read the
items' vectors and write slopes; items then read those of their users, in order, and change their
own vectors: like the halves of alternating least squares. Bits do not depend on threads; sums are
in the vector order of the CPU, so they may differ between CPUs (reassociation, float32).

The drawn items, the *pool*, are shared by all users of a step. An item that the user has, also
when it is held out, is hidden from that user.
"""

import math

import numpy as np

from .jit import screen_kernel

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
# of |s|^2: what rounding leaves of a sum whose only term was taken out
NOTHING = np.float32(1e-10)
HIDDEN = np.float32(-np.inf)


@screen_kernel
def dot(x, y):
    """Return x . y, float32."""
    total = ZERO
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@screen_kernel
def add(factor, x, y):
    """Add factor x to y."""
    for k in range(len(x)):
        y[k] += factor * x[k]


@screen_kernel
def normalise(unit, x, out):
    """Write x / |x| to out, x itself unless unit; returns the factor. A zero row stays zero."""
    factor = ONE
    if unit:
        squared = dot(x, x)
        factor = ONE / np.sqrt(squared) if squared > 0 else ZERO
    for k in range(len(x)):
        out[k] = factor * x[k]
    return factor


@screen_kernel
def without(s, x, a, b):
    """Return |s - x a|^2 and (s - x a) . b."""
    squared, product = ZERO, ZERO
    for k in range(len(s)):
        rest = s[k] - x * a[k]
        squared += rest * rest
        product += rest * b[k]
    return squared, product


@screen_kernel
def score_pool(user, scale, columns, bias, logits):
    """logits[j] = scale user . column j + bias[j]; columns (d, m). O(d m)."""
    d = len(user)
    logits[:] = bias
    for k in range(0, d - 3, 4):
        w, x, y, z = scale * user[k], scale * user[k + 1], scale * user[k + 2], scale * user[k + 3]
        p, q, r, t = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        for j in range(len(logits)):
            logits[j] += w * p[j] + x * q[j] + y * r[j] + z * t[j]
    for k in range(d // 4 * 4, d):
        add(scale * user[k], columns[k], logits)


@screen_kernel
def hide(items, place_of, logits):
    """Hide the items of a user from the pool."""
    for item in items:
        if place_of[item] >= 0:
            logits[place_of[item]] = HIDDEN


@screen_kernel
def prepare_pool(softmax, counts, logits):
    """Return the largest logit of the pool and, for softmax, sum of counts exp(logit - largest).

    logits become those exponentials. -inf: every drawn item is hidden.
    """
    largest, total = HIDDEN, ZERO
    for j in range(len(logits)):
        largest = max(largest, logits[j])
    if softmax and largest > HIDDEN:
        for j in range(len(logits)):
            logits[j] = math.exp(logits[j] - largest)
            total += counts[j] * logits[j]
    return largest, total


@screen_kernel
def positive(softmax, logit, largest, others, weight):
    """Return loss, its slope by the logit, and what the negatives' slopes are multiplied with.

    softmax: -ln(e^logit / (e^logit + others e^largest)); else -ln sigmoid(logit).
    """
    if not softmax:
        small = math.exp(-abs(logit))
        loss = math.log1p(small) + max(-logit, ZERO)
        return weight * loss, -weight * (small if logit > 0 else ONE) / (ONE + small), weight
    logit -= largest
    small = math.exp(-abs(logit))
    if logit > 0:
        share, loss = small / (ONE + others * small), math.log1p(others * small)
    else:
        share, loss = ONE / (small + others), math.log(small + others) - logit
    return weight * loss, -weight * share * others, weight * share


@screen_kernel
def slope_pool(softmax, counts, rate, logits):
    """Turn what prepare_pool left into slopes of the loss by the logits; returns the loss of them.

    The softmax has no loss of its own there.
    """
    loss = 0.0
    for j in range(len(logits)):
        weight = rate * counts[j]
        if softmax:
            logits[j] *= weight
        else:
            small = math.exp(-abs(logits[j]))
            if logits[j] > HIDDEN:
                loss += weight * (math.log1p(small) + max(logits[j], ZERO))
            logits[j] = weight * (ONE if logits[j] > 0 else small) / (ONE + small)
    return loss


@screen_kernel
def add_profile(items, values, A, s):
    """Write the sum of values[t] A[items[t]] to s."""
    s[:] = 0
    for t in range(len(items)):
        add(values[t], A[items[t]], s)


@screen_kernel
def pull_to_one(penalty, x, gradient):
    """Add the gradient of penalty (|x| - 1)^2; returns that loss."""
    norm = np.sqrt(dot(x, x))
    if penalty > 0 and norm > 0:
        add(TWO * penalty * (ONE - ONE / norm), x, gradient)
    return penalty * (norm - ONE) * (norm - ONE)


@screen_kernel
def score_profile(
    s, items, values, weights, A, B, bias, scale, unit, softmax, largest, others, slopes, gradient
):
    """Score each item of a user without itself; slopes (len, 3) and gradient (d,) out.

    Returns the loss and what the negatives' slopes are multiplied with. gradient is by s.
    """
    loss, rate, pull = 0.0, ZERO, ZERO
    tiny = NOTHING * dot(s, s)
    gradient[:] = 0
    for t in range(len(items)):
        item, x = items[t], values[t]
        squared, product = without(s, x, A[item], B[item])
        inverse = ONE
        if unit:
            inverse = ONE / np.sqrt(squared) if squared > tiny else ZERO
        cosine = product * inverse
        part, slope, share = positive(
            softmax, scale * cosine + bias[item], largest, others, weights[t]
        )
        loss += part
        rate += share
        along_item = slope * scale * inverse
        along_user = along_item * cosine * inverse if unit else ZERO
        slopes[t, 0], slopes[t, 1], slopes[t, 2] = slope, along_item, along_user
        pull += along_user
        add(along_item, B[item], gradient)
        add(along_user * x, A[item], gradient)
    add(-pull, s, gradient)
    return loss, rate


@screen_kernel
def user_slopes(
    lo,
    hi,
    first,
    indptr,
    indices,
    values,
    weights,
    seen_indptr,
    seen_indices,
    A,
    B,
    bias,
    pool,
    columns,
    pool_bias,
    counts,
    place_of,
    scale,
    unit,
    softmax,
    penalty,
    S,
    units,
    gradients,
    slopes,
    pool_slopes,
    losses,
):
    """Slopes of the loss for users lo .. hi; outputs are counted from user `first`.

    CSR indptr, indices, values (x) and weights (of the loss); seen_indptr, seen_indices (CSR): what
    is hidden of the pool, these and others. A, B (p, d) float32, rows of B of norm 1 where unit;
    bias (p,). pool (m, d) rows of B, columns its transpose, pool_bias, counts (m,); place_of (p,)
    int32 place in the pool or -1. Out, counted from `first`: S (b, d) sums, units (b, d)
    normalised, gradients (b, d) by S; slopes (nnz, 3) of the interactions: by the logit, and what B
    and the sum are multiplied with in the gradient by the sum without the item; pool_slopes (b, m);
    losses (b,) float64. O((nnz + b m) d).
    """
    entry = indptr[first]
    for i in range(lo, hi):
        row, start, stop = i - first, indptr[i], indptr[i + 1]
        s, user, gradient, logits = S[row], units[row], gradients[row], pool_slopes[row]
        items = indices[start:stop]
        add_profile(items, values[start:stop], A, s)
        inverse = normalise(unit, s, user)
        score_pool(user, scale, columns, pool_bias, logits)
        hide(seen_indices[seen_indptr[i] : seen_indptr[i + 1]], place_of, logits)
        largest, others = prepare_pool(softmax, counts, logits)
        gradient[:] = 0
        losses[row] = 0
        if start == stop or largest == HIDDEN:
            logits[:] = 0
            slopes[start - entry : stop - entry] = 0
            continue
        loss, rate = score_profile(
            s,
            items,
            values[start:stop],
            weights[start:stop],
            A,
            B,
            bias,
            scale,
            unit,
            softmax,
            largest,
            others,
            slopes[start - entry : stop - entry],
            gradient,
        )
        loss += slope_pool(softmax, counts, rate, logits)
        away = np.zeros_like(user)
        for j in range(len(logits)):
            add(scale * logits[j], pool[j], away)
        if unit:
            add(-dot(away, user), user, away)
        add(inverse, away, gradient)
        losses[row] = loss + pull_to_one(penalty, s, gradient)


@screen_kernel
def step(rate, gradient, memory, row):
    """Adagrad with one memory for the row: row -= rate gradient / root of summed |gradient|^2."""
    squared = dot(gradient, gradient)
    if squared > 0:
        memory[0] += squared
        add(-rate / np.sqrt(memory[0]), gradient, row)


@screen_kernel
def item_updates(
    lo,
    hi,
    of_items,
    users,
    places,
    values,
    S,
    units,
    gradients,
    slopes,
    pool_slopes,
    place_of,
    scale,
    unit,
    penalty,
    rate,
    memory_A,
    memory_B,
    memory_bias,
    A,
    raw,
    B,
    bias,
):
    """One step for items lo .. hi: A, raw (before normalising), B (after), bias in/out.

    of_items, users, places: transpose of the step's CSR, places being positions in its values
    (nnz,) and slopes. memory_A, memory_B, memory_bias (p, 1) float32, in/out: summed squares of
    gradients. Other arrays as user_slopes left them. An item without users that is not in the pool
    stays as it is, save for the penalty. O((nnz + b m) d).
    """
    d = A.shape[1]
    by_a, by_b, by_bias = np.empty(d, np.float32), np.empty(d, np.float32), np.zeros(1, np.float32)
    for i in range(lo, hi):
        if of_items[i] == of_items[i + 1] and place_of[i] < 0 and not penalty > 0:
            continue
        by_a[:] = 0
        by_b[:] = 0
        by_bias[0] = 0
        own_b, own_a = ZERO, ZERO
        for t in range(of_items[i], of_items[i + 1]):
            x, s, gradient = values[places[t]], S[users[t]], gradients[users[t]]
            slope, along_item, along_user = slopes[places[t]]
            for k in range(d):
                by_a[k] += x * gradient[k] + x * along_user * s[k]
                by_b[k] += along_item * s[k]
            by_bias[0] += slope
            own_b += x * along_item
            own_a += x * x * along_user
        add(-own_b, B[i], by_a)
        add(-own_a, A[i], by_a)
        add(-own_b, A[i], by_b)
        if place_of[i] >= 0:
            for user in range(len(units)):
                slope = pool_slopes[user, place_of[i]]
                by_bias[0] += slope
                add(scale * slope, units[user], by_b)
        if unit:
            norm = np.sqrt(dot(raw[i], raw[i]))
            if not norm > 0:
                continue
            add(-dot(by_b, B[i]), B[i], by_b)
            for k in range(d):
                by_b[k] /= norm
        pull_to_one(penalty, raw[i], by_b)
        step(rate, by_a, memory_A[i], A[i])
        step(rate, by_b, memory_B[i], raw[i])
        step(rate, by_bias, memory_bias[i], bias[i : i + 1])
        normalise(unit, raw[i], B[i])


@screen_kernel
def held_out_losses(
    lo,
    hi,
    indptr,
    indices,
    values,
    held_indptr,
    held_indices,
    weights,
    seen_indptr,
    seen_indices,
    A,
    B,
    bias,
    columns,
    pool_bias,
    counts,
    place_of,
    scale,
    unit,
    softmax,
    losses,
):
    """Loss of the held-out interactions of users lo .. hi, given the others; losses (n,) out.

    The user's row is the whole sum; the seen items are hidden of the pool. O((nnz + n m) d).
    """
    s = np.empty(A.shape[1], np.float32)
    logits = np.empty(columns.shape[1], np.float32)
    for i in range(lo, hi):
        losses[i] = 0
        items = indices[indptr[i] : indptr[i + 1]]
        held = held_indices[held_indptr[i] : held_indptr[i + 1]]
        if len(held) == 0:
            continue
        add_profile(items, values[indptr[i] : indptr[i + 1]], A, s)
        normalise(unit, s, s)
        score_pool(s, scale, columns, pool_bias, logits)
        hide(seen_indices[seen_indptr[i] : seen_indptr[i + 1]], place_of, logits)
        largest, others = prepare_pool(softmax, counts, logits)
        if largest == HIDDEN:
            continue
        loss, rate = 0.0, ZERO
        for t in range(len(held)):
            logit = scale * dot(s, B[held[t]]) + bias[held[t]]
            part, _, share = positive(softmax, logit, largest, others, weights[held_indptr[i] + t])
            loss += part
            rate += share
        losses[i] = loss + slope_pool(softmax, counts, rate, logits)
