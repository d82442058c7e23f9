"""from_model recognises fitted models by their attributes, and returns their embeddings."""

import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import NMF, PCA, TruncatedSVD

import fastcos

RNG = np.random.default_rng(0)
ITEMS = RNG.standard_normal((7, 3)).astype(np.float32)
USERS = RNG.standard_normal((9, 3)).astype(np.float32)
X = RNG.random((12, 7))


class OnGpu:
    """A matrix of implicit.gpu."""

    def __init__(self, values):
        self.values = values

    def to_numpy(self):
        return self.values


def implicit(items=ITEMS, users=USERS):
    return SimpleNamespace(item_factors=items, user_factors=users)


def keyed(vectors=ITEMS, keys=tuple("abcdefg")):
    return SimpleNamespace(vectors=vectors, index_to_key=list(keys))


def embedding(weight=ITEMS):
    return SimpleNamespace(weight=weight, num_embeddings=len(weight), embedding_dim=3)


@pytest.mark.parametrize("wrap", [lambda rows: rows, OnGpu])
def test_from_model_takes_factors_of_implicit(wrap):
    factors = fastcos.from_model(implicit(wrap(ITEMS), wrap(USERS)))
    np.testing.assert_array_equal(factors.items, ITEMS)
    np.testing.assert_array_equal(factors.users, USERS)
    assert factors.ids.tolist() == list(range(7))
    assert factors.notes == ()


def test_from_model_strips_biases_of_implicit():
    with_bias = implicit(
        np.column_stack([ITEMS, RNG.random(7)]), np.column_stack([USERS, np.ones(9)])
    )
    with pytest.warns(UserWarning, match=r"left out the model's biases.* use scoring_embeddings"):
        factors = fastcos.from_model(with_bias)
    np.testing.assert_array_equal(factors.items, ITEMS)
    np.testing.assert_array_equal(factors.users, USERS)
    assert "BPR" in factors.notes[0]


def logistic(b, c):
    """Return a logistic model of the package implicit. Its item rows end with (bias, 1)."""
    return implicit(
        np.column_stack([ITEMS, b, np.ones(7)]), np.column_stack([USERS, np.ones(9), c])
    )


PAIRS = {
    "ALS": lambda b, c: implicit(),
    "BPR": lambda b, c: implicit(np.c_[ITEMS, b], np.c_[USERS, np.ones(9)]),
    "logistic": logistic,
    "LightFM": lambda b, c: SimpleNamespace(
        item_embeddings=ITEMS, user_embeddings=USERS, item_biases=b, user_biases=c, fit=None
    ),
    "Surprise": lambda b, c: SimpleNamespace(qi=ITEMS, pu=USERS, bi=b, bu=c, fit=None),
    "Cornac": lambda b, c: SimpleNamespace(
        i_factors=ITEMS, u_factors=USERS, i_biases=b, u_biases=c, fit=None
    ),
    "Cornac BPR": lambda b, c: SimpleNamespace(i_factors=ITEMS, u_factors=USERS, i_biases=b),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_scoring_embeddings_are_the_scores_of_the_model(kind, tmp_path):
    b, c = RNG.standard_normal(7) * 3, RNG.standard_normal(9)
    model = PAIRS[kind](b, c)
    has_biases = kind != "ALS"
    # A user's bias raises the scores of all items equally, so it is omitted.
    scores = USERS @ ITEMS.T + has_biases * b
    # The factors are read twice: from the model, and from a file that contains the model's arrays.
    arrays = {name: value for name, value in vars(model).items() if name != "fit"}
    np.savez(tmp_path / "model.npz", **arrays)
    for read, source in (
        (fastcos.from_model, model),
        (fastcos.io.read_factors, tmp_path / "model.npz"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = read(source)
        assert len(caught) == has_biases == result.has_biases
        np.testing.assert_array_equal(result.items, ITEMS)  # for similarities
        np.testing.assert_array_equal(result.users, USERS)
        users, items = result.scoring_embeddings()
        order = fastcos.top_k(users, items, 7, measure="dot").indices
        np.testing.assert_array_equal(order, np.argsort(-scores, axis=1))


def test_scoring_embeddings_add_the_means_of_pca():
    model = PCA(3, random_state=0).fit(X)
    with pytest.warns(UserWarning, match="left out the model's biases"):
        result = fastcos.from_model(model, model.transform(X))
    users, items = result.scoring_embeddings()
    predicted = model.inverse_transform(model.transform(X))
    np.testing.assert_allclose(users @ items.T, predicted, atol=1e-12)
    alone = fastcos.from_model(model)
    assert alone.users is None
    with pytest.raises(ValueError, match=r"^users must be given for scoring_embeddings"):
        alone.scoring_embeddings()


def test_from_model_says_what_a_model_of_another_library_lacks():
    fitted = SimpleNamespace(fit=None, U=USERS, V=ITEMS)
    with pytest.raises(TypeError, match=r"pass the item and user arrays.* U \(9, 3\), V \(7, 3\)"):
        fastcos.from_model(fitted)
    unfitted = SimpleNamespace(item_embeddings=None, user_embeddings=None, fit=None)
    with pytest.raises(TypeError, match="model must be fitted, got SimpleNamespace without fact"):
        fastcos.from_model(unfitted)
    plus = SimpleNamespace(qi=ITEMS, pu=USERS, bi=None, bu=None, yj=ITEMS)
    with pytest.raises(TypeError, match="must have one vector per user"):
        fastcos.from_model(plus)
    biased = SimpleNamespace(item_embeddings=ITEMS, user_embeddings=USERS, item_biases=np.ones(8))
    with pytest.raises(ValueError, match=r"^biases of the items must be of shape \(7,\)"):
        fastcos.from_model(biased)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["als", "bpr", "lmf"])
def test_recommendations_are_those_of_installed_implicit(kind):
    names = {"als": "Alternating Least Squares", "bpr": "Bayesian Personalized Ranking"}
    name = names.get(kind, "Logistic Matrix Factorization").replace(" ", "")
    module = pytest.importorskip(f"implicit.{kind}")
    import scipy.sparse as sp

    counts = RNG.random((80, 40)) < 0.2
    model = (
        getattr(module, name)(6, random_state=0, use_gpu=False)
        if kind != "lmf"
        else (module.LogisticMatrixFactorization(6, random_state=0))
    )
    seen = sp.csr_matrix(counts, dtype=np.float32)
    model.fit(seen, show_progress=False)
    theirs, scores = model.recommend(np.arange(80), seen, N=5)
    with warnings.catch_warnings(action="ignore"):
        users, items = fastcos.from_model(model).scoring_embeddings()
    ours = fastcos.top_k(users, items, 5, measure="dot", exclude=sp.csr_array(seen))
    np.testing.assert_allclose(ours.scores, scores, rtol=1e-4, atol=1e-5)
    predicted = users.astype(np.float64) @ items.astype(np.float64).T
    for lists in (ours.indices, theirs):  # equal but for ties
        mine = np.take_along_axis(predicted, lists, axis=1)
        best = -np.sort(-np.where(counts, -np.inf, predicted), axis=1)[:, :5]
        np.testing.assert_allclose(mine, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "model", [TruncatedSVD(3, random_state=0), NMF(3, random_state=0, tol=0.01, max_iter=1000)]
)
def test_from_model_predicts_as_scikit_learn_does(model):
    with_users = fastcos.from_model(model.fit(X), model.transform(X))
    predicted = model.inverse_transform(model.transform(X))
    np.testing.assert_allclose(with_users.users @ with_users.items.T, predicted, atol=1e-9)
    assert fastcos.from_model(model).users is None


def test_from_model_takes_words_as_ids():
    result = fastcos.from_model(keyed())
    assert result.ids.tolist() == list("abcdefg")
    assert result.has_ids
    assert result.users is None
    numbers = fastcos.from_model(keyed(keys=range(10, 17)))
    assert numbers.ids.tolist() == list(range(10, 17))


def test_from_model_takes_both_sides_of_word2vec():
    result = fastcos.from_model(SimpleNamespace(wv=keyed(), syn1neg=ITEMS[::-1]))
    np.testing.assert_array_equal(result.items, ITEMS)
    np.testing.assert_array_equal(result.users, ITEMS[::-1])


def test_from_model_takes_two_embeddings():
    result = fastcos.from_model(embedding(), embedding(USERS))
    np.testing.assert_array_equal(result.items, ITEMS)
    np.testing.assert_array_equal(result.users, USERS)


@pytest.mark.slow
def test_from_model_feeds_an_audit():
    result = fastcos.from_model(implicit())
    assert fastcos.audit(result.items, result.users, k=2).n_items == 7


LINES = [
    (
        lambda: fastcos.from_model(ITEMS),
        "model must be a fitted model of implicit, LightFM, Surprise",
    ),
    (lambda: fastcos.from_model(None), "model must be a fitted model of implicit"),
    (lambda: fastcos.from_model(TruncatedSVD()), "PyTorch, got TruncatedSVD (fit it first)"),
    (lambda: fastcos.from_model(KMeans(2).fit(X)), "PyTorch, got KMeans"),
    (lambda: fastcos.from_model(implicit(None)), "model must be fitted, got SimpleNamespace"),
    (
        lambda: fastcos.from_model(fastcos.LinearMF(2).fit(X)),
        "got LinearMF. To obtain the vectors of a LinearMF, call its methods item_embeddings()",
    ),
    (
        lambda: fastcos.from_model(SimpleNamespace(wv=keyed(), dv=keyed())),
        "model must have one kind of vectors, got SimpleNamespace. Pass either the word vectors",
    ),
    (
        lambda: fastcos.from_model(
            SimpleNamespace(named_modules=lambda: [("item", embedding()), ("out", None)])
        ),
        "(pass one of its embeddings: item)",
    ),
    (lambda: fastcos.from_model(implicit(), USERS), "users must be None for SimpleNamespace"),
    (lambda: fastcos.from_model(embedding(), USERS[:, :2]), "users must have as many columns as"),
    (lambda: fastcos.from_model(keyed(), "users"), "users must hold real numbers"),
    (lambda: fastcos.from_model(keyed(ITEMS * np.nan)), "model.vectors must be finite, got NaN"),
    (lambda: fastcos.from_model(keyed(keys="ab")), "ids of the model must have as many rows"),
    (lambda: fastcos.from_model(embedding(ITEMS[0])), "model.weight must be 2-dimensional"),
    (lambda: fastcos.top_k(implicit(), k=2), "(a model? use fastcos.from_model)"),
]


@pytest.mark.parametrize(("call", "line"), LINES, ids=[line[:40] for _, line in LINES])
def test_from_model_refuses_in_one_line(call, line):
    with pytest.raises((TypeError, ValueError), match=re.escape(line)) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_from_model_of_installed_implicit():
    als = pytest.importorskip("implicit.als")
    import scipy.sparse as sp

    model = als.AlternatingLeastSquares(4, iterations=2, use_gpu=False, random_state=0)
    model.fit(sp.csr_matrix(X), show_progress=False)
    result = fastcos.from_model(model)
    assert result.items.shape == (7, 4)
    assert result.users.shape == (12, 4)


@pytest.mark.slow
def test_from_model_of_installed_gensim():
    word2vec = pytest.importorskip("gensim.models").Word2Vec
    model = word2vec([list("abcd"), list("dcba")] * 5, vector_size=4, min_count=1, workers=1)
    result = fastcos.from_model(model)
    assert result.items.shape == result.users.shape == (4, 4)
    assert sorted(result.ids) == list("abcd")
    assert fastcos.from_model(model.wv).users is None


@pytest.mark.slow
def test_from_model_of_installed_torch():
    torch = pytest.importorskip("torch")
    weight = torch.nn.Embedding(7, 3)
    np.testing.assert_array_equal(fastcos.from_model(weight).items, weight.weight.detach().numpy())


def test_from_model_takes_the_ids_of_a_model_without():
    result = fastcos.from_model(implicit(), ids=[9, 7, 5, 3, 1, 11, 13])
    assert result.ids.tolist() == [9, 7, 5, 3, 1, 11, 13]
    assert result.has_ids
    assert not fastcos.from_model(implicit()).has_ids
    for wrong, match in (
        ([1, 2], r"ids must be of shape \(7,\)"),
        ([1] * 7, "ids must be distinct"),
    ):
        with pytest.raises(ValueError, match=match):
            fastcos.from_model(implicit(), ids=wrong)
    with pytest.raises(ValueError, match="ids must be"):
        fastcos.from_model(keyed(), ids=list("gfedcba"))
