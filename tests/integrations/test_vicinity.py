"""Our backend for vicinity returns the same answers as vicinity's basic backend."""

import numpy as np
import pytest

vicinity = pytest.importorskip("vicinity", reason="needs vicinity")
from fastcos.integrations.vicinity import FastcosBackend  # noqa: E402

RANDOM = np.random.default_rng(0)
ROWS, QUERIES = (RANDOM.standard_normal((n, 12)).astype(np.float32) for n in (90, 7))
NAMES = [f"item {number}" for number in range(90)]


def names_and_distances(results):
    names = [[name for name, _ in row] for row in results]
    return names, np.concatenate([[distance for _, distance in row] for row in results])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_backend_answers_as_the_basic_backend(metric, tmp_path):
    ours = vicinity.Vicinity(NAMES, FastcosBackend.from_vectors(ROWS, metric=metric))
    basic = vicinity.Vicinity.from_vectors_and_items(ROWS, NAMES, metric=metric)
    limit = {"cosine": 0.6, "euclidean": 3.5}[metric]
    for store in (ours, basic):
        store.delete(NAMES[10:20])
        store.insert(["new"], QUERIES[:1])
    for call in (
        lambda one: one.query(QUERIES, 8),
        lambda one: one.query_threshold(QUERIES, limit),
    ):
        result, expected = (names_and_distances(call(one)) for one in (ours, basic))
        if call(ours) and len(result[0][0]) == 8:
            assert result[0] == expected[0]
        assert [set(row) for row in result[0]] == [set(row) for row in expected[0]]
        # The basic backend computes distances as differences of squares, so the distance between an
        # item and itself may come out as 0.001.
        np.testing.assert_allclose(np.sort(result[1]), np.sort(expected[1]), atol=2e-3)
    assert len(ours) == 81
    ours.save(tmp_path / "saved")
    again = vicinity.Vicinity.load(tmp_path / "saved")
    assert names_and_distances(again.query(QUERIES, 8))[0] == found_names(ours)


def found_names(store):
    return names_and_distances(store.query(QUERIES, 8))[0]


def test_backend_reads_its_own_files(tmp_path):
    backend = FastcosBackend.from_vectors(ROWS, metric="euclidean")
    backend.save(tmp_path)
    for one, other in zip(
        FastcosBackend.load(tmp_path).query(QUERIES, 3), backend.query(QUERIES, 3), strict=True
    ):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="metric must be one of cosine, euclidean"):
        FastcosBackend.from_vectors(ROWS, metric="hamming")


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda one: one.query(QUERIES, 0), "k must be a whole number"),
        (lambda one: one.query(QUERIES, 1.5), "k must be a whole number"),
        (lambda one: one.query(QUERIES[:, :3], 2), "queries must have as many columns"),
        (lambda one: one.query(QUERIES * np.nan, 2), "queries must be finite"),
        (lambda one: one.query(QUERIES[:, :, None], 2), "queries must be 2-dimensional"),
        (lambda one: one.query("rows", 2), "queries must hold real numbers"),
        (lambda one: one.threshold(QUERIES, 0.5, 0), "k must be a whole number"),
        (lambda one: type(one).from_vectors(ROWS * np.nan), "items must be finite"),
        (lambda one: type(one).from_vectors(ROWS[0]), "items must be 2-dimensional"),
        (lambda one: type(one).from_vectors(ROWS, metric="inner_product"), "metric must be one of"),
    ],
)
def test_wrong_call_of_the_backend_is_refused(call, line):
    backend = FastcosBackend.from_vectors(ROWS)
    before = backend.query(QUERIES, 3)
    with pytest.raises((TypeError, ValueError), match=rf"^{line}[^\n]*, got [^\n]*$"):
        call(backend)
    np.testing.assert_array_equal(backend.query(QUERIES, 3), before)
