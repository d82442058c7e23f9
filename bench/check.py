"""Check of the suite: `python -m bench.check`, two minutes.

Every small benchmark runs once and its answer is correct; every public operation has a benchmark.
Tracked exactness is exact, and the recovery of the simulation's clusters is unchanged under every
D. One time is checked: a search takes at most as long as sgemm with argpartition in this process.
"""

import inspect
import statistics
import sys
import time

import numpy as np

import fastcos
from bench import inputs, suite
from fastcos import metrics

# sizes whose inputs take seconds, and benchmarks that start processes
LARGE = ("40,000", "20,000", "50000", "5000", "5_000", "3000", "10,000", "starting.")
# all small benchmarks that exist, rounded down
MIN_BENCHMARKS = 90
# pairwise AUC of the fixed simulation under every named D; rounding changes the last digits
AREAS = {
    "identity": 0.921, "orthonormal": 0.783, "weights": 0.963, "balanced": 0.951,
    "smoothed": 0.949, "data": 0.940,
}  # fmt: skip
AREAS_DRIFT = 0.002
# functions that compute nothing
NO_WORK = {
    "fastcos.get_config", "fastcos.set_config", "fastcos.get_measure", "fastcos.list_measures"
}  # fmt: skip


def small(name):
    return not any(size in name for size in LARGE)


def reference_top_k(rows, k):
    """Return the k best of all scores of one matrix product."""
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -np.inf)
    best = np.argpartition(scores, -k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1)
    return np.take_along_axis(best, order, 1)


def ratio_to_reference():
    """Return the median ratio of our time to the reference's, over interleaved calls."""
    rows, ratios = inputs.gaussian(4_000, 128), []
    for _ in range(7):
        seconds = []
        for call in (lambda: fastcos.top_k(rows, k=10), lambda: reference_top_k(rows, 10)):
            started = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - started)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[2:])


def without_benchmark():
    """Return the public operations that no file of the suite calls."""
    sources = "".join(path.read_text("utf8") for path in suite.HERE.glob("*.py"))
    public = {f"fastcos.{name}": getattr(fastcos, name) for name in fastcos.__all__}
    public |= {f"metrics.{name}": getattr(metrics, name) for name in metrics.__all__}
    operations = {
        name
        for name, thing in public.items()
        if inspect.isfunction(thing) or (inspect.isclass(thing) and hasattr(thing, "fit"))
    }
    return sorted(name for name in operations - NO_WORK if name not in sources)


def problems():
    yield from (f"{name} has no benchmark" for name in without_benchmark())
    ran = dict(suite.measured({"time"}, small))
    yield from (f"{name} has no time" for name, result in ran.items() if result is None)
    if len(ran) < MIN_BENCHMARKS:
        yield f"{len(ran)} benchmarks ran, at least {MIN_BENCHMARKS} are there"
    tracked = dict(suite.measured({"track"}, lambda name: "recovery" in name))
    for name, value in tracked.items():
        exact = "track_exact_share" in name or "track_same_bits" in name
        if value is None or (exact and value != 1):
            yield f"{name} is {value}"
    for rescaling, area in AREAS.items():
        found = tracked.get(f"recovery.Rescalings.track_pair_auc({rescaling!r})")
        if found is None or abs(found - area) > AREAS_DRIFT:
            yield f"pairwise AUC after D = {rescaling} is {found}, was {area}"
    ratio = ratio_to_reference()
    if ratio > 1:
        yield f"top_k takes {ratio:.2f} times the time of sgemm and argpartition"
    print(
        f"bench.check: {len(ran)} benchmarks ran, {len(tracked)} tracks, "
        f"top_k takes {ratio:.2f} of the time of sgemm and argpartition",
        file=sys.stderr,
    )


if __name__ == "__main__":
    found = list(problems())
    for problem in found:
        print(f"bench.check: {problem}", file=sys.stderr)
    sys.exit(bool(found))
