"""Comparisons that several tests share.

The tests in test_compare_helper.py check that these comparisons reject wrong answers.
"""

import numpy as np


def assert_same_neighbours(columns, scores, truth, rtol=1e-6):
    """Check neighbours against the true scores (n, m); scores that tie within rtol may be swapped.

    Excluded pairs have the true score -inf. Each row must have at least k neighbours that are not
    excluded.
    """
    columns, scores = np.asarray(columns), np.asarray(scores)
    n, k = columns.shape
    assert scores.shape == (n, k) == (len(truth), k), "shapes differ"
    best = -np.sort(-truth, axis=1)[:, :k]
    # Without this check, take_along_axis would interpret the padding -1 as the last column.
    assert columns.min() >= 0, "padding or a negative column"
    assert columns.max() < truth.shape[1], "a column out of range"
    assert all(len(set(row)) == k for row in columns.tolist()), "a repeated column"
    close = {"rtol": rtol, "atol": rtol * np.abs(truth[np.isfinite(truth)]).max(initial=0)}
    np.testing.assert_allclose(np.take_along_axis(truth, columns, axis=1), best, **close)
    np.testing.assert_allclose(scores, best, **close)


def assert_same_bits(*arrays):
    """Check that all arrays have the same type, shape and bytes."""
    first, *others = (np.ascontiguousarray(array) for array in arrays)
    for other in others:
        assert (other.dtype, other.shape) == (first.dtype, first.shape), "type or shape differ"
        # Bytes are compared, so that NaN equals NaN and 0.0 differs from -0.0.
        assert other.tobytes() == first.tobytes(), "the bits differ"
