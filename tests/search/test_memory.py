"""The memory of searches besides their inputs and outputs, measured in a new process."""

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

# The new process compiles kernels, and reports the memory of all cases together.
pytestmark = pytest.mark.slow

WORKING_MEMORY = 16.0
# The memory in MiB that a call may take in addition to working_memory, its inputs and its outputs.
SLACK = 12.0
# Each case has three parts. The first part is code that makes the inputs. The second part is the
# call. The third part is a number or a text. If it is a number, the outputs and the copies of the
# inputs may take this many MiB. If it is a text, the call must be refused, and the error message
# must begin with this text.
CASES = {
    "two sparse rows of 2**26 columns": (
        "columns = [0, 7, 7, 2**26 - 1]\n"
        "A = sp.csr_array((np.ones(4) / 3, columns, [0, 2, 4]), (2, 2**26))",
        "fastcos.top_k(A, k=1), fastcos.neighbors_above(A, min_score=0.1)",
        0,
    ),
    "more sparse items than fit": (
        "A = sp.csr_array(([1.0], [0], np.minimum(np.arange(5_000_001), 1)), (5_000_000, 1))",
        "fastcos.top_k(A[:1], A, k=1)",
        "working_memory must be at least",
    ),
    "one long id": (
        "ids = [f'id {i}' + 'x' * 20_000 * (i == 5) for i in range(8_000)]\n"
        "folder = tempfile.mkdtemp()",
        "[index := SimilarityIndex().fit(X[:8_000], ids), index.save(folder + '/index'), "
        "SimilarityIndex.open(folder + '/index', verify=True).ids, index.similar(ids[:9], 5), "
        "index.search(X[:99], 5, exclude_ids=ids[:100]), index.add(X[:1], ['y' * 20_000])]",
        1,
    ),
    "pairs above a score": ("", "fastcos.neighbors_above(X, min_score=0.75)", 4),
    "pairs of an index": ("index = SimilarityIndex().fit(X)", "index.radius(X, 0.75)", 4),
    "too many pairs": (
        "", "fastcos.neighbors_above(X, min_score=0.3)", "working_memory must be at least",
    ),
    "near-duplicates": ("", "near_duplicates(X, 0.8)", 2),
    "too many near-duplicates": (
        "", "near_duplicates(X, 0.5)", "working_memory must be at least",
    ),
    "blocks of products": ("", "[None for _ in fastcos.similarity_blocks(X[:999], X)]", 2),
    "blocks of distances": (
        "", "[None for _ in fastcos.similarity_blocks(X[:999], X, measure='neg_euclidean')]", 2,
    ),
    "a block of a million items": (
        "Y = np.zeros((1_000_000, 1), 'f4')",
        "next(fastcos.similarity_blocks(Y[:1], Y))",
        "working_memory must be at least",
    ),
    "candidates": (
        "lists = RANDOM.integers(0, 20_000, (3_000, 1_000))", "rescore(X[:3_000], X, lists, 5)", 24,
    ),
    "candidates of an index": (
        "lists = RANDOM.integers(0, 20_000, (1_000, 1_000))\nindex = SimilarityIndex().fit(X)",
        "index.rescore(X[:1_000], lists, 1_000)",
        8 + 2 * 12,
    ),
    "lists of allowed items": (
        "starts = np.arange(0, 2_000_001, 2_000)\n"
        "positions = np.tile(np.arange(2_000), 1_000)\n"
        "lists = sp.csr_array((np.ones(2_000_000, 'f4'), positions, starts), (1_000, 20_000))\n"
        "index = SimilarityIndex().fit(X)",
        "index.search(X[:1_000], 5, allowed=lists)",
        16,
    ),
    "packed bits": (
        "B = RANDOM.integers(0, 256, (5_000, 8), dtype='u1')",
        "fastcos.top_k(B, k=1_000, measure='hamming')",
        60,
    ),
    "too many neighbours of packed bits": (
        "B = RANDOM.integers(0, 256, (150_000, 8), dtype='u1')",
        "fastcos.top_k(B[:9], B, k=150_000, measure='hamming')",
        "working_memory must be at least",
    ),
}  # fmt: skip
PROGRAM = f"""
import gc, json, os, tempfile
import numpy as np, scipy.sparse as sp
import fastcos
from fastcos import SimilarityIndex
from fastcos.search import near_duplicates, rescore
from fastcos.search.compile_searches import compile_searches

def status(name):
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))

def warm_up():
    compile_searches()  # what a case compiled would count as its memory
    ids = [str(i) for i in range(len(FEW))]
    bits = np.zeros((40, 8), "u1")
    for measure in ("cosine", "neg_euclidean"):
        list(fastcos.similarity_blocks(FEW, measure=measure))
    for values in (np.ones(9), np.full(9, 0.3)):
        rows = sp.csr_array((values, np.arange(9), np.arange(10)))
        fastcos.top_k(rows, k=1), fastcos.neighbors_above(rows, min_score=0.9)
    near_duplicates(FEW, 0.7), rescore(FEW[:5], FEW, np.zeros((5, 9), int), 2)
    fastcos.top_k(bits, k=2, measure="hamming")
    index = SimilarityIndex().fit(FEW, ids)
    index.similar(ids[:9], 5), index.search(FEW[:70], 5, exclude_ids=ids[:100])
    index.search(FEW[:5], 2, allowed_ids=[ids] * 5), index.radius(FEW, 0.7)
    index.rescore(FEW[:5], np.zeros((5, 9), int), 2)
    folder = tempfile.mkdtemp()
    index.save(folder + "/index"), SimilarityIndex.open(folder + "/index", verify=True)

fastcos.set_config(n_threads=2, working_memory={WORKING_MEMORY})
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((20_000, 24), dtype=np.float32)
FEW = X[:400]
warm_up()
for name, (inputs, call, _) in json.loads(input()).items():
    if not os.fork():
        exec(inputs)
        gc.collect()
        open("/proc/self/clear_refs", "w").write("5")  # the peak counts from here on
        before, error = status("VmRSS"), ""
        try:
            result = eval(call)
        except ValueError as refused:
            error = str(refused)
        print(json.dumps([name, status("VmHWM") - before, error]), flush=True)
        os._exit(0)
    os.wait()
"""


@functools.cache
def measurements(names):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        input=json.dumps({name: CASES[name] for name in names}), capture_output=True, text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {name: (peak, error) for name, peak, error in map(json.loads, done.stdout.splitlines())}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("name", CASES)
def test_working_memory_holds_or_the_call_is_refused(name, request):
    chosen = [item for item in request.session.items if item.path == request.path]
    peak, error = measurements(tuple(item.callspec.params["name"] for item in chosen))[name]
    bound = CASES[name][2]
    if isinstance(bound, str):
        assert error.startswith(bound)
        assert "\n" not in error
        assert len(error) <= 300
    else:
        assert error == ""
        assert peak <= WORKING_MEMORY + SLACK + bound
