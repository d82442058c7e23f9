"""Rows on disk are searched block by block, and give the same bits as rows in memory.

The bits are also the same if a search was killed and is resumed.
"""

import json
import os
import subprocess
import sys
import textwrap
from importlib.metadata import version

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import storage
from fastcos.search.top_k import top_k
from fastcos.similarity.linear import QueryMetricCosine
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits

SMALL = 1.5  # a working memory (in MiB) that divides queries and items into several blocks


@pytest.fixture(scope="module")
def rows():
    X = np.random.default_rng(0).standard_normal((6000, 24)).astype(np.float32)
    X[17] = 0
    X[5000:5200] = X[:200]  # ties across blocks
    return X


@pytest.fixture(scope="module")
def on_disk(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


def assert_same(result, expected):
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)


@pytest.mark.parametrize(
    "measure",
    [
        "cosine",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("neg_euclidean", "dot", "angular")
        ),
    ],
)
@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 12])
def test_mapped_rows_match_rows_in_memory(rows, on_disk, measure, k):
    result = top_k(on_disk, k=k, measure=measure, working_memory=SMALL)
    assert_same(result, top_k(rows, k=k, measure=measure))


@pytest.mark.slow
@pytest.mark.parametrize(
    "measure",
    [
        "whitened_cosine", "centered_cosine", "zscore_cosine", "unit_column_cosine",
        "all_but_the_top", "scaled_similarity",
    ],
)  # fmt: skip
def test_means_and_moments_are_learned_from_disk(rows, on_disk, measure):
    expected = top_k(rows, k=5, measure=measure)
    assert_same(top_k(on_disk, k=5, measure=measure, working_memory=SMALL), expected)


def test_mapped_rows_match_the_oracle(rows, on_disk):
    queries = rows[4000:4050]
    result = top_k(queries, on_disk, k=7, working_memory=SMALL)
    columns, keys = dense_oracle.top_k(queries, rows, 7, "cosine")
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, keys.astype(np.float32))


def test_filters_of_mapped_rows_match_rows_in_memory(rows, on_disk):
    allowed = np.random.default_rng(1).random(len(rows)) < 0.3
    seen = sp.random_array((500, len(rows)), density=0.01, rng=np.random.default_rng(2))
    options = {"k": 5, "allowed": allowed, "exclude": seen, "min_score": 0.5}
    result = top_k(rows[:500], on_disk, working_memory=SMALL, **options)
    assert_same(result, top_k(rows[:500], rows, **options))
    assert (result.indices == -1).any()
    with_itself = top_k(on_disk, k=1, exclude_self=False, working_memory=SMALL)
    assert_same(with_itself, top_k(rows, k=1, exclude_self=False))


@pytest.mark.slow
def test_float64_and_float16_and_parts_of_a_file(rows, tmp_path):
    for dtype in (np.float64, np.float16):
        np.save(tmp_path / "rows.npy", rows.astype(dtype))
        part = np.load(tmp_path / "rows.npy", mmap_mode="r")[100:5500]
        assert_same(top_k(part, k=3, working_memory=SMALL), top_k(np.array(part), k=3))


def test_learning_measures_read_all_mapped_items(rows, on_disk):
    result = top_k(on_disk, k=3, measure="centered_cosine")
    assert_same(result, top_k(rows, k=3, measure="centered_cosine"))


def test_progress_ascends_to_the_number_of_queries(on_disk):
    seen = []
    top_k(on_disk, k=3, working_memory=SMALL, progress=lambda *step: seen.append(step))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert seen[-1] == (6000, 6000)


def test_progress_reaches_the_total_if_the_last_blocks_have_no_allowed_rows(rows, on_disk):
    seen = []
    options = {"k": 1, "working_memory": SMALL, "progress": lambda *step: seen.append(step)}
    top_k(rows[:100], on_disk, allowed=[0], **options)
    assert seen == sorted(seen)
    assert seen[-1] == (100, 100)


def test_a_written_private_copy_keeps_its_changes(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    private = np.load(tmp_path / "rows.npy", mmap_mode="c")
    private[5] = 3 * rows[6]
    changed = np.array(private)
    assert_same(top_k(private, k=3, working_memory=SMALL), top_k(changed, k=3))
    np.testing.assert_array_equal(private[5], 3 * rows[6])


def test_broken_rows_are_named_with_their_block(rows, tmp_path):
    broken = rows.copy()
    broken[5003, 2] = np.nan
    np.save(tmp_path / "rows.npy", broken)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    with pytest.raises(ValueError, match=r"\[\d+:\d+\] must be finite, got NaN or infinity in row"):
        top_k(rows[:5], on_disk, k=3, working_memory=SMALL)


def test_a_working_memory_for_hardly_any_row_is_refused(on_disk):
    with pytest.raises(ValueError, match=r"working_memory must be at least .* MiB .*, got 0\.01"):
        top_k(on_disk, k=3, working_memory=0.01)


def test_a_result_on_disk_is_that_in_memory(rows, on_disk, tmp_path):
    expected = top_k(rows, k=4)
    for number, queries in enumerate((rows, on_disk)):
        out = tmp_path / f"neighbors{number}"
        assert_same(top_k(queries, k=4, working_memory=SMALL, out=out), expected)
        assert sorted(file.name for file in out.iterdir()) == [
            "indices.npy", "run.json", "scores.npy"
        ]  # fmt: skip
        np.testing.assert_array_equal(np.load(out / "indices.npy"), expected.indices)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_complete_result_is_not_computed_again(rows, tmp_path):
    first = top_k(rows, k=4, out=tmp_path / "out")
    seen = []
    again = top_k(rows, k=4, out=tmp_path / "out", progress=lambda *step: seen.append(step))
    assert_same(again, first)
    assert not seen


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"k": 5}, "k"),
        ({"measure": "dot"}, "measure"),
        ({"min_score": 0.1}, "min_score"),
        ({"exclude_self": False}, "exclusions"),
        ({"allowed": np.arange(100)}, "permitted"),
    ],
)
def test_out_with_another_request_is_refused(rows, tmp_path, changed, word):
    request = {"k": 4, "out": tmp_path / "out"}
    top_k(rows, **request)
    with pytest.raises(ValueError, match=rf"out must be .* holds a run with another {word}\. "):
        top_k(rows, **(request | changed))
    with pytest.raises(ValueError, match="holds a run with another queries"):
        top_k(rows[::-1], **request)


def test_out_with_another_measure_is_refused(rows, tmp_path):
    other = np.random.default_rng(3).standard_normal((3000, 24))
    top_k(rows, k=4, measure=QueryMetricCosine(other), out=tmp_path / "out")
    # The repr of a large array leaves out the middle, so it does not show this number.
    other[1500, 7] = np.nextafter(other[1500, 7], 9)
    with pytest.raises(ValueError, match="holds a run with another measure"):
        top_k(rows, k=4, measure=QueryMetricCosine(other), out=tmp_path / "out")


def test_out_with_a_changed_file_is_refused(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    top_k(np.load(tmp_path / "rows.npy", mmap_mode="r"), k=4, out=tmp_path / "out")
    np.save(tmp_path / "rows.npy", rows * 2)
    os.utime(tmp_path / "rows.npy", ns=(1, 1))
    with pytest.raises(ValueError, match="holds a run with another queries"):
        top_k(np.load(tmp_path / "rows.npy", mmap_mode="r"), k=4, out=tmp_path / "out")


def test_out_with_other_files_is_refused(rows, tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(
        ValueError, match=r"out must be a new or an empty directory, or .* contains run\.json"
    ):
        top_k(rows, k=4, out=tmp_path)
    with pytest.raises(ValueError, match="measure must have the capability 'blocks', got csls"):
        top_k(rows, k=4, measure="csls", out=tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_damaged_checkpoints_are_reported(rows, tmp_path):
    top_k(rows, k=4, out=tmp_path / "out")
    text = (tmp_path / "out" / "run.json").read_text()
    for damaged in ("", "[]", text[: len(text) // 2], text.replace('"block"', '"clock"')):
        (tmp_path / "out" / "run.json").write_text(damaged)
        with pytest.raises(storage.FastcosFormatError, match=r"run\.json is damaged"):
            top_k(rows, k=4, out=tmp_path / "out")
    (tmp_path / "out" / "run.json").write_text(text)
    (tmp_path / "out" / "scores.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(storage.FastcosFormatError, match=r"scores\.npy is damaged"):
        top_k(rows, k=4, out=tmp_path / "out")


class Stop(Exception):
    pass


def test_a_stopped_search_resumes_from_its_last_block(rows, tmp_path):
    def stop_late(done, total):
        if done > 0.6 * total:
            raise Stop

    request = {"k": 4, "working_memory": SMALL, "out": tmp_path / "out"}
    with pytest.raises(Stop):
        top_k(rows, progress=stop_late, **request)
    assert not (tmp_path / "out").exists()
    seen = []
    result = top_k(rows, progress=lambda *step: seen.append(step), **request)
    assert seen[0][0] > 0.3 * len(rows)
    assert_same(result, top_k(rows, k=4))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_checkpoint_of_another_version_is_refused(rows, tmp_path):
    def stop(done, total):
        raise Stop

    request = {"k": 4, "out": tmp_path / "out"}
    with pytest.raises(Stop):
        top_k(rows, progress=stop, **request)
    text = (tmp_path / ".out.partial" / "run.json").read_text()
    of_old = text.replace(f'"fastcos": "{version("fastcos")}"', '"fastcos": "0.0.1"')
    assert of_old != text
    (tmp_path / ".out.partial" / "run.json").write_text(of_old)
    with pytest.raises(ValueError, match="holds a run with another fastcos"):
        top_k(rows, **request)
    (tmp_path / ".out.partial" / "run.json").write_text(text)
    result = top_k(rows, **request)
    (tmp_path / "out" / "run.json").write_text(of_old)
    assert_same(top_k(rows, **request), result)


def test_copies_of_rows_are_searched_once_for_a_directory_too(rows, tmp_path):
    copies = rows[np.random.default_rng(4).integers(0, 300, len(rows))]
    result = top_k(copies, k=4, working_memory=SMALL, out=tmp_path / "out")
    assert_same(result, top_k(copies, k=4))


def test_sparse_rows_go_to_no_directory(tmp_path):
    with pytest.raises(ValueError, match="out must be None for sparse rows"):
        top_k(sp.eye_array(5, format="csr"), k=1, out=tmp_path / "out")


FULL = """
    import resource, sys, numpy as np
    from fastcos.search import top_k
    rows = np.random.default_rng(0).standard_normal((3000, 8))
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        top_k(rows, k=4, out=sys.argv[1])
    except OSError as error:
        print(type(error).__name__, error.filename)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="reserves no space")
def test_a_full_disk_is_reported_before_the_search(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(FULL), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["CheckpointError", str(tmp_path / ".out.partial")], done.stderr
    assert not list(tmp_path.iterdir())


def test_a_complete_checkpoint_is_given_its_name(rows, tmp_path):
    top_k(rows, k=4, out=tmp_path / "out")
    # A run that is killed just before its directory is renamed leaves this state.
    (tmp_path / "out").rename(tmp_path / ".out.partial")
    np.save(tmp_path / ".out.partial" / "done.npy", np.ones(1, np.uint8))
    assert_same(top_k(rows, k=4, out=tmp_path / "out"), top_k(rows, k=4))


KILLED = """
    import os, sys, numpy as np
    from fastcos.search import top_k
    rows = np.load(sys.argv[1], mmap_mode="r")  # searched in batches that fit the working memory
    out, n_kills = sys.argv[2], int(sys.argv[3])
    top_k(rows[:3000], k=3, n_threads=1)  # compiled before the forks
    import signal, random, time
    chance, kills, runs = random.Random(0), 0, 0
    while kills < n_kills:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            report = lambda done, total: os.write(writing, b".")
            top_k(rows, k=3, n_threads=1, working_memory=0.6, out=f"{out}{runs}", progress=report)
            os._exit(0)
        os.close(writing)
        # a kill after so much progress, not after so much time: slow machines get as far as others
        left = chance.randrange(int(sys.argv[4]))
        while left and (count := len(os.read(reading, left))):
            left -= count
        time.sleep(chance.random() * 0.005)
        os.kill(child, signal.SIGKILL)
        os.close(reading)
        if os.waitpid(child, 0)[1] == 0:
            runs += 1
        else:
            kills += 1
    top_k(rows, k=3, n_threads=1, working_memory=0.6, out=f"{out}{runs}")
    print(kills, runs + 1)
"""


def kills(rows, tmp_path, n_kills, progress):
    """Kill runs at random moments, and check the results; return the number of finished runs.

    A run is killed up to 5 ms after a random number of calls of its progress function. This number
    is less than `progress`.
    """
    np.save(tmp_path / "rows.npy", rows)
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path / "rows.npy")]
    command += [str(tmp_path / "out"), str(n_kills), str(progress)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    killed, runs = map(int, done.stdout.split())
    assert killed == n_kills
    expected = top_k(rows, k=3)
    for number in range(runs):
        folder = tmp_path / f"out{number}"
        assert_same_bits(np.load(folder / "indices.npy"), expected.indices)
        assert_same_bits(np.load(folder / "scores.npy"), expected.scores)
    return runs


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


@pytest.mark.slow
@needs_fork
@pytest.mark.parametrize("n_kills", [1, 3])
def test_killed_searches_resume_with_the_same_bits(n_kills, rows, tmp_path):
    # The run has 10 batches, and calls progress about 300 times per batch.
    kills(rows, tmp_path, n_kills, 600)


@needs_fork
@pytest.mark.slow
@pytest.mark.long
def test_two_hundred_kills_lose_nothing(tmp_path):
    rows = np.random.default_rng(1).standard_normal((30_000, 16)).astype(np.float32)
    # The run has 47 batches, and calls progress about 1,400 times per batch. Each run is killed
    # after at most about two batches, and the next run repeats the interrupted batch.
    assert kills(rows, tmp_path, 200, 3000) >= 3


LIMITED = """
    import json, sys, numpy as np
    from fastcos.search import top_k
    small = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    top_k(small, k=3)
    peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
    before = peak()
    found = top_k(np.load(sys.argv[1]), np.load(sys.argv[2], mmap_mode="r"), k=3, working_memory=16)
    print(json.dumps({"mib": (peak() - before) / 1024, "first": found.indices[0].tolist()}))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_rows_on_disk_are_never_in_memory_as_a_whole(tmp_path):
    n, width = 240_000, 128  # 117 MiB
    items = np.lib.format.open_memmap(tmp_path / "items.npy", "w+", np.float32, (n, width))
    block = np.random.default_rng(0).standard_normal((20_000, width)).astype(np.float32)
    for lo in range(0, n, len(block)):
        items[lo : lo + len(block)] = block + np.float32(lo / n)
    items.flush()
    np.save(tmp_path / "queries.npy", block[:100])
    command = [sys.executable, "-c", textwrap.dedent(LIMITED)]
    command += [str(tmp_path / "queries.npy"), str(tmp_path / "items.npy")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["mib"] < 16 + 48
    assert seen["first"][0] == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [(b"(30, 3)", b"(30, 3 "), (b"(30, 3)", b"(3, 30)"), (b"(30, 3)", b"(30, 4)"),
     (b"'<i8'", b"'<f8'"), (b"'<i8'", b"'|O8'"), (b"False", b"True "), (b"NUMPY\x01", b"NUMPY\x02"),
     (b"{", b"("), (b"\x93NUMPY", b"")],
)  # fmt: skip
def test_a_damaged_header_of_a_kept_search_is_refused_at_once(tmp_path, before, after):
    out, rows = tmp_path / "out", np.random.default_rng(0).random((30, 4))
    result = top_k(rows, k=3, out=out)
    del result
    content = (out / "indices.npy").read_bytes()
    assert before in content
    (out / "indices.npy").write_bytes(content.replace(before, after, 1))
    with pytest.raises(storage.FastcosFormatError, match=r"indices\.npy is damaged"):
        top_k(rows, k=3, out=out)


@pytest.mark.parametrize(("rows", "block"), [(29, 4), (30, 0), (30, -1), (30, 2.5), (30, "4")])
def test_a_damaged_number_of_a_kept_search_is_refused(tmp_path, rows, block):
    out, vectors = tmp_path / "out", np.random.default_rng(0).random((30, 4))
    top_k(vectors, k=3, out=out)
    run = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps(run | {"rows": rows, "block": block}))
    with pytest.raises(storage.FastcosFormatError, match=r"run\.json is damaged"):
        top_k(vectors, k=3, out=out)
