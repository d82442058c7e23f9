"""A search within groups returns the same lists as a separate search of each query's group."""

import functools
import gc

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex, top_k
from fastcos.search import cost_model
from fastcos.search.segments import Segment
from tests.oracles import dense as dense_oracle

RANDOM = np.random.default_rng(9)
N, DEPTH, K = 1300, 24, 7
ROWS = RANDOM.standard_normal((N, DEPTH)).astype(np.float32)
ROWS[1100:] = ROWS[:200]  # Equal scores are ordered by position.
# There is a large group, several groups of a few items, and one of a single item.
SHARES = np.array([450, 250, 150, 100, 50, 25, 10, 6, 3, 3.0])
GROUP_OF = RANDOM.choice(10, N, p=SHARES / SHARES.sum())
GROUP_OF[N // 2] = 10
LABELS = np.array(["web", "shop", "ä", "d", "e", "f", "g", "h", "i", "j", "alone"])
TENANTS = LABELS[GROUP_OF]
NAMES = [f"item {number}" for number in RANDOM.permutation(N)]
QUERIES = RANDOM.standard_normal((60, DEPTH)).astype(np.float32)
ASKED = RANDOM.integers(0, 12, 60)  # number 11 is a group without items
ASKED_LABELS = np.append(LABELS, "nobody")[ASKED]


WAYS = {"segments": (1, 2**40), "panels": (2**40, 0), "pairs": (2**40, 2**40)}


@pytest.fixture(
    params=[
        pytest.param(settings, marks=[pytest.mark.slow] * (way != "segments"))
        for way, settings in WAYS.items()
    ],
    ids=WAYS, autouse=True,
)  # fmt: skip
def way_to_search(request):
    """Force one of the three ways to search a group.

    The size of the group and the number of its queries do not affect the choice. By default, one
    test searches in all three ways.
    """
    min_entries_of_segment, min_work_of_panels = request.param
    with cost_model.costs_replaced(
        min_entries_of_segment=min_entries_of_segment, min_work_of_panels=min_work_of_panels,
        min_items_in_panels=1, scores_per_packed_row=0, max_neighbor_share=1.0,
    ):  # fmt: skip
        yield


def truth(queries, items, k, measure, asked, groups, *, without=None, exclude_self=False):
    excluded = asked[:, None] != groups
    if without is not None:
        excluded |= without
    return dense_oracle.top_k(
        queries, items, k, measure, excluded=excluded, exclude_self=exclude_self
    )[0]


FORMS = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}


@functools.cache
def neighbors_of_rows(measure, exclude_self):
    return truth(ROWS, ROWS, K, FORMS[measure], GROUP_OF, GROUP_OF, exclude_self=exclude_self)


@pytest.mark.parametrize("way_to_search", WAYS.values(), ids=WAYS, indirect=True)
@pytest.mark.parametrize(
    "measure",
    ["cosine", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dot", "neg_euclidean"))],
)
def test_top_k_of_groups_equals_the_oracle(measure):
    of_queries = truth(QUERIES, ROWS, K, FORMS[measure], ASKED, GROUP_OF)
    found = top_k(QUERIES, ROWS, K, measure=measure, groups=TENANTS, query_groups=ASKED_LABELS)
    np.testing.assert_array_equal(found.indices, of_queries)
    assert (found.scores[of_queries < 0] == -np.inf).all()
    assert (found.indices[ASKED == 11] == -1).all()
    joined = top_k(ROWS, k=K, measure=measure, groups=GROUP_OF)
    np.testing.assert_array_equal(joined.indices, neighbors_of_rows(measure, True))
    # One measure is enough, as all measures exclude the row itself by the same code.
    if measure == "cosine":
        itself = top_k(ROWS, k=K, measure=measure, groups=GROUP_OF, exclude_self=False)
        np.testing.assert_array_equal(itself.indices, neighbors_of_rows(measure, False))


def test_scores_within_groups_are_those_of_top_k():
    found = top_k(ROWS, k=K, groups=GROUP_OF)
    for group in (0, 4, 9):
        rows = np.flatnonzero(group == GROUP_OF)
        alone = top_k(ROWS[rows], k=min(K, len(rows) - 1))
        np.testing.assert_array_equal(found.scores[rows][:, : alone.scores.shape[1]], alone.scores)


def test_a_measure_of_pairs_is_searched_within_groups():
    found = top_k(QUERIES, ROWS, 3, measure="norm_angle_distance", groups=GROUP_OF,
                  query_groups=ASKED)  # fmt: skip
    for query in range(0, 60, 7):
        rows = np.flatnonzero(ASKED[query] == GROUP_OF)
        if len(rows) >= 3:
            alone = top_k(QUERIES[query], ROWS[rows], 3, measure="norm_angle_distance")
            np.testing.assert_array_equal(found.indices[query], rows[alone.indices[0]])


def test_filters_within_groups():
    allowed = RANDOM.random(N) < 0.5
    pairs = RANDOM.random((60, N)) < 0.1
    for filters, without in (
        ({"allowed": allowed}, np.tile(~allowed, (60, 1))),
        ({"exclude": sp.csr_array(pairs.astype(float))}, pairs),
        ({"allowed": np.flatnonzero(allowed), "exclude": sp.csr_array(pairs.astype(float))},
         pairs | ~allowed),
    ):  # fmt: skip
        found = top_k(QUERIES, ROWS, K, groups=GROUP_OF, query_groups=ASKED, **filters)
        expected = truth(QUERIES, ROWS, K, "cosine", ASKED, GROUP_OF, without=without)
        np.testing.assert_array_equal(found.indices, expected)
    least = top_k(QUERIES, ROWS, K, groups=GROUP_OF, query_groups=ASKED, min_score=0.5)
    every = top_k(QUERIES, ROWS, K, groups=GROUP_OF, query_groups=ASKED)
    np.testing.assert_array_equal(least.indices, np.where(every.scores < 0.5, -1, every.indices))


@pytest.mark.parametrize("n_threads", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_groups_give_the_same_bits_for_any_threads_and_memory(n_threads):
    found = top_k(ROWS, k=K, groups=GROUP_OF, n_threads=n_threads, working_memory=0.2)
    expected = top_k(ROWS, k=K, groups=GROUP_OF)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)


def test_progress_within_groups_counts_every_query():
    calls = []
    top_k(ROWS, k=K, groups=GROUP_OF, progress=lambda *call: calls.append(call))
    assert calls == sorted(calls)
    assert calls[-1] == (N, N)


def test_wrong_groups_are_refused():
    for arguments, line in (
        ({"groups": GROUP_OF[:5], "query_groups": ASKED}, "groups must be of shape"),
        ({"groups": GROUP_OF, "query_groups": ASKED[:5]}, "query_groups must be of shape"),
        ({"groups": GROUP_OF}, "query_groups must be given with groups and items, got None"),
        ({"query_groups": ASKED}, "query_groups must be None without groups"),
        ({"groups": GROUP_OF - 1, "query_groups": ASKED}, "groups must not hold -1"),
        ({"groups": GROUP_OF, "query_groups": ASKED, "out": "x"}, "groups must be None with out"),
        ({"groups": GROUP_OF, "query_groups": ASKED, "allowed": sp.eye_array(60, N)},
         "allowed must be one mask or one array of positions for all queries"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{line}"):
            top_k(QUERIES, ROWS, K, **arguments)
    with pytest.raises(TypeError, match="query_groups must be whole numbers, because the groups"):
        top_k(QUERIES, ROWS, K, groups=GROUP_OF, query_groups=ASKED_LABELS)
    with pytest.raises(ValueError, match="query_groups must be None without items"):
        top_k(ROWS, k=2, groups=GROUP_OF, query_groups=GROUP_OF)
    sparse = sp.csr_array(np.eye(4))
    with pytest.raises(ValueError, match="groups must be None for sparse rows"):
        top_k(sparse, k=1, groups=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="groups must be None for packed bits"):
        top_k(np.eye(4, dtype=np.uint8), k=1, measure="hamming", groups=[1, 1, 2, 2])


def index_of(labels):
    return SimilarityIndex().fit(ROWS, NAMES, groups=labels)


@pytest.mark.parametrize(
    "labels",
    [TENANTS, *(pytest.param(of, marks=pytest.mark.slow) for of in (GROUP_OF, TENANTS.tolist()))],
)
def test_an_index_is_searched_within_groups(labels):
    index, asked = index_of(labels), np.append(LABELS, "nobody")[ASKED]
    asked = ASKED if isinstance(labels, np.ndarray) and labels.dtype.kind == "i" else asked
    expected = truth(QUERIES, ROWS, K, "cosine", ASKED, GROUP_OF)
    for _ in range(3):  # Later searches use data that the first searches have cached.
        found = index.search(QUERIES, K, groups=asked)
        np.testing.assert_array_equal(found.indices, expected)
    assert found.ids.tolist() == [[NAMES[i] if i >= 0 else "" for i in row] for row in expected]
    for query in range(0, 60, 9):
        for one in (asked[query], [asked[query]]):
            found = index.search(QUERIES[query], K, groups=one)
            np.testing.assert_array_equal(found.indices, expected[[query]])
    # Without groups, all items are searched.
    np.testing.assert_array_equal(
        index.search(QUERIES, K).indices, SimilarityIndex().fit(ROWS).search(QUERIES, K).indices
    )


def test_similar_items_of_a_group_are_those_of_a_search_without_the_item():
    index = index_of(TENANTS)
    positions = RANDOM.choice(N, 40, replace=False)
    found = index.similar([NAMES[i] for i in positions], K, groups=TENANTS[positions])
    expected = neighbors_of_rows("cosine", True)[positions]
    np.testing.assert_array_equal(found.indices, expected)
    # the group of the item itself does not matter
    of_one_group = index.similar(NAMES[3], K, groups="web")
    expected = truth(ROWS[[3]], ROWS, K + 1, "cosine", np.array([0]), GROUP_OF)
    assert of_one_group.indices[0].tolist() == [i for i in expected[0].tolist() if i != 3][:K]
    with pytest.raises(ValueError, match="groups must be of shape"):
        index.similar(NAMES[:3], K, groups=["web"])


def test_groups_follow_the_changes_of_an_index(tmp_path):
    index = SimilarityIndex().fit(ROWS[:750], NAMES[:750], groups=TENANTS[:750])
    groups = TENANTS.astype(object)
    index.search(QUERIES, K, groups=ASKED_LABELS)
    index.add(ROWS[750:1000], NAMES[750:1000], groups=TENANTS[750:1000])
    index.add(ROWS[1000:], NAMES[1000:], groups=TENANTS[1000:])
    gone = RANDOM.choice(N, 150, replace=False)
    moved = np.setdiff1d(RANDOM.choice(N, 100, replace=False), gone)
    index.remove([NAMES[i] for i in gone])
    groups[moved] = "moved here"
    index.upsert(ROWS[moved], [NAMES[i] for i in moved], groups=groups[moved].tolist())
    without = np.zeros((60, N), bool)
    without[:, gone] = True
    asked = ASKED_LABELS.astype(object)
    asked[:20] = "moved here"
    index.save(tmp_path / "index")
    opened = SimilarityIndex.open(tmp_path / "index")
    excluded = (asked[:, None] != groups) | without
    expected = dense_oracle.top_k(QUERIES, ROWS, K, "cosine", excluded=excluded)[0]
    for one in (index, opened):
        found = one.search(QUERIES, K, groups=asked.tolist())
        np.testing.assert_array_equal(found.indices, expected)
    dropped = [NAMES[i] for i in expected[expected >= 0][:30]]
    without[:, expected[expected >= 0][:30]] = True
    excluded = (asked[:, None] != groups) | without
    expected = dense_oracle.top_k(QUERIES, ROWS, K, "cosine", excluded=excluded)[0]
    found = opened.search(QUERIES, K, groups=asked.tolist(), exclude_ids=dropped)
    np.testing.assert_array_equal(found.indices, expected)


def test_another_process_takes_up_groups(tmp_path):
    index = index_of(TENANTS)
    index.save(tmp_path / "index")
    other = SimilarityIndex.open(tmp_path / "index")
    index.add(ROWS[:2], ["new 1", "new 2"], groups=["fresh", "web"])
    index.save(tmp_path / "index")
    assert other.refresh()
    assert other.search(ROWS[0], 1, groups="fresh").ids.tolist() == [["new 1"]]


def test_wrong_groups_of_an_index_are_refused():
    index, plain = index_of(TENANTS), SimilarityIndex().fit(ROWS, NAMES)
    for call, line in (
        (lambda: plain.search(QUERIES, K, groups=ASKED_LABELS), "groups must be None for an index"),
        (lambda: plain.add(ROWS[:1], ["x"], groups=["web"]), "groups must be None for an index"),
        (lambda: index.add(ROWS[:1], ["x"]), "groups must be given for an index with groups"),
        (lambda: index.upsert(ROWS[:1], NAMES[:1]), "groups must be given for an index with gro"),
        (lambda: index.add(ROWS[:2], ["x", "y"], groups=["web"]), "groups must be of shape"),
        (lambda: index.add(ROWS[:1], ["x"], groups=[""]), "groups must not hold ''"),
        (lambda: index.search(QUERIES, K, groups=["web"]), "groups must be of shape"),
        (lambda: index.search(QUERIES, K, groups="web", allowed_ids=[NAMES[:9]] * 60),
         "allowed must be one mask or one array of positions for all queries"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"^{line}"):
            call()
    for call in (
        lambda: index.add(ROWS[:1], ["x"], groups=[5]),
        lambda: index.search(QUERIES, K, groups=5),
    ):
        with pytest.raises(TypeError, match=r"groups must be strings, because the groups .* got 5"):
            call()
    assert "x" not in index
    np.testing.assert_array_equal(
        index.search(QUERIES, K, groups=ASKED_LABELS).indices,
        truth(QUERIES, ROWS, K, "cosine", ASKED, GROUP_OF),
    )


def test_an_empty_index_with_groups():
    index = SimilarityIndex().fit(np.empty((0, DEPTH)), groups=[])
    assert index.search(QUERIES[0], 2, groups="web").indices.tolist() == [[-1, -1]]
    index.add(ROWS[:3], groups=["web", "shop", "web"])
    assert sorted(index.search(QUERIES[0], 3, groups="web").indices[0].tolist()) == [-1, 0, 2]


def test_an_index_that_changes_forgets_what_it_kept_of_groups():
    index = index_of(TENANTS)
    # After this call, the garbage collections below only visit objects of this test. With the
    # objects of all earlier tests, twelve collections would take 5 s.
    gc.freeze()
    counts = []
    for number in range(6):
        index.search(QUERIES, K, groups=ASKED_LABELS)
        index.remove([NAMES[number]])
        gc.collect()
        # isinstance would ask proxies of other libraries for their class, and some of these proxies
        # raise errors.
        counts.append(sum(type(one) is Segment for one in gc.get_objects()))
    assert counts[-1] == counts[0]
