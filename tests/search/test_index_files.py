"""Tests of an index that is saved as a directory.

The tests check which files are written and read, who may write, and what a killed writer leaves.
"""

import subprocess
import sys
import time

import numpy as np
import pytest

from fastcos import SimilarityIndex, get_measure, set_config
from fastcos.kernels import cpu
from fastcos.storage import FastcosFormatError
from tests.oracles import dense
from tests.oracles.compare import assert_same_bits
from tests.robustness.index_soak import soak


def gaussian(n, d=20, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


QUERIES = gaussian(30, seed=1)


def assert_same_answers(one, other, k=9):
    for mine, theirs in zip(one.search(QUERIES, k), other.search(QUERIES, k), strict=True):
        assert_same_bits(mine, theirs)


def files(path):
    return {file.name: file.stat().st_size for file in path.iterdir()}


@pytest.fixture
def saved(tmp_path):
    rows = gaussian(6000)
    index = SimilarityIndex().fit(rows, [f"{i}" for i in range(6000)])
    index.save(tmp_path / "index")
    return index, tmp_path / "index"


def test_a_second_save_writes_what_is_new(saved):
    index, path = saved
    before = files(path)
    index.add(gaussian(100, seed=2), [f"new {i}" for i in range(100)])
    index.save(path)
    after = files(path)
    written = sum(size for name, size in after.items() if name not in before)
    assert set(before) <= set(after)
    # This save writes 1/60 of the rows, and the headers of files.
    assert written < sum(before.values()) / 30
    index.remove(["7", "new 3"])
    index.save(path)
    names = set(files(path)) - set(after)
    assert any(name.startswith("removed") for name in names)
    assert not any(name.startswith(("rows", "packed")) and "new" in name for name in names)
    opened = SimilarityIndex.open(path, verify=True)
    assert_same_answers(opened, index)
    assert opened.n_items_ == 6098


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "measure",
    [
        "cosine",
        "csls",
        *(
            pytest.param(rest, marks=pytest.mark.slow)
            for rest in ("dot", "neg_euclidean", "whitened_cosine")
        ),
    ],
)
def test_an_opened_index_answers_and_changes_as_the_saved_one(tmp_path, measure, dtype):
    index = SimilarityIndex(measure).fit(gaussian(500, dtype=dtype))
    index.remove(np.arange(0, 500, 9))
    index.save(tmp_path / "index")
    opened = SimilarityIndex.open(tmp_path / "index")
    assert_same_answers(opened, index)
    for one in (index, opened):
        one.upsert(gaussian(3, seed=4, dtype=dtype), [5, 1, 700])
        one.remove([2])
    assert_same_answers(opened, index)
    opened.save(tmp_path / "index")
    assert_same_answers(SimilarityIndex.open(tmp_path / "index", verify=True), index)
    # The other copy of the index was saved first, so this one is outdated.
    with pytest.raises(ValueError, match=r"^path must not have changed since it was read"):
        index.save(tmp_path / "index")
    index.save(tmp_path / "other")


@pytest.mark.parametrize(
    "isa",
    [
        pytest.param(isa, marks=[pytest.mark.slow] * (isa != cpu.supported_isas()[0]))
        for isa in cpu.supported_isas()
    ],
)
def test_wide_rows_are_saved_in_the_layout_of_their_cpu(tmp_path, isa):
    set_config(isa=isa)
    rows, queries = gaussian(3000, 400), gaussian(70, 400, seed=1)
    index = SimilarityIndex().fit(rows)
    index.save(tmp_path / "index")
    # With AVX2, the codes of wide rows are stored item by item. Without this entry in the header,
    # older versions of fastcos would read the codes as if they were stored in groups.
    assert ('"by item"' in (tmp_path / "index" / "header.json").read_text()) == (isa == "avx2")
    opened = SimilarityIndex.open(tmp_path / "index")
    expected, _ = dense.top_k(queries, rows, 7, "cosine")
    for count in (1, 70):
        np.testing.assert_array_equal(opened.search(queries[:count], k=7).indices, expected[:count])


@pytest.mark.slow  # it compiles code that no default test needs
def test_rows_are_packed_again_for_another_cpu(tmp_path):
    rows, queries = gaussian(3000, 400), gaussian(70, 400, seed=1)
    SimilarityIndex().fit(rows).save(tmp_path / "index")
    set_config(isa="generic")
    opened = SimilarityIndex.open(tmp_path / "index")
    expected, _ = dense.top_k(queries, rows, 7, "cosine")
    np.testing.assert_array_equal(opened.search(queries, k=7).indices, expected)


def test_an_index_of_copies_and_of_tiny_rows_can_be_opened(tmp_path):
    copies = np.repeat(gaussian(40), 30, axis=0)
    tiny = gaussian(300, dtype=np.float64) * 1e-200
    for rows in (copies, tiny):
        index = SimilarityIndex().fit(rows)
        for _ in range(2):
            index.save(tmp_path / "index")
            opened = SimilarityIndex.open(tmp_path / "index")
            assert_same_answers(opened, index, k=40)
            index.remove(index.ids_of(np.arange(0, 200, 3))) if index.n_items_ == len(
                rows
            ) else None


def test_refresh_takes_up_what_was_saved(saved):
    index, path = saved
    served = SimilarityIndex.open(path)
    assert not served.refresh()
    index.add(gaussian(50, seed=2), [f"new {i}" for i in range(50)])
    index.remove(["1", "2"])
    assert not served.refresh()
    index.save(path)
    before = served.search(QUERIES, 9)
    assert served.refresh()
    assert_same_answers(served, index)
    assert (served.search(QUERIES, 9).scores != before.scores).any()
    assert not served.refresh()
    # A refresh drops changes that were not saved, even if the saved index and the index in memory
    # have the same number of removed items.
    served.remove(["5"])
    index.remove(["6"])
    index.save(path)
    assert served.refresh()
    assert_same_answers(served, index)


def test_refresh_needs_a_directory():
    with pytest.raises(ValueError, match="SimilarityIndex must be opened or saved before refresh"):
        SimilarityIndex().fit(gaussian(3)).refresh()


def test_open_reads_no_rows_and_verify_all(saved):
    path = saved[1]
    rows = next(path.glob("rows*.npy"))
    content = bytearray(rows.read_bytes())
    content[-7] ^= 1
    rows.write_bytes(content)
    SimilarityIndex.open(path)
    with pytest.raises(FastcosFormatError, match="is damaged: its checksum differs"):
        SimilarityIndex.open(path, verify=True)
    rows.write_bytes(content[:-1])
    with pytest.raises(FastcosFormatError, match=r"is damaged: .* bytes instead of"):
        SimilarityIndex.open(path)


def test_memory_of_an_opened_index_is_mapped(saved):
    _, path = saved
    codes, rows, mapped = SimilarityIndex.open(path).memory_
    assert rows == 6000 * 80
    assert mapped >= rows + 0.7 * codes


def test_a_kept_measure_has_its_parameters(tmp_path):
    index = SimilarityIndex(get_measure("csls", n_neighbors=3)).fit(gaussian(300))
    index.save(tmp_path / "index")
    index.add(gaussian(5, seed=2))
    index.save(tmp_path / "index")
    opened = SimilarityIndex.open(tmp_path / "index")
    assert opened.measure.n_neighbors == 3
    assert_same_answers(opened, index)


# The program adds rows, removes some of them, and saves the index. Before each save, it prints the
# number of the state that it saves.
WRITER = """
import sys
import numpy as np
from fastcos import SimilarityIndex
path, first = sys.argv[1], int(sys.argv[2])
index = SimilarityIndex.open(path)
for state in range(first, 10**6):
    rows = np.random.default_rng(state).standard_normal((40, 20)).astype(np.float32)
    index.add(rows, np.arange(40 * state, 40 * state + 40))
    index.remove(np.arange(40 * state - 40, 40 * state - 20))
    print(state, flush=True)
    index.save(path)
"""


def expected_at(state):
    """Return an index with the items that WRITER saves as state number `state`."""
    rows = [
        np.random.default_rng(i).standard_normal((40, 20)).astype(np.float32)
        for i in range(state + 1)
    ]
    ids = np.arange(40 * (state + 1)).reshape(-1, 40)
    slices = [slice(20, None)] * state + [slice(None)]
    return SimilarityIndex().fit(
        np.concatenate([part[rows_kept] for part, rows_kept in zip(rows, slices, strict=True)]),
        np.concatenate([part[rows_kept] for part, rows_kept in zip(ids, slices, strict=True)]),
    )


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(4, marks=pytest.mark.slow),
        pytest.param(200, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
)
def test_a_killed_writer_leaves_the_old_or_the_new_index(tmp_path, kills):
    path, random = tmp_path / "index", np.random.default_rng(0)
    expected_at(0).save(path)
    served, state = SimilarityIndex.open(path), 0
    for _ in range(kills):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(state + 1)], stdout=subprocess.PIPE
        )
        announced = state
        stop = time.monotonic() + 0.3 * random.random()
        line = writer.stdout.readline()
        while line and time.monotonic() < stop:
            announced = int(line)
            line = writer.stdout.readline()
        time.sleep(0.02 * random.random())
        writer.kill()
        announced = max(
            [announced, *map(int, line.split()), *map(int, writer.communicate()[0].split())]
        )
        served.refresh()
        fresh = SimilarityIndex.open(path, verify=True)
        state = (fresh.n_items_ - 40) // 20
        assert announced - 1 <= state <= announced
        expected = expected_at(state)
        for index in (served, fresh):
            result, truth = index.search(QUERIES, 9), expected.search(QUERIES, 9)
            assert_same_bits(result.ids, truth.ids)
            assert_same_bits(result.scores, truth.scores)


@pytest.mark.slow
def test_threads_and_processes_find_states_of_the_index():
    counts = soak(150, n_threads=3, n_processes=1)
    assert counts["searches"] > 50
    assert counts["served"] == 15
    assert counts["wrong"] == counts["wrong_served"] == 0
