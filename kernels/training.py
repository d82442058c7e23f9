"""One training step of the cosine model: compute gradients user by user, then update the items.

An item has two vectors, a row a of the matrix A and a row b of the matrix B, and it has a bias. The
vector s of a user is the sum of x a over the items of the user, where x is the value of the user's
interaction with the item. To score an interaction, the item's term ``x * a`` is first subtracted
from ``s``: ``logit = (s - x * a) . b / temperature + bias``. If ``unit`` is true, the inner product
is divided by the norms of both vectors. ``user_gradients`` reads the vectors of the items and
writes the gradients of each user. For each item, ``item_updates`` visits the users of the item one
after another, reads their gradients, and updates the vectors of the item. A step thus processes
first the users and then the items, as alternating least squares does. No two threads write the same
vector, so results are bit-for-bit identical for any number of threads. Results may differ between
CPUs, because the order in which float32 terms are added depends on the vector width of the CPU.

The sampled negatives, called the *pool*, are shared by all users of a step. Items with which a user
has interacted, including held-out items, are *masked* for this user: they are not used as negatives
of the user.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from .jit import relaxed_kernel

# These constants are float32, whereas a literal in the code would be float64.
ZERO = np.float32(0)
ONE = np.float32(1)
TWO = np.float32(2)
# The residual s - x * a is treated as zero if its squared norm is below this fraction of |s|^2.
# For a user with only one item, the residual is zero except for rounding errors.
ROUNDING = np.float32(1e-10)
# The logit of a pool item with which the user has interacted. An item with this logit has no weight
# as a negative sample.
MASKED = np.float32(-np.inf)


class Pool(NamedTuple):
    """The m sampled items that serve as negatives in one step.

    `rows` (m, d) holds the rows of B that belong to the sampled items, and `columns` (d, m) holds
    the transpose of `rows`. `bias` (m,) holds the biases of the items, and `counts` (m,) holds the
    number of times that each item was sampled. The arrays `rows`, `columns`, `bias` and `counts`
    are float32. For each of the p items, `position_of` (p,) int32 holds the position of the item in
    the pool, or -1 if the item is not in the pool.
    """

    rows: Any
    columns: Any
    bias: Any
    counts: Any
    position_of: Any


class Objective(NamedTuple):
    """The objective that training minimises.

    `scale` is 1 / temperature, and `penalty` is the weight of the norm penalty; both are float32.
    `unit` is true if the vectors are normalised, and `softmax` is true if the loss is a softmax.
    """

    scale: Any
    penalty: Any
    unit: Any
    softmax: Any


class LossInputs(NamedTuple):
    """All inputs of the loss except the interactions.

    `model` holds the float32 arrays A (p, d), B (p, d) and bias (p,); the rows of B have norm 1 if
    `unit` is true. `seen` holds the indptr and the indices of a CSR matrix. For each user, the
    matrix lists the items that are masked in the pool. `pool` is a Pool, and `objective` is an
    Objective.
    """

    model: Any
    seen: Any
    pool: Any
    objective: Any


class StepByItem(NamedTuple):
    """The interactions of one step, grouped by item.

    `starts`, `users` and `entries` form the transpose of the CSR matrix of the step. The users of
    item i are users[starts[i] : starts[i + 1]]. The positions of the interactions of item i among
    the non-zeros of the CSR matrix are entries[starts[i] : starts[i + 1]].
    """

    starts: Any
    users: Any
    entries: Any
    values: Any


class Adagrad(NamedTuple):
    """The state of the optimiser Adagrad.

    `rate` is the learning rate, a float32. `accumulators` holds three float32 arrays (p, 1), one
    each for A, B and bias. Each entry belongs to one row: it is the sum, over all steps, of the
    squared norm of the row's gradient. `raw` is the matrix B before its rows are normalised. Each
    step changes `accumulators` and `raw` in place.
    """

    rate: Any
    accumulators: Any
    raw: Any


class Gradients(NamedTuple):
    """The float32 gradients that user_gradients writes and item_updates reads.

    For the b users of the step, `sums` (b, d) holds the vectors s, and `units` (b, d) holds the
    normalised vectors. `by_sum` (b, d) holds the gradients of the loss with respect to s.
    `by_entry` (nnz, 3) holds three numbers for each interaction: the slope of the loss with respect
    to the logit, and two factors f and g. Let u be s - x a. The gradient of the loss with respect
    to u is f b - g u. `by_pool` (b, m) holds the slopes of the loss with respect to the logits of
    the pool.
    """

    sums: Any
    units: Any
    by_sum: Any
    by_entry: Any
    by_pool: Any


@relaxed_kernel
def dot(x, y):
    """Return the float32 dot product of two vectors."""
    total = ZERO
    for k in range(len(x)):
        total += x[k] * y[k]
    return total


@relaxed_kernel
def add(factor, x, y):
    """Add `factor` times the vector x to the vector y."""
    for k in range(len(x)):
        y[k] += factor * x[k]


@relaxed_kernel
def normalise(unit, x, out):
    """Write x / |x| to `out` if `unit` is true, and otherwise x.

    The function returns the factor by which it multiplied x. A zero row stays zero.
    """
    factor = ONE
    if unit:
        squared = dot(x, x)
        factor = ONE / np.sqrt(squared) if squared > 0 else ZERO
    for k in range(len(x)):
        out[k] = factor * x[k]
    return factor


@relaxed_kernel
def subtract(s, x, a, b):
    """Return |s - x a|^2 and the inner product (s - x a) . b."""
    squared, product = ZERO, ZERO
    for k in range(len(s)):
        remainder = s[k] - x * a[k]
        squared += remainder * remainder
        product += remainder * b[k]
    return squared, product


@relaxed_kernel
def pool_logits(user, scale, columns, bias, logits):
    """Set logits[j] to `scale` times the dot product of `user` and columns[:, j], plus bias[j].

    `columns` has the shape (d, m), and the kernel takes O(d m) time.
    """
    d = len(user)
    for j in range(len(logits)):
        logits[j] = bias[j]
    for k in range(0, d - 3, 4):
        w, x, y, z = scale * user[k], scale * user[k + 1], scale * user[k + 2], scale * user[k + 3]
        p, q, r, t = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        for j in range(len(logits)):
            logits[j] += w * p[j] + x * q[j] + y * r[j] + z * t[j]
    for k in range(d // 4 * 4, d):
        add(scale * user[k], columns[k], logits)


@relaxed_kernel
def mask(items, position_of, logits):
    """Set the logits of the pool items with which a user has interacted to MASKED."""
    for item in items:
        if position_of[item] >= 0:
            logits[position_of[item]] = MASKED


@relaxed_kernel
def prepare_pool(softmax, counts, logits):
    """Return the largest logit of the pool, and the sum of the pool's terms in the softmax.

    The terms of the sum are counts * exp(logit - largest), and each logit is replaced with
    exp(logit - largest). If `softmax` is false, the sum is 0 and the logits stay unchanged. If the
    whole pool is masked, the largest logit is -inf.
    """
    largest, total = MASKED, ZERO
    for j in range(len(logits)):
        largest = max(largest, logits[j])
    if softmax and largest > MASKED:
        for j in range(len(logits)):
            logits[j] = math.exp(logits[j] - largest)
            total += counts[j] * logits[j]
    return largest, total


@relaxed_kernel
def positive_loss(softmax, logit, largest, negatives_total, weight):
    """Return the loss, its derivative with respect to the logit, and a factor for the negatives.

    The loss is -weight * ln(e^logit / (e^logit + negatives_total * e^largest)) if `softmax` is
    true, and otherwise -weight * ln sigmoid(logit). The caller adds the factors of all interactions
    of a user, and passes the sum to ``negative_loss``. The function ``negative_loss`` multiplies
    the term of each negative by this sum.
    """
    if not softmax:
        small = math.exp(-abs(logit))
        loss = math.log1p(small) + max(-logit, ZERO)
        return weight * loss, -weight * (small if logit > 0 else ONE) / (ONE + small), weight
    logit -= largest
    small = math.exp(-abs(logit))
    if logit > 0:
        share, loss = small / (ONE + negatives_total * small), math.log1p(negatives_total * small)
    else:
        share, loss = ONE / (small + negatives_total), math.log(small + negatives_total) - logit
    return weight * loss, -weight * share * negatives_total, weight * share


@relaxed_kernel
def negative_loss(softmax, counts, rate, logits):
    """Replace each logit with the loss's derivative with respect to this logit; return the loss.

    `logits` holds the results of prepare_pool. The function positive_loss returns a factor for each
    interaction of the user, and `rate` is the sum of these factors. With softmax, the loss of the
    negatives is included in the loss of the interactions, so 0 is returned.
    """
    loss = 0.0
    for j in range(len(logits)):
        weight = rate * counts[j]
        if softmax:
            logits[j] *= weight
        else:
            small = math.exp(-abs(logits[j]))
            if logits[j] > MASKED:
                loss += weight * (math.log1p(small) + max(logits[j], ZERO))
            logits[j] = weight * (ONE if logits[j] > 0 else small) / (ONE + small)
    return loss


@relaxed_kernel
def add_profile(items, values, A, s):
    """Write to `s` the profile of a user: the sum of values[t] * A[items[t]] over all t."""
    s[:] = 0
    for t in range(len(items)):
        add(values[t], A[items[t]], s)


@relaxed_kernel
def penalise_norm(penalty, x, gradient):
    """Add the gradient of the norm penalty of x to `gradient`, and return the norm penalty.

    The norm penalty of a vector x is penalty * (|x| - 1)^2.
    """
    norm = np.sqrt(dot(x, x))
    if penalty > 0 and norm > 0:
        add(TWO * penalty * (ONE - ONE / norm), x, gradient)
    return penalty * (norm - ONE) * (norm - ONE)


@relaxed_kernel
def score_profile(
    s, items, values, weights, model, objective, largest, negatives_total, slopes, gradient
):
    """Score all interactions of a user; return the loss, and the `rate` that negative_loss needs.

    `s` is the vector of the user. Before an item is scored, the term of this item is subtracted
    from s. The kernel writes the gradient with respect to s to `gradient` (d,), and three numbers
    per interaction to `slopes` (see Gradients.by_entry).
    """
    A, B, bias = model
    scale, _, unit, softmax = objective
    loss, rate, pull = 0.0, ZERO, ZERO
    tiny = ROUNDING * dot(s, s)
    gradient[:] = 0
    for t in range(len(items)):
        item, x = items[t], values[t]
        squared, product = subtract(s, x, A[item], B[item])
        inverse = ONE
        if unit:
            inverse = ONE / np.sqrt(squared) if squared > tiny else ZERO
        cosine = product * inverse
        part, slope, share = positive_loss(
            softmax, scale * cosine + bias[item], largest, negatives_total, weights[t]
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


@relaxed_kernel
def user_gradients(lo, hi, first, interactions, inputs, gradients, losses):
    """Write the losses of users lo to hi and the gradients of these losses.

    Row 0 of the outputs belongs to user `first`. `interactions` holds four arrays of a CSR matrix:
    indptr, indices, the values x, and the weights of the interactions in the loss. `inputs` is a
    LossInputs. The outputs are `gradients`, which is a Gradients, and `losses` (b,) float64. The
    kernel takes O((nnz + b m) d) time.
    """
    model, seen, pool, objective = inputs
    indptr, indices, values, weights = interactions
    seen_indptr, seen_indices = seen
    scale, penalty, unit, softmax = objective
    A = model[0]
    entry = indptr[first]
    for i in range(lo, hi):
        row, start, stop = i - first, indptr[i], indptr[i + 1]
        s, user, gradient = gradients.sums[row], gradients.units[row], gradients.by_sum[row]
        logits, slopes = gradients.by_pool[row], gradients.by_entry[start - entry : stop - entry]
        items = indices[start:stop]
        add_profile(items, values[start:stop], A, s)
        inverse = normalise(unit, s, user)
        pool_logits(user, scale, pool.columns, pool.bias, logits)
        mask(seen_indices[seen_indptr[i] : seen_indptr[i + 1]], pool.position_of, logits)
        largest, negatives_total = prepare_pool(softmax, pool.counts, logits)
        gradient[:] = 0
        losses[row] = 0
        if start == stop or largest == MASKED:
            logits[:] = 0
            slopes[:] = 0
            continue
        loss, rate = score_profile(
            s, items, values[start:stop], weights[start:stop], model, objective, largest,
            negatives_total, slopes, gradient,
        )  # fmt: skip
        loss += negative_loss(softmax, pool.counts, rate, logits)
        away = np.zeros_like(user)
        for j in range(len(logits)):
            add(scale * logits[j], pool.rows[j], away)
        if unit:
            add(-dot(away, user), user, away)
        add(inverse, away, gradient)
        losses[row] = loss + penalise_norm(penalty, s, gradient)


@relaxed_kernel
def adagrad_step(rate, gradient, accumulator, row):
    """Subtract rate * gradient / sqrt(accumulator), a step of Adagrad, from a row.

    `accumulator` (1,) holds the sum of |gradient|^2 of the row over all steps; the function first
    adds the term of the present step to this sum.
    """
    squared = dot(gradient, gradient)
    if squared > 0:
        accumulator[0] += squared
        add(-rate / np.sqrt(accumulator[0]), gradient, row)


@relaxed_kernel
def item_updates(lo, hi, step, gradients, position_of, objective, adagrad, model):
    """Update items lo to hi of the model, and the state of Adagrad, in place.

    `step` is a StepByItem, `gradients` is a Gradients, and `adagrad` is an Adagrad. `position_of`
    is described in Pool. If an item has no users in this step and is not in the pool, only the norm
    penalty changes the item. The kernel takes O((nnz + b m) d) time.
    """
    starts, users, entries, values = step
    rate, accumulators, raw = adagrad
    A, B, bias = model
    scale, penalty, unit, _ = objective
    sums, units, by_sum, by_entry, by_pool = gradients
    d = A.shape[1]
    by_a, by_b, by_bias = np.empty(d, np.float32), np.empty(d, np.float32), np.zeros(1, np.float32)
    for i in range(lo, hi):
        if starts[i] == starts[i + 1] and position_of[i] < 0 and not penalty > 0:
            continue
        by_a[:] = 0
        by_b[:] = 0
        by_bias[0] = 0
        self_b, self_a = ZERO, ZERO
        for t in range(starts[i], starts[i + 1]):
            x, s, gradient = values[entries[t]], sums[users[t]], by_sum[users[t]]
            slope, along_item, along_user = by_entry[entries[t]]
            for k in range(d):
                by_a[k] += x * gradient[k] + x * along_user * s[k]
                by_b[k] += along_item * s[k]
            by_bias[0] += slope
            self_b += x * along_item
            self_a += x * x * along_user
        add(-self_b, B[i], by_a)
        add(-self_a, A[i], by_a)
        add(-self_b, A[i], by_b)
        if position_of[i] >= 0:
            for user in range(len(units)):
                slope = by_pool[user, position_of[i]]
                by_bias[0] += slope
                add(scale * slope, units[user], by_b)
        if unit:
            norm = np.sqrt(dot(raw[i], raw[i]))
            if not norm > 0:
                continue
            add(-dot(by_b, B[i]), B[i], by_b)
            for k in range(d):
                by_b[k] /= norm
        penalise_norm(penalty, raw[i], by_b)
        adagrad_step(rate, by_a, accumulators[0][i], A[i])
        adagrad_step(rate, by_b, accumulators[1][i], raw[i])
        adagrad_step(rate, by_bias, accumulators[2][i], bias[i : i + 1])
        normalise(unit, raw[i], B[i])


@relaxed_kernel
def held_out_losses(lo, hi, interactions, held_out, inputs, losses):
    """Write the loss of each user's held-out interactions to `losses` (n,), for users lo to hi.

    The vector of a user is the sum over all of the user's interactions. In training, the term of
    the scored interaction is subtracted from this sum; here, no term is subtracted. `interactions`
    holds the indptr, indices and values of a CSR matrix. `held_out` holds the indptr, indices and
    weights of the CSR matrix of held-out interactions. `inputs` is a LossInputs. The kernel takes
    O((nnz + n m) d) time.
    """
    model, seen, pool, objective = inputs
    indptr, indices, values = interactions
    held_indptr, held_indices, weights = held_out
    seen_indptr, seen_indices = seen
    A, B, bias = model
    scale, _, unit, softmax = objective
    s = np.empty(A.shape[1], np.float32)
    logits = np.empty(pool.columns.shape[1], np.float32)
    for i in range(lo, hi):
        losses[i] = 0
        items = indices[indptr[i] : indptr[i + 1]]
        held_items = held_indices[held_indptr[i] : held_indptr[i + 1]]
        if len(held_items) == 0:
            continue
        add_profile(items, values[indptr[i] : indptr[i + 1]], A, s)
        normalise(unit, s, s)
        pool_logits(s, scale, pool.columns, pool.bias, logits)
        mask(seen_indices[seen_indptr[i] : seen_indptr[i + 1]], pool.position_of, logits)
        largest, negatives_total = prepare_pool(softmax, pool.counts, logits)
        if largest == MASKED:
            continue
        loss, rate = 0.0, ZERO
        for t in range(len(held_items)):
            logit = scale * dot(s, B[held_items[t]]) + bias[held_items[t]]
            part, _, share = positive_loss(
                softmax, logit, largest, negatives_total, weights[held_indptr[i] + t]
            )
            loss += part
            rate += share
        losses[i] = loss + negative_loss(softmax, pool.counts, rate, logits)
