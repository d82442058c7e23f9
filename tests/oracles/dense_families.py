"""Families of float32 rows (n, d) for which a search by bounds is difficult."""

import numpy as np
import pytest


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def near_ties(n, d):
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((7, d))
    return (centres[rng.integers(0, 7, n)] + 1e-6 * rng.standard_normal((n, d))).astype(np.float32)


def duplicates(n, d):
    return gaussian(n // 4 + 1, d)[np.random.default_rng(2).integers(0, n // 4 + 1, n)]


def integer_grid(n, d):
    return np.random.default_rng(3).integers(-2, 3, (n, d)).astype(np.float32)


def all_equal(n, d):
    return np.full((n, d), 0.3, np.float32)


def wild_norms(n, d):
    sizes = 10.0 ** np.random.default_rng(4).uniform(-30, 30, (n, 1))
    return (gaussian(n, d) * sizes).astype(np.float32)


def dominated(n, d):
    X = gaussian(n, d)
    X[:, d // 2] *= 1e4
    return X


def denormals(n, d):
    X = gaussian(n, d)
    X[::3] *= np.float32(1e-42)
    return X


def with_zero_rows(n, d):
    X = gaussian(n, d)
    X[::5] = 0
    return X


def one_hot(n, d):
    return np.eye(d, dtype=np.float32)[np.arange(n) % d] * np.float32(2)


def off_centre(n, d):
    """Return rows with a long common mean and short deviations from it, as in text embeddings."""
    return gaussian(n, d) + np.float32(3)


def clustered(n, d):
    """Return rows, half of which are close to one direction; one row is 0.

    The rows near this direction deviate from it by about 1e-9 to 0.1, and have very different
    norms.
    """
    rng = np.random.default_rng(5)
    X = rng.standard_normal((n, d))
    away = 10.0 ** rng.uniform(-9, -1, (n, 1)) * rng.standard_normal((n, d))
    centre = rng.standard_normal(d) / np.sqrt(d)
    X[::2] = ((centre + away / np.sqrt(d)) * 10.0 ** rng.uniform(-3, 3, (n, 1)))[::2]
    X[n // 2] = 0
    return X.astype(np.float32)


FAMILIES = [
    gaussian, near_ties, duplicates, integer_grid, all_equal, wild_norms, dominated, denormals,
    with_zero_rows, one_hot, off_centre, clustered,
]  # fmt: skip
# For each measure that is searched by bounds, this is the name of its form in the oracle
# (``dense``).
FORMS = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}
# The default tests search five families by the cosine, and one family by all measures. The other
# combinations of a family and a measure are slow tests.
DEFAULT_FAMILIES = [gaussian, near_ties, duplicates, wild_norms, off_centre]
each_family_and_measure = pytest.mark.parametrize(
    ("family", "measure"),
    [
        pytest.param(
            family, measure, id=f"{family.__name__}-{measure}",
            marks=[pytest.mark.slow]
            * (family not in (DEFAULT_FAMILIES if measure == "cosine" else FAMILIES[:1])),
        )
        for family in FAMILIES
        for measure in FORMS
    ],
)  # fmt: skip
