"""Packed bits: neighbours by Hamming distance and by cosine, compared with unpacked bits."""

import numpy as np
import pytest

from fastcos import top_k
from tests.oracles.compare import assert_same_bits

RANDOM = np.random.default_rng(0)
# Many of the distances between the 800 rows are equal. In the rows of 5 bytes, only the first 2
# bytes vary. Of the rows of 16 bytes, rows 0, 7, 14 and so on are equal to each other. The kernels
# pad rows of 5 bytes, but not rows of 16 bytes.
ROWS = {width: RANDOM.integers(0, 256, (800, width), dtype=np.uint8) for width in (5, 16)}
ROWS[5][:, 2:] = 0
ROWS[5][[3, 700]] = 0
ROWS[16][::7] = ROWS[16][0]


def truth(Q, X, measure):
    x, y = (np.unpackbits(rows, axis=1).astype(np.float64) for rows in (Q, X))
    if measure == "hamming":
        return -np.array([(row != y).sum(axis=1) for row in x]).astype(float)
    norms = np.sqrt(x.sum(axis=1))[:, None] * np.sqrt(y.sum(axis=1))
    return np.minimum(1.0, np.divide(x @ y.T, norms, out=np.zeros(norms.shape), where=norms > 0))


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["hamming", "bit_cosine"])
@pytest.mark.parametrize("width", [5, 16])
def test_bit_neighbors_are_those_of_unpacked_rows(width, measure):
    X, Q = ROWS[width], ROWS[width][100:170]
    scores = truth(Q, X, measure)
    for k, threads in ((1, 1), (9, 2), (800, 2)):
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        result = top_k(Q, X, k, measure=measure, n_threads=threads)
        np.testing.assert_array_equal(result.indices, order)
        expected = np.take_along_axis(scores, order, axis=1).astype(np.float32)
        assert_same_bits(result.scores, expected)
    own = truth(X, X, measure)
    np.fill_diagonal(own, -np.inf)
    result = top_k(X, k=4, measure=measure, min_score=-3.0)
    order = np.argsort(-own, axis=1, kind="stable")[:, :4]
    best = np.take_along_axis(own, order, axis=1)
    np.testing.assert_array_equal(result.indices, np.where(best < -3.0, -1, order))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"queries": ROWS[5].astype("i1")}, "queries must be packed bits of dtype uint8"),
        ({"items": ROWS[5] > 3}, "items must be packed bits of dtype uint8"),
        ({"items": ROWS[16]}, "items must have as many columns as queries"),
        ({"items": ROWS[5][:0]}, "items must be of shape"),
        ({"queries": ROWS[5][0, 0]}, "queries must be of shape"),
        ({"queries": [["a"]]}, "queries must be packed bits"),
        ({"k": 0}, "k must be a whole number from 1 to 800, got 0"),
        ({"k": 801}, "k must be a whole number from 1 to 800, got 801"),
        ({"allowed": [1]}, "allowed must be None for packed bits"),
        ({"min_score": "near"}, "min_score must be a finite number"),
        ({"n_threads": 0}, "n_threads must be"),
    ],
)
def test_wrong_packed_bits_are_refused(arguments, message):
    call = {"queries": ROWS[5], "items": ROWS[5], "k": 3, "measure": "hamming"} | arguments
    with pytest.raises((TypeError, ValueError), match=f"^{message}") as caught:
        top_k(**call)
    assert "\n" not in str(caught.value)
