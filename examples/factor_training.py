"""Train matrix factorisations with a chosen start, weight decay, batch size and number of epochs.

The scripts scale_of_dimensions.py and audit_known_origins.py of this folder use these functions.
The *start* of a training run consists of its initial user and item vectors. The residual of an
observation is its prediction minus its value, and its loss is half of the squared residual. In
gradient descent, each observation adds λ times the vector to the gradient of its user and of its
item, where λ is the weight decay. In alternating least squares, λ is applied once to each vector.

The step size is the learning rate per observation: the losses of a batch are summed, and not
averaged. An epoch therefore makes the same progress with batches of any size.
"""

import zipfile
from typing import NamedTuple

import numba
import numpy as np
import scipy.sparse as sp

import fastcos


class Observations(NamedTuple):
    """Observed values, each with its user and its item, and the numbers of users and items."""

    name: str
    users: np.ndarray
    items: np.ndarray
    values: np.ndarray
    shape: tuple[int, int]


# ----- data


def simulated(noise=(1.0, 1.0), shape=(300, 200), rank=8, seed=0):
    """Add noise to a matrix of the given rank, and return all entries of the sum.

    noise: the standard deviations of the noise in the first and in the second half of the items. If
        the two standard deviations differ, each half of the dimensions mainly describes one half of
        the items.
    """
    random = np.random.default_rng(seed)
    n, p = shape
    deviations = np.where(np.arange(p) < p // 2, *noise)
    V, singular = random.standard_normal((p, rank)), np.geomspace(160, 60, rank)
    if noise[0] != noise[1]:
        V[: p // 2, rank // 2 :] *= 0.1
        V[p // 2 :, : rank // 2] *= 0.1
        singular = np.tile(np.geomspace(160, 60, rank // 2), 2)
    V, U = np.linalg.qr(V)[0], np.linalg.qr(random.standard_normal((n, rank)))[0]
    X = (U * singular) @ V.T + deviations * random.standard_normal((n, p))
    users, items = np.divmod(np.arange(n * p), p)
    name = "simulation" if noise[0] == noise[1] else "simulation, two noise levels"
    return Observations(name, users, items, X.ravel(), shape)


def without_biases(name, users, items, values, least):
    """Return the observations minus the biases of items and users.

    Users and items with fewer than `least` observations are left out. A bias is a sum of values,
    divided by their number plus 10.
    """
    for _ in range(20):
        counts = np.bincount(users), np.bincount(items)
        enough = (counts[0][users] >= least) & (counts[1][items] >= least)
        if enough.all():
            break
        users, items, values = users[enough], items[enough], values[enough]
    users, items = (np.unique(side, return_inverse=True)[1] for side in (users, items))
    values = values - values.mean()
    for side in (items, users):
        values = values - (np.bincount(side, values) / (np.bincount(side) + 10))[side]
    return Observations(name, users, items, values, (users.max() + 1, items.max() + 1))


def movielens(folder):
    """Return the ratings of MovieLens latest-small, minus the biases of films and users.

    Users and films with fewer than 10 ratings are left out.
    """
    with zipfile.ZipFile(folder / "ml-latest-small" / "ratings.csv.zip") as archive:
        name = next(name for name in archive.namelist() if name.endswith("ratings.csv"))
        with archive.open(name) as file:
            rows = np.loadtxt(file, delimiter=",", skiprows=1, usecols=(0, 1, 2))
    users, items = rows[:, 0].astype(int), rows[:, 1].astype(int)
    return without_biases("MovieLens", users, items, rows[:, 2], 10)


def retail(folder):
    """Return the logarithms of the quantities in Online Retail, minus the biases.

    Customers and goods with fewer than 60 pairs are left out.
    """
    path = next((folder / "online-retail").glob("*pairs*"))
    # The quantities of several purchases are added, and negative sums count as 0.
    seen = sp.coo_array(fastcos.read_interactions(path, value="quantity").X)
    users, items = seen.coords
    values = np.log1p(np.maximum(seen.data.astype(float), 0.0))
    return without_biases("Online Retail", users, items, values, 60)


# ----- trainers


@numba.njit(cache=True)  # noqa: TID251
def sgd_epoch(P, Q, users, items, values, order, step, batch, user_decay, item_decay):
    """Update P and Q in place by one pass of gradient descent over the observations."""
    k = P.shape[1]
    P_slope, Q_slope = np.zeros_like(P), np.zeros_like(Q)
    for first in range(0, len(order), batch):
        last = min(first + batch, len(order))
        for position in order[first:last]:
            u, i = users[position], items[position]
            residual = -values[position]
            for j in range(k):
                residual += P[u, j] * Q[i, j]
            for j in range(k):
                P_slope[u, j] += residual * Q[i, j] + user_decay * P[u, j]
                Q_slope[i, j] += residual * P[u, j] + item_decay * Q[i, j]
        for position in order[first:last]:
            u, i = users[position], items[position]
            for j in range(k):
                P[u, j] -= step * P_slope[u, j]
                Q[i, j] -= step * Q_slope[i, j]
                P_slope[u, j] = Q_slope[i, j] = 0.0


@numba.njit(cache=True)  # noqa: TID251
def adam_rows(X, slope, first, second, rate, t):
    """Update all rows of X in place by one step of Adam, and set the gradient to 0."""
    c1, c2 = 1 - 0.9**t, 1 - 0.999**t
    for r in range(X.shape[0]):
        for j in range(X.shape[1]):
            first[r, j] += 0.1 * (slope[r, j] - first[r, j])
            second[r, j] += 0.001 * (slope[r, j] ** 2 - second[r, j])
            X[r, j] -= rate * (first[r, j] / c1) / (np.sqrt(second[r, j] / c2) + 1e-8)
            slope[r, j] = 0.0


@numba.njit(cache=True)  # noqa: TID251
def adam_epoch(P, Q, moments, users, items, values, order, rate, batch, decays, t):
    """Update P and Q in place by one pass of Adam; return the number of steps so far.

    A step minimises the mean loss of a batch.
    """
    k = P.shape[1]
    P_slope, Q_slope = np.zeros_like(P), np.zeros_like(Q)
    for first in range(0, len(order), batch):
        last = min(first + batch, len(order))
        for position in order[first:last]:
            u, i = users[position], items[position]
            residual = -values[position]
            for j in range(k):
                residual += P[u, j] * Q[i, j]
            for j in range(k):
                P_slope[u, j] += (residual * Q[i, j] + decays[0] * P[u, j]) / (last - first)
                Q_slope[i, j] += (residual * P[u, j] + decays[1] * Q[i, j]) / (last - first)
        t += 1
        adam_rows(P, P_slope, moments[0], moments[1], rate, t)
        adam_rows(Q, Q_slope, moments[2], moments[3], rate, t)
    return t


@numba.njit(cache=True)  # noqa: TID251
def _least_squares(X, other, indptr, others, values, decay):
    """Replace each row of X by the solution of the least-squares problem of its observations."""
    k = X.shape[1]
    for r in range(len(indptr) - 1):
        gram, right = decay * np.eye(k), np.zeros(k)
        for position in range(indptr[r], indptr[r + 1]):
            row = other[others[position]]
            for a in range(k):
                right[a] += values[position] * row[a]
                for b in range(k):
                    gram[a, b] += row[a] * row[b]
        X[r] = np.linalg.solve(gram, right)


def als_sweeps(P, Q, data, sweeps, decays):
    """Update P and Q in place by sweeps of alternating least squares.

    decays: the weight decay of the users, and that of the items.
    """
    by_user = sp.csr_array((data.values, (data.users, data.items)), shape=data.shape)
    by_item = sp.csr_array(by_user.T)
    for _ in range(sweeps):
        for X, other, seen, decay in ((P, Q, by_user, decays[0]), (Q, P, by_item, decays[1])):
            # The least-squares problem of a row with few observations has a unique solution only
            # with weight decay, so a tiny decay is always added.
            _least_squares(X, other, seen.indptr, seen.indices, seen.data, decay + 1e-9)


def train(data, rank, recipe, marks, seed, condition=1.0):
    """Train a model, and yield its users and items whenever the number of epochs is in `marks`.

    recipe: a dict with ``by`` ("sgd", "gd", "adam", "als" or "implicit"), ``start`` (the standard
        deviation of the initial vectors), ``step``, ``batch`` and ``decays`` (of users and items).
    condition: the initial vectors are rescaled by a D of this condition. The random numbers and the
        order of the observations are the same for every condition.
    """
    random = np.random.default_rng(seed)
    n, p = data.shape
    D = np.geomspace(condition**0.5, condition**-0.5, rank)
    # The initial vectors of implicit are uniform random numbers between 0 and 0.01.
    draw = random.random if recipe["by"] == "implicit" else random.standard_normal
    P = recipe["start"] * draw((n, rank)) * D
    Q = recipe["start"] * draw((p, rank)) / D
    if recipe["by"] == "implicit":
        yield from _implicit(data, recipe, marks, seed, P, Q)
        return
    yield from descend(data, P, Q, recipe, marks, seed)


def descend(data, P, Q, recipe, marks, seed):
    """Continue to train P and Q; yield both whenever the number of epochs is in `marks`."""
    P, Q = P.copy(), Q.copy()
    random = np.random.default_rng(1000 + seed)
    decays = tuple(float(decay) for decay in recipe.get("decays", (0.0, 0.0)))
    moments = tuple(np.zeros_like(side) for side in (P, P, Q, Q))
    arrays = data.users, data.items, data.values
    size, done, t = len(data.values), 0, 0
    for mark in marks:
        if recipe["by"] == "als":
            als_sweeps(P, Q, data, mark - done, decays)
        for _ in range(mark - done if recipe["by"] != "als" else 0):
            order = random.permutation(size)
            if recipe["by"] == "adam":
                t = adam_epoch(
                    P, Q, moments, *arrays, order, recipe["step"], recipe["batch"], decays, t
                )
            else:
                batch = size if recipe["by"] == "gd" else recipe["batch"]
                sgd_epoch(P, Q, *arrays, order, recipe["step"], batch, *decays)
        done = mark
        yield P.copy(), Q.copy()


def _implicit(data, recipe, marks, seed, P, Q):
    """Train by implicit's alternating least squares, with the value 1 for each observed pair."""
    from implicit.cpu.als import AlternatingLeastSquares

    ones = sp.csr_array((np.ones(len(data.values), np.float32), (data.users, data.items)),
                        shape=data.shape)  # fmt: skip
    for mark in marks:
        model = AlternatingLeastSquares(
            factors=P.shape[1], regularization=recipe["decays"][0], iterations=mark,
            random_state=seed, num_threads=1,
        )  # fmt: skip
        model.user_factors, model.item_factors = P.astype(np.float32), Q.astype(np.float32)
        model.fit(sp.csr_matrix(ones), show_progress=False)
        yield model.user_factors.astype(float), model.item_factors.astype(float)


def slopes(data, P, Q):
    """Return the residuals of all observations as a sparse matrix, as gradient_noise needs them."""
    residuals = np.einsum("ij,ij->i", P[data.users], Q[data.items]) - data.values
    return sp.coo_array((residuals, (data.users, data.items)), shape=data.shape)
