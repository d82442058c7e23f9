"""The explanation of a search describes the search that would run, and does not touch the rows."""

import numpy as np
import pytest

import fastcos
from fastcos import SimilarityIndex, explain_top_k
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.parallel import readiness
from fastcos.search import cost_model, group_search, plan, scan

ROWS = np.random.default_rng(0).standard_normal((5000, 40)).astype(np.float32)


@pytest.fixture
def plans_run(monkeypatch):
    """Return a list to which each search of a segment adds its plan."""
    plans, usual = [], scan.plan_segment

    def noted(*arguments):
        plans.append(usual(*arguments))
        return plans[-1]

    monkeypatch.setattr(scan, "plan_segment", noted)
    return plans


@pytest.mark.parametrize(
    ("n", "k", "allowed"),
    [(1, 10, None), (100, 10, None), (1, 1100, None), (5, 3, 40), (100, 3, 2000), (100, 3, 400)],
)
def test_the_plan_that_is_explained_is_the_plan_that_runs(plans_run, n, k, allowed):
    index = SimilarityIndex().fit(ROWS)
    positions = None if allowed is None else np.arange(allowed)
    explained = index.explain(n, k, allowed=positions, n_threads=3)
    plans_run.clear()
    # All pairs reach this threshold. A search with a threshold has one more step than a plain
    # search.
    index.search(ROWS[:n], k, allowed=positions, n_threads=3, min_score=-2.0)
    assert explained.plans[0] == plans_run[0]
    assert explained.n_batches == 1


@pytest.mark.parametrize(("n_items", "k"), [(5000, 10), (300, 295)])
def test_the_search_of_candidates_is_planned_as_it_is_explained(plans_run, n_items, k):
    index = SimilarityIndex("mutual_proximity").fit(ROWS[:n_items])
    explained = index.explain(20, k, n_threads=3)
    plans_run.clear()
    index.search(ROWS[:20], k, n_threads=3)
    assert explained.plans[0] == plans_run[0]


def test_parts_of_an_index_are_explained_together():
    index = SimilarityIndex().fit(ROWS)
    index.add(ROWS[:7])
    index.remove([3])
    explained = index.explain(100)
    assert (explained.n_segments, explained.n_items) == (2, 5006)
    assert "2 segments of the items" in str(explained)
    assert explained.buffer_bytes <= explained.working_memory


def test_items_on_disk_are_read_by_every_batch(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    index = SimilarityIndex().fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    explained = index.explain(5000, working_memory=1.0)
    assert explained.n_batches > 1
    assert explained.n_segments > 1
    assert "every batch reads all rows" in str(explained)
    assert explained.buffer_bytes <= 2**20


def test_an_index_of_nothing_and_rows_that_nothing_may_find_are_explained():
    for index, allowed in (
        (SimilarityIndex().fit(np.empty((0, 4))), None),
        (SimilarityIndex().fit(ROWS), np.zeros(5000, np.bool_)),
    ):
        assert "nothing is searched" in str(index.explain(5, allowed=allowed))


def test_duplicates_and_bounded_measures_say_so():
    index = SimilarityIndex().fit(np.repeat(ROWS[:100], 20, axis=0))
    assert index.explain(100).method == "distinct"
    assert "one row of each group of duplicates" in str(index.explain(100))
    assert "and then computes the measure for these candidates" in str(
        SimilarityIndex("mutual_proximity").fit(ROWS).explain(10)
    )


def test_groups_are_explained_by_their_sizes():
    labels = np.repeat(["large", "medium", "small"], [4000, 900, 100])
    index = SimilarityIndex().fit(ROWS, groups=labels)
    asked = np.repeat(["large", "small", "nobody"], [1000, 1, 2])
    explained = index.explain(1003, groups=asked, n_threads=2)
    assert (explained.n_queries, explained.n_items, explained.n_segments) == (1003, 5000, 1)
    text = str(explained)
    assert "1 group is searched by one thread per group, several groups at the same time" in text
    assert "1 group is searched by one call, which scores every query with all items of" in text
    assert [plan.method for plan in explained.plans] == ["packed", "score_all"]
    assert explained.seconds < index.explain(1003, n_threads=2).seconds * 2
    assert "nothing is searched" in str(index.explain(5, groups="nobody"))
    with pytest.raises(ValueError, match="groups must be None for an index without groups"):
        SimilarityIndex().fit(ROWS).explain(5, groups="large")
    only_few = index.explain(1000, groups="large", allowed=np.arange(50), n_threads=2)
    assert only_few.seconds < explained.seconds


def test_groups_are_explained_with_the_queries_of_earlier_searches(monkeypatch):
    rows = np.random.default_rng(1).standard_normal((10_000, 128)).astype(np.float32)
    index = SimilarityIndex().fit(rows, groups=["all"] * 10_000)
    # Queries are packed only if a group is searched by tiles.
    searches_by_tiles, pack_queries = [], group_search.pack_queries

    def recorded(*arguments):
        searches_by_tiles.append(number)
        return pack_queries(*arguments)

    monkeypatch.setattr(group_search, "pack_queries", recorded)
    is_explained_as_tiled = []
    for number in range(1, 11):
        explained = index.explain(1, groups="all")
        text = str(explained)
        is_explained_as_tiled.append("1 group is searched by one thread per group" in text)
        assert (explained.method == "packed") == is_explained_as_tiled[-1]
        assert ("1 group is searched by one call" in text) != is_explained_as_tiled[-1]
        index.search(rows[number], groups="all")
    assert searches_by_tiles == [8, 9, 10]
    assert is_explained_as_tiled == [False] * 7 + [True] * 3


def test_groups_are_explained_by_their_sizes_in_each_segment():
    labels = np.where(np.arange(5000) < 50, "rare", "usual")
    index = SimilarityIndex().fit(ROWS, groups=labels)
    index.add(ROWS, groups=labels)
    explained = index.explain(5000, 5, groups="rare")
    assert explained.n_segments == 2
    # The group has 100 items, but only 50 in each segment: too few to be searched by tiles.
    assert "1 group is searched by one call" in str(explained)
    assert {plan.method for plan in explained.plans} == {"score_all"}


SEGMENTS_ONLY = {"min_entries_of_segment": 1}
TILES_ONLY = {
    "min_entries_of_segment": 2**40, "min_work_of_panels": 0, "min_items_in_panels": 1,
    "scores_per_packed_row": 0,
}  # fmt: skip


def test_a_group_is_explained_after_a_search_that_looked_up_no_duplicates():
    index = SimilarityIndex().fit(ROWS, groups=["big"] * 5000)
    with cost_model.costs_replaced(**SEGMENTS_ONLY):
        before = index.explain(100, groups="big")
        index.search(ROWS[:1], groups="big")
        explained = index.explain(100, groups="big")
    assert explained.plans == before.plans
    assert explained.seconds == before.seconds


def test_groups_are_explained_as_searches_in_numpy_until_kernels_are_compiled(
    monkeypatch, plans_run
):
    monkeypatch.setattr(readiness, "use_numpy", lambda: True)
    index = SimilarityIndex().fit(ROWS, groups=["big"] * 5000)
    explained = index.explain(100, groups="big", n_threads=2)
    index.search(ROWS[:100], groups="big", n_threads=2)
    assert explained.method == "numpy"
    assert explained.plans == tuple(plans_run)


@pytest.mark.parametrize("k", [5, 100])
@pytest.mark.parametrize(("measure", "n_segments"), [("cosine", 2), ("mutual_proximity", 1)])
def test_a_group_searched_as_a_segment_is_planned_as_it_is_explained(
    plans_run, measure, n_segments, k
):
    index = SimilarityIndex(measure).fit(ROWS, groups=["all"] * 5000)
    index.add(ROWS[:60] + 1, groups=["all"] * 60)
    plans_run.clear()
    with cost_model.costs_replaced(**SEGMENTS_ONLY):
        explained = index.explain(20, k, groups="all", n_threads=3)
        index.search(ROWS[:20], k, groups="all", n_threads=3)
    assert explained.n_segments == n_segments
    assert explained.plans == tuple(dict.fromkeys(plans_run))


def test_groups_are_searched_by_tiles_as_it_is_explained(monkeypatch):
    index = SimilarityIndex().fit(ROWS, groups=np.repeat(["large", "small"], [4000, 1000]))
    asked = np.repeat(["large", "small"], [600, 700])
    made, plan_group_panels = [], plan.plan_group_panels

    def recorded(*arguments):
        made.append(plan_group_panels(*arguments))
        return made[-1]

    with cost_model.costs_replaced(**TILES_ONLY):
        explained = index.explain(1300, groups=asked, n_threads=3)
        monkeypatch.setattr(plan, "plan_group_panels", recorded)
        index.search(ROWS[:1300], groups=asked, n_threads=3)
    assert explained.plans == tuple(made)


def test_threads_without_a_task_do_not_shorten_the_estimate_of_groups():
    index = SimilarityIndex().fit(ROWS, groups=np.repeat(["one", "other"], 2500))
    with cost_model.costs_replaced(**TILES_ONLY):
        # The 50 queries of one group are a single task.
        seconds = [index.explain(50, groups="one", n_threads=n).seconds for n in (1, 8)]
        assert seconds[0] == seconds[1]
        both = np.repeat(["one", "other"], 250)
        seconds = [index.explain(500, groups=both, n_threads=n).seconds for n in (1, 2, 8)]
    assert seconds[0] > seconds[1] == seconds[2]


def test_groups_of_an_index_are_not_encoded_again():
    """The estimate for one small group does not depend on the number of other rows."""
    estimates = []
    for rows in (ROWS, ROWS[:1000]):
        index = SimilarityIndex().fit(rows, groups=np.repeat([0, 1], [200, len(rows) - 200]))
        with cost_model.costs_replaced(**SEGMENTS_ONLY):
            estimates.append(index.explain(100, groups=0).estimate)
    assert estimates[0] == estimates[1]


def test_rows_are_not_packed_and_nothing_is_searched_for_sizes_alone():
    explained = explain_top_k(1000, 10**9, 1024, n_threads=128, isa="amx", working_memory=1e6)
    text = str(explained)
    assert text.startswith("1,000 queries x 1,000,000,000 items x 1,024 columns, k = 10, 128 thr")
    assert [line.split()[0] for line in text.splitlines()[1:6]] == [
        "method", "schedule", "estimated", "memory", "code",
    ]  # fmt: skip
    assert repr(explained) == text


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_estimates_grow_with_the_sizes_and_fall_with_threads(isa):
    def seconds(n=1000, m=100_000, d=128, k=10, threads=1):
        sizes = {"is_packed": True, "n_threads": threads, "working_memory": 1024, "isa": isa}
        return explain_top_k(n, m, d, k=k, **sizes).seconds

    assert seconds() < seconds(n=4000) < seconds(n=4000, m=400_000)
    assert seconds() < seconds(d=512)
    assert seconds() < seconds(k=200)
    assert seconds() > seconds(threads=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_queries": 0}, "n_queries must be a whole number"),
        ({"n_items": 0}, "n_items must be a whole number"),
        ({"n_columns": 1.5}, "n_columns must be a whole number"),
        ({"k": 101}, "k must be a whole number from 1 to 100, got 101"),
        ({"isa": "sse"}, "isa must be one of amx, vnni"),
        ({"n_threads": 0}, "n_threads must be a whole number"),
        ({"working_memory": 0}, "working_memory must be"),
        (
            {"dtype": "float33"},
            "dtype must be a type of numbers such as \"float32\", got 'float33'",
        ),
        ({"dtype": "U3"}, "dtype must be a type of numbers such as \"float32\", got 'U3'"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    arguments = {"n_queries": 1, "n_items": 100, "n_columns": 4} | changes
    with pytest.raises((ValueError, TypeError), match=message):
        explain_top_k(**arguments)


def test_wrong_arguments_of_an_index_are_refused():
    with pytest.raises(ValueError, match="must be fitted before it is used"):
        SimilarityIndex().explain(1)
    index = SimilarityIndex().fit(ROWS)
    with pytest.raises(ValueError, match="n_queries must be a whole number"):
        index.explain(0)
    with pytest.raises(ValueError, match="working_memory must be at least"):
        index.explain(100, working_memory=0.001)


def test_the_working_memory_of_few_queries_is_kept():
    """A search for very many neighbours is refused in the same way for 64 and for 65 queries."""
    rows = np.random.default_rng(1).random((100_000, 16), np.float32)
    index = fastcos.SimilarityIndex().fit(rows)
    for n in (64, 65):
        with pytest.raises(ValueError, match="working_memory must be at least"):
            index.search(rows[:n], 10_000, working_memory=1)
    assert cost_model.COSTS.max_unchecked_bytes <= 2**22
    with_little, usual = (
        index.search(rows[:64], 500, working_memory=memory) for memory in (4, None)
    )
    np.testing.assert_array_equal(with_little.indices, usual.indices)


@pytest.mark.parametrize(("n_queries", "k"), [(1, 10), (1, 50), (3, 90), (70, 50)])
@pytest.mark.parametrize("n_allowed", [100, 400, 999, 1000])
def test_a_search_with_a_mask_is_planned_as_it_is_explained(monkeypatch, n_allowed, n_queries, k):
    rows = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32)
    index = SimilarityIndex().fit(rows)
    allowed = np.arange(1000) < n_allowed
    explained = index.explain(n_queries, k, allowed=allowed)
    made, plan_search = [], scan.plan_search

    def recorded(segment, *arguments):
        plan = plan_search(segment, *arguments)
        # A search may pack only the allowed rows, for this search alone, and then plan the search
        # of these packed rows. The following condition leaves out plans for such packed rows.
        if segment.n_live == 1000 and plan.needs is None:
            made.append(plan)
        return plan

    monkeypatch.setattr(scan, "plan_search", recorded)
    index.search(rows[:n_queries], k, allowed=allowed)
    # A search that cannot be prepared is planned a second time.
    assert 1 <= len(made) <= 2
    assert explained.plans == tuple(dict.fromkeys(made))
