"""Searches of an index by id, compared with loops over the remaining rows."""

import uuid

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex

N, D = 400, 12


def rows(n=N, seed=0):
    return np.random.default_rng(seed).standard_normal((n, D)).astype(np.float32)


def names(kind, n=N):
    numbers = [7 * one + 3 for one in range(n)]
    return numbers if kind is int else [f"item-{one}" for one in numbers]


def best(vectors, ids, query, k, allowed=None, excluded=()):
    """Return the k best ids by a loop over vectors and ids in the order of positions."""
    scores = {}
    for one, row in zip(ids, vectors.astype(float), strict=True):
        if one not in excluded and (allowed is None or one in allowed):
            q = query.astype(float)
            scores[one] = row @ q / np.sqrt((row @ row) * (q @ q))
    return sorted(scores, key=lambda one: -scores[one])[:k]


def found_ids(result):
    """Return the lists of ids without padding."""
    return [[one for one in row if one not in (-1, "")] for row in result.ids.tolist()]


@pytest.fixture(params=[int, str])
def changed(request):
    """Return a changed index, its rows and its ids.

    Items of the index have been removed, added and replaced.
    """
    ids, vectors = names(request.param), rows()
    index = SimilarityIndex().fit(vectors[:380], ids[:380])
    index.remove(ids[5:25])
    index.add(vectors[380:], ids[380:])
    vectors[50] = rows(1, seed=9)[0]
    index.upsert(vectors[50:51], ids[50:51])
    left = [place for place in range(N) if not 5 <= place < 25]
    return index, vectors[left], [ids[place] for place in left]


def test_search_excludes_and_allows_ids(changed):
    index, vectors, ids = changed
    queries = rows(3, seed=1)
    bought = [ids[10:60:3], ids[:1], []]
    for flat in (False, True):
        given = bought[0] if flat else bought
        of = [bought[0]] * 3 if flat else bought
        excluded = index.search(queries, 7, exclude_ids=given)
        allowed = index.search(queries, 7, allowed_ids=given)
        both = index.search(queries, 7, allowed_ids=ids[:30], exclude_ids=given)
        for row in range(3):
            query = queries[row]
            assert found_ids(excluded)[row] == best(vectors, ids, query, 7, excluded=of[row])
            assert found_ids(allowed)[row] == best(vectors, ids, query, 7, of[row])
            truth = best(vectors, ids, query, 7, ids[:30], of[row])
            assert found_ids(both)[row] == truth


def test_many_excluded_ids_are_taken_out_of_lists(changed):
    index, vectors, ids = changed
    queries, gone = rows(3, seed=1), ids[20:120]
    lists = [ids[:60], ids[100:300:2], ids[30:90]]  # The last list has only excluded ids.
    matrix = sp.lil_array((3, index.n_positions_))
    for row, listed in enumerate(lists):
        matrix[row, index.positions_of(listed)] = 1
    by_id = index.search(queries, 7, allowed_ids=lists, exclude_ids=gone)
    by_position = index.search(queries, 7, allowed=matrix.tocsr(), exclude_ids=gone)
    for found in (by_id, by_position):
        assert found.ids.shape == (3, 7)
        for row, listed in enumerate(lists):
            truth = best(vectors, ids, queries[row], 7, listed, gone)
            assert found_ids(found)[row] == truth
    assert found_ids(by_id)[2] == []


@pytest.mark.parametrize("kind", [list, tuple, set, np.array])
def test_filters_take_every_kind_of_list_and_unknown_ids(kind):
    vectors, ids = rows(), names(str)
    index = SimilarityIndex().fit(vectors, ids)
    gone = kind([*ids[:40], "never there"])
    found = found_ids(index.search(vectors[0], 5, exclude_ids=gone))
    assert found == [best(vectors, ids, vectors[0], 5, excluded=ids[:40])]
    assert found_ids(index.search(vectors[0], 5, allowed_ids=["never there"])) == [[]]
    assert found_ids(index.search(vectors[0], 5, exclude_ids=[])) == [
        best(vectors, ids, vectors[0], 5)
    ]


def test_similar_leaves_out_the_item_itself(changed):
    index, vectors, ids = changed
    for wanted in (ids[60], ids[40:50], [ids[3], ids[3]]):
        found = index.similar(wanted, 6)
        listed = wanted if isinstance(wanted, list) else [wanted]
        assert found.scores.shape == (len(listed), 6)
        truth = [best(vectors, ids, vectors[ids.index(x)], 6, excluded=[x]) for x in listed]
        assert found_ids(found) == truth
    more = found_ids(index.similar(ids[60], 4, exclude_ids=truth[0], allowed_ids=ids[:300]))
    query = vectors[ids.index(ids[60])]
    assert more == [best(vectors, ids, query, 4, ids[:300], [*truth[0], ids[60]])]
    assert found_ids(index.similar(ids[60], 3, min_score=1.0)) == [[]]
    with pytest.raises(ValueError, match="min_score must be at most 1 for cosine, got 80"):
        index.similar(ids[60], 3, min_score=80)


def test_similar_by_dot_where_an_item_is_not_its_own_neighbour():
    vectors, ids = rows() * np.linspace(0.01, 3, N)[:, None].astype(np.float32), names(int)
    index = SimilarityIndex("dot").fit(vectors, ids)
    scores = vectors.astype(float) @ vectors.T.astype(float)
    np.fill_diagonal(scores, -np.inf)
    truth = [[ids[one] for one in np.argsort(-row)[:5]] for row in scores]
    assert index.similar(ids, 5).ids.tolist() == truth


def test_index_knows_its_ids_and_vectors(changed):
    index, vectors, ids = changed
    assert len(index) == len(ids) == index.n_items_
    assert index.ids.tolist() == ids
    np.testing.assert_array_equal(index.vectors_of(ids[::-1]), vectors[::-1])
    assert ids[7] in index
    gone = names(int)[6] if isinstance(ids[0], int) else names(str)[6]
    for absent in (gone, "none", 10**6, None, 1.5):
        assert absent not in index
    for call in (index.vectors_of, index.similar):
        with pytest.raises(ValueError, match=r"^ids must be in the index, got "):
            call([ids[0], gone])
    assert len(SimilarityIndex()) == 0


@pytest.mark.parametrize(
    ("given", "match"),
    [
        (
            {"exclude": [318, 296]},
            r"exclude must be .*\(pass ids as exclude_ids\), got \[318",
        ),
        ({"allowed": ["item-3"]}, r"allowed must be positions \(pass ids as allowed_ids\)"),
        ({"exclude_ids": [3, 10]}, "exclude_ids must be strings, like the ids of the index, got 3"),
        ({"allowed_ids": [["item-3"], []]}, "allowed_ids must have a list for each of 1 queries"),
        ({"allowed": [0], "allowed_ids": ["item-3"]}, "allowed must be None with allowed_ids"),
    ],
)
def test_wrong_filters_are_refused(given, match):
    index = SimilarityIndex().fit(rows(), names(str))
    with pytest.raises((TypeError, ValueError), match=match):
        index.search(rows(1), 3, **given)


def test_matrix_of_yesterday_excludes_what_it_did_then():
    vectors, ids = rows(), names(int)
    index = SimilarityIndex().fit(vectors[:300], ids[:300])
    bought = sp.random_array((4, 300), density=0.3, rng=1, format="csr")
    for day in range(30):  # every day, one item leaves and another one is added
        index.remove(ids[day : day + 1])
        index.add(rows(1, seed=100 + day), [100_000 + day])
    found = index.search(vectors[:4], 10, exclude=bought).indices
    for row in range(4):
        seen = set(bought[[row]].indices.tolist())
        assert not seen & set(found[row].tolist())
    assert (found >= 300).any()


def test_add_without_ids_never_invents_them():
    index = SimilarityIndex().fit(rows(20), names(int, 20))
    with pytest.raises(TypeError, match=r"^ids must be passed, got None: the items"):
        index.add(rows(2))
    assert len(index) == 20
    # Only the last of these ids equals the position of its item.
    with pytest.raises(TypeError, match=r"^ids must be passed, .* such as 7$"):
        SimilarityIndex().fit(rows(3), [7, 8, 2]).add(rows(1))
    counted = SimilarityIndex().fit(rows(20))
    assert counted.add(rows(2)).tolist() == [20, 21]
    counted.remove([3, 21])
    assert counted.add(rows(1)).tolist() == [22]


def test_ids_of_another_kind_are_refused_with_what_to_write():
    ids = [uuid.UUID(int=number) for number in range(2)]
    with pytest.raises(TypeError, match=r"whole numbers or strings, such as str\(id\) for each id"):
        SimilarityIndex().fit(np.eye(2), ids=ids)
    index = SimilarityIndex().fit(np.eye(2), ids=list(map(str, ids)))
    assert index.search(np.eye(2), 1).ids[:, 0].tolist() == list(map(str, ids))


def test_frames_are_fitted_by_their_columns():
    pandas = pytest.importorskip("pandas")
    columns = {"id": ["a", "b"], "text": ["x", "y"], "embedding": list(np.eye(2))}
    frame = pandas.DataFrame(columns)
    with pytest.raises(TypeError, match=r"got the column of ids 'id'\. .* pass only the column"):
        SimilarityIndex().fit(frame)
    index = SimilarityIndex().fit(frame["embedding"], ids=frame["id"])
    assert index.search(np.eye(2), 1).ids[:, 0].tolist() == ["a", "b"]
