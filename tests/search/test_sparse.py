"""top_k of sparse rows, compared with loops: ties, zeros, negatives, exclusions, value types."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import neighbors_above, top_k
from tests.oracles.compare import assert_same_bits, assert_same_neighbours


def all_scores(Q, B, measure):
    """Return float64 sums in the order of the columns."""
    Q, B = Q.astype(np.float64), B.astype(np.float64)
    totals = np.zeros((len(Q), len(B)))
    for column in range(Q.shape[1]):
        totals += np.outer(Q[:, column], B[:, column])
    if measure == "dot":
        return totals
    lengths = np.outer(*(np.sqrt(np.cumsum(side**2, axis=1)[:, -1]) for side in (Q, B)))
    cosines = np.divide(totals, lengths, out=np.zeros_like(totals), where=lengths > 0)
    return np.clip(cosines, -1, 1)


def best(scores, k):
    """Return the k best items and their scores; of equal scores, the lower index comes first.

    Items with the score -inf are not allowed, and get the index -1.
    """
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    values = np.take_along_axis(scores, order, axis=1)
    return np.where(np.isneginf(values), -1, order), values.astype(np.float32)


def without_self(scores):
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    return scores


def rows(kind, n, d, density, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        "binary": np.ones((n, d)),
        "counts": rng.integers(1, 5, (n, d)),
        "signed": rng.integers(-3, 4, (n, d)),
        "large": rng.integers(1, 30_000, (n, d)) * 7,
        "real": rng.standard_normal((n, d)),
    }[kind]
    dense = (rng.random((n, d)) < density) * values
    dense[n // 2] = 0
    dense[:, 0] = 0
    return dense.astype(np.float64)


# Each kind has its own types of values and sums, for which code must be compiled.
KINDS = ["real"]
KINDS += [
    pytest.param(kind, marks=pytest.mark.slow) for kind in ("binary", "counts", "signed", "large")
]
each_kind = pytest.mark.parametrize("kind", KINDS)


@each_kind
@pytest.mark.parametrize("measure", ["cosine", "dot"])
@pytest.mark.parametrize(("n", "d", "density"), [(3, 2, 0.5), (65, 30, 0.2), (300, 90, 0.03)])
def test_neighbours_and_ties_are_those_of_the_loop(kind, measure, n, d, density):
    X = rows(kind, n, d, density)
    scores = without_self(all_scores(X, X, measure))
    for k in {1, 2, min(70, n - 1), n - 1}:
        result = top_k(sp.csr_array(X), k=k, measure=measure)
        assert result.indices.dtype == np.int64
        indices, values = best(scores, k)
        np.testing.assert_array_equal(result.indices, indices)
        np.testing.assert_array_equal(result.scores, values)


@each_kind
def test_formats_types_and_the_transpose_give_the_same_bits(kind):
    X = rows(kind, 80, 40, 0.2)
    csr = sp.csr_array(X)
    wide = csr.copy()
    wide.indices, wide.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    results = [top_k(matrix, k=9) for matrix in (csr, csr.tocsc(), sp.csr_array(X.T).T, wide)]
    results.append(top_k(csr, k=9, n_threads=1))
    for other in results[1:]:
        assert_same_bits(results[0].indices, other.indices)
        assert_same_bits(results[0].scores, other.scores)


@each_kind
def test_dense_rows_have_the_same_neighbours(kind):
    X = rows(kind, 150, 40, 0.2)
    sparse, dense = top_k(sp.csr_array(X), k=12), top_k(X, k=12)
    if kind != "real":  # sums of whole numbers are exact; other sums depend on the order
        assert_same_bits(sparse.indices, dense.indices)
        assert_same_bits(sparse.scores, dense.scores)
    scores = without_self(all_scores(X, X, "cosine"))
    assert_same_neighbours(sparse.indices, sparse.scores, scores)


@each_kind
def test_queries_search_items(kind):
    Q, B = rows(kind, 40, 30, 0.3, seed=1), rows("counts", 55, 30, 0.3, seed=2)
    indices, values = best(all_scores(Q, B, "dot"), 7)
    for queries, items in ((sp.csr_array(Q), sp.csc_array(B)), (sp.csc_array(Q), B)):
        result = top_k(queries, items, 7, measure="dot")
        np.testing.assert_array_equal(result.indices, indices)
        np.testing.assert_array_equal(result.scores, values)


@each_kind
def test_allowed_excluded_and_low_items_are_not_found(kind):
    X = rows(kind, 70, 25, 0.3)
    allowed = np.arange(3, 70, 2)
    exclude = sp.random_array((70, 70), density=0.4, rng=np.random.default_rng(0), format="csr")
    scores = without_self(all_scores(X, X, "cosine"))
    scores[:, np.setdiff1d(np.arange(70), allowed)] = -np.inf
    scores[exclude.toarray() != 0] = -np.inf
    for minimum in (None, 0.0, 0.3):
        barred = scores
        # The minimum is compared with the float32 scores that are returned.
        if minimum is not None:
            barred = np.where(np.float32(scores) >= np.float32(minimum), scores, -np.inf)
        result = top_k(sp.csr_array(X), k=20, allowed=allowed, exclude=exclude, min_score=minimum)
        indices, values = best(barred, 20)
        np.testing.assert_array_equal(result.indices, indices)
        np.testing.assert_array_equal(result.scores, values)


@each_kind
def test_a_row_may_find_itself(kind):
    X = rows(kind, 20, 10, 0.5)
    result = top_k(sp.csr_array(X), k=1, exclude_self=False)
    nonzero = X.any(axis=1)
    assert (result.scores[nonzero] == 1).all()
    assert (result.scores[~nonzero] == 0).all()


@pytest.mark.slow
def test_sums_of_whole_numbers_beyond_int32_are_exact():
    X = np.array([[2**14, 0, 2**14], [2**14, 1, 2**14], [2**14, 0, 2**14 - 1.0]])
    # The largest sum is 2^29 in the first search, which fits int32, and 2^45 in the second search.
    # The rows of the second search are the rows of the first search times 2^8.
    narrow = top_k(sp.csr_array(X), k=2, measure="dot")
    wide = top_k(sp.csr_array(X * 2**8), k=2, measure="dot")
    assert_same_bits(narrow.indices, wide.indices)
    assert_same_bits(narrow.scores * np.float32(2**16), wide.scores)
    assert wide.scores[0, 0] == 2.0**45


@pytest.mark.slow
def test_more_rows_than_uint16_counts():
    n = 2**16 + 40
    X = sp.csr_array((np.ones(n, np.float32), np.arange(n) % 900, np.arange(n + 1)), (n, 900))
    result = top_k(X[n - 5 :], X, 3)
    np.testing.assert_array_equal(
        result.indices, (np.arange(n - 5, n) % 900)[:, None] + [0, 900, 1800]
    )


def test_progress_counts_queries():
    seen = []
    X = sp.random_array((600, 50), density=0.5, rng=np.random.default_rng(0), format="csr")
    top_k(X, k=3, n_threads=1, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (600, 600)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 20}, "k must be a whole number from 1 to 19"),
        ({"measure": "neg_euclidean"}, "measure must be one of cosine, dot"),
        ({"exclude": sp.csr_array((3, 20))}, "exclude must"),
        ({"items": sp.csr_array((5, 9))}, "items must have as many columns as queries"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    X = sp.csr_array(rows("counts", 20, 10, 0.5))
    with pytest.raises(ValueError, match=message):
        top_k(X, **{"k": 2, **arguments})


def test_nan_is_refused_and_the_matrix_left_alone():
    X = sp.csr_array(rows("real", 20, 10, 0.5))
    data = X.data.copy()
    top_k(X, k=3)
    np.testing.assert_array_equal(X.data, data)
    X.data[4] = np.nan
    with pytest.raises(ValueError, match="queries must be finite, got nan in row"):
        top_k(X, k=3)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("indptr", [1, 1, 1, 1], r"queries\.indptr must start at 0, got 1"),
        ("indptr", [0, 2, 1, 3], r"queries\.indptr must not descend"),
        ("indices", [0.0, 1.0, 2.0], r"queries\.indices must hold integers, got dtype float64"),
    ],
)
@pytest.mark.parametrize(
    "search", [lambda X: top_k(X, k=1), lambda X: neighbors_above(X, min_score=0.5)]
)
def test_broken_csc_is_refused_by_name(search, field, value, message):
    X = sp.csc_array(np.eye(3))
    setattr(X, field, np.array(value))
    with pytest.raises((TypeError, ValueError), match=message):
        search(X)


def test_pairs_allowed_are_refused_for_sparse_rows():
    X = sp.csr_array(rows("counts", 20, 10, 0.5))
    with pytest.raises(TypeError, match="allowed must be a mask or item numbers for sparse rows"):
        top_k(X, k=2, allowed=sp.csr_array((20, 20)))


def test_sparse_rows_whose_squares_overflow_are_refused():
    X = sp.csr_array([[1e155, 0], [1e155, 0], [0, 1.0]])
    for search in (lambda: top_k(X, k=1), lambda: neighbors_above(X, min_score=0.5)):
        with pytest.raises(ValueError, match="queries must have entries whose squares"):
            search()


def test_sparse_scores_below_normal_numbers_are_positive():
    X = sp.csr_array([[1e-155, 0], [1e-155, 0], [0, 0]])
    assert top_k(X, k=1, measure="dot").indices.ravel().tolist() == [1, 0, 0]
