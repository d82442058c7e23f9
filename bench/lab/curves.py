"""Time and memory against size, and what a model predicts: `python -m bench.curves > curves.csv`.

    python -m bench.curves SelfJoin --threads 2         # the curves of one workload
    python -m bench.curves --model bench/model.md       # writes predictions into its rows

Every point runs in a process of its own: median seconds of a workload whose answer was checked, and
the peak memory that a call added. Stderr has an exponent for every curve, seconds ~ x^exponent, and
that of the cost model in docs/scale.md. Of the curves by size a model is fitted to the sizes up to
a quarter of the largest, which it then predicts:

    seconds = x * own + max(operations / peak, bytes / bandwidth)

x is what varies; own, what every row or non-zero costs beside the products, and peak are fitted;
the bandwidth is measured. CSV on stdout.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

import fastcos
from bench import limits
from bench.markdown import cpu_name, table, text_of
from bench.worker import in_new_process, peak_of
from bench.workloads import WORKLOADS, in_turns, label, prepared, words

DECKS, NON_ZEROS = "100000 x 17000 x 6000000", (1_000_000, 4_000_000, 16_000_000)


def interactions(n):
    """Return the shape of n non-zeros of n // 60 users."""
    return f"{n // 60} x 17000 x {n}"


# workload, axis, exponent of the cost model, and cases by what varies
CURVES = (
    ("SelfJoin", "rows", 2, lambda n: {"rows": f"{n} x 64", "k": 10},
     (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)),
    ("SelfJoin", "rows of 768", 2, lambda n: {"rows": f"{n} x 768", "k": 10},
     (5_000, 10_000, 20_000, 80_000)),
    ("SelfJoin", "columns", 1, lambda n: {"rows": f"20000 x {n}", "k": 10},
     (64, 128, 256, 512, 768, 1536)),
    ("SelfJoin", "k", 0, lambda n: {"rows": "20000 x 128", "k": n}, (1, 3, 10, 30, 100, 300, 1000)),
    ("IndexSearch", "items", 1, lambda n: {"queries": 1, "items": f"{n} x 768", "k": 10},
     (10_000, 40_000, 160_000)),
    ("GramMatmul", "non-zeros", 1, lambda n: {"shape": interactions(n), "columns": 64}, NON_ZEROS),
    ("GramMatmul", "columns of Q", 1, lambda n: {"shape": DECKS, "columns": n},
     (16, 32, 64, 128, 256)),
    ("GramMatmul", "items", 0, lambda n: {"shape": f"100000 x {n} x 6000000", "columns": 64},
     (5_000, 20_000, 80_000)),
    ("TruncatedSVD", "non-zeros", 1, lambda n: {"shape": interactions(n), "k": 64, "tol": 1e-2},
     NON_ZEROS),
    ("TruncatedSVD", "k", 1, lambda n: {"shape": DECKS, "k": n, "tol": 1e-2}, (16, 64, 128)),
    ("Audit", "items", 2, lambda n: {"items": n, "columns": 128}, (5_000, 10_000, 20_000)),
    ("ItemNeighbors", "non-zeros", 1, lambda n: {"shape": interactions(n), "k": 10}, NON_ZEROS),
)  # fmt: skip
# the sizes of bench/model.md that nobody here can measure, by workload and axis: their case, its
# operations and its bytes
FAR = {
    ("SelfJoin", "rows of 768"): ("neighbours of all 100,000,000 rows x 768", 1e8,
                                  2 * 1e16 * 768, 4 * 1e8 * 768),
    ("GramMatmul", "non-zeros"): ("X'(X A), 1e10 non-zeros, 64 columns", 1e10,
                                  4e10 * 64, 8e10),
}  # fmt: skip


def measure(name, case, threads):
    """Return the facts about a case."""
    fastcos.set_config(num_threads=threads)
    workload = prepared(WORKLOADS[name], case)
    (seconds, percent, _), work = in_turns(workload), workload.work
    return {
        "seconds": seconds, "percent": percent, "mib": peak_of(workload.call)[1],
        "operations": 2 * work.multiply_adds, "bytes": work.bytes,
    }  # fmt: skip


def predict(rates, size, operations, n_bytes, bandwidth):
    """Return seconds by the model: own and peak are rates, in seconds a unit."""
    own, peak = rates
    return size * own + np.maximum(operations * peak, n_bytes / bandwidth)


def fit(points, bandwidth):
    """Return the rates (own, peak) for points (size, operations, bytes, seconds)."""
    *work, seconds = np.transpose(points).astype(float)
    start = [(seconds / work[0]).min() / 4, (seconds / work[1]).min() / 2]

    def errors(logs):
        return np.log(predict(np.exp(logs), *work, bandwidth)) - np.log(seconds)

    return np.exp(least_squares(errors, np.log(start)).x)


def predictions(name, axis, points, case, bandwidth):
    """Yield rows of bench/model.md: the largest size, from a quarter of it and less, and FAR."""
    few = [one for one in points if one[0] <= points[-1][0] / 4]
    *largest, seconds = points[-1]
    predicted = predict(fit(few, bandwidth), *largest, bandwidth)
    fitted = ", ".join(f"{one[0]:,}" for one in few)
    error = f"{predicted / seconds - 1:+.0%}"
    title = words(WORKLOADS[name], case)
    yield title, fitted, f"{predicted:.3g} s", f"{seconds:.3g} s", error
    if (name, axis) in FAR:
        title, *far = FAR[name, axis]
        minutes = predict(fit(points, bandwidth), *far, bandwidth) / 60
        yield title, "all", f"{text_of(minutes)} minutes", "", "not known"


def points_of(curve, threads, table):
    """Return what was measured of a curve; write it into a CSV table."""
    name, axis, model, case_of, values = curve
    points = []
    for n in values:
        case = case_of(n)
        found = in_new_process(measure, name, case, threads)
        points.append((n, found["operations"], found["bytes"], found["seconds"]))
        figures = f"{found['seconds']:.4g} {found['percent']:.0f} {found['mib']:.0f}"
        table.writerow([label(WORKLOADS[name], case), axis, n, threads, *figures.split()])
        sys.stdout.flush()
    sizes, *_, seconds = np.log(np.transpose(points).astype(float))
    slope = np.polyfit(sizes, seconds, 1)[0]
    print(
        f"{name} by {axis}: seconds ~ x^{slope:.2f}, the model has {model}, "
        f"deviation {slope - model:+.2f}",
        file=sys.stderr,
    )
    return points


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(name for name, *_ in CURVES))
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=fastcos.get_config().num_threads)
    parser.add_argument("--model", type=Path, help="write predictions into this Markdown file")
    given = parser.parse_args()
    if unknown := set(given.workloads) - set(names):
        parser.error(f"WORKLOAD must be one of {', '.join(names)}, got {', '.join(unknown)}")
    out, rows = csv.writer(sys.stdout), []
    facts = "seconds", "percent_of_limit", "added_mib"
    out.writerow(("case", "varies", "value", "threads", *facts))
    for curve in CURVES:
        name, axis, _, case_of, values = curve
        if name not in (given.workloads or names):
            continue
        points = points_of(curve, given.threads, out)
        if axis.startswith(("rows", "non-zeros")):
            rows += predictions(name, axis, points, case_of(values[-1]), limits.roofs()[1])
    if given.model:
        machine = f"{cpu_name()}, {given.threads} threads, `python -m bench.curves --model`."
        header = "case", "fitted to", "predicted", "measured", "error"
        lines = [machine, "", *table("llrrr", header, rows)]
        old = given.model.read_text("utf8").splitlines() if given.model.exists() else []
        new = {line.split(" | ")[0] for line in lines}
        lines += [line for line in old[2:] if line.split(" | ")[0] not in new]
        given.model.write_text("\n".join([*lines, ""]), "utf8")


if __name__ == "__main__":
    main()
