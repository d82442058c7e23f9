"""The dense screen under a shift: what is found, how much is scored, and what may be rounded."""

import numpy as np
import pytest

import fastcos
from fastcos.engine import centering, scan
from fastcos.engine.range_candidates import list_reaching
from fastcos.neighbors.search import top_k
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits
from tests.oracles.dense_families import FAMILIES, clustered, gaussian


def clustered_float64(n, d):
    """Rows of float64 that float32 cannot tell apart, and ordinary ones."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, d))
    centre, away = X[0].copy(), 10.0 ** rng.uniform(-15, -1, (n, 1))
    X[::2] = ((centre + away * rng.standard_normal((n, d))) * rng.uniform(1e-3, 1e3, (n, 1)))[::2]
    return X


CROWDS = [clustered, clustered_float64]
each_crowd = pytest.mark.parametrize("crowd", CROWDS, ids=lambda crowd: crowd.__name__)


def prepared(X):
    side = scan.side(X, None, None, "cosine")
    return scan.prepare("cosine", side, np.arange(len(X))), side


def shift_of(X):
    return prepared(X)[0].items.shift


@pytest.mark.parametrize("n", [256, 700, 5000])
@each_crowd
def test_crowded_rows_are_shifted_by_a_unit_vector_at_their_heart(crowd, n):
    X = crowd(n, 24)
    shift = shift_of(X)
    assert np.isclose(np.linalg.norm(shift), 1, rtol=1e-15)
    near = X[::2][X[::2].any(axis=1)].astype(float)
    distances = np.linalg.norm(near / np.linalg.norm(near, axis=1)[:, None] - shift, axis=1)
    assert np.median(distances) < 2e-3


@pytest.mark.parametrize("d", [8, 64, 128])
def test_ordinary_rows_are_not_shifted(d):
    assert len(shift_of(gaussian(4000, d))) == 0
    assert len(shift_of(gaussian(4000, d) + np.float32(2))) == 0
    assert len(shift_of(gaussian(255, d))) == 0


@pytest.mark.parametrize("form", ["dot", "euclidean", "norm_angle"])
def test_only_cosines_are_shifted(form):
    side = scan.side(clustered(700, 24), None, None, form)
    assert len(scan.prepare(form, side, np.arange(700)).items.shift) == 0


@each_crowd
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [
        pytest.param(1500, 40, 1, marks=pytest.mark.slow),
        (1500, 40, 30),
        pytest.param(900, 131, 10, marks=pytest.mark.slow),
    ],
)
def test_neighbours_in_a_crowd_are_those_of_the_float64_scores(crowd, n, d, k):
    X = crowd(n, d)
    found = top_k(X, k=k)
    columns, keys = dense_oracle.top_k(X, X, k, "cosine", exclude_self=True)
    np.testing.assert_array_equal(found.indices, columns)
    np.testing.assert_array_equal(found.scores, keys.astype(np.float32))
    some = np.arange(n) % 3 > 0
    found = top_k(X, k=k, allowed=some)
    columns, _ = dense_oracle.top_k(X, X, k, "cosine", exclude_self=True, allowed=some)
    np.testing.assert_array_equal(found.indices, columns)


@each_crowd
def test_queries_of_another_kind_find_the_same(crowd):
    X = crowd(1500, 40)
    for Q in (gaussian(300, 40), crowd(300, 40), -X[:200], np.zeros((90, 40), np.float32), X[:30]):
        found = top_k(Q, X, 12)
        columns, keys = dense_oracle.top_k(Q, X, 12, "cosine")
        np.testing.assert_array_equal(found.indices, columns)
        np.testing.assert_array_equal(found.scores, keys.astype(np.float32))


@each_crowd
def test_few_queries_of_a_large_crowd_are_exact(crowd):
    X = crowd(17_000, 8)
    index = fastcos.SimilarityIndex().fit(X)
    Q = X[50:80]
    found = index.search(Q, 10)
    columns, keys = dense_oracle.top_k(Q, X, 10, "cosine")
    np.testing.assert_array_equal(found.indices, columns)
    np.testing.assert_array_equal(found.scores, keys.astype(np.float32))


@each_crowd
def test_threads_and_blocks_do_not_show(crowd, monkeypatch):
    X = crowd(1200, 36)
    expected = top_k(X, k=20)
    for n_threads, block in ((1, 256), (3, 32), (8, 96)):
        monkeypatch.setattr(scan, "_LARGEST_BLOCK", block)
        found = top_k(X, k=20, n_threads=n_threads)
        assert_same_bits(found.indices, expected.indices)
        assert_same_bits(found.scores, expected.scores)


@each_crowd
def test_indexes_keep_their_shift(crowd, tmp_path):
    X = crowd(1500, 40)
    index = fastcos.SimilarityIndex().fit(X)
    index.save(tmp_path / "index")
    loaded = fastcos.SimilarityIndex.load(tmp_path / "index")
    expected, found = index.search(X, 9), loaded.search(X, 9)
    assert_same_bits(found.indices, expected.indices)
    assert_same_bits(found.scores, expected.scores)
    assert_same_bits(index._state.prepared.items.shift, loaded._state.prepared.items.shift)
    assert len(loaded._state.prepared.items.shift) == 40
    np.testing.assert_array_equal(expected.indices, dense_oracle.top_k(X, X, 9, "cosine")[0])


@each_crowd
def test_pairs_above_a_score_are_all_there(crowd):
    X = crowd(700, 30)
    for least in (0.3, 0.999, 1 - 1e-9):
        found = fastcos.neighbors_above(X, least, max_memory=100).toarray() != 0
        keys = dense_oracle.keys(X, X, "cosine")
        np.fill_diagonal(keys, -1)
        np.testing.assert_array_equal(found, keys >= least)


def passed(X, k):
    """How many items of each query the screen cannot drop, told the k-th best key."""
    made, side = prepared(X)
    least = dense_oracle.top_k(X, X, k, "cosine", exclude_self=True)[1][:, -1].copy()
    nobody = scan.no_exclusions(len(X), own=True)
    work = scan.Work(None, 2.0**30)
    empty = np.zeros(0, np.int64), np.zeros(len(X), np.int64)
    return list_reaching(made, side, nobody, least, 0, empty[1], empty[0], work)


def test_a_shift_drops_what_a_screen_of_cosines_could_not(monkeypatch):
    rng = np.random.default_rng(3)
    away = 10.0 ** rng.uniform(-4, -1, (3000, 1)) * rng.standard_normal((3000, 12))
    X = np.where(np.arange(3000)[:, None] % 4 > 0, 1.0 + away, rng.standard_normal((3000, 12)))
    with_shift = passed(X, 10)
    monkeypatch.setattr(centering, "shift_for", lambda *_: centering.NONE)
    without = passed(X, 10)
    assert (with_shift >= 10).all()
    assert with_shift.mean() < 0.1 * without.mean()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize("d", [3, 40, 300])
def test_the_shifted_key_is_the_cosine_within_its_rounding(family, d):
    X = family(400, d).astype(np.float64)
    side = scan.side(X, None, None, "cosine")
    norms = np.where(side.norms > 0, side.norms, 1.0)
    some = np.random.default_rng(1).standard_normal(d)
    for shift in (some / np.linalg.norm(some), side.rows[7] / norms[7]):
        if not shift.any():
            continue
        offsets = centering.products(side.rows, 1.0 / norms, shift, 2)
        intercepts, rounding = centering.of_queries(side.rows, 1.0 / norms, shift)
        left = (side.rows * (1.0 / norms)[:, None] - shift).astype(np.longdouble)
        keys = left[:50] @ left.T + offsets - intercepts[:50, None]
        truth = dense_oracle.keys(side.rows[:50], side.rows, "cosine")
        assert np.abs(keys - truth).max() < rounding
