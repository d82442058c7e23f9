"""Cost of an audit in units of one top_k of the same rows: `python -m bench.audit_cost`.

The answers are compared first; then both are timed alternately in one process, after a warm-up.
With --million: 1,000,000 x 64 once, with its peak memory, in a few minutes.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fastcos
from fastcos.storage import provenance

ROUNDS = 7


def rows(n: int, d: int, n_centres: int) -> Any:
    """Return clustered items with columns of different scales; Gaussian ones without centres."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((n, d), dtype=np.float32)
    if not n_centres:
        return noise
    centres = rng.standard_normal((n_centres, d), dtype=np.float32)
    lengths = np.linspace(3, 0.3, d, dtype=np.float32)
    return (centres[rng.integers(0, n_centres, n)] + np.float32(0.7) * noise) * lengths


def seconds(call: Callable[[], Any]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def check(items: Any, report: fastcos.auditing.Audit) -> None:
    """Compare the certificates of the audit with those of certified_neighbors."""
    found = fastcos.certified_neighbors(items, report.k, report.condition)
    if report.at_condition.certified_linear != found.certified.mean():
        raise SystemExit("audit and certified_neighbors disagree")


def ratios(kind: str, items: Any, users: Any, labels: Any) -> str:
    """Return one line: ratios of medians, and seconds."""
    check(items, fastcos.audit(items, users))
    times: dict[str, list[float]] = {"top_k": [], "audit": [], "labelled": []}
    for _ in range(ROUNDS):
        times["top_k"].append(seconds(lambda: fastcos.top_k(items, k=10)))
        times["audit"].append(seconds(lambda: fastcos.audit(items, users)))
        times["labelled"].append(seconds(lambda: fastcos.audit(items, users, labels=labels)))
    middle = {name: statistics.median(values) for name, values in times.items()}
    unit, best = middle["top_k"], min(times["top_k"])
    return (
        f"{kind}: top_k {unit:.3f} s (best {best:.3f}), audit {middle['audit']:.3f} s, "
        f"{middle['audit'] / unit:.2f} times ({middle['audit'] / best:.2f} of the best); "
        f"with labels {middle['labelled'] / unit:.2f} times"
    )


def million() -> str:
    """Return one line: time and peak memory of 1,000,000 x 64."""
    items, users = rows(1_000_000, 64, 2_000), rows(200_000, 64, 0)
    fastcos.audit(items[:3_000], users[:1_000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    taken = seconds(lambda: fastcos.audit(items, users))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return f"1,000,000 x 64: {taken:.0f} s, peak {peak:.2f} GiB (inputs and code {before:.2f})"


def main() -> None:
    """Print the machine and the costs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--million", action="store_true", help="1,000,000 x 64 once")
    given = parser.parse_args()
    print(provenance.provenance({})["machine"])
    if given.million:
        print(million())
        return
    users, labels = rows(5_000, 128, 0), np.random.default_rng(1).integers(0, 20, 20_000)
    for kind, n_centres in (("gaussian", 0), ("clustered", 200)):
        print(ratios(f"20,000 x 128 {kind}", rows(20_000, 128, n_centres), users, labels))


if __name__ == "__main__":
    main()
