"""An index accepts rows and ids in any container.

The containers may change later or be memory-mapped, and ids may have very different lengths.
"""

import tracemalloc

import joblib
import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import fastcos
from fastcos import SimilarityIndex
from fastcos.parallel import readiness
from fastcos.storage import FastcosFormatError
from tests.oracles import dense
from tests.robustness.damaged_files import sign
from tests.search.test_damaged_indexes import change

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((700, 24)).astype(np.float32)
QUERIES = RANDOM.standard_normal((90, 24)).astype(np.float32)
NAMES = [f"item {11 * i % 700}" for i in range(700)]


@pytest.fixture
def mapped(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def assert_neighbors_of(index, rows, names=None):
    expected, _ = dense.top_k(QUERIES, rows.astype(np.float64), 5, "cosine", exclude_self=False)
    for n in (90, 1):
        result = index.search(QUERIES[:n], 5)
        np.testing.assert_array_equal(result.indices, expected[:n])
        if names is not None:
            np.testing.assert_array_equal(result.ids, np.array(names)[expected[:n]])


KINDS = {
    "float32": lambda rows: rows.copy(),
    "float64": lambda rows: rows.astype(np.float64),
    "float16": lambda rows: rows.astype(np.float16),
    "bfloat16": lambda rows: rows.astype(ml_dtypes.bfloat16),
    "int8": lambda rows: (20 * rows).astype(np.int8),
    "fortran": np.asfortranarray,
    "view": lambda rows: np.concatenate([rows, rows])[:700],
    "table": lambda rows: pd.DataFrame(rows.copy()),
    "read-only view": lambda rows: read_only_view(rows.copy()),
}
# Rows of these types are searched in NumPy here, and are not saved. To save these rows, fastcos
# would have to pack them. Compiling the kernels for this purpose would take ten seconds of
# processor time per type. The kernels and saving are tested in test_narrow_rows.py.
NARROW = {"float16", "bfloat16", "int8"}


def read_only_view(rows):
    view = rows.view()
    view.setflags(write=False)
    return view


def memory_of(container):
    """Return the array that owns a container's memory. Changing the array changes the input."""
    array = container.to_numpy() if isinstance(container, pd.DataFrame) else container
    return array if array.base is None or array.flags.writeable else array.base


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["fit", "add", pytest.param("upsert", marks=pytest.mark.slow)])
def test_rows_and_ids_may_change_after_they_were_given(kind, method, tmp_path, monkeypatch):
    if kind in NARROW:
        monkeypatch.setenv("FASTCOS_BACKGROUND", "0")
        monkeypatch.setattr(readiness, "state", readiness.State())
    container, names = KINDS[kind](ROWS), np.array(NAMES)
    before = np.array(container, np.float64)
    index = SimilarityIndex()
    if method == "fit":
        index.fit(container, names)
    else:
        index.fit(np.empty((0, 24), np.float32))
        getattr(index, method)(container, ids=names)
    memory = memory_of(container)
    memory.setflags(write=True)
    memory[:] = RANDOM.standard_normal(memory.shape) * 9
    names[:] = "changed"
    assert_neighbors_of(index, before, NAMES)
    if kind not in NARROW:
        index.save(tmp_path / "index")
        assert_neighbors_of(SimilarityIndex.open(tmp_path / "index", verify=True), before, NAMES)


def test_rows_are_kept_without_a_copy_where_asked():
    rows = ROWS.copy()
    assert not np.may_share_memory(SimilarityIndex().fit(rows)._state.parts[0].rows, rows)
    index = SimilarityIndex().fit(rows, copy=False)
    assert np.may_share_memory(index._state.parts[0].rows, rows)
    assert_neighbors_of(index, rows)
    with pytest.raises(ValueError, match="copy must be True or False, got 'no'"):
        SimilarityIndex().fit(rows, copy="no")


@pytest.mark.parametrize("kind", ["f4", "f8", pytest.param("f2", marks=pytest.mark.slow)])
def test_copies_of_memory_maps_are_rows_in_memory(mapped, tmp_path, kind):
    rows = mapped.astype(kind)
    assert isinstance(rows, np.memmap)  # NumPy keeps the type
    index = SimilarityIndex().fit(rows, ids=NAMES)
    assert_neighbors_of(index, np.array(rows), NAMES)
    assert index.memory_.codes > 0
    index.add(rows[:1], ids=["new"])
    index.save(tmp_path / "index")
    result = fastcos.top_k(QUERIES, rows, 5, out=tmp_path / "out")
    expected = fastcos.top_k(QUERIES, np.array(rows), 5)
    np.testing.assert_array_equal(result.indices, expected.indices)


@pytest.mark.parametrize("names", [NAMES, np.arange(700)[::-1] + 7, None], ids=type)
def test_memory_mapped_rows_have_ids(mapped, names):
    index, expected = (SimilarityIndex().fit(rows, names) for rows in (mapped[:], ROWS))
    assert index.memory_ == (0, ROWS.nbytes, ROWS.nbytes)
    chosen_ids = np.array(range(700) if names is None else names)[[3, 77, 5]]
    lists = [chosen_ids[:2].tolist(), []] * 45
    for options in (
        {},
        {"allowed_ids": chosen_ids},
        {"exclude_ids": lists},
        {"allowed_ids": lists},
    ):
        result, right = (one.search(QUERIES, 4, **options) for one in (index, expected))
        np.testing.assert_array_equal(result.ids, right.ids)
        np.testing.assert_array_equal(result.scores, right.scores)
    for call in (
        lambda one: one.ids,
        lambda one: one.ids_of([5, -1, 699]),
        lambda one: one.positions_of(chosen_ids),
        lambda one: one.vectors_of(chosen_ids),
        lambda one: one.similar(chosen_ids, 3).ids,
        lambda one: [len(one), chosen_ids[0] in one, "unknown" in one, 10**6 in one],
    ):
        np.testing.assert_array_equal(call(index), call(expected))
    missing = "unknown" if isinstance(chosen_ids[0], str) else 10**6
    with pytest.raises(ValueError, match="ids must be in the index"):
        index.positions_of([missing])
    wrong = [1] if isinstance(chosen_ids[0], str) else ["a"]
    with pytest.raises(TypeError, match=r"ids must be (strings|whole numbers), like the ids"):
        index.positions_of(wrong)
    with pytest.raises(TypeError, match=r"got a memory map: use fit\(np\.array\(items\)\)$"):
        index.add(ROWS[:1], ids=[missing])
    with pytest.raises(ValueError, match=r"ids must be of shape \(700,\), got shape \(1,\)"):
        SimilarityIndex().fit(mapped, [0])


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("float16", "int8")), "float32"],
)
def test_ids_of_one_part_are_found_among_several(kind):
    rows = (20 * ROWS).astype(kind)
    index = SimilarityIndex().fit(np.tile(rows, (8, 1)))
    index.add(rows[:5])
    assert len(index._state.parts) == 2
    np.testing.assert_array_equal(index.vectors_of([1, 5_602]), rows[[1, 2]])
    assert index.similar([1, 5], 3).ids.shape == (2, 3)


def search_in_worker(rows, names):
    index = SimilarityIndex().fit(rows, names)
    return isinstance(rows, np.memmap), index.search(QUERIES, 5).ids


@pytest.mark.slow
def test_rows_that_joblib_maps_have_ids():
    rows = np.tile(ROWS, (20, 1)) + RANDOM.standard_normal((14_000, 24)).astype(np.float32)
    names = [f"item {i}" for i in range(len(rows))]
    calls = [joblib.delayed(search_in_worker)(rows, names)] * 2
    expected = SimilarityIndex().fit(rows, names).search(QUERIES, 5).ids
    for is_mapped, ids in joblib.Parallel(n_jobs=2, max_nbytes="1M")(calls):
        assert is_mapped
        np.testing.assert_array_equal(ids, expected)


# One id has far more letters than all others, and two ids differ after more than 500 letters.
LONG = ["x" * 20_000, "x" * 19_999 + "y", "é\U0001f40d" * 300, "\ud800" + "z" * 600]


def uneven_ids(n):
    return [*[f"id {13 * i % n}" for i in range(n - len(LONG))], *LONG]


def test_memory_of_ids_follows_the_sum_of_the_texts():
    rows = RANDOM.standard_normal((8_000, 8)).astype(np.float32)
    names = [*[f"doc-{i}" for i in range(7_999)], "x" * 20_000]
    SimilarityIndex().fit(rows[:500], names[:500]).search(rows[:1], 3)
    for ids in (names, np.array(names, dtype=object)):
        tracemalloc.start()
        index = SimilarityIndex().fit(rows, ids)
        index.search(rows[:500], 10)
        index.search(rows[:1], 10)
        index.add(rows[:1], ids=["one more"])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 * 2**20  # each copy of an array of fixed width would take 640 MB


def test_ids_of_unequal_width_behave_as_others(tmp_path):
    n = len(ROWS)
    names = uneven_ids(n)
    index = SimilarityIndex().fit(ROWS, names)
    assert_neighbors_of(index, ROWS)
    result = index.search(ROWS[-4:], 1)
    assert result.ids.ravel().tolist() == LONG
    assert index.positions_of(LONG).tolist() == [n - 4, n - 3, n - 2, n - 1]
    assert index.ids.tolist() == names
    assert LONG[0] in index
    assert LONG[0][:-1] not in index
    assert "x" not in index
    index.save(tmp_path / "index")
    index.add(ROWS[:2], ids=["new", "y" * 3_000])
    index.remove([LONG[1], "id 13"])
    index.upsert(ROWS[:1], ids=[LONG[0]])
    index.save(tmp_path / "index")
    opened = SimilarityIndex.open(tmp_path / "index", verify=True)
    for one in (index, opened):
        assert one.ids.tolist() == index.ids.tolist()
        assert one.similar([LONG[2]], 2, exclude_ids=["id 26"]).ids.shape == (1, 2)
        assert LONG[1] not in one
        assert one.search(ROWS[:90], 3, allowed_ids=LONG[:1]).ids[0].tolist() == [LONG[0], "", ""]
    with pytest.raises(ValueError, match="must be distinct"):
        SimilarityIndex().fit(ROWS[:3], ["a", LONG[0], LONG[0]])
    assert sum(file.stat().st_size for file in (tmp_path / "index").glob("id*")) < 500_000


def test_a_single_long_id_does_not_widen_those_of_other_parts():
    index = SimilarityIndex().fit(ROWS, NAMES)
    index.add(ROWS[:1], ids=["w" * 400])
    index.add(ROWS[:1], ids=["w" * 40_000])
    ids = index.search(ROWS, 3).ids
    assert ids.dtype == object
    assert sum(part.ids.values.nbytes for part in index._state.parts) < 200_000
    assert {"w" * 400, "w" * 40_000} <= set(index.ids.tolist())


@pytest.mark.parametrize(
    ("name", "at", "value"), [("id_ends", 5, -1), ("id_ends", 5, 10**6), ("id_bytes", 3, 255)]
)
def test_damaged_ids_of_unequal_width_are_refused(tmp_path, name, at, value):
    SimilarityIndex().fit(ROWS, uneven_ids(len(ROWS))).save(tmp_path / "index")
    change(tmp_path / "index", name, at, value)
    sign(tmp_path / "index")
    with pytest.raises(FastcosFormatError):
        SimilarityIndex.open(tmp_path / "index")
