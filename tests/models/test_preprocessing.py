"""Transformers give the results of dense formulas, and pass all of scikit-learn's checks."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

import fastcos
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
    biases,
)

ALL = [
    StandardizeColumns(),
    NormalizeRows(),
    PopularityWeights(),
    PopularityWeights(0.5, 0.5),
    ShiftedPPMI(),
]


@parametrize_with_checks(ALL[:1])
def test_a_transformer_follows_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(ALL[1:])
def test_other_transformers_follow_scikit_learn(estimator, check):
    check(estimator)


def counts(seed=0, n=40, p=13):
    random = np.random.default_rng(seed)
    X = random.poisson(0.4, (n, p)).astype(np.float64)
    X[:, 5], X[7], X[:, 8] = 0, 0, 3
    return X


@pytest.mark.parametrize("estimator", ALL, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_transformers_keep_sparsity_and_equal_dense(estimator, dtype):
    X = counts().astype(dtype)
    dense = estimator.fit_transform(X)
    for layout in (sp.csr_array, sp.csc_matrix, sp.coo_array):
        sparse = estimator.fit_transform(layout(X))
        assert sp.issparse(sparse)
        assert sparse.dtype == dense.dtype == dtype
        np.testing.assert_allclose(sparse.toarray(), dense, rtol=1e-6, atol=1e-7)


def test_standardize_columns_gives_unit_variance():
    X = counts()
    scaler = StandardizeColumns().fit(sp.csr_array(X))
    Z = scaler.transform(X)
    varies = X.std(axis=0) > 0
    np.testing.assert_allclose(Z.std(axis=0), varies * 1.0, atol=1e-12)
    np.testing.assert_allclose(Z.mean(axis=0), scaler.center_, atol=1e-12)
    np.testing.assert_allclose(scaler.inverse_transform(Z), X * varies, atol=1e-12)
    truth = (X - X.mean(axis=0))[:, varies] / X.std(axis=0)[varies]
    ours = Z - scaler.center_
    np.testing.assert_allclose(ours[:, varies], truth, atol=1e-12)
    assert not ours[:, ~varies].any()


def test_standardize_columns_then_centred_linear_mf():
    X = counts(n=60)
    Z = StandardizeColumns().fit_transform(sp.csr_array(X))
    ours = fastcos.LinearMF(3, regularization=1.0, center=True).fit(Z)
    deviation = X.std(axis=0)
    centred = X - X.mean(axis=0)
    truth = np.divide(centred, deviation, out=np.zeros_like(X), where=deviation > 0)
    values = np.linalg.svd(truth, compute_uv=False)[:3]
    np.testing.assert_allclose(ours.singular_values_, values, rtol=1e-9)


@pytest.mark.parametrize("scale", [1, 1e-30, 1e30])
def test_normalize_rows_gives_unit_norms(scale):
    X = counts() * scale
    lengths = np.linalg.norm(NormalizeRows().fit_transform(sp.csr_array(X)).toarray(), axis=1)
    np.testing.assert_allclose(lengths, X.any(axis=1) * 1.0, atol=1e-12)


@pytest.mark.parametrize(("gamma", "delta"), [(0.5, 0), (0, 0.5), (1, 1), (-0.75, 0)])
def test_popularity_weights_equal_their_formula(gamma, delta):
    X = counts()
    ours = PopularityWeights(gamma, delta).fit_transform(X)
    for i, j in np.ndindex(X.shape):
        truth = 0.0
        if X[i, j] > 0:
            truth = X[i].sum() ** -delta * X[i, j] * X[:, j].sum() ** -gamma
        assert ours[i, j] == pytest.approx(truth, rel=1e-12)


def test_correspondence_scaling_has_norm_one():
    X = np.random.default_rng(0).random((30, 8))
    scaled = PopularityWeights(0.5, 0.5).fit_transform(X)
    _, s, Vt = np.linalg.svd(scaled)
    assert s[0] == pytest.approx(1)
    np.testing.assert_allclose(np.abs(Vt[0]) ** 2, X.sum(axis=0) / X.sum(), atol=1e-12)


@pytest.mark.parametrize(("beta", "shift"), [(0.75, 1), (1, 1), (0.75, 5), (0, 2)])
@pytest.mark.parametrize("memory", [1024, 0.001])
def test_shifted_ppmi_equals_its_formula_in_any_blocks(beta, shift, memory):
    X = counts()
    together = np.zeros((13, 13))
    for row in X:
        together += np.outer(row, row)
    np.fill_diagonal(together, 0)
    rows = together.sum(axis=1)
    truth = np.zeros_like(together)
    smooth = sum(r**beta for r in rows if r > 0)
    for i, j in np.argwhere(together > 0):
        pmi = np.log(together[i, j] * smooth / (rows[i] * rows[j] ** beta))
        truth[i, j] = max(0, pmi - np.log(shift))
    before = fastcos.get_config().working_memory
    fastcos.set_config(working_memory=memory)
    try:
        fitted = ShiftedPPMI(beta, shift).fit(sp.csr_array(X))
    finally:
        fastcos.set_config(working_memory=before)
    np.testing.assert_allclose(fitted.ppmi_.toarray(), truth, atol=1e-12)
    assert (fitted.ppmi_.data > 0).all()
    np.testing.assert_allclose(fitted.transform(X), X @ truth, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (ShiftedPPMI(smoothing=1.5), "smoothing must be .*<= 1"),
        (ShiftedPPMI(shift=0.5), "shift must be .*>= 1"),
        (PopularityWeights(np.inf), "column_power must be a finite number"),
    ],
)
def test_transformers_refuse_invalid_parameters(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(counts())


def test_shifted_ppmi_refuses_negative_entries():
    with pytest.raises(ValueError, match="Negative values in data"):
        ShiftedPPMI().fit(-counts())


@pytest.mark.parametrize(("rows", "columns"), [(True, True), (True, False), (False, True)])
def test_biases_centre_rows_columns_or_both(rows, columns):
    X = counts()
    result = biases(sp.csr_array(X), rows=rows, columns=columns)
    centred = fastcos.matmul(sp.csr_array(X), np.eye(13), **result._asdict())
    if rows:
        np.testing.assert_allclose(centred.sum(axis=1), 0, atol=1e-12)
    if columns:
        np.testing.assert_allclose(centred.sum(axis=0), 0, atol=1e-12)
    difference = X - centred  # Entry (i, j) is r[i] + c[j], with two vectors r and c.
    assert np.linalg.matrix_rank(difference) <= rows + columns
    np.testing.assert_allclose(centred, np.asarray(biases_removed(X, rows, columns)), atol=1e-12)


def biases_removed(X, rows, columns):
    out = X - rows * X.mean(axis=1, keepdims=True) - columns * X.mean(axis=0)
    return out + (X.mean() if rows and columns else 0)
