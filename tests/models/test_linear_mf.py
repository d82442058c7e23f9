"""LinearMF, compared with dense closed forms; refused arguments and saved models."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastcos.models.linear_mf import AmbiguousSolutionWarning, LinearMF
from fastcos.similarity.rescalings import Rescaling
from fastcos.storage import FastcosFormatError

OBJECTIVES = ("dropout", "weight_decay")


@parametrize_with_checks([LinearMF()])
def test_linear_mf_follows_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [LinearMF(2, objective="weight_decay", regularization=0.5, center=True, solver="randomized")]
)
def test_linear_mf_with_weight_decay_follows_scikit_learn(estimator, check):
    check(estimator)


def interactions(n=60, p=20, seed=0, dtype=np.float64):
    """Return counts with empty rows and columns; the first columns are popular."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(np.linspace(1.5, 0.1, p), size=(n, p)).astype(dtype)
    X[[3, n - 1]] = 0
    X[:, [5, p - 1]] = 0
    return X


def lapack(X, k):
    _, s, Vt = np.linalg.svd(X, full_matrices=False)
    V = Vt[:k].T
    return s[:k], V * np.sign(V[np.argmax(np.abs(V), axis=0), np.arange(k)])


@pytest.mark.parametrize("solver", ["direct", "randomized", "auto"])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(
    "shape",
    [(60, 20), (20, 60), (400, 260), pytest.param((260, 400), marks=pytest.mark.slow)],
)
def test_linear_mf_equals_a_dense_svd(shape, center, solver):
    X = interactions(*shape)
    s, V = lapack(X - X.mean(axis=0) * center, 6)
    model = LinearMF(6, center=center, solver=solver, tol=1e-9, regularization=50.0)
    model.fit(sp.csr_array(X))
    np.testing.assert_allclose(model.singular_values_, s, rtol=1e-11)
    np.testing.assert_allclose(model.components_, V.T, atol=1e-6)
    np.testing.assert_allclose(model.shrinkage_, s**2 / (s**2 + 50), rtol=1e-10)
    assert model.residuals_.max() <= 1e-9
    assert model.effective_rank_ == 6
    assert model.n_features_in_ == shape[1]
    assert (model.mean_ is not None) == center
    if center:
        np.testing.assert_allclose(model.mean_, X.mean(axis=0), rtol=1e-14)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("center", [False, True])
def test_linear_mf_embeddings_equal_the_closed_form(objective, center):
    X, new = interactions(), interactions(n=7, seed=1)
    shift = X.mean(axis=0) * center
    s, V = lapack(X - shift, 4)
    if objective == "dropout":
        A = B = V * np.sqrt(s**2 / (s**2 + 9.0))
    else:
        A = V * np.sqrt(np.maximum(1 - 9.0 / s, 0) / s)
        B = V * np.sqrt(np.maximum(s - 9.0, 0))
    for fitted in (X, sp.csr_array(X), sp.coo_matrix(X), sp.csc_array(X)):
        model = LinearMF(4, objective=objective, regularization=9.0, center=center).fit(fitted)
        np.testing.assert_allclose(model.item_embeddings(), B, atol=1e-9)
        for rows in (new, sp.csr_matrix(new), sp.csc_array(new), new.tolist()):
            np.testing.assert_allclose(model.transform(rows), (new - shift) @ A, atol=1e-9)
            np.testing.assert_array_equal(model.user_embeddings(rows), model.transform(rows))


def test_rescaling_multiplies_users_and_divides_items():
    X, D = interactions(), np.array([2.0, 0.5, 3.0])
    model = LinearMF(3, regularization=9.0).fit(X)
    np.testing.assert_allclose(model.item_embeddings(D), model.item_embeddings() / D, rtol=1e-14)
    np.testing.assert_allclose(model.user_embeddings(X, D), model.transform(X) * D, rtol=1e-13)
    np.testing.assert_array_equal(model.item_embeddings("identity"), model.item_embeddings())
    np.testing.assert_array_equal(
        model.item_embeddings("smoothed"), model.item_embeddings(Rescaling(-0.5, -1))
    )


@pytest.mark.parametrize("rescaling", ["identity", "balanced", Rescaling(), np.ones(3)], ids=str)
def test_weight_decay_refuses_every_rescaling(rescaling):
    X = interactions()
    model = LinearMF(3, objective="weight_decay", regularization=2.0).fit(X)
    rule = "rescaling must be None for objective 'weight_decay', whose solution is unique"
    with pytest.raises(ValueError, match=rule) as refused:
        model.item_embeddings(rescaling)
    assert "\n" not in str(refused.value)
    with pytest.raises(ValueError, match=rule):
        model.user_embeddings(X, rescaling)


@pytest.mark.parametrize("solver", ["direct", "randomized"])
@pytest.mark.parametrize(
    "name", ["data", "smoothed", "weights", Rescaling(3, 3), Rescaling(-3, -3)]
)
def test_missing_directions_are_zero_columns(name, solver):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(50, 3)) @ rng.normal(size=(3, 12))
    model = LinearMF(6, regularization=1.0, solver=solver).fit(X)
    assert model.effective_rank_ == 3
    assert not model.singular_values_[3:].any()
    users, items = model.user_embeddings(X, name), model.item_embeddings(name)
    assert np.isfinite(users).all()
    assert np.isfinite(items).all()
    assert not items[:, 3:].any()
    assert not users[:, 3:].any()


@pytest.mark.parametrize("solver", ["direct", "randomized"])
@pytest.mark.parametrize("center", [True, "rows", "both"])
def test_linear_mf_center_subtracts_means(center, solver):
    random = np.random.default_rng(4)
    X = random.poisson(0.4, (60, 25)) + 0.0
    X[3], X[:, 7] = 0, 1
    shifted = X.copy()
    if center is not True:
        shifted = shifted - shifted.mean(axis=1, keepdims=True)
    if center != "rows":
        shifted = shifted - shifted.mean(axis=0)
    model = LinearMF(4, regularization=9.0, center=center, solver=solver, tol=1e-7)
    model.fit(sp.csr_array(X))
    _, s, Vt = np.linalg.svd(shifted)
    np.testing.assert_allclose(model.singular_values_, s[:4], rtol=1e-6)
    np.testing.assert_allclose(
        np.abs((model.components_ * Vt[:4]).sum(axis=1)),
        1,
        atol=1e-5 if solver == "direct" else 1e-3,
    )
    some_users = model.transform(sp.csr_array(X[5:20]))
    own = shifted[5:20] @ (model.components_.T * np.sqrt(model.shrinkage_))
    np.testing.assert_allclose(some_users, own, atol=1e-5)
    again = LinearMF(4, regularization=9.0, center=center, solver=solver, tol=1e-7).fit(X)
    np.testing.assert_allclose(again.transform(X[5:20]), some_users, atol=1e-4)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_linear_mf_empty_users_and_items_are_exact_zeros(container):
    X = interactions()
    model = LinearMF(4, regularization=9.0).fit(container(X))
    items, users = model.item_embeddings("weights"), model.user_embeddings(container(X), "weights")
    assert np.flatnonzero(~items.any(axis=1)).tolist() == [5, 19]
    assert np.flatnonzero(~users.any(axis=1)).tolist() == [3, 59]
    X[:, 7] = 3.0  # A constant column is zero after centring.
    model = LinearMF(4, regularization=9.0, center=True).fit(container(X))
    assert np.flatnonzero(~model.item_embeddings().any(axis=1)).tolist() == [5, 7, 19]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_reregularized_equals_a_new_fit(objective):
    X = interactions()
    other = {"dropout": "weight_decay", "weight_decay": "dropout"}[objective]
    model = LinearMF(5, objective=other, regularization=30.0, center=True).fit(X)
    before = model.item_embeddings()
    changed = model.reregularized(objective, 7.0)
    expected = LinearMF(5, objective=objective, regularization=7.0, center=True).fit(X)
    assert changed.get_params() == expected.get_params()
    assert changed.effective_rank_ == expected.effective_rank_
    np.testing.assert_array_equal(changed.item_embeddings(), expected.item_embeddings())
    np.testing.assert_array_equal(changed.transform(X), expected.transform(X))
    np.testing.assert_array_equal(model.item_embeddings(), before)
    with pytest.raises(ValueError, match="regularization must be a finite number >= 0, got -1"):
        model.reregularized(objective, -1)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("solver", ["direct", "randomized"])
@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (5, 1), (4, 4)])
def test_linear_mf_of_zeros_is_zero(shape, solver, objective):
    X = np.zeros(shape)
    model = LinearMF(1, objective=objective, solver=solver, regularization=0.0).fit(X)
    assert model.effective_rank_ == 0
    assert not model.transform(X).any()
    assert not model.item_embeddings().any()
    assert not model.residuals_.any()


def test_components_have_positive_largest_entries():
    for seed in range(5):
        components = LinearMF(5).fit(interactions(seed=seed)).components_
        largest = np.argmax(np.abs(components), axis=1)
        assert (components[np.arange(5), largest] > 0).all()


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int64, np.float32),
        (np.int8, np.float32),
        pytest.param(np.bool_, np.float32, marks=pytest.mark.slow),
    ],
)
def test_linear_mf_keeps_the_dtype_of_sparse_x(dtype, expected):
    X = sp.csr_array(interactions(dtype=dtype))
    model = LinearMF(3).fit(X)
    assert model.components_.dtype == expected
    assert model.item_embeddings("data").dtype == expected
    assert model.transform(X).dtype == expected
    assert model.singular_values_.dtype == model.shrinkage_.dtype == np.float64
    wider = X.astype(np.float64)
    assert model.transform(wider).dtype == np.float64
    exact = LinearMF(3).fit(wider)
    np.testing.assert_allclose(model.item_embeddings(), exact.item_embeddings(), atol=1e-6)
    np.testing.assert_allclose(model.transform(X), exact.transform(wider), atol=1e-4)


def test_linear_mf_does_not_change_its_input():
    X = sp.csr_array(interactions())
    X.data[0] = 0.0  # an explicit zero
    for array in (X.data, X.indices, X.indptr):
        array.flags.writeable = False
    model = LinearMF(3, center=True).fit(X)
    model.transform(X)
    dense = interactions()
    dense.flags.writeable = False
    LinearMF(3, center=True).fit_transform(dense)
    assert X.nnz == np.count_nonzero(interactions())


def test_linear_mf_ignores_the_order_of_items_and_users():
    X = interactions()
    rng = np.random.default_rng(3)
    users, items = rng.permutation(len(X)), rng.permutation(X.shape[1])
    items_before = LinearMF(4).fit(X).item_embeddings("data")
    items_after = LinearMF(4).fit(X[users][:, items]).item_embeddings("data")
    np.testing.assert_allclose(items_after, items_before[items], atol=1e-9)


@pytest.mark.parametrize("solver", ["direct", "randomized"])
def test_linear_mf_progress_is_that_of_the_svd(solver):
    calls = []
    model = LinearMF(3, solver=solver)
    model.fit(interactions(600, 300), progress=lambda *call: calls.append(call))
    done, total = calls[-1]
    assert done == total
    assert (len(calls) > 2) == (solver == "randomized")


def test_linear_mf_random_state_gives_the_same_bits():
    X = interactions(900, 300)
    one, two = (LinearMF(6, solver="randomized", random_state=7).fit(X) for _ in range(2))
    np.testing.assert_array_equal(one.components_, two.components_)
    generator = np.random.default_rng(7)
    three = LinearMF(6, solver="randomized", random_state=generator).fit(X)
    np.testing.assert_array_equal(one.components_, three.components_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 21}, "n_components must be a whole number from 1 to 20, got 21"),
        ({"n_components": 0}, "n_components must be a whole number from 1 to 20, got 0"),
        ({"n_components": 2.5}, "n_components must be a whole number from 1 to 20, got 2.5"),
        ({"objective": "l2"}, "objective must be one of dropout, weight_decay, got 'l2'"),
        ({"regularization": -1}, "regularization must be a finite number >= 0, got -1"),
        ({"regularization": np.nan}, "regularization must be a finite number >= 0, got nan"),
        ({"solver": "arpack"}, "solver must be one of auto, direct, randomized, got 'arpack'"),
        ({"tol": 0}, "tol must be a finite number > 0, got 0"),
        ({"center": "columns"}, "center must be one of rows, both, got 'columns'"),
        ({"center": 2}, "center must be True or False, got 2"),
        ({"random_state": None}, "random_state must be a whole number of at least 0, got None"),
    ],
    ids=str,
)
def test_linear_mf_refuses_invalid_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        LinearMF(**{"n_components": 3, **parameters}).fit(interactions())


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_linear_mf_refuses_non_finite_values(value, sparse):
    X = interactions()
    model = LinearMF(3).fit(X)
    X[7, 2] = value
    X = sp.csr_array(X) if sparse else X
    with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
        LinearMF(3).fit(X)
    with pytest.raises(ValueError, match=r"finite|NaN|infinity"):
        model.transform(X)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e12), (np.float64, 1e60)])
def test_linear_mf_refuses_extreme_magnitudes(dtype, limit, sparse):
    X = interactions(dtype=dtype)
    X /= X.max()
    as_given = sp.csr_array if sparse else np.asarray
    for solver in ("direct", "randomized"):
        model = LinearMF(3, regularization=0.0, solver=solver)
        plain = model.fit(as_given(X)).singular_values_
        for scale in (0.5 * limit, 2 / limit):
            scaled = clone(model).fit(as_given(dtype(scale) * -X))
            np.testing.assert_allclose(scaled.singular_values_, scale * plain, rtol=1e-5)
        for scale in (2 * limit, 0.5 / limit):
            with pytest.raises(
                ValueError, match="X must contain numbers whose largest magnitude is between"
            ):
                clone(model).fit(as_given(dtype(scale) * -X))


def test_linear_mf_refuses_malformed_sparse_matrices():
    X = sp.csr_array(interactions())
    model = LinearMF(3).fit(X)
    X.indices[4] = 10**6
    for use in (LinearMF(3).fit, model.transform):
        with pytest.raises(ValueError, match="X must have column indices from 0 to 19"):
            use(X)


def test_linear_mf_refuses_another_number_of_items():
    model = LinearMF(3).fit(interactions())
    for X in (interactions(p=19), sp.csr_array(interactions(p=21))):
        with pytest.raises(ValueError, match="expecting 20 features"):
            model.transform(X)


def test_linear_mf_warns_of_ties_that_matter():
    X = np.diag([5.0, 3.0, 3.0, 1.0, 0.0, 0.0])
    with pytest.warns(AmbiguousSolutionWarning, match="not unique"):
        LinearMF(2, solver="direct").fit(X)
    LinearMF(3, solver="direct").fit(X)
    LinearMF(5, solver="direct").fit(X)  # here, only zero columns have equal singular values
    LinearMF(2, solver="direct", objective="weight_decay", regularization=4.0).fit(X)


def test_linear_mf_default_rank_and_regularization(tmp_path):
    X = interactions()
    s, _ = lapack(X, 20)
    for objective, strength in (("dropout", s[3] ** 2), ("weight_decay", s[3])):
        model = LinearMF(objective=objective).fit(X)
        assert model.components_.shape == (20, 20)
        assert model.regularization_ == pytest.approx(strength, rel=1e-9)
        refitted = LinearMF(20, objective=objective, regularization=model.regularization_).fit(X)
        np.testing.assert_array_equal(model.shrinkage_, refitted.shrinkage_)
        model.save(tmp_path / objective)
        loaded = LinearMF.load(tmp_path / objective)
        assert loaded.get_params() == model.get_params()
        assert loaded.regularization_ == model.regularization_
    assert LinearMF().fit(np.tile(X, (3, 4))).components_.shape == (50, 80)
    # With five columns, the default λ would be the first singular value, and Eq. 2 would then keep
    # no column. The model uses half of this value instead.
    assert LinearMF(5, objective="weight_decay").fit(X).regularization_ == pytest.approx(s[0] / 2)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_linear_mf_save_and_load(tmp_path, objective, center):
    X = interactions(dtype=np.float32)
    model = LinearMF(np.int64(4), objective=objective, regularization=np.float32(9), center=center)
    model.fit(sp.csr_array(X)).save(tmp_path / "model")
    loaded = LinearMF.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    np.testing.assert_array_equal(loaded.transform(X), model.transform(X))
    np.testing.assert_array_equal(loaded.item_embeddings(), model.item_embeddings())
    fitted = [name for name in vars(model) if name.endswith("_")]
    assert sorted(fitted) == sorted(name for name in vars(loaded) if name.endswith("_"))
    for name in fitted:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name), strict=True)
    loaded.save(tmp_path / "model")  # this call replaces files that the model has mapped
    np.testing.assert_array_equal(
        LinearMF.load(tmp_path / "model").transform(X), model.transform(X)
    )
    clone(loaded).fit(X)


def test_linear_mf_saves_feature_names(tmp_path):
    model = LinearMF(3).fit(interactions())
    model.feature_names_in_ = np.array([f"item {i}" for i in range(20)], dtype=object)
    model.save(tmp_path / "model")
    loaded = LinearMF.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.feature_names_in_, model.feature_names_in_, strict=True)


def test_linear_mf_load_refuses_damaged_files(tmp_path):
    model = LinearMF(3).fit(interactions())
    model.save(tmp_path / "model")
    (file,) = (tmp_path / "model").glob("components-*.npy")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(FastcosFormatError, match="checksum"):
        LinearMF.load(tmp_path / "model")
    header = json.loads((tmp_path / "model" / "header.json").read_text("utf8"))
    assert header["fields"]["parameters"]["n_components"] == 3
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        LinearMF(3, random_state=np.random.default_rng(0)).fit(interactions()).save(tmp_path / "m")


def test_linear_mf_works_in_a_pipeline():
    X = interactions()
    pipeline = make_pipeline(FunctionTransformer(np.log1p), LinearMF(3, regularization=1.0))
    expected = LinearMF(3, regularization=1.0).fit_transform(np.log1p(X))
    np.testing.assert_array_equal(pipeline.fit_transform(X), expected)
    names = ["linearmf0", "linearmf1", "linearmf2"]
    assert pipeline[-1].get_feature_names_out().tolist() == names
