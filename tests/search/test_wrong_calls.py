"""Each operation of an index refuses at least ten wrong calls, and changes nothing.

Each error message is one line, which names the argument, the rule and the value. The index has ten
rows of four columns, and was saved. A wrong call must not change a single byte of the index or of
the files in its directory.
"""

import hashlib
import json
import pickle
import re
import shutil

import numpy as np
import pytest

from fastcos import SimilarityIndex, neighbors_above, search, top_k
from fastcos.integrations.mteb import FastcosSearchIndex

RNG = np.random.default_rng(0)
X = RNG.standard_normal((10, 4))
NAN, WIDE = np.where(X[3, 1] == X, np.nan, X), np.ones((10, 5))
LISTS = np.tile(np.arange(5), (10, 1))
BITS = np.packbits(X > 0, axis=1)
NEW = np.arange(10, 20)
BY_LIST = {"k": 3, "candidates": LISTS}
MEMORY = [("working_memory", 0), ("n_threads", 0), ("n_threads", 1.5)]
ALONE = [NAN, X[0, :, None, None], "rows", None, X + 1j, BITS]
ROWS = [WIDE, *ALONE]
THRESHOLDS = [None, "0.5", np.nan, np.inf, [0.5], True]


def each(valid, **wrong):
    """Return calls in which one argument has a wrong value, and all others are valid."""
    return [(name, {**valid, name: value}) for name, values in wrong.items() for value in values]


def with_memory(calls, valid):
    return calls + [(name, {**valid, name: value}) for name, value in MEMORY]


IDS = [[0] * 10, ["a"] * 10, [-1, *NEW[1:]], [0.5] * 10, NEW[:9], NEW[:, None], [True] * 10,
       [2**63, *NEW[1:]], [*"abcdefghi", 1], [None] * 10]  # fmt: skip
NO_NAMES = [["", *"abcdefghi"], ["\0", *"abcdefghi"]]
BOUNDS = [[1.0], [np.nan] * 10, ["a"] * 10]
TOP = {"queries": BITS, "items": BITS, "k": 3}
NO_BITS = [X, BITS[:, :, None], BITS[:0], BITS.astype(np.int8), None]
BY_SCORE = {"query_embeddings": X, "corpus_embeddings": X}
CANDIDATES = [LISTS + 6, LISTS - 2, LISTS + 0.5, LISTS[0], LISTS[:9], LISTS[:, :0], "lists", None]
# methods of the index
METHODS = {
    "fit": each({"items": X}, ids=IDS + NO_NAMES, items=[NAN]),
    "add": each({"items": X, "ids": NEW}, ids=[*IDS, range(9, 19)], items=ROWS),
    "upsert": each({"items": X, "ids": NEW}, ids=[*IDS, None], items=ROWS),
    "remove": each(
        {}, ids=[[99], [0, 0], [0, 99], ["a"], [-1], [0.5], [[0]], 0, [True], [2**63], None]
    ),
    "save": each({}, path=[None, "", 5, [], b"", {}, True, 1.5, (), "FILE", "OTHER", "FILE/x"]),
    "radius": with_memory(
        each({"queries": X, "min_score": 0.5}, queries=ROWS, min_score=THRESHOLDS,
             allowed=[[10], [-1], np.ones(9, bool), "a", [0.5]]),
        {"queries": X, "min_score": 0.5},
    ),
    "near_duplicates": with_memory(each({}, min_score=[*THRESHOLDS, {}]), {"min_score": 0.9}),
    "rescore": with_memory(
        each({"queries": X, **BY_LIST}, queries=ROWS, candidates=CANDIDATES, k=[0, 6, 1.5]),
        {"queries": X, **BY_LIST},
    ),
}  # fmt: skip
FUNCTIONS = {
    "open": (SimilarityIndex.open, each(
        {"path": "SAVED"}, path=[None, "", 5, [], b"", {}, True, 1.5, (), "FILE", "OTHER"],
        verify=[1],
    )),
    "neighbors_above": (neighbors_above, with_memory(
        each({"queries": X, "min_score": 0.5}, queries=ALONE, min_score=THRESHOLDS, items=[WIDE],
             measure=["cosin", None]), {"queries": X, "min_score": 0.5},
    )),
    "near_duplicates": (search.near_duplicates, with_memory(
        each({"items": X, "min_score": 0.5}, items=ALONE, min_score=THRESHOLDS,
             measure=["cosin"]), {"items": X, "min_score": 0.5},
    )),
    "rescore": (search.rescore, with_memory(
        each({"queries": X, "items": X, **BY_LIST}, queries=ALONE, items=ROWS, k=[0, 6],
             candidates=CANDIDATES, measure=["cosin"], upper_bounds=BOUNDS),
        {"queries": X, "items": X, **BY_LIST},
    )),
    "semantic_search": (search.semantic_search, each(
        BY_SCORE, query_embeddings=ROWS, corpus_embeddings=ALONE, top_k=[0, 1.5, None],
        query_chunk_size=[0], corpus_chunk_size=[0], score_function=["cosine", None, len],
    )),
    "hamming": (top_k, with_memory(each(
        {**TOP, "measure": "hamming"}, queries=NO_BITS, items=NO_BITS[:-1], k=[0, 11],
        min_score=["a"], allowed=[[0]], exclude=[np.eye(10)], out=["x"], exclude_self=[1],
    ), {**TOP, "measure": "hamming"})),
    "bit_cosine": (top_k, with_memory(each(
        {**TOP, "measure": "bit_cosine"}, queries=NO_BITS, items=NO_BITS[:-1], k=[0, 11],
        min_score=[np.nan], allowed=[[0]], progress=[5],
    ), {**TOP, "measure": "bit_cosine"})),
}  # fmt: skip


def digest(index, folder):
    """Return a digest of the content of the index and of all files."""
    result = hashlib.sha256(pickle.dumps(index))
    for file in sorted(folder.rglob("*")):
        result.update(str(file).encode() + (file.read_bytes() if file.is_file() else b""))
    return result.hexdigest()


@pytest.fixture
def saved(tmp_path, monkeypatch):
    """Return an index that was saved as SAVED.

    The same folder contains an unrelated file and an unrelated directory.
    """
    monkeypatch.chdir(tmp_path)
    index = SimilarityIndex().fit(X)
    index.save("SAVED")
    tmp_path.joinpath("FILE").write_text("no index")
    tmp_path.joinpath("OTHER").mkdir()
    tmp_path.joinpath("OTHER/file").write_text("no index")
    return index


def check_refused(call, arguments, name):
    with pytest.raises((TypeError, ValueError, OSError)) as caught:
        call(**arguments)
    line = str(caught.value)
    assert re.fullmatch(rf"{name}\b.* must .*, got .+", line), line
    assert len(line) < 900


@pytest.mark.parametrize("method", METHODS)
def test_wrong_call_of_a_method_changes_nothing(method, saved, tmp_path):
    calls, before = METHODS[method], digest(saved, tmp_path)
    assert len(calls) >= 10
    for name, arguments in calls:
        check_refused(getattr(saved, method), arguments, name)
        assert digest(saved, tmp_path) == before


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_call_of_a_function_is_refused(function, saved, tmp_path):
    (call, calls), before = FUNCTIONS[function], digest(saved, tmp_path)
    assert len(calls) >= 10
    for name, arguments in calls:
        check_refused(call, arguments, name)
    assert digest(saved, tmp_path) == before


def edited(**changes):
    """Return a function that changes fields of a header."""

    def edit(folder):
        header = json.loads((folder / "header.json").read_text())
        (folder / "header.json").write_text(json.dumps(header | changes))

    return edit


def without_a_file(folder):
    other = SimilarityIndex().fit(X[:5])
    other.save(folder)
    next(folder.glob("rows_*")).unlink()


def with_a_short_file(folder):
    without_a_file(folder)
    next(folder.glob("norms_*")).write_bytes(b"")


DAMAGE = {
    "removed": shutil.rmtree,
    "no header": lambda folder: (folder / "header.json").unlink(),
    "empty header": lambda folder: (folder / "header.json").write_text(""),
    "no JSON": lambda folder: (folder / "header.json").write_text("{"),
    "not a header": lambda folder: (folder / "header.json").write_text("[1]"),
    "another kind": edited(kind="LinearMF"),
    "another version": edited(format_version=99),
    "another checksum": edited(sha256="0"),
    "another format": edited(format="zip"),
    "without a file": without_a_file,
    "with a short file": with_a_short_file,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_refresh_of_a_damaged_directory_changes_nothing(damage, saved, tmp_path):
    DAMAGE[damage](tmp_path / "SAVED")
    before = digest(saved, tmp_path)
    with pytest.raises((ValueError, OSError)) as caught:
        saved.refresh()
    assert re.search("SAVED.*(is damaged: |is missing|got )|must be .*, got ", str(caught.value))
    assert "\n" not in str(caught.value)
    assert digest(saved, tmp_path) == before


def test_refresh_needs_a_directory():
    index = SimilarityIndex().fit(X)
    with pytest.raises(ValueError, match=r"^SimilarityIndex must be opened or saved before"):
        index.refresh()


def test_wrong_call_of_the_mteb_index_changes_nothing():
    index = FastcosSearchIndex()
    names = [*"abcdefghij"]
    more = [name.upper() for name in names]
    index.add_documents(X, names)
    before = pickle.dumps(index)
    add = {"embeddings": X, "idxs": more}
    find = {"embeddings": X[:1], "top_k": 3}
    ranked = {**find, "top_ranked": {"q": ["a"]}, "query_idx_to_id": {0: "q"}}
    for call, calls in (
        (index.add_documents, each(add, embeddings=ROWS, idxs=[more[:9], names, ["A"] * 10])),
        (index.search, each(find, embeddings=ROWS, top_k=[0, 1.5, None])),
        (index.search, each(ranked, top_ranked=[{"q": ["none"]}], query_idx_to_id=[None, {}])),
    ):
        for name, arguments in calls:
            check_refused(call, arguments, name)
            assert pickle.dumps(index) == before
