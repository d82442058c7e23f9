"""A script: tests each layer and driver in every situation in which OpenMP or workqueue fails.

    pip install gunicorn dask distributed
    python -m tests.robustness.guard_matrix [--calls 200] [--backend pool] [--layer omp]
        [--situation fork]

In new processes, the script runs tests/robustness/guard_calls.py, either directly or in gunicorn.
The direct runs are made once with and once without handlers of SIGTERM and SIGABRT; gunicorn always
installs its own handlers. Each cell of the matrix is a combination of a layer, a driver, a
situation and an operation, with or without these handlers. The script makes at least CALLS calls
per cell. It prints one JSON line per process, and a summary. It exits with status 1 if any call was
wrong, crashed, hung or received a signal.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.robustness.preforked import answers

ROOT = Path(__file__).parents[2]
SITUATIONS = (
    "8-threads", "fork", "double-fork", "multiprocessing-fork", "multiprocessing-spawn", "dask",
    "gunicorn",
)  # fmt: skip
OPERATIONS = "kernel", "top_k", "matmul", "svd", "metrics"
BACKENDS, LAYERS = ("pool", "prange"), ("omp", "workqueue")
HANG = 900

# gunicorn installs its own handlers.
APPLICATION = """
import json
from tests.robustness import guard_calls
expected = guard_calls.warmed()  # in the master
def app(environ, start_response):
    body = json.dumps(guard_calls.wrong(5, expected)).encode()
    start_response("200 OK", [("Content-Type", "application/json")])
    return [body]
"""


def environment(backend: str, layer: str) -> dict[str, str]:
    return {
        "FASTCOS_BACKEND": backend, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "4",
        "PYTHONPATH": str(ROOT),
    }  # fmt: skip


def cells(backend: str, layer: str, situation: str, handlers: bool, calls: int) -> dict[str, Any]:
    """Return the output of guard_calls.py; if the process failed, return its failure as "fault"."""
    if situation == "gunicorn":
        with tempfile.TemporaryDirectory() as folder:
            requests = -(-calls // 5)
            try:
                result = answers(APPLICATION, Path(folder), requests, **environment(backend, layer))
            except OSError as error:
                return {"fault": repr(error)}
        wrong = {name: sum(one[name] for one in result) for name in OPERATIONS}
        return {"calls": 5 * requests, "wrong": wrong, "warnings": [], "signals": []}
    words = [sys.executable, "-m", "tests.robustness.guard_calls", str(calls), *situation.split()]
    try:
        done = subprocess.run(
            [*words, *["handlers"] * handlers], capture_output=True, text=True, timeout=HANG,
            cwd=ROOT, env={**os.environ, **environment(backend, layer)}, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"fault": "hung"}
    if done.returncode:
        return {"fault": f"exit {done.returncode}: {done.stderr[-2000:]}"}
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def fault(answer: dict[str, Any], backend: str, layer: str) -> str:
    """Return a description of what is wrong, or an empty string."""
    if "fault" in answer:
        return str(answer["fault"])
    if any(answer["wrong"].values()) or set(answer["wrong"]) != set(OPERATIONS):
        return f"wrong: {answer['wrong']}"
    if answer["signals"]:
        return f"signals: {answer['signals']}"
    messages = answer["warnings"]
    if messages and not (backend == "prange" and layer == "workqueue" and len(messages) == 1):
        return f"warnings: {messages}"
    return ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--layer", nargs="+", choices=LAYERS, default=LAYERS)
    parser.add_argument("--situation", nargs="+", choices=SITUATIONS, default=SITUATIONS)
    options = parser.parse_args()
    n_cells = n_calls = n_faults = 0
    for backend, layer, situation in itertools.product(
        options.backend, options.layer, options.situation
    ):
        for handlers in (True,) if situation == "gunicorn" else (False, True):
            result = cells(backend, layer, situation, handlers, options.calls)
            amiss = fault(result, backend, layer)
            where = {"driver": backend, "layer": layer, "in": situation, "handlers": handlers}
            print(json.dumps({**where, **result, "amiss": amiss}), flush=True)
            n_cells += len(OPERATIONS)
            n_calls += result.get("calls", 0) * len(OPERATIONS)
            n_faults += bool(amiss)
    print(json.dumps({"cells": n_cells, "calls": n_calls, "processes amiss": n_faults}))
    sys.exit(n_faults > 0)
