"""Exact neighbours among dense rows, by cosine unless a test says otherwise; k = 10.

pytest bench/test_dense.py                          # runs all benchmarks of this file
pytest bench/test_dense.py -k "index and 768"       # runs some of them
pytest bench/test_dense.py --benchmark-autosave     # saves; later, --benchmark-compare compares
"""

import time

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from bench import check, data

K = 10
sizes = pytest.mark.parametrize(("n", "d"), [(1_000, 64), (10_000, 64), (4_000, 768)])


@sizes
@pytest.mark.benchmark(group="neighbours of all rows")
def test_self_join(benchmark, n, d):
    X = data.gaussian(n, d)
    check.neighbors(fastcos.top_k(X, k=K), X)
    benchmark(fastcos.top_k, X, k=K)


@pytest.mark.benchmark(group="neighbours of all rows")
def test_euclidean_self_join(benchmark):
    X = data.gaussian(2_000, 64)
    check.neighbors(fastcos.top_k(X, k=K, measure="neg_euclidean"), X, measure="euclidean")
    benchmark(fastcos.top_k, X, k=K, measure="neg_euclidean")


@pytest.mark.parametrize("queries", [1, 32, 1_000])
@sizes
@pytest.mark.benchmark(group="queries among rows without an index")
def test_one_shot(benchmark, queries, n, d):
    Q, X = data.gaussian(queries, d, seed=1), data.gaussian(n, d)
    check.neighbors(fastcos.top_k(Q, X, k=K), Q, X)
    benchmark(fastcos.top_k, Q, X, k=K)


@pytest.mark.parametrize("queries", [1, 16, 256])
@sizes
@pytest.mark.benchmark(group="queries of a fitted index")
def test_index_search(benchmark, queries, n, d):
    Q, X = data.gaussian(queries, d, seed=1), data.gaussian(n, d)
    index = fastcos.SimilarityIndex().fit(X)
    check.neighbors(index.search(Q, K), Q, X)
    benchmark(index.search, Q, K)


@pytest.mark.parametrize("queries", [1, 256])
@pytest.mark.benchmark(group="queries of a fitted index")
def test_index_search_of_embeddings(benchmark, queries):
    """Measure searches in which a projection on the leading principal axes rules out most items."""
    Q, X = data.embeddings(queries, 384, seed=1), data.embeddings(20_000, 384)
    index = fastcos.SimilarityIndex().fit(X)
    check.neighbors(index.search(Q, K), Q, X)
    benchmark(index.search, Q, K)


@pytest.mark.benchmark(group="queries of a fitted index")
def test_index_search_after_a_pause(benchmark):
    """Search after a pause of 0.1 s, when threads sleep and the caches hold other data."""
    Q, X = data.gaussian(1, 64, seed=1), data.gaussian(10_000, 64)
    index = fastcos.SimilarityIndex().fit(X)
    check.neighbors(index.search(Q, K), Q, X)
    benchmark.pedantic(index.search, (Q, K), setup=lambda: time.sleep(0.1), rounds=10)


@pytest.mark.parametrize("option", ["allowed", "exclude", "min_score"])
@pytest.mark.benchmark(group="queries with a filter")
def test_filtered_queries(benchmark, option):
    Q, X = data.gaussian(500, 64, seed=1), data.gaussian(10_000, 64)
    rng = np.random.default_rng(0)
    allowed, is_seen = rng.random(len(X)) < 0.5, rng.random((len(Q), len(X))) < 0.001
    # Each option has a value and a mask. If the option has this value, top_k must not return the
    # pairs for which the mask is true.
    value, excluded = {
        "allowed": (allowed, np.broadcast_to(~allowed, is_seen.shape)),
        "exclude": (sp.csr_array(is_seen), is_seen),
        # The ten best cosines of every query are above 0.3, so this threshold excludes none of
        # them.
        "min_score": (0.3, np.zeros_like(is_seen)),
    }[option]
    check.neighbors(fastcos.top_k(Q, X, k=K, **{option: value}), Q, X, excluded=excluded)
    benchmark(fastcos.top_k, Q, X, k=K, **{option: value})


@pytest.mark.parametrize("dtype", ["float16", "int8", "bits"])
@pytest.mark.benchmark(group="rows of two bytes, one byte and one bit")
def test_narrow_rows(benchmark, dtype):
    Q, X = (data.narrow(data.gaussian(n, 768, seed=n), dtype) for n in (1_000, 4_000))
    measure = "hamming" if dtype == "bits" else "cosine"
    answer = fastcos.top_k(Q, X, k=K, measure=measure)
    if dtype == "bits":  # products of signs order items as Hamming distances do
        signs = [np.unpackbits(rows, axis=1) * np.float32(2) - 1 for rows in (Q, X)]
        at = check.sample_of(len(Q))
        assert not check.wrong_neighbors(answer.indices[at], signs[0][at], signs[1]).any()
    else:
        check.neighbors(answer, Q, X)
    benchmark(fastcos.top_k, Q, X, k=K, measure=measure)


@pytest.mark.benchmark(group="exact scores of candidates")
def test_rescore(benchmark):
    Q, X = data.gaussian(1_000, 768, seed=1), data.gaussian(10_000, 768)
    # Every query has 100 different candidates. The first candidate is a random item, and the
    # candidates are evenly spaced.
    first = np.random.default_rng(0).integers(len(X), size=(len(Q), 1))
    candidates = (first + len(X) // 100 * np.arange(100)) % len(X)
    answer = fastcos.search.rescore(Q, X, candidates, K)
    for i in check.sample_of(len(Q)):
        order = np.argsort(-check.scores(Q[i : i + 1], X[candidates[i]])[0])
        np.testing.assert_array_equal(answer.indices[i], candidates[i][order[:K]])
    benchmark(fastcos.search.rescore, Q, X, candidates, K)


@pytest.mark.parametrize("measure", ["dot", "csls", "angular", "whitened_cosine"])
@pytest.mark.benchmark(group="neighbours of all rows by other measures")
def test_other_measures(benchmark, measure):
    """Time self-joins by four measures; bench/lab/measure_costs.py times many more measures."""
    X = data.gaussian(3_000, 32)
    if measure in ("dot", "angular"):
        reference = "cosine" if measure == "angular" else "dot"
        expected = np.argsort(-check.scores(X[1:2], X[2:], reference)[0])[:K]
        indices = fastcos.top_k(X[1:2], X[2:], k=K, measure=measure).indices[0]
        np.testing.assert_array_equal(indices, expected)
    benchmark(fastcos.top_k, X, k=K, measure=measure)


@pytest.mark.benchmark(group="all pairs above a score")
def test_neighbors_above(benchmark):
    X = data.gaussian(5_000, 64)
    check.pairs_above(fastcos.neighbors_above(X, min_score=0.5), X, 0.5)
    benchmark(fastcos.neighbors_above, X, min_score=0.5)


@pytest.mark.benchmark(group="all scores, block by block")
def test_similarity_blocks(benchmark):
    X = data.gaussian(5_000, 64)

    at, block = next(iter(fastcos.similarity_blocks(X)))
    np.testing.assert_allclose(block[:3], check.scores(X[at][:3], X), atol=1e-5)
    benchmark(lambda: sum(1 for _ in fastcos.similarity_blocks(X)))


@sizes
@pytest.mark.benchmark(group="changes of an index")
def test_index_fit(benchmark, n, d):
    Q, X = data.gaussian(16, d, seed=1), data.gaussian(n, d)
    check.neighbors(fastcos.SimilarityIndex().fit(X).search(Q, K), Q, X)
    benchmark(lambda: fastcos.SimilarityIndex().fit(X))


@pytest.mark.parametrize("is_saved", [False, True], ids=["memory", "saved"])
@pytest.mark.benchmark(group="changes of an index")
def test_index_upsert(benchmark, is_saved, tmp_path):
    """Replace 100 of 50,000 rows of an index, in memory only, or also in its saved files."""
    X, changed = data.gaussian(50_000, 64), np.arange(100)
    index = fastcos.SimilarityIndex().fit(X)
    index.save(tmp_path / "index")

    def upsert():
        index.upsert(X[changed], changed)
        if is_saved:
            index.save(tmp_path / "index")

    upsert()
    check.neighbors(index.search(X[:16] + 1, K), X[:16] + 1, X)
    benchmark(upsert)


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "checksums"])
@pytest.mark.benchmark(group="changes of an index")
def test_index_open(benchmark, verify, tmp_path):
    Q, X = data.gaussian(16, 64, seed=1), data.gaussian(50_000, 64)
    fastcos.SimilarityIndex().fit(X).save(tmp_path / "index")
    opened = fastcos.SimilarityIndex.open(tmp_path / "index", verify=verify)
    check.neighbors(opened.search(Q, K), Q, X)
    benchmark(fastcos.SimilarityIndex.open, tmp_path / "index", verify=verify)


def test_self_join_is_at_least_as_fast_as_numpy():
    """A self-join takes at most as long as a float32 product and an argpartition in NumPy."""
    X = data.gaussian(4_000, 128)

    def by_numpy():
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        return np.argpartition(unit @ unit.T, -K - 1, axis=1)[:, -K - 1 :]

    ratios = [seconds_of(by_numpy) / seconds_of(lambda: fastcos.top_k(X, k=K)) for _ in range(6)]
    assert np.median(ratios[1:]) >= 1


def seconds_of(call):
    """Return the seconds of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
