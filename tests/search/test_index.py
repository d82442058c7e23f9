import copy
import multiprocessing
import pickle
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import Rescaling, SimilarityIndex, get_config, get_measure, top_k
from fastcos.search.layout import tile_layout
from fastcos.similarity import BaseMeasure, register
from fastcos.similarity.base import REGISTRY
from fastcos.storage import FastcosFormatError
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits
from tests.robustness.preforked import answers
from tests.robustness.soak import soak

SPECTRUM = SimpleNamespace(
    shrinkage_=np.linspace(1, 0, 20), singular_values_=np.arange(20.0, 0, -1)
)


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.fixture(scope="module")
def items():
    return gaussian(3000, 20)


@pytest.fixture(scope="module")
def queries():
    return gaussian(200, 20, seed=1)


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean"])
def test_the_index_finds_what_top_k_finds(items, queries, measure):
    index = SimilarityIndex(measure).fit(items)
    found, expected = index.search(queries, 12), top_k(queries, items, 12, measure=measure)
    assert_same_bits(found.indices, expected.indices)
    assert_same_bits(found.scores, expected.scores)
    assert (index.n_items_, index.n_features_in_) == (3000, 20)


def test_index_memory_is_as_documented(items):
    index = SimilarityIndex().fit(items)
    codes, rows, mapped = index.memory_
    assert codes <= 3000 * (max(64, 4 * 20) + 60)
    assert (rows, mapped) == (items.nbytes, 0)


def test_index_adds_20_bytes_to_the_codes_of_an_item():
    X = np.random.default_rng(0).standard_normal((4096, 384), dtype=np.float32)
    width = 4 * tile_layout(get_config().isa, 384).words
    # The rows of X have no common direction, whereas the rows of X + 1 have a common direction.
    for rows in (X, X + 1):
        assert SimilarityIndex().fit(rows).memory_.codes <= len(rows) * (width + 20)


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_allowed_excluded_and_minimum_restrict_the_search(items, queries, share):
    rng = np.random.default_rng(0)
    allowed = rng.random(3000) < share
    excluded = rng.random((200, 3000)) < 0.1
    index = SimilarityIndex().fit(items)
    columns, keys = dense_oracle.top_k(
        queries, items, 6, "cosine", excluded=excluded, allowed=allowed
    )
    columns[keys < 0.2] = -1
    found = index.search(queries, 6, allowed=allowed, exclude=sp.csr_array(excluded), min_score=0.2)
    np.testing.assert_array_equal(found.indices, columns)


@pytest.fixture
def on_disk(items, tmp_path):
    np.save(tmp_path / "items.npy", items)
    return np.load(tmp_path / "items.npy", mmap_mode="r")


@pytest.mark.parametrize("measure", ["cosine", "neg_euclidean", "whitened_cosine"])
def test_mapped_items_match_items_in_memory(items, on_disk, queries, measure):
    index, in_memory = (SimilarityIndex(measure).fit(rows) for rows in (on_disk, items))
    assert (index.n_items_, index.n_features_in_) == (3000, 20)
    assert index.memory_ == (0, items.nbytes, items.nbytes)
    options = {"allowed": np.arange(0, 3000, 7), "min_score": -9.0}
    for restriction in ({}, options):
        found = index.search(queries, 9, working_memory=0.8, **restriction)
        expected = in_memory.search(queries, 9, **restriction)
        assert_same_bits(found.indices, expected.indices)
        assert_same_bits(found.scores, expected.scores)
    copied = pickle.loads(pickle.dumps(index))
    assert_same_bits(copied.search(queries, 9).indices, in_memory.search(queries, 9).indices)


def test_an_index_of_mapped_items_cannot_change(items, on_disk, tmp_path):
    index = SimilarityIndex().fit(on_disk)
    for change in (
        lambda: index.add(items[:1]),
        lambda: index.upsert(items[:1], [0]),
        lambda: index.remove([0]),
        lambda: index.save(tmp_path / "index"),
    ):
        with pytest.raises(TypeError, match="index must be in memory to be changed or saved"):
            change()
    assert not (tmp_path / "index").exists()
    # A measure that searches for neighbours during fit reads the rows into memory.
    assert SimilarityIndex("csls").fit(on_disk).memory_.codes > 0


def test_mapped_items_are_checked_when_read(items, tmp_path):
    broken = items.copy()
    broken[1234, 5] = np.inf
    np.save(tmp_path / "items.npy", broken)
    index = SimilarityIndex().fit(np.load(tmp_path / "items.npy", mmap_mode="r"))
    with pytest.raises(ValueError, match=r"items\[.*\] must be finite, got NaN or infinity in row"):
        index.search(items[:3], 2)


def test_a_saved_index_finds_the_same(items, queries, tmp_path):
    for measure in ("cosine", "neg_euclidean"):
        index = SimilarityIndex(measure).fit(items)
        index.remove([3, 4])
        index.save(tmp_path / "index")
        loaded = SimilarityIndex.open(tmp_path / "index")
        assert_same_bits(loaded.search(queries, 9).scores, index.search(queries, 9).scores)
        assert loaded.n_items_ == 2998


def test_a_saved_index_keeps_the_parameters_of_its_measure(items, queries, tmp_path):
    popularity = np.arange(1.0, 3001)
    for measure in (
        get_measure("csls", n_neighbors=3),
        get_measure("radial_cosine", power=0.25),
        get_measure("feature_augmented", weight=0.5, normalized=True),
        get_measure("popularity_whitened_cosine", popularity=popularity, ridge=0.1),
        get_measure("query_metric_cosine", other=queries, centered=False),
        get_measure("soft_cosine", features=np.arange(60.0).reshape(20, 3) % 7),
        get_measure("rescaled_cosine", rescaling=np.arange(1.0, 21)),
        get_measure("rescaled_cosine:smoothed", model=SPECTRUM),
        get_measure("rescaled_cosine", rescaling=Rescaling(0.2, -0.3), model=SPECTRUM),
        get_measure("eq2_cosine", model=SPECTRUM, regularization=5.5),
        get_measure("eq2_cosine"),
    ):
        index = SimilarityIndex(measure).fit(items)
        index.save(tmp_path / "index")
        loaded = SimilarityIndex.open(tmp_path / "index")
        assert type(loaded.measure) is type(measure)
        assert_same_bits(loaded.search(queries, 9).scores, index.search(queries, 9).scores)


def test_a_measure_that_no_file_can_hold_is_refused_by_name(items, tmp_path):
    class Own(type(get_measure("cosine"))):
        pass

    with pytest.raises(
        TypeError, match="measure must be a name or an instance of a registered class"
    ):
        SimilarityIndex(Own()).fit(items).save(tmp_path / "index")

    @register
    class Unsaved(BaseMeasure):
        name = "unsaved"

        def __init__(self, how):
            self.how = how

    @register
    class Hidden(BaseMeasure):
        name = "hidden"

        def __init__(self, how):
            self._how = how

    try:
        for kind, came in ((Unsaved, "dict"), (Hidden, "no attribute of its name")):
            index = SimilarityIndex(kind({"a": 1})).fit(items)
            with pytest.raises(TypeError, match=f"how of the measure must be .* got {came}"):
                index.save(tmp_path / "index")
    finally:
        del REGISTRY["unsaved"], REGISTRY["hidden"]


def test_a_damaged_index_is_refused(items, tmp_path):
    SimilarityIndex().fit(items).save(tmp_path / "index")
    file = next((tmp_path / "index").glob("codes*.npy"), None) or next(
        (tmp_path / "index").glob("packed*.npy")
    )
    content = bytearray(file.read_bytes())
    content[-7] ^= 1
    file.write_bytes(content)
    with pytest.raises(FastcosFormatError, match="is damaged: its checksum differs"):
        SimilarityIndex.open(tmp_path / "index", verify=True)


def test_an_index_can_be_pickled_and_copied(items, queries):
    index = SimilarityIndex().fit(items)
    expected = index.search(queries, 3).indices
    for other in (pickle.loads(pickle.dumps(index)), copy.deepcopy(index)):
        assert_same_bits(other.search(queries, 3).indices, expected)


def test_wrong_use_is_refused_by_name(items):
    index = SimilarityIndex()
    with pytest.raises(ValueError, match="SimilarityIndex must be fitted before it is used"):
        index.search(items)
    index.fit(items)
    with pytest.raises(ValueError, match="queries must have as many columns as the items of"):
        index.search(np.ones((1, 3)))
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 65536, got 0"):
        index.search(items, 0)


def search_and_compare(index, queries, expected, calls, wrong):
    for call in range(calls):
        at = call % len(queries)
        found = index.search(queries[at : at + 8], 5)
        if found.indices.tobytes() != expected[at : at + 8].tobytes():
            wrong.append(call)


def test_eight_threads_find_the_right_items_at_once(items, queries):
    index = SimilarityIndex().fit(items)
    expected = index.search(queries, 5).indices
    wrong = []
    threads = [
        threading.Thread(target=search_and_compare, args=(index, queries, expected, 150, wrong))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def child(index, queries, expected, wrong_calls):
    wrong = []
    search_and_compare(index, queries, expected, 50, wrong)
    wrong_calls.put(len(wrong))


@pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="this platform cannot fork"
)
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_forked_children_search_the_same_index(items, queries):
    index = SimilarityIndex().fit(items)
    expected = index.search(queries, 5).indices
    context = multiprocessing.get_context("fork")
    wrong_calls = context.Queue()
    children = [
        context.Process(target=child, args=(index, queries, expected, wrong_calls))
        for _ in range(3)
    ]
    for process in children:
        process.start()
    assert [wrong_calls.get(timeout=60) for _ in children] == [0, 0, 0]
    for process in children:
        process.join()


@pytest.mark.slow
def test_a_search_during_a_change_sees_the_old_or_the_new_items(items, queries):
    found = soak(1, items, queries[:50])
    assert found["searches"] > 100
    assert found["replacements"] > 2
    assert found["wrong"] == 0


@pytest.mark.slow
@pytest.mark.long
def test_a_long_soak_finds_no_mixture_and_leaves_nothing_behind(items, queries):
    found = soak(90, items, queries, every=2)
    assert found["searches"] > 10_000
    assert found["wrong"] == 0
    assert found["grown"]["threads"] <= 0
    assert found["grown"]["descriptors"] <= 0
    assert found["grown"]["resident_mib"] < 64


GUNICORN_APP = """
import json
import numpy as np
from fastcos import SimilarityIndex
rows = np.random.default_rng(0).standard_normal((20_000, 32)).astype(np.float32)
index = SimilarityIndex().fit(rows)
expected = index.search(rows[:64], 10)  # warmed in the master
def app(environ, start_response):
    wrong = 0
    for query in range(50):
        found = index.search(rows[query : query + 1], 10)
        wrong += found.indices.tobytes() != expected.indices[query].tobytes()
        wrong += found.scores.tobytes() != expected.scores[query].tobytes()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(wrong).encode()]
"""


@pytest.mark.slow
@pytest.mark.long
def test_10_000_searches_under_a_pre_forking_server_are_right(tmp_path):
    pytest.importorskip("gunicorn", reason="gunicorn is not installed")
    assert answers(GUNICORN_APP, tmp_path, 200) == [0] * 200
