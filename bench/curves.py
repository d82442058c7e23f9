"""Time and memory against size, with fitted exponents: `python -m bench.curves > curves.csv`.

    python -m bench.curves SelfJoin --threads 2         # the curves of one workload

Every point runs in a process of its own: median seconds of a workload whose answer was checked, and
the peak memory that a call added. For every curve an exponent is fitted, seconds ~ x^exponent, and
compared with that of the cost model in docs/scale.md. CSV on stdout, exponents on stderr.
"""

import argparse
import csv
import sys

import numpy as np

import fastcos
from bench.worker import in_new_process, peak_of
from bench.workloads import WORKLOADS, in_turns, label, prepared

# (workload, axis, exponent of the cost model, {value: case}); other parameters stay as they are
CURVES = (
    ("SelfJoin", "rows", 2,
     {n: {"rows": f"{n} x 64", "k": 10}
      for n in (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)}),
    ("SelfJoin", "columns", 1,
     {d: {"rows": f"20000 x {d}", "k": 10} for d in (64, 128, 256, 512, 768, 1536)}),
    ("SelfJoin", "k", 0,
     {k: {"rows": "20000 x 128", "k": k} for k in (1, 3, 10, 30, 100, 300, 1000)}),
    ("SelfJoin", "threads", -1, {t: {"rows": "40000 x 128", "k": 10} for t in (1, 2)}),
    ("IndexSearch", "items", 1,
     {n: {"queries": 1, "items": f"{n} x 768", "k": 10} for n in (10_000, 40_000, 160_000)}),
    ("GramMatmul", "non-zeros", 1,
     {z: {"shape": f"{z // 60} x 17000 x {z}", "columns": 64}
      for z in (1_000_000, 4_000_000, 16_000_000)}),
    ("GramMatmul", "columns of Q", 1,
     {c: {"shape": "100000 x 17000 x 6000000", "columns": c} for c in (16, 32, 64, 128, 256)}),
    ("GramMatmul", "items", 0,
     {p: {"shape": f"100000 x {p} x 6000000", "columns": 64} for p in (5_000, 20_000, 80_000)}),
    ("GramMatmul", "threads", -1,
     {t: {"shape": "100000 x 17000 x 6000000", "columns": 64} for t in (1, 2)}),
    ("TruncatedSVD", "non-zeros", 1,
     {z: {"shape": f"{z // 60} x 17000 x {z}", "k": 64, "tol": 1e-2}
      for z in (1_000_000, 4_000_000, 16_000_000)}),
    ("TruncatedSVD", "k", 1,
     {k: {"shape": "100000 x 17000 x 6000000", "k": k, "tol": 1e-2} for k in (16, 64, 128)}),
    ("Audit", "items", 2,
     {n: {"items": n, "columns": 128} for n in (5_000, 10_000, 20_000)}),
    ("ItemNeighbors", "non-zeros", 1,
     {z: {"shape": f"{z // 60} x 17000 x {z}", "k": 10}
      for z in (1_000_000, 4_000_000, 16_000_000)}),
)  # fmt: skip


def measure(name, case, threads):
    """Return the facts about a case."""
    fastcos.set_config(num_threads=threads)
    workload = prepared(WORKLOADS[name], case)
    seconds, percent, bound = in_turns(workload)
    mib, work = peak_of(workload.call)[1], workload.work()
    return {
        "seconds": seconds, "percent": percent, "bound": bound, "mib": mib,
        "operations": 2 * work.multiply_adds, "bytes": work.bytes,
    }  # fmt: skip


def exponent(sizes, values):
    """Return the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(name for name, *_ in CURVES))
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=fastcos.get_config().num_threads)
    given = parser.parse_args()
    if unknown := set(given.workloads) - set(names):
        parser.error(f"WORKLOAD must be one of {', '.join(names)}, got {', '.join(unknown)}")
    table = csv.writer(sys.stdout)
    table.writerow(
        ["case", "varies", "value", "threads", "seconds", "percent_of_limit", "added_mib"]
    )
    for name, axis, model, points in CURVES:
        if given.workloads and name not in given.workloads:
            continue
        seconds = []
        for value, case in points.items():
            threads = value if axis == "threads" else given.threads
            found = in_new_process(measure, name, case, threads)
            seconds.append(found["seconds"])
            row = [label(WORKLOADS[name], case), axis, value, threads]
            figures = f"{found['seconds']:.4g} {found['percent']:.0f} {found['mib']:.0f}"
            table.writerow([*row, *figures.split()])
            sys.stdout.flush()
        fitted = exponent(list(points), seconds)
        print(
            f"{name} by {axis}: seconds ~ x^{fitted:.2f}, the model has {model}, "
            f"deviation {fitted - model:+.2f}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
