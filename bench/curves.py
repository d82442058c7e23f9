"""Time and memory against size, and what a model predicts: `python -m bench.curves > curves.csv`.

    python -m bench.curves SelfJoin --threads 2         # the curves of one workload
    python -m bench.curves --model bench/model.md       # adds predictions to a table

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
from bench.tables import cpu_name
from bench.worker import in_new_process, peak_of
from bench.workloads import WORKLOADS, in_turns, label, prepared, words

# (workload, axis, exponent of the cost model, {value: case}); other parameters stay as they are
CURVES = (
    ("SelfJoin", "rows", 2,
     {n: {"rows": f"{n} x 64", "k": 10}
      for n in (10_000, 20_000, 40_000, 80_000, 160_000, 320_000)}),
    ("SelfJoin", "rows of 768", 2,
     {n: {"rows": f"{n} x 768", "k": 10} for n in (5_000, 10_000, 20_000, 80_000)}),
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


# the sizes of bench/model.md that nobody here can measure, by workload and axis: their case, its
# operations and its bytes
FAR = {
    ("SelfJoin", "rows of 768"): ("neighbours of all 100,000,000 rows x 768", 1e8,
                                  2 * 1e16 * 768, 4 * 1e8 * 768),
    ("GramMatmul", "non-zeros"): ("X'(X A), 1e10 non-zeros, 64 columns", 1e10,
                                  4e10 * 64, 8e10),
}  # fmt: skip
MODEL_HEADER = (
    "| case | fitted to | predicted | measured | error |", "|---|---|---:|---:|---:|",
)  # fmt: skip


def predict(rates, size, operations, n_bytes, bandwidth):
    """Return seconds by the model: own and peak are rates, in seconds a unit."""
    own, peak = rates
    return size * own + max(operations * peak, n_bytes / bandwidth)


def fit(points, bandwidth):
    """Return the rates (own, peak) for points (size, operations, bytes, seconds)."""
    points = np.asarray(points, float)
    start = [(points[:, 3] / points[:, 0]).min() / 4, (points[:, 3] / points[:, 1]).min() / 2]

    def errors(logs):
        predicted = [predict(np.exp(logs), *one[:3], bandwidth) for one in points]
        return np.log(predicted) - np.log(points[:, 3])

    return np.exp(least_squares(errors, np.log(start)).x)


def model_lines(name, axis, points, cases, bandwidth):
    """Return Markdown: the largest size as predicted from a quarter of it and less, and FAR."""
    few = [one for one in points if one[0] <= points[-1][0] / 4]
    rates = fit(few, bandwidth)
    size, operations, n_bytes, seconds = points[-1]
    predicted = predict(rates, size, operations, n_bytes, bandwidth)
    fitted = ", ".join(f"{one[0]:,}" for one in few)
    lines = [
        f"| {words(WORKLOADS[name], cases[size])} | {fitted} | {predicted:.3g} s | {seconds:.3g} s "
        f"| {predicted / seconds - 1:+.0%} |"
    ]
    if (name, axis) in FAR:
        title, *far = FAR[name, axis]
        minutes = predict(fit(points, bandwidth), *far, bandwidth) / 60
        lines.append(f"| {title} | all | {minutes:.3g} minutes | | not known |")
    return lines


def exponent(sizes, values):
    """Return the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(name for name, *_ in CURVES))
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=fastcos.get_config().num_threads)
    parser.add_argument("--axis", help="only curves along this")
    parser.add_argument("--model", type=Path, help="add predictions to this Markdown table")
    given = parser.parse_args()
    if unknown := set(given.workloads) - set(names):
        parser.error(f"WORKLOAD must be one of {', '.join(names)}, got {', '.join(unknown)}")
    table = csv.writer(sys.stdout)
    table.writerow(
        ["case", "varies", "value", "threads", "seconds", "percent_of_limit", "added_mib"]
    )
    for name, axis, model, points in CURVES:
        if name not in (given.workloads or names) or axis != (given.axis or axis):
            continue
        seconds, known = [], []
        for value, case in points.items():
            threads = value if axis == "threads" else given.threads
            found = in_new_process(measure, name, case, threads)
            seconds.append(found["seconds"])
            known.append((value, found["operations"], found["bytes"], found["seconds"]))
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
        if given.model and axis.startswith(("rows", "non-zeros")):
            old = given.model.read_text("utf8").splitlines() if given.model.exists() else [
                f"{cpu_name()}, {given.threads} threads, `python -m bench.curves --model`.", "",
                *MODEL_HEADER,
            ]  # fmt: skip
            lines = model_lines(name, axis, known, points, limits.roofs()[1])
            given.model.write_text("\n".join([*old, *lines, ""]), "utf8")


if __name__ == "__main__":
    main()
