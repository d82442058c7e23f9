"""Rows at the limits of float64 are searched exactly, and rounding errors stay within bounds."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import metrics
from fastcos.models import NormalizeRows
from tests.oracles import dense as dense_oracle
from tests.robustness import rounding_errors, rounding_measures, rounding_metrics

SIZES = (0.0, 5e-324, 1e-320, 1e-305, 1e-165, 1e-158, 1e-140, 1e-20, 1.0, 1e140, 1e147)
MEASURES = {"dot": "dot", "cosine": "cosine", "neg_euclidean": "euclidean"}


def rows(seed, n, size):
    """Return rows of one magnitude, or of several magnitudes if `size` is None."""
    random = np.random.default_rng(seed)
    sizes = random.choice(SIZES, (n, 1)) if size is None else size
    with np.errstate(under="ignore"):
        return random.standard_normal((n, 19)) * sizes


def unit_scaled(X):
    """Multiply each row of X by a power of two, so that its largest entry is from 0.5 to 1."""
    _, exponents = np.frexp(np.abs(X).max(axis=1, keepdims=True))
    return np.ldexp(X, -exponents)


@pytest.mark.parametrize(
    ("measure", "n_queries"),
    [
        pytest.param(
            measure, n_queries, id=f"{measure}-{'few' if n_queries < 9 else 'many'}",
            marks=[pytest.mark.slow] * ((measure, n_queries) != ("cosine", 3)),
        )
        for measure in MEASURES
        for n_queries in (3, 33)
    ],
)  # fmt: skip
def test_top_k_ranks_rows_of_any_norm_by_float64_scores(measure, n_queries):
    for case, sizes in enumerate(itertools.product((None, *SIZES), repeat=2)):
        Q, B = rows(case, n_queries, sizes[0]), rows(-case - 1 & 0xFFFF, 300, sizes[1])
        result = fastcos.top_k(Q, B, 4, measure=measure)
        if measure == "cosine":
            Q, B = unit_scaled(Q), unit_scaled(B)
        indices, keys = dense_oracle.top_k(Q, B, 4, MEASURES[measure])
        np.testing.assert_array_equal(result.indices, indices, err_msg=str(sizes))
        scores = -np.sqrt(-keys) if measure == "neg_euclidean" else keys
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(result.scores, scores.astype(np.float32))


def subnormal_rows(n):
    return np.random.default_rng(3).integers(-1000, 1000, (n, 7)) * 5e-324


@pytest.mark.parametrize("measure", ["recos", "csls", "mutual_proximity", "layer_norm_cosine"])
def test_measures_score_subnormal_rows_like_scaled_rows(measure):
    rows = subnormal_rows(20)
    tiny, ordinary = (fastcos.top_k(X, k=5, measure=measure) for X in (rows, rows / 5e-324))
    np.testing.assert_array_equal(tiny.indices, ordinary.indices)
    np.testing.assert_array_equal(tiny.scores, ordinary.scores)


def test_metrics_and_transformers_accept_subnormal_rows():
    rows = subnormal_rows(20)
    ordinary = rows / 5e-324
    for function in (metrics.effective_rank, metrics.participation_ratio, metrics.isoscore):
        np.testing.assert_allclose(function(rows), function(ordinary), rtol=1e-14)
    for X in (rows, sp.csr_array(rows)):
        unit = NormalizeRows().fit_transform(X)
        unit = unit.toarray() if sp.issparse(unit) else unit
        np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-15)
    lists = np.zeros((20, 1), int)
    tiny, usual = (metrics.popularity_bias(X, np.arange(1, 21), lists) for X in (rows, ordinary))
    assert tiny.norm_correlation == pytest.approx(usual.norm_correlation, rel=1e-2)


def test_model_change_of_huge_models_does_not_overflow():
    change = metrics.model_change([[1e147, 2e147]], [[3e147, 4e147]], [[0.0]], [[0.0]])
    assert change.value == pytest.approx(11e294, rel=1e-15)
    assert change.relative == 1


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore:.*zero row", "ignore:overflow encountered in cast")
def test_operations_keep_their_rounding_bounds():
    lines = [
        *rounding_errors.dense_lines(1),
        *rounding_errors.svd_lines(1),
        *rounding_errors.interval_lines(1),
        *rounding_measures.measure_lines(1),
        *rounding_metrics.metric_lines(1),
    ]
    assert len(lines) > 1200
    operations = {line.operation for line in lines}
    missing = [
        name for name in fastcos.list_measures() if not any(name in row for row in operations)
    ]
    assert not missing
    assert not rounding_errors.report(lines)
