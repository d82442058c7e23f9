"""Rows at the ends of float64 are searched exactly; rounding errors keep their bounds."""

import itertools

import numpy as np
import pytest

import fastcos
from tests import dense_oracle, rounding_errors

SIZES = (0.0, 5e-324, 1e-320, 1e-305, 1e-165, 1e-158, 1e-140, 1e-20, 1.0, 1e140, 1e147)
MEASURES = {"dot": "dot", "cosine": "cosine", "neg_euclidean": "euclidean"}


def rows(seed, n, size):
    """Rows of one size, or of all of them."""
    random = np.random.default_rng(seed)
    sizes = random.choice(SIZES, (n, 1)) if size is None else size
    with np.errstate(under="ignore"):
        return random.standard_normal((n, 19)) * sizes


def unit_scaled(X):
    """X with the largest entry of every row from 0.5 to 1, by powers of two."""
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.ldexp(X, -exponents)


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("n_queries", [3, 33], ids=["few", "many"])
def test_rows_of_any_size_are_ranked_by_their_float64_scores(measure, n_queries):
    for case, sizes in enumerate(itertools.product((None, *SIZES), repeat=2)):
        Q, B = rows(case, n_queries, sizes[0]), rows(-case - 1 & 0xFFFF, 300, sizes[1])
        given = fastcos.top_k(Q, B, 4, measure=measure)
        if measure == "cosine":
            Q, B = unit_scaled(Q), unit_scaled(B)
        indices, keys = dense_oracle.top_k(Q, B, 4, MEASURES[measure])
        np.testing.assert_array_equal(given.indices, indices, err_msg=str(sizes))
        scores = -np.sqrt(-keys) if measure == "neg_euclidean" else keys
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(given.scores, scores.astype(np.float32))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*zero row", "ignore:overflow encountered in cast")
def test_every_operation_keeps_the_bound_of_its_rounding_errors():
    lines = [
        *rounding_errors.dense_lines(1),
        *rounding_errors.svd_lines(1),
        *rounding_errors.interval_lines(1),
    ]
    assert len(lines) > 200
    assert not rounding_errors.report(lines)
