"""Searches with prefixes (kernels.projection) find the true neighbours, whatever the axes are."""

import dataclasses
import functools
import threading

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import set_config
from fastcos.kernels import cpu, tiles
from fastcos.search import (
    cost_model,
    index_parts,
    layout,
    packing,
    plan,
    projection,
    scan,
    segments,
    task_grid,
)
from fastcos.search.options import ExecutionOptions
from fastcos.similarity import encoded_rows
from tests.oracles import dense
from tests.oracles.dense_families import dominated, near_ties, off_centre

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)

NAMES = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}
BEST = cpu.supported_isas()[0]
# avxvnni and vnni use the same tiles, but the registers of avxvnni are half as wide. The tiles of
# avxvnni are tested in tests/kernels.
ISAS = [
    pytest.param(
        isa, marks=[pytest.mark.long if isa == "avxvnni" else pytest.mark.slow] * (isa != BEST)
    )
    for isa in cpu.supported_isas()
    if layout.tile_layout(isa, 64).quantised
]


def embeddings(n, depth, seed=0):
    """Return rows with a descending spectrum along random axes, and with a common mean."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(np.random.default_rng(7).standard_normal((depth, depth)))[0]
    rows = rng.standard_normal((n, depth)) / np.arange(1, depth + 1) ** 0.8 + 0.05
    return (rows @ axes).astype(np.float32)


def close_rows(n, depth, seed=0):
    """Return rows around a few centres.

    Rows near the same centre differ by less than one quantisation step of the codes.
    """
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(8).standard_normal((8, depth))
    rows = centres[rng.integers(0, 8, n)] + 1e-2 * rng.standard_normal((n, depth))
    return rows.astype(np.float32)


def independent_columns(n, depth, seed=0):
    return np.random.default_rng(seed).standard_normal((n, depth)).astype(np.float32)


def least_axes(sample, p):
    """Return the axes along which the rows are shortest; they let almost no item be dropped."""
    return np.linalg.eigh(sample.T @ sample)[1][:, :p]


def random_axes(sample, p):
    return np.linalg.qr(np.random.default_rng(1).standard_normal((sample.shape[1], p)))[0]


def skewed_axes(sample, p):
    """Return axes that are not orthonormal."""
    V = np.linalg.eigh(sample.T @ sample)[1][:, ::-1][:, :p].copy()
    V[:, 1] -= 0.2 * V[:, 0]
    V[:, 2:] *= 1.01
    return V


# The tests with this mark are slow, because they alone compile search_few_by_projection.
searches_few_queries = pytest.mark.slow
AXES = [projection.principal_axes, least_axes, random_axes, skewed_axes]


def set_costs(monkeypatch, **costs):
    """Replace some costs of the planner until the end of the test."""
    monkeypatch.setattr(cost_model, "COSTS", dataclasses.replace(cost_model.COSTS, **costs))


@pytest.fixture
def _forced(monkeypatch):
    set_costs(monkeypatch, projected_columns=40)


def fitted(X, measure="cosine"):
    """Fit an index; return it when the prefixes of its items have been computed."""
    return settled(fastcos.SimilarityIndex(measure).fit(X))


def settled(index):
    for part in index._state.parts:
        part.segment.pack()
        part.segment.wait_for_projection()
        assert all(packed.arrays.projection.words > 0 for packed in part.segment.packed_forms)
    return index


@functools.cache
def rows_queries_and_neighbors(rows, measure):
    """Return 1,500 rows, 76 queries (5 are rows, one is zero), and 100 neighbors per query."""
    X = rows(1500, 100)
    Q = np.concatenate([rows(70, 100, 1), X[:5], np.zeros((1, 100), np.float32)])
    return X, Q, dense.top_k(Q, X, 100, NAMES[measure])[0]


# The CPU executes the same instructions for all kinds of rows and axes. All these kinds are
# therefore tested only with the best instruction set of this CPU. For every other instruction set,
# one kind of rows and two kinds of axes are enough.
@searches_few_queries
@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("measure", NAMES)
@pytest.mark.parametrize(
    ("rows", "axes", "isa"),
    [
        pytest.param(
            rows, axes, *isa.values, marks=isa.marks,
            id=f"{rows.__name__}-{axes.__name__}-{isa.values[0]}",
        )
        for rows in (embeddings, close_rows, independent_columns)
        for axes in AXES
        for isa in ISAS
        if not isa.marks or (rows is embeddings and axes in (AXES[0], skewed_axes))
    ],
)  # fmt: skip
def test_prefixes_find_the_same_neighbors(rows, axes, measure, isa, monkeypatch):
    set_config(isa=isa)
    monkeypatch.setattr(projection, "principal_axes", axes)
    monkeypatch.setattr(projection, "rotated", lambda V: V)
    X, Q, truth = rows_queries_and_neighbors(rows, measure)
    index = fitted(X, measure)
    for n, k in ((len(Q), 10), (len(Q), 100), (30, 3), (3, 10), (1, 1)):
        np.testing.assert_array_equal(index.search(Q[:n], k=k).indices, truth[:n, :k])
    np.testing.assert_array_equal(index.search(Q[7], k=1).indices, truth[7:8, :1])


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("first", [embeddings, independent_columns], ids=lambda rows: rows.__name__)
def test_queries_of_two_kinds_share_a_block(first, isa):
    # The first 32 queries of a block decide whether prefixes are used for all queries of the block.
    set_config(isa=isa)
    X = embeddings(1500, 100)
    other = independent_columns if first is embeddings else embeddings
    Q = np.concatenate([first(64, 100, 1), other(64, 100, 2)])
    truth, _ = dense.top_k(Q, X, 100, "cosine")
    for k in (10, 100):
        found = fitted(X).search(Q, k=k, n_threads=1)
        np.testing.assert_array_equal(found.indices, truth[:, :k])


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("metric", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize("depth", [15, 1, 126])
@pytest.mark.parametrize("family", [dominated, near_ties, off_centre], ids=lambda f: f.__name__)
def test_thresholds_by_codes_are_below_rounded_scores(family, depth, metric):
    """Searches are exact even if scores differ by less than a rounding error.

    The rounding error may be that of a distance or that of a shift.
    """
    for n in (256, 800):
        X = family(n, depth)[np.random.default_rng(n).permutation(n)].astype(np.float64)
        items = encoded_rows.encode_rows(X, None, 1, metric)
        segment = segments.Segment(metric, items, np.arange(n), 1)
        segment.duplicates = None
        segment.packed = projection.add_projection(segment.packed, items, 1)
        truth, _ = dense.top_k(X, X, 5, metric, exclude_self=True)
        for k in (1, 5):
            options = ExecutionOptions(2, 2.0**30)
            columns, _ = scan.nearest(items, segment, k, options, exclude_self=True)
            np.testing.assert_array_equal(columns, truth[:, :k])


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
def test_rests_bound_what_is_left():
    """The bounds on the remainders of rows are valid and narrow.

    If a bound were too wide, the results would still be correct, but searches would take longer.
    """
    X = embeddings(20_000, 128)
    packed = fitted(X)._state.parts[0].segment.packed
    prefix, order = packed.arrays.projection, packed.arrays.row_of_slot
    rests = np.empty(len(order))
    rests[order] = prefix.remainder_norms[: len(order)]
    axes = prefix.axes.swapaxes(0, 1).reshape(128, -1).astype(np.float64)
    rows = X / np.linalg.norm(X.astype(np.float64), axis=1, keepdims=True)
    shift = packed.arrays.shift
    rows -= (rows @ shift)[:, np.newaxis] * shift
    left = np.linalg.norm(rows - rows @ axes @ axes.T, axis=1)
    assert (rests >= left).all()
    assert (rests <= left + 0.03).all()


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize(
    "dtype",
    ["float64", *(pytest.param(rare, marks=[pytest.mark.slow]) for rare in ("float16", "int8"))],
)
def test_prefixes_of_other_types(dtype):
    X, Q = embeddings(900, 64), embeddings(40, 64, 1)
    if dtype == "int8":
        X, Q = np.clip(40 * X, -127, 127), np.clip(40 * Q, -127, 127)
    X = X.astype(dtype)
    index = fitted(X)
    wide = X.astype(np.float64)
    truth, _ = dense.top_k(Q.astype(np.float64), wide, 10, "cosine", exclude_self=False)
    np.testing.assert_array_equal(index.search(Q.astype(np.float64), k=10).indices, truth)


@searches_few_queries
@pytest.mark.usefixtures("_forced")
def test_filters_removals_additions_and_thresholds():
    X, Q = embeddings(3000, 80), embeddings(90, 80, 1)
    index = fitted(X)
    items = np.concatenate([X, embeddings(500, 80, 2)])
    alive = np.arange(3500) < 3000

    def check():
        scores = dense.keys(Q, items, "cosine")
        scores[:, ~alive] = -np.inf
        order = np.argsort(-scores, axis=1, kind="stable")
        np.testing.assert_array_equal(index.search(Q, k=7).ids, order[:, :7])
        np.testing.assert_array_equal(index.search(Q[:2], k=7).ids, order[:2, :7])
        found = index.radius(Q, 0.7)
        for query in range(len(Q)):
            expected = order[query, : (scores[query] >= 0.7).sum()]
            columns = found.indices[found.indptr[query] : found.indptr[query + 1]]
            np.testing.assert_array_equal(columns, np.sort(expected))

    check()
    index.remove(np.arange(300))
    alive[:300] = False
    check()
    index.add(items[3000:])
    alive[3000:] = True
    check()
    exclude = sp.csr_array((np.ones(90), (np.arange(90), np.arange(400, 490))), shape=(90, 3500))
    scores = dense.keys(Q, items, "cosine")
    scores[:, ~alive] = -np.inf
    scores[np.arange(90), np.arange(400, 490)] = -np.inf
    found = index.search(Q, k=7, exclude=exclude).ids
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :7])


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("measure", NAMES)
@pytest.mark.parametrize("rows", [embeddings, independent_columns], ids=lambda rows: rows.__name__)
def test_few_queries_find_all_items_above_a_score(rows, measure, isa):
    # If the queries are similar to the items, prefixes rule out most items, and the search skips
    # the full codes of these items. If the queries are not similar to the items, the search stops
    # using prefixes.
    set_config(isa=isa)
    X, Q = embeddings(3100, 100), rows(6, 100, 1)
    truth = dense.keys(Q, X, NAMES[measure])
    if measure == "neg_euclidean":
        truth = -np.sqrt(-truth)
    truth, index = truth.astype(np.float32), fitted(X, measure)
    for n in (1, 4, 6):
        for share in (0.001, 0.1, 0.99):
            threshold = np.quantile(truth[:n], 1 - share)
            found = index.radius(Q[:n], float(threshold))
            numbers, columns = np.nonzero(truth[:n] >= np.float32(threshold))
            np.testing.assert_array_equal(np.repeat(np.arange(n), np.diff(found.indptr)), numbers)
            np.testing.assert_array_equal(found.indices, columns)


@searches_few_queries
@pytest.mark.usefixtures("_forced")
def test_an_index_with_prefixes_is_saved_and_opened(tmp_path):
    X, Q = embeddings(2000, 96), embeddings(80, 96, 1)
    index = fitted(X)
    index.save(tmp_path / "index")
    opened = fastcos.SimilarityIndex.open(tmp_path / "index")
    assert opened._state.parts[0].segment.packed.arrays.projection.words > 0
    for queries in (Q, Q[:2]):
        np.testing.assert_array_equal(
            opened.search(queries, k=9).indices, index.search(queries, k=9).indices
        )
    assert opened.memory_.codes == index.memory_.codes
    if cpu.supported_isas()[0] != "amx":
        # The codes are stored either in the order of the items or in groups. The header must say
        # that these codes are in the order of the items. Otherwise, the codes would be read as if
        # they were stored in groups.
        assert '"by item"' in (tmp_path / "index" / "header.json").read_text()


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
def test_prefixes_are_made_once(tmp_path, monkeypatch):
    """Prefixes are computed only once, even if several searches need them.

    The test searches an index that was opened from files, and an index from which an item was
    removed.
    """
    set_costs(monkeypatch, min_work_to_project=1)
    X, Q = embeddings(2000, 96), embeddings(80, 96, 1)
    index = fitted(X)
    index.save(tmp_path / "index")
    truth, _ = dense.top_k(Q, X, 9, "cosine", exclude_self=False)
    opened = fastcos.SimilarityIndex.open(tmp_path / "index")
    for _ in range(2):
        np.testing.assert_array_equal(opened.search(Q, k=9).indices, truth)
    index.remove([1999])
    truth, _ = dense.top_k(Q, X[:1999], 9, "cosine", exclude_self=False)
    for _ in range(2):
        np.testing.assert_array_equal(index.search(Q, k=9).ids, truth)


@pytest.mark.slow
def test_prefixes_are_chosen_for_embeddings_alone():
    def words_of(X):
        items = encoded_rows.encode_rows(X, None, 1, "cosine")
        packed = packing.pack_items("cosine", items, np.arange(len(X)), 1)
        return projection.add_projection(packed, items, 1).arrays.projection.words * 4

    rows = embeddings(6000, 384)
    if cpu.supported_isas()[0] in ("vnni", "avxvnni", "avx2"):
        assert 64 <= words_of(rows) <= 256
    assert words_of(rows[:1000]) == 0  # few items
    assert words_of(np.ascontiguousarray(rows[:, :128])) == 0  # few columns
    assert words_of(independent_columns(6000, 384)) == 0


@searches_few_queries
@pytest.mark.usefixtures("_forced")
def test_directories_of_version_2_have_no_largest_k(tmp_path, monkeypatch):
    monkeypatch.setattr(index_parts, "ARRAYS_OF_PROJECTION", index_parts.ARRAYS_OF_PROJECTION[:-1])
    X, Q = embeddings(2000, 96), embeddings(80, 96, 1)
    fitted(X).save(tmp_path / "index")
    assert not [*(tmp_path / "index").glob("prefix_largest_k_*")]
    opened = fastcos.SimilarityIndex.open(tmp_path / "index")
    truth, _ = dense.top_k(Q, X, 20, "cosine", exclude_self=False)
    for queries in (Q, Q[:1]):
        for k in (5, 20):
            np.testing.assert_array_equal(
                opened.search(queries, k).indices, truth[: len(queries), :k]
            )


@pytest.mark.slow
def test_larger_k_gain_less():
    rows = embeddings(6000, 384)
    items = encoded_rows.encode_rows(rows, None, 1, "cosine")
    packed = projection.add_projection(
        packing.pack_items("cosine", items, np.arange(len(rows)), 1), items, 1
    )
    few, many = packed.arrays.projection.largest_k
    assert many <= few < 1000
    for isa in ("vnni", "avx2"):
        sizes = plan.SegmentSizes(
            6000, 384, 6000, packed_for=isa, n_packed=6000, n_distinct=6000,
            projected_words=packed.arrays.projection.words, projection_max_k=(few, many),
        )  # fmt: skip
        machine = task_grid.Machine(isa, 1, 2.0**30)
        for n, largest_k in ((1, int(few)), (200, int(many))):
            for k in (largest_k, largest_k + 1):
                made = plan.plan_search(sizes, plan.RequestSizes(n, k), machine)
                assert made.use_projection == (k == largest_k) or made.method != "packed"


@pytest.mark.slow
def test_calls_of_many_queries_use_prefixes():
    X, Q = embeddings(4200, 192), embeddings(66_000, 192, 1)
    found = fastcos.top_k(Q, X, 3).indices[::1000]
    scores = dense.keys(Q[::1000], X, "cosine")
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1, kind="stable")[:, :3])


@pytest.mark.slow
def test_many_fits_have_few_threads_of_prefixes(monkeypatch):
    set_costs(monkeypatch, projected_columns=64)
    X = embeddings(4200, 192)
    fastcos.SimilarityIndex().fit(X)  # compiles
    found, counts = [], []
    for _ in range(20):
        found.append(fastcos.SimilarityIndex().fit(X))
        named = [one for one in threading.enumerate() if one.name == "fastcos-projection"]
        counts.append(len(named))
    assert max(counts) <= 4
    for index in found:
        segment = index._state.items.segments[0]
        segment.wait_for_projection()
        assert segment.packed.arrays.projection.words > 0


def test_fewer_rows_than_ranks_can_be_projected():
    # Thresholds are estimated for up to the 200 best items, but there are only 87.
    X = np.random.default_rng(0).standard_normal((87, 400)) / np.arange(1, 401)
    items = encoded_rows.encode_rows(X.astype(np.float32), None, 1, "cosine")
    packed = packing.pack_items("cosine", items, np.arange(len(X)), 1)
    with cost_model.costs_replaced(min_rows_to_project=0):
        assert projection.add_projection(packed, items, 1).rows.shape == X.shape


@pytest.mark.slow
@pytest.mark.usefixtures("_forced")
@pytest.mark.filterwarnings("error")
def test_rows_of_extreme_norms_have_prefixes_without_a_warning():
    X = embeddings(2000, 96).astype(np.float64)
    X[::3] *= 1e60
    items = encoded_rows.encode_rows(X, None, 1, "dot")
    packed = packing.pack_items("dot", items, np.arange(len(X)), 1)
    assert projection.add_projection(packed, items, 1).arrays.projection.words > 0


def waited(index):
    for segment in index._state.items.segments:
        segment.wait_for_projection()
    return index


def no_room(*_, **__):
    raise MemoryError("no room")


@pytest.mark.skipif(not tiles.AVAILABLE, reason="no prefixes without tiles")
def test_prefixes_that_cannot_be_made_are_a_warning(monkeypatch):
    """A failure to compute prefixes is only a warning.

    Up to four threads compute prefixes in the background. If all four threads are busy, a call of
    `fit` computes the prefixes itself, in the foreground. The test covers both cases.
    """
    X = embeddings(4200, 192)
    truth, _ = dense.top_k(X[:3], X, 5, "cosine")
    set_costs(monkeypatch, projected_columns=64)
    monkeypatch.setattr(projection, "add_projection", no_room)
    text = r"projection could not be computed \(MemoryError: no room\)"
    with pytest.warns(RuntimeWarning, match=text):
        index = waited(fastcos.SimilarityIndex().fit(X))
    np.testing.assert_array_equal(index.search(X[:3], 5).indices, truth)

    with monkeypatch.context() as patch:
        # The test acts as if four threads were busy.
        patch.setattr(threading.Thread, "is_alive", lambda _: True)
        for _ in range(5):
            with pytest.warns(RuntimeWarning, match="projection could not be computed"):
                waited(fastcos.SimilarityIndex().fit(X))


@pytest.mark.slow
@pytest.mark.skipif(not tiles.AVAILABLE, reason="no prefixes without tiles")
@pytest.mark.skipif(cpu.supported_isas()[0] == "amx", reason="many queries use none with amx")
def test_a_search_of_many_queries_warns_of_a_projection_that_cannot_be_made(monkeypatch):
    X = embeddings(4200, 192)
    truth, _ = dense.top_k(X[:3], X, 5, "cosine")
    set_costs(monkeypatch, projected_columns=64, min_work_to_project=1)
    monkeypatch.setattr(projection, "add_projection", no_room)
    with pytest.warns(RuntimeWarning, match="projection could not be computed"):
        found = fastcos.top_k(X, k=5, exclude_self=False)
    np.testing.assert_array_equal(found.indices[:3], truth)


@pytest.mark.slow
@pytest.mark.skipif(not tiles.AVAILABLE, reason="no prefixes without tiles")
def test_a_background_thread_limits_no_blas_of_the_process(monkeypatch):
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController().select(user_api="blas")
    entered, go_on = threading.Event(), threading.Event()

    def seen_from_outside(*arguments):
        entered.set()
        go_on.wait(20)
        return choose(*arguments)

    X, choose = embeddings(4200, 192), np.linalg.qr
    monkeypatch.setattr(np.linalg, "qr", seen_from_outside)
    set_costs(monkeypatch, projected_columns=64)
    with controller.limit(limits=2):
        index = fastcos.SimilarityIndex().fit(X)
        assert entered.wait(20)
        assert {one["num_threads"] for one in controller.info()} == {2}
        controller.limit(limits=1)  # a limit that a user sets meanwhile must remain
        go_on.set()
        waited(index)
        assert {one["num_threads"] for one in controller.info()} == {1}


def test_threads_that_search_at_once_pack_once(monkeypatch):
    calls, pack_items, barrier = [], segments.pack_items, threading.Barrier(8)

    def counted(*arguments):
        calls.append(threading.get_ident())
        return pack_items(*arguments)

    monkeypatch.setattr(segments, "pack_items", counted)
    X = embeddings(2000, 64)
    items = encoded_rows.encode_rows(X, None, 1, "cosine")
    segment = segments.Segment("cosine", items, np.arange(len(X)), 1)
    found = []

    def search():
        barrier.wait()
        found.append(segment.packed)
        segment.pack()

    threads = [threading.Thread(target=search) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(calls) == 1
    assert all(one is found[0] for one in found)
