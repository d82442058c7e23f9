"""Time fastcos and other installed libraries on your data and machine: python -m bench.your_data.

Every library runs in this process with the same number of threads. Its answer is compared with
float64 before it is timed. The published tables give each library a process of its own and its best
settings: ``python -m bench.tables``.
"""

import argparse
import functools
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.limits import Limit, Work, gram_work, product_work, roofs, search_work
from bench.roofline_display import RooflineDisplay, RooflinePoint
from fastcos import config, io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table, say, spinner
from fastcos.engine import uncompiled
from fastcos.kernels import cpu
from fastcos.storage import provenance

DESCRIPTION = """\
Time exact cosine search among embeddings (.npy, or .npz of one matrix), or products of interactions
(any other file that fastcos compare reads); of Gaussian rows where no file is given. Compares what
is installed of FAISS, NumPy and scikit-learn (search), SciPy (products). Answers are checked first;
a wrong answer is not timed. The limit is how long this machine needs at least for the multiply-adds
and bytes of the plain method; probes measure it in turns. Exit status 1 if an answer of fastcos is
wrong."""
EPILOG = """\
examples:
  python -m bench.your_data
  python -m bench.your_data vectors.npy --k 100
  python -m bench.your_data ratings.csv --seconds 3 --json > speed.json
  python -m bench.your_data --roofline roofline.png"""
OURS, ONE_THREAD = "fastcos", "fastcos, 1 thread"
COMPETITORS = ("faiss", "numpy", "scipy", "sklearn")
# shape of the Gaussian rows: all libraries together take half a minute on two cores
GAUSSIAN = (20_000, 128)
# queries compared with float64: fewer operations than one search
CHECKED_ROWS = 50
# columns of the dense factor of a product: a common rank
N_COLUMNS = 64
# share of the largest entry by which a product may differ from float64, as in bench.tables
PRODUCT_TOLERANCE = 1e-4
# seconds of rest after calls of NumPy, whose OpenBLAS threads spin for 50 ms: the next one, of
# fastcos, would share a core with them
_REST = 0.06


class Operation(NamedTuple):
    """An operation: one call per library, error of an answer, largest correct error, and work."""

    name: str
    calls: dict[str, Callable[[], Any]]
    error: Callable[[Any], float]
    limits: dict[str, float]
    work: Work


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("data", nargs="?", metavar="DATA", help="embeddings or interactions")
    parser.add_argument("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, metavar="S", help="per library (default 1)"
    )
    parser.add_argument(
        "--libraries", metavar="A,B,...", help="only these; '' for none (default: all installed)"
    )
    parser.add_argument("--roofline", metavar="FILE", help="draw the limits and these results")
    options.add_json(parser)
    options.add_common(parser)


def run(given: argparse.Namespace) -> int:
    """Check and time every library; print the results."""
    from threadpoolctl import threadpool_limits

    options.apply_common(given)
    uncompiled.work_left = 0  # the kernels are timed, not their stand-in
    seconds = validation.as_real("--seconds", given.seconds, above=0)
    names = COMPETITORS if given.libraries is None else given.libraries.split(",")
    chosen = [validation.as_choice("--libraries", name, COMPETITORS) for name in names if name]
    missing = [name for name in chosen if importlib.util.find_spec(name) is None]
    data, source = _read(given)
    libraries = {OURS, *chosen}.difference(missing)
    with spinner("measuring"), threadpool_limits(config.num_threads()):
        if isinstance(data, np.ndarray):
            k = validation.as_count("--k", given.k, high=len(data) - 1)
            operations = [search_operation(data, k, libraries)]
        else:
            operations = product_operations(data, libraries)
        results = [result for operation in operations for result in measure(operation, seconds)]
        if given.roofline:
            RooflineDisplay(points(operations, results), *roofs()).plot().figure_.savefig(
                given.roofline, dpi=150
            )
    if given.json:
        parameters = {"data": source, "shape": data.shape, "k": given.k, "seconds": seconds}
        document = provenance.provenance(parameters)
        document |= {"results": results, "missing": missing}
        print_json(provenance.json_ready(document))
    else:
        header = ("operation", "library", "ms", "Gop/s", "% of limit", "x fastcos", "correct")
        cells = [
            (
                one["operation"], one["library"], one["seconds"] and 1e3 * one["seconds"],
                one["operations_per_second"] and one["operations_per_second"] / 1e9,
                one["percent_of_limit"], one["ratio"], str(one["correct"]),
            )
            for one in results
        ]  # fmt: skip
        rows, columns = data.shape
        print_table(f"{source}, {rows:,} x {columns:,}", header, cells)
        for line in sentences(results):
            print(line)
    for name in missing:
        say(f"not installed: {name}")
    return int(any(not one["correct"] for one in results if one["library"] == OURS))


def _read(given: argparse.Namespace) -> tuple[Any, str]:
    """Return float32 rows or interactions, and the name of the data."""
    if given.data is None:
        seed = validation.as_count("--seed", given.seed, low=0)
        return np.random.default_rng(seed).standard_normal(GAUSSIAN, np.float32), "Gaussian rows"
    path = Path(given.data)
    if io.holds_vectors(path):
        return np.asarray(io.read_vectors(path).vectors, np.float32), path.name
    return io.read_interactions(path).X.astype(np.float32), path.name


def search_operation(rows: Any, k: int, libraries: set[str]) -> Operation:
    """Return the search for every row's k neighbours by cosine among the other rows."""
    from fastcos.neighbors import top_k

    n, d = rows.shape
    wide = rows.astype(np.float64)
    wide /= np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), np.finfo(float).tiny)
    unit, own = wide.astype(np.float32), np.arange(n)[:, None]

    def by_numpy() -> Any:
        found = np.empty((n, k), np.int64)
        for start in range(0, n, 1024):  # blocks of queries bound the memory
            scores = unit[start : start + 1024] @ unit.T
            np.put_along_axis(scores, own[start : start + 1024], -np.inf, axis=1)
            best = np.argpartition(scores, -k, axis=1)[:, -k:]
            order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
            found[start : start + 1024] = np.take_along_axis(best, order, 1)
        return found

    calls: dict[str, Callable[[], Any]] = {OURS: lambda: top_k(rows, k=k).indices}
    if config.num_threads() > 1:
        calls[ONE_THREAD] = lambda: top_k(rows, k=k, n_threads=1).indices
    if "faiss" in libraries:
        # the OpenBLAS of its wheel is older than many CPUs, and takes kernels of SSE for them
        if "avx512f" in cpu.cpu_features():
            os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
        import faiss

        index = faiss.IndexFlatIP(d)
        index.add(unit)

        def by_faiss() -> Any:
            found = index.search(unit, k + 1)[1]
            others = found != own
            others[others.all(axis=1), -1] = False  # a duplicate took the row's own place
            return found[others].reshape(n, k)

        calls["faiss"] = by_faiss
    if "numpy" in libraries:
        calls["numpy"] = by_numpy
    if "sklearn" in libraries:
        from sklearn.neighbors import NearestNeighbors

        model = NearestNeighbors(algorithm="brute", metric="cosine").fit(rows)
        calls["sklearn"] = lambda: model.kneighbors(n_neighbors=k, return_distance=False)
    checked = np.linspace(0, n - 1, min(n, CHECKED_ROWS)).astype(int)
    truth = wide[checked] @ wide.T
    np.put_along_axis(truth, checked[:, None], -np.inf, axis=1)
    best = -np.sort(-truth, axis=1)[:, :k]

    def error(found: Any) -> float:
        found = found[checked]
        repeated = any(len(set(row)) < k for row in found.tolist())
        if repeated or found.min() < 0 or (found == checked[:, None]).any():
            return float("inf")
        return float(abs(np.take_along_axis(truth, found, axis=1) - best).max())

    # d products and two norms, rounded to float32, of the row found and of the row it replaces
    limits = dict.fromkeys(calls, 2 * (2 * d + 6) * 2.0**-24)
    # fastcos orders by float64 scores; the truth above may sum in another order
    limits |= {OURS: 1e-12, ONE_THREAD: 1e-12}
    return Operation("search", calls, error, limits, search_work(n, n, d, k))


def product_operations(X: Any, libraries: set[str]) -> list[Operation]:
    """Return X A and X'(X A), with a dense A of N_COLUMNS columns."""
    from fastcos.linalg import gram_matmul, matmul

    A = np.random.default_rng(0).standard_normal((X.shape[1], N_COLUMNS)).astype(np.float32)
    truth = X.astype(np.float64) @ A

    def product(name: str, ours: Any, scipy: Any, truth: Any, work: Work) -> Operation:
        calls = {OURS: ours} | ({"scipy": scipy} if "scipy" in libraries else {})
        if config.num_threads() > 1:
            calls[ONE_THREAD] = functools.partial(ours, n_threads=1)
        largest = max(float(abs(truth).max()), np.finfo(float).tiny)

        def error(found: Any) -> float:
            return float(abs(found - truth).max()) / largest

        return Operation(name, calls, error, dict.fromkeys(calls, PRODUCT_TOLERANCE), work)

    one, two = product_work(X, N_COLUMNS), gram_work(X, N_COLUMNS)
    return [
        product("X A", functools.partial(matmul, X, A), lambda: X @ A, truth, one),
        product(
            "X'(X A)", functools.partial(gram_matmul, X, A), lambda: X.T @ (X @ A), X.T @ truth, two
        ),
    ]


def measure(operation: Operation, seconds: float) -> list[dict[str, Any]]:
    """Return one record per library: medians of turns with the limit, None for a wrong answer."""
    errors = {name: operation.error(call()) for name, call in operation.calls.items()}
    correct = {name: error <= operation.limits[name] for name, error in errors.items()}
    times: dict[str, list[float]] = {name: [] for name in errors if correct[name]}
    shares: dict[str, list[float]] = {name: [] for name in times}
    limit = Limit(operation.work)
    while pending := [name for name, spent in times.items() if sum(spent) < seconds]:
        time.sleep(_REST)
        least = limit.seconds()
        for name in pending:
            started = time.perf_counter()
            operation.calls[name]()
            times[name].append(time.perf_counter() - started)
            shares[name].append(100 * least / times[name][-1])
    medians = {name: statistics.median(spent) for name, spent in times.items()}
    operations = 2 * operation.work.multiply_adds
    return [
        {
            "operation": operation.name,
            "library": name,
            "seconds": medians.get(name),
            "operations_per_second": operations / medians[name] if name in medians else None,
            "percent_of_limit": statistics.median(shares[name]) if name in medians else None,
            "limited_by": limit.bound,
            "ratio": medians[name] / medians[OURS] if {name, OURS} <= medians.keys() else None,
            "error": error,
            "correct": correct[name],
        }
        for name, error in errors.items()
    ]


def sentences(results: list[dict[str, Any]]) -> list[str]:
    """Return a line to share for every operation: time, limit, scaling and other libraries."""
    lines = []
    for name in dict.fromkeys(one["operation"] for one in results):
        some = {one["library"]: one for one in results if one["operation"] == name}
        ours = some.pop(OURS)
        if not ours["correct"]:
            continue
        parts = [f"{1e3 * ours['seconds']:.3g} ms, {ours['percent_of_limit']:.0f}% of the limit"]
        for library, one in some.items():
            if one["ratio"] is not None:
                parts.append(f"{one['ratio']:.2g}x {library}")
        threads = config.num_threads()
        version = metadata.version("fastcos")
        lines.append(f"fastcos {version}, {threads} threads, {name}: {'; '.join(parts)}")
    return lines


def points(operations: list[Operation], results: list[dict[str, Any]]) -> list[RooflinePoint]:
    """Return the timed results as points of a roofline."""
    works = {one.name: one.work for one in operations}
    return [
        RooflinePoint(
            f"{one['operation']}, {one['library']}", 2 * works[one["operation"]].multiply_adds,
            works[one["operation"]].bytes, one["seconds"], one["percent_of_limit"],
            one["limited_by"],
        )
        for one in results
        if one["correct"]
    ]  # fmt: skip


def main() -> int:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.your_data",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    try:
        return run(parser.parse_args())
    except (ValueError, OSError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    sys.exit(main())
