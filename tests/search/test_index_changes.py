"""An index that has been changed returns the same results as a new index of the same items.

The changes add, replace or remove items by id.
"""

import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex, get_measure, top_k
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits

# If two segments of an index have fewer rows than this number, they are merged immediately.
SMALL = 4096


def gaussian(n, d=20, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


@pytest.fixture(scope="module")
def queries():
    return gaussian(60, seed=1)


class Truth:
    """The rows that an index must contain: a dictionary in the order of their positions."""

    def __init__(self, rows, ids):
        self.rows = dict(zip(ids, rows, strict=True))

    def upsert(self, rows, ids):
        self.rows.update(zip(ids, rows, strict=True))

    def remove(self, ids):
        for one in ids:
            del self.rows[one]

    def check(self, index, queries, k=7, measure="cosine"):
        ids, rows = np.array(list(self.rows)), np.array(list(self.rows.values()))
        result, expected = index.search(queries, k), top_k(queries, rows, k, measure=measure)
        np.testing.assert_array_equal(result.ids, ids[expected.indices])
        assert_same_bits(result.scores, expected.scores)
        oracle = dense_oracle.top_k(queries, rows, k, measure)[0]
        np.testing.assert_array_equal(result.ids, ids[oracle])
        assert index.n_items_ == len(ids)
        np.testing.assert_array_equal(index.ids_of(result.indices), result.ids)


def names(numbers):
    return [f"item {number}" for number in numbers]


@pytest.mark.parametrize("named", [names, list], ids=["strings", "numbers"])
def test_changes_give_the_answers_of_a_new_index(queries, named):
    rows = gaussian(3000)
    index = SimilarityIndex().fit(rows[:2000], named(range(2000)))
    truth = Truth(rows[:2000], named(range(2000)))
    added = index.add(rows[2000:2900], named(range(2000, 2900)))
    assert added.tolist() == named(range(2000, 2900))
    truth.upsert(rows[2000:2900], added.tolist())
    truth.check(index, queries)
    changed = named([5, 2500, 1, 2950])
    index.upsert(rows[-4:], changed)
    truth.upsert(rows[-4:], changed)
    truth.check(index, queries)
    gone = named([*range(0, 2900, 7)])
    index.remove(gone)
    truth.remove(gone)
    truth.check(index, queries)
    index.add(rows[:1], gone[:1])  # A removed id may be added again, at a new position.
    truth.upsert(rows[:1], gone[:1])
    truth.check(index, queries)
    assert index.positions_of(gone[:1]).tolist() == [2901]


@pytest.mark.parametrize("steps", [12, pytest.param(100, marks=pytest.mark.slow)])
def test_random_changes_give_the_answers_of_a_new_index(queries, tmp_path, steps):
    random = np.random.default_rng(3)
    # With small integers, many scores tie, so positions decide.
    pool = random.integers(-2, 3, (20_000, 20)).astype(np.float32)
    pool[(pool == 0).all(axis=1)] = 1.0
    index, truth, fresh = SimilarityIndex().fit(pool[:50]), Truth(pool[:50], range(50)), 50
    for step in range(steps):
        kind, size = random.integers(4), int(random.choice([1, 30, 700, 2500]))
        live = np.array(list(truth.rows))
        if kind == 0:
            removed = random.choice(live, min(size, len(live) - 20), replace=False)
            index.remove(removed)
            truth.remove(removed.tolist())
        else:
            ids = np.arange(fresh, fresh + size)
            fresh += size
            if kind == 1:
                old = random.choice(live, min(size, len(live)), replace=False)
                ids = random.permutation(np.concatenate([ids, old]))
            rows = pool[random.integers(len(pool), size=len(ids))]
            (index.upsert if kind == 1 else index.add)(rows, ids)
            truth.upsert(rows, ids.tolist())
        if step % 6 == 0:
            truth.check(index, queries[:20])
        if step % 20 == 9:
            index.save(tmp_path / "index")
            index = SimilarityIndex.open(tmp_path / "index")
    truth.check(index, queries[:20])


def test_an_index_keeps_few_parts_and_no_removed_rows():
    rows = gaussian(2 * SMALL, d=4)
    index = SimilarityIndex().fit(rows, np.arange(len(rows)))
    for one in range(50):
        index.add(rows[one : one + 1])
    assert index.memory_.rows == rows.nbytes + 50 * rows[0].nbytes
    index.remove(np.arange(SMALL + 1))  # This removes more than half of the large segment.
    assert index.memory_.rows == (SMALL - 1 + 50) * rows[0].nbytes


def test_progress_reaches_the_total_if_the_last_segment_has_no_allowed_rows(queries):
    index, seen = SimilarityIndex().fit(gaussian(SMALL)), []
    index.add(gaussian(SMALL, seed=2))
    assert index.explain(1).n_segments == 2
    index.search(queries, 1, allowed=[0], progress=lambda *step: seen.append(step))
    assert seen == sorted(seen)
    assert seen[-1] == (60, 60)


def test_rows_of_two_types_are_searched_as_they_are(queries):
    narrow, wide = gaussian(300), gaussian(300, seed=2, dtype=np.float64)
    index = SimilarityIndex().fit(narrow)
    index.add(wide)
    result, expected = index.search(queries, 9), top_k(queries, np.vstack([narrow, wide]), 9)
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)


@pytest.mark.parametrize("measure", ["csls", "whitened_cosine"])
def test_measures_that_learn_are_fitted_again(queries, measure):
    rows = gaussian(400)
    index = SimilarityIndex(measure).fit(rows[:300])
    index.add(rows[300:])
    index.upsert(rows[:2][::-1], [0, 1])
    index.remove([7])
    live_rows = np.delete(np.concatenate([rows[1::-1], rows[2:]]), 7, axis=0)
    result, expected = index.search(queries, 5), top_k(queries, live_rows, 5, measure=measure)
    np.testing.assert_array_equal(result.indices, np.delete(np.arange(400), 7)[expected.indices])
    assert_same_bits(result.scores, expected.scores)


def test_many_copies_of_a_row_can_be_removed(queries):
    rows = np.repeat(gaussian(30), 20, axis=0)
    index, truth = SimilarityIndex().fit(rows), Truth(rows, range(600))
    gone = np.arange(0, 600, 3)
    index.remove(gone)
    truth.remove(gone.tolist())
    truth.check(index, queries, k=30)


def test_a_small_index_is_padded_and_an_empty_one_answers(queries, tmp_path):
    rows = gaussian(3)
    for ids, none in ((None, -1), (["a", "b", "c"], "")):
        index = SimilarityIndex().fit(rows, ids)
        result = index.search(queries, 5)
        assert (result.indices[:, 3:] == -1).all()
        assert (result.ids[:, 3:] == none).all()
        assert np.isneginf(result.scores[:, 3:]).all()
        assert result.ids.shape == (60, 5)
        assert index.search(np.empty((0, 20)), 5).ids.shape == (0, 5)
        index.remove(index.ids_of([0, 1, 2]))
        index.save(tmp_path / "empty")
        for empty in (index, SimilarityIndex.open(tmp_path / "empty")):
            result = empty.search(queries, 5)
            assert (result.ids == none).all()
            assert np.isneginf(result.scores).all()
            assert empty.n_items_ == 0
        index.add(rows[:1], None if ids is None else ["d"])
        assert index.search(queries[:1], 1).indices.tolist() == [[3]]
        copied = pickle.loads(pickle.dumps(index))
        assert copied.search(queries[:1], 1).ids.tolist() == [[3 if ids is None else "d"]]


@pytest.mark.parametrize("measure", ["cosine", "csls"])
def test_an_index_can_be_made_empty(queries, measure):
    index = SimilarityIndex(measure).fit(np.empty((0, 20)))
    assert index.search(queries, 2).indices.tolist() == [[-1, -1]] * 60
    index.add(gaussian(50), [f"{number:03}" for number in range(50)])
    expected = top_k(queries, gaussian(50), 2, measure=measure)
    assert_same_bits(index.search(queries, 2).scores, expected.scores)
    index.remove([f"{number:03}" for number in range(50)])
    assert index.n_items_ == 0


def test_lists_of_allowed_items_restrict_each_query(queries):
    rows, random = gaussian(900), np.random.default_rng(0)
    index = SimilarityIndex().fit(rows[:500])
    index.add(rows[500:])
    index.remove(np.arange(0, 900, 4))
    listed = random.random((60, 900)) < random.choice([0.0, 0.002, 0.3], 60)[:, None]
    excluded = random.random((60, 900)) < 0.2
    is_live = np.arange(900) % 4 > 0
    for exclude in (None, excluded):
        is_searched = listed & is_live & (True if exclude is None else ~exclude)
        columns, keys = dense_oracle.top_k(queries, rows, 6, "cosine", excluded=~is_searched)
        columns[keys < 0.1] = -1
        options = {} if exclude is None else {"exclude": sp.csr_array(exclude)}
        result = index.search(queries, 6, allowed=sp.csr_array(listed), min_score=0.1, **options)
        np.testing.assert_array_equal(result.indices, columns)
        # The scores are bit-identical to those of a search of all items.
        everything = index.search(queries, 900)
        places = (everything.indices[:, None] == result.indices[..., None]) & (columns >= 0)[
            ..., None
        ]
        assert (everything.scores[:, None] == result.scores[..., None])[places].all()


@pytest.mark.parametrize(
    "measure", ["dot", "neg_euclidean", "csls", pytest.param("recos", marks=pytest.mark.slow)]
)
def test_lists_of_allowed_items_work_with_all_measures(queries, measure, tmp_path):
    rows, random = gaussian(300), np.random.default_rng(0)
    listed = sp.csr_array(random.random((60, 300)) < 0.1)
    result = top_k(queries, rows, 4, measure=measure, allowed=listed)
    for query in range(0, 60, 20):
        allowed = listed[[query]].indices
        expected = top_k(queries[query : query + 1], rows, 4, measure=measure, allowed=allowed)
        np.testing.assert_array_equal(result.indices[query], expected.indices[0])
        assert_same_bits(result.scores[query], expected.scores[0])


def test_lists_of_allowed_items_read_mapped_rows(queries, tmp_path):
    rows = gaussian(300)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    listed = sp.csr_array(np.random.default_rng(0).random((60, 300)) < 0.1)
    result, expected = (top_k(queries, items, 4, allowed=listed) for items in (mapped, rows))
    assert_same_bits(result.scores, expected.scores)
    np.testing.assert_array_equal(result.indices, expected.indices)


WRONG = {
    "repeated": (lambda i: i.add(gaussian(2), [7, 7]), "^ids must be distinct, got 7 more than"),
    "known": (lambda i: i.add(gaussian(2), [700, 3]), r"^ids must be new to the index .*, got 3$"),
    "unknown": (lambda i: i.remove([3, 700]), "^ids must be in the index, got 700$"),
    "removed": (lambda i: i.remove([9]), "^ids must be in the index, got 9$"),
    "removed twice": (lambda i: i.remove([3, 3]), "^ids must be distinct, got 3 more than once"),
    "no id": (lambda i: i.add(gaussian(1), [-1]), "^ids must not hold -1, because -1 marks"),
    "strings": (lambda i: i.add(gaussian(1), ["a"]), "^ids must be whole numbers, like .* 'a'"),
    "floats": (lambda i: i.remove([1.5]), "^ids must hold whole numbers or strings, .* got 1.5"),
    "flags": (lambda i: i.remove([True]), "^ids must hold whole numbers .* got True"),
    "too large": (lambda i: i.remove([2**63]), "^ids must fit int64, got 9223"),
    "too few": (lambda i: i.add(gaussian(2), [700]), r"^ids must be of shape \(2,\), got shape"),
    "a number": (lambda i: i.remove(3), r"^ids must be 1-dimensional, got shape \(\)"),
    "width": (lambda i: i.add(gaussian(2, 3), [700, 701]), "^items must have as many columns as"),
    "NaN": (lambda i: i.upsert(gaussian(1) * np.nan, [700]), "^items must be finite, got NaN"),
    "no ids": (lambda i: i.upsert(gaussian(1), None), "^ids must be given to replace items"),
    "k": (lambda i: i.search(gaussian(1), 0), "^k must be a whole number from 1 to 65536, got 0"),
    "mask": (lambda i: i.search(gaussian(1), allowed=[True]), r"^allowed must be of shape \(100,"),
    "lists": (
        lambda i: i.search(gaussian(1), allowed=sp.csr_array((2, 100))),
        r"^allowed must be of shape \(1, 100\), got \(2, 100\)",
    ),
    "query width": (lambda i: i.search(gaussian(0, 3)), "^queries must have as many columns as"),
    "positions": (lambda i: i.ids_of(["a"]), "^positions must hold real numbers, got dtype <U1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_calls_are_refused_and_change_nothing(case):
    call, message = WRONG[case]
    index = SimilarityIndex().fit(gaussian(100))
    index.remove([9])
    before = index.search(gaussian(5, seed=1), 100)
    with pytest.raises((ValueError, TypeError), match=message):
        call(index)
    for now, then in zip(index.search(gaussian(5, seed=1), 100), before, strict=True):
        assert_same_bits(now, then)
    assert index.add(gaussian(1)).tolist() == [100]


NAMES = {
    "a NUL": (["a\0"], "^ids must hold no NUL character, got 'a.x00'"),
    "empty": ([""], "^ids must not hold '', because '' marks a missing item"),
    "a number": (["c", 3], "^ids must hold whole numbers or strings, not both, got 3"),
    "numbers": ([3], "^ids must be strings, like the ids of the index, got 3"),
    "none": (None, "^ids must be strings, like the ids of the index, got None"),
    "longer": (["a" * 99], None),
}


@pytest.mark.parametrize("case", NAMES)
def test_ids_that_are_no_names_are_refused(case):
    ids, message = NAMES[case]
    index = SimilarityIndex().fit(gaussian(2), ["a", "b"])
    if message is None:
        index.add(gaussian(1), ids)
        assert index.positions_of(ids).tolist() == [2]
        return
    with pytest.raises((ValueError, TypeError), match=message):
        index.add(gaussian(1 if ids is None else len(ids)), ids)
    assert index.n_items_ == 2


def test_added_rows_are_copied(queries):
    index, rows = SimilarityIndex().fit(gaussian(100)), gaussian(5, seed=9)
    index.add(rows)
    expected = index.search(queries, 3).scores
    rows[:] = 7.0
    assert_same_bits(index.search(queries, 3).scores, expected)


def test_a_lost_capability_is_said_once_and_changes_nothing():
    class Logged(type(get_measure("cosine"))):
        """A subclass of the cosine that overrides a method without changing the method's result."""

        name = "logged_cosine"

        def encode_items(self, B):
            return super().encode_items(B)

    X = np.random.default_rng(0).standard_normal((60, 8))
    index, plain = SimilarityIndex(Logged()).fit(X), SimilarityIndex().fit(X)
    text = r"packs all items again, because Logged overrides encode_items\."
    with pytest.warns(UserWarning, match=text):
        index.add(3 + X[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plain.add(3 + X[:3])
        index.remove([1])
        plain.remove([1])
        # csls gives no warning, because its documentation says that it learns from the items.
        SimilarityIndex("csls").fit(X).add(X[:1])
    result = index.search(X, 4)
    np.testing.assert_array_equal(result.indices, plain.search(X, 4).indices)
