"""One library at one job in a process of its own: ``python -P speed_worker.py JOB.json``.

Started by fastcos.speed, never imported by it: BLAS chooses its kernels when it is loaded, so every
library gets a process for every choice. Rivals may live in an environment without fastcos, so the
adapters beside this file are read by path. Prints seconds per call and the most bytes that the
process held, and writes the answer to the file that the job names.
"""

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LIBRARIES = runpy.run_path(str(Path(__file__).with_name("speed_libraries.py")))


def sgemm(side: int) -> Any:
    """Square product of float32 matrices."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((side, side), dtype=np.float32) for _ in range(2))
    return lambda: (left @ right)[:1]


def _resident_peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss remembers the process that started this one
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


def _timed(call: Any, seconds: float, least: int = 3) -> tuple[list[float], Any]:
    """Seconds of the calls after one that warms up, and the answer of the last one."""
    answer = call()
    taken: list[float] = []
    stop = time.perf_counter() + seconds
    while len(taken) < least or time.perf_counter() < stop:
        started = time.perf_counter()
        answer = call()
        taken.append(time.perf_counter() - started)
    return taken, answer


def _measured(job: Any, inputs: Any) -> tuple[dict[str, Any], Any]:
    """What the job took, and its answer."""
    work, library, k = job["work"], job["library"], job["k"]
    if work == "search":
        return _measured_search(library, inputs["rows"], inputs["queries"], k, job["seconds"])
    read: Any = np.asarray
    if work == "items":
        call, read = LIBRARIES["items"](library, inputs["rows"], k)
    elif work == "sgemm":
        call = sgemm(job["size"])
    else:
        product = LIBRARIES[work](library, inputs["rows"])
        call = lambda: product(inputs["A"])  # noqa: E731
    seconds, found = _timed(call, job["seconds"])
    result = {"seconds": seconds, "peak_bytes": _resident_peak()}
    return result, read(found)


def _measured_search(
    library: str, rows: Any, queries: Any, k: int, seconds: float
) -> tuple[dict[str, Any], Any]:
    """Neighbours of the rows themselves, then single queries."""
    search = LIBRARIES["search"](library, rows, k, "cosine", own=True)
    prepared = search.prepare(rows)
    taken, found = _timed(lambda: search.call(prepared), seconds)
    peak, latencies = _resident_peak(), []
    served = "fastcos_index" if library == "fastcos" else library
    one = LIBRARIES["search"](served, rows, k, "cosine", own=False)
    for query in queries[:20]:
        one.call(one.prepare(query[None]))
    stop = time.perf_counter() + seconds
    for query in queries:
        started = time.perf_counter()
        one.call(one.prepare(query[None]))
        latencies.append(time.perf_counter() - started)
        if time.perf_counter() > stop:
            break
    result = {"seconds": taken, "peak_bytes": peak, "latencies": latencies}
    return result, search.read(found)[0]


def main(path: str) -> None:
    """Run the job and print what it took."""
    job = json.loads(Path(path).read_text("utf8"))
    inputs = dict(np.load(job["inputs"])) if job["inputs"] else {}
    if "indptr" in inputs:
        import scipy.sparse as sp

        parts = (inputs["data"], inputs["indices"], inputs["indptr"])
        inputs["rows"] = sp.csr_matrix(parts, shape=tuple(inputs["shape"]))
    result, answer = _measured(job, inputs)
    np.save(job["answer"], np.asarray(answer))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
