"""Tests of saved indexes that are damaged or hostile, and of interrupted saves.

The tests open the indexes in the same way as users do.
"""

import dataclasses
import json
import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex
from fastcos.kernels import cpu
from fastcos.search import cost_model
from fastcos.storage import FastcosFormatError, directory
from tests.robustness.damaged_files import sign, sign_header

ROWS = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)


@pytest.fixture
def saved(tmp_path):
    SimilarityIndex("dot").fit(ROWS).save(tmp_path / "index")
    return tmp_path / "index"


def change(saved, name, at, value):
    file = next(saved.glob(f"{name}_*"))
    array = np.load(file, mmap_mode="r+")
    array.reshape(-1)[at] = value
    array.flush()
    return file


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("order", 5, 2**30), ("order", 0, -1), ("order", 7, 9), ("ids", 3, -1), ("norms", 2, np.nan),
     ("norms", 2, -1.0), ("statistics", 0, 0.0), ("statistics", 5, 1e-39),
     ("statistics", 6, np.inf)],
)  # fmt: skip
@pytest.mark.parametrize("is_signed", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_open_names_the_damaged_file(saved, name, at, value, is_signed):
    file = change(saved, name, at, value)
    if is_signed:
        sign(saved)
    with pytest.raises(FastcosFormatError, match=file.name):
        SimilarityIndex.open(saved)


@pytest.mark.parametrize(
    "value", [np.nan, *(pytest.param(rest, marks=pytest.mark.slow) for rest in (np.inf, -np.inf))]
)
@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.slow] * (row % 60 > 0)) for row in range(0, 300, 12)],
)
def test_search_of_rows_with_nan_ends(saved, row, value):
    change(saved, "rows", row * 24 + 5, value)
    index = SimilarityIndex.open(saved)
    for queries, k in ((ROWS[:40], 7), (ROWS[:2], 300), (ROWS[:100], 60)):
        result = index.search(queries, k)
        assert result.indices.min() >= -1
        assert result.indices.max() < 300


@pytest.mark.parametrize("k", [3, 16, 100])
@pytest.mark.parametrize("n_queries", [2, 60])
def test_rows_with_nan_displace_no_other_row(saved, k, n_queries):
    damaged = np.flatnonzero(np.arange(300) % 3)
    change(saved, "rows", damaged * 24 + 5, np.nan)
    sound = np.setdiff1d(np.arange(300), damaged)
    queries = np.random.default_rng(1).standard_normal((n_queries, 24)).astype(np.float32)
    scores = queries.astype(np.float64) @ ROWS[sound].T.astype(np.float64)
    expected = sound[np.argsort(-scores, axis=1)[:, :k]]
    found = SimilarityIndex.open(saved).search(queries, k)
    np.testing.assert_array_equal(found.indices, expected)


def test_lists_of_a_damaged_index_keep_the_scores_of_the_others(saved):
    change(saved, "rows", slice(1 * 24, 2 * 24), np.nan)
    index = SimilarityIndex.open(saved)
    lists = sp.csr_array((np.ones(3), ([0, 0, 0], [0, 1, 2])), shape=(1, 300))
    result = index.search(ROWS[:1], 3, allowed=lists)
    exact = {j: np.float32(ROWS[0].astype(np.float64) @ ROWS[j]) for j in (0, 2)}
    assert set(result.indices[0]) == {-1, 0, 2}
    for item, score in zip(result.indices[0], result.scores[0], strict=True):
        assert score == (pytest.approx(exact[item], rel=1e-6) if item >= 0 else -np.inf)


@pytest.mark.parametrize(
    "file", ["../secret.npy", "/etc/passwd", "header.json", "", "rows.npy", 3, None]
)
def test_header_names_files_of_its_folder_only(saved, file):
    np.save(saved.parent / "secret.npy", ROWS)
    header = json.loads((saved / "header.json").read_text())
    name = next(name for name in header["arrays"] if name.startswith("rows"))
    header["arrays"][name]["file"] = file
    sign_header(saved, header)
    with pytest.raises(FastcosFormatError, match=r"header\.json"):
        SimilarityIndex.open(saved, verify=True)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
@pytest.mark.parametrize("name", ["header.json", "rows_*"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_open_reads_regular_files_only(saved, name, kind):
    file = next(saved.glob(name))
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero")
    with pytest.raises(FastcosFormatError, match="must be a regular file"):
        SimilarityIndex.open(saved)


def test_index_of_links_to_files_opens(saved, tmp_path):
    (tmp_path / "linked").mkdir()
    for file in saved.iterdir():
        (tmp_path / "linked" / file.name).symlink_to(file)
    assert SimilarityIndex.open(tmp_path / "linked").search(ROWS[:1], 1).indices[0, 0] >= 0


def test_save_interrupted_after_the_header_can_be_repeated(saved, monkeypatch):
    index = SimilarityIndex.open(saved)
    index.add(ROWS[:2])
    calls, sync = [], directory.sync_directory

    def interrupt(path):
        sync(path)
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(directory, "sync_directory", interrupt)
    with pytest.raises(KeyboardInterrupt):
        index.save(saved)
    assert not index.refresh()
    index.add(ROWS[:1])
    index.save(saved)
    assert SimilarityIndex.open(saved).n_items_ == 303


# This warning appears if the interrupt comes after a file is opened and before its with block
# begins.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "times",
    [
        10,
        pytest.param(120, marks=[pytest.mark.slow]),
        pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
@pytest.mark.parametrize("n_axes", [0, pytest.param(16, marks=pytest.mark.slow)])
def test_save_interrupted_at_any_moment_can_be_repeated(saved, times, n_axes, monkeypatch):
    # After fit and after every change, a thread computes a projection with this many axes.
    costs = dataclasses.replace(cost_model.COSTS, projected_columns=n_axes)
    monkeypatch.setattr(cost_model, "COSTS", costs)
    SimilarityIndex("dot").fit(ROWS).save(saved.with_name("other"))
    saved = saved.with_name("other")
    index, random = SimilarityIndex.open(saved), np.random.default_rng(1)
    start = time.perf_counter()
    index.add(ROWS[:1])
    index.save(saved)
    seconds = time.perf_counter() - start
    for _ in range(times):
        n = index.n_items_
        index.add(ROWS[:1])
        alarm = threading.Timer(random.uniform(0, seconds), os.kill, (os.getpid(), signal.SIGINT))
        try:
            alarm.start()
            index.save(saved)
            alarm.join()
            time.sleep(0.001)  # the interrupt may arrive late
        except KeyboardInterrupt:
            alarm.join()
        index.refresh() if random.random() < 0.5 else index.save(saved)
        assert index.n_items_ in (n, n + 1)
        index.save(saved)
        assert SimilarityIndex.open(saved).n_items_ == index.n_items_


@pytest.mark.slow
@pytest.mark.skipif(cpu.supported_isas()[0] == "amx", reason="many queries use none with amx")
def test_index_that_got_prefixes_after_it_was_saved_is_saved_again(saved, monkeypatch):
    index = SimilarityIndex.open(saved)
    costs = dataclasses.replace(cost_model.COSTS, projected_columns=16, min_work_to_project=1)
    monkeypatch.setattr(cost_model, "COSTS", costs)
    index.search(np.tile(ROWS, (3, 1)), 5)
    assert index._state.parts[0].segment.packed.arrays.projection.words > 0
    index.save(saved)
    index.remove([4])
    index.save(saved)
    opened = SimilarityIndex.open(saved, verify=True)
    np.testing.assert_array_equal(opened.search(ROWS, 5).ids, index.search(ROWS, 5).ids)


def test_full_disk_leaves_no_arrays(saved, monkeypatch):
    before, fsync, calls = sorted(saved.iterdir()), os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 4:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    index = SimilarityIndex.open(saved)
    index.add(ROWS[:20])
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=str(saved)):
        index.save(saved)
    assert sorted(saved.iterdir()) == before


@pytest.mark.parametrize(
    "kind", [pytest.param("f2", marks=pytest.mark.slow), "f4", "f8", "i2", "i4", "i8"]
)
def test_big_endian_rows_are_the_numbers_they_stand_for(kind):
    rows = np.array([[1.0], [2.0], [3.0]])
    index = SimilarityIndex("dot").fit(rows.astype(f">{kind}"))
    assert index.search([[1.0]], 1).scores[0, 0] == 3
    index.add((rows + 3).astype(f">{kind}"))
    assert index.search([[1.0]], 1).scores[0, 0] == 6
