"""Threads, forked children and gunicorn each search an index ten thousand times."""

import json
import multiprocessing
import os
import subprocess
import sys
import textwrap
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fastcos import SimilarityIndex, top_k

pytestmark = [
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.skipif(
        "fork" not in multiprocessing.get_all_start_methods(), reason="this platform cannot fork"
    ),
    pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning"),
]
SEARCHES, CALLERS, WORKERS, K = 10_000, 8, 4, 5
PER_REQUEST = 10


def rows(n, seed):
    return np.random.default_rng(seed).standard_normal((n, 20)).astype(np.float32)


ITEMS, QUERIES = rows(3000, 0), rows(200, 1)


def wrong_searches(index, calls, expected):
    wrong = 0
    for call in range(calls):
        at = call % (len(QUERIES) - 7)
        wrong += (index.search(QUERIES[at : at + 8], K).indices != expected[at : at + 8]).any()
    return int(wrong)


def in_child(index, calls, expected, answers):
    answers.put(wrong_searches(index, calls, expected))


def test_searches_of_eight_threads_are_right():
    index, expected = SimilarityIndex().fit(ITEMS), top_k(QUERIES, ITEMS, K).indices
    with ThreadPoolExecutor(CALLERS) as pool:
        wrong = pool.map(
            wrong_searches, [index] * CALLERS, [SEARCHES // CALLERS] * CALLERS, [expected] * CALLERS
        )
        assert sum(wrong) == 0


def test_searches_of_forked_children_are_right():
    index = SimilarityIndex().fit(ITEMS)
    expected = index.search(QUERIES, K).indices  # The pool exists before the fork.
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    children = [
        context.Process(target=in_child, args=(index, SEARCHES // WORKERS, expected, answers))
        for _ in range(WORKERS)
    ]
    for child in children:
        child.start()
    assert [answers.get(timeout=600) for _ in children] == [0] * WORKERS
    for child in children:
        child.join()


APPLICATION = """
    import json
    import numpy as np
    from fastcos import SimilarityIndex
    from tests.parallel.test_serving import ITEMS, K, PER_REQUEST, QUERIES

    index = SimilarityIndex().fit(ITEMS)
    index.search(QUERIES, K)  # before the workers are forked

    def application(environ, start_response):
        first = int(environ["QUERY_STRING"])
        numbers = (first + np.arange(PER_REQUEST)) % len(QUERIES)
        found = [index.search(QUERIES[i : i + 1], K).indices[0].tolist() for i in numbers]
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps(found).encode()]
"""


@pytest.fixture
def server(tmp_path):
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path / "site")]
    subprocess.run([*pip, "gunicorn"], check=True)
    (tmp_path / "served.py").write_text(textwrap.dedent(APPLICATION))
    paths = [str(tmp_path / "site"), str(tmp_path), str(Path(__file__).parents[2])]
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(WORKERS), "--threads", "2",
         "--bind", "127.0.0.1:0", "--timeout", "300", "served:application"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}, cwd=tmp_path,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        line = next(line for line in process.stderr if "Listening at" in line)
        yield line.split("Listening at: ")[1].split()[0]
    finally:
        process.terminate()
        process.communicate(timeout=60)


def wrong_answers(url, first, expected):
    for _ in range(50):  # the socket opens before the workers are ready
        try:
            with urllib.request.urlopen(f"{url}/?{first}", timeout=300) as response:
                answer = json.load(response)
            break
        except ConnectionError:
            time.sleep(0.2)
    numbers = (first + np.arange(PER_REQUEST)) % len(QUERIES)
    return int((np.array(answer) != expected[numbers]).any(axis=1).sum())


def test_responses_of_a_pre_forking_server_are_right(server):
    expected = top_k(QUERIES, ITEMS, K).indices
    with ThreadPoolExecutor(CALLERS) as pool:
        wrong = list(
            pool.map(
                lambda first: wrong_answers(server, first, expected), range(SEARCHES // PER_REQUEST)
            )
        )
    assert len(wrong) * PER_REQUEST == SEARCHES
    assert sum(wrong) == 0
