"""Cost of every measure in top_k, as a multiple of the plain cosine on the same rows.

    python -m bench.measure_costs [--rows gaussian spiky real] [--n 40000] [--measures NAME ...]

gaussian: independent entries, the hardest to filter; spiky: few large entries, and norms that
differ a thousandfold; real: cards of the Magic decks by a rank-128 SVD. After a warm-up every
measure is timed alternately with the cosine; the smallest times count. Prints Markdown. Exit 1 if
a ratio is above its limit: 2, or 5 for measures that search twice or rescore candidates.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

from bench import inputs
from fastcos import get_measure, list_measures, top_k

# largest ratio to the cosine: one search, and row transforms of about the same cost
LIMIT = 2.0
# two searches, and rescoring of the candidates
HUBNESS = ("csls", "dis_sim_local", "local_scaling", "mutual_proximity", "recos")
LIMITS = dict.fromkeys((*HUBNESS, "norm_angle_distance"), 5.0)
# their rows are bags, or two halves
LEFT_OUT = {"word_rotators_distance", "weight_cosine"}


def spiky(n, d):
    """Return rows with few large entries, and norms from 0.03 to 30."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((n, d)) ** 5 * 10 ** random.uniform(-1.5, 1.5, (n, 1))
    return rows.astype(np.float32)


def rows_of(kind, n, d, cache):
    if kind == "real":
        found = inputs.deck_embeddings(cache)
        return None if found is None else found[1]
    return inputs.gaussian(n, d) if kind == "gaussian" else spiky(n, d)


def parameters(name, rows):
    random = np.random.default_rng(1)
    n, d = rows.shape

    class Model:
        shrinkage_, singular_values_ = np.linspace(1, 0.5, d), np.linspace(300, 90, d)

    other = random.standard_normal((min(n, 5_000), d)).astype(np.float32)
    pairs = random.integers(0, n, (2_000, 2))
    given = {
        "soft_cosine": {"features": random.standard_normal((d, 40))},
        "popularity_whitened_cosine": {"popularity": random.random(n)},
        "query_metric_cosine": {"other": other},
        "project_back_items": {"other": other},
        "project_back_users": {"other": other},
        "learned_diagonal": {"pairs": pairs, "targets": random.random(2_000)},
    }
    return {"model": Model} if name.startswith("rescaled_cosine") else given.get(name, {})


def seconds(measure, rows, k):
    start = time.perf_counter()
    top_k(rows, k=k, measure=measure)
    return time.perf_counter() - start


def ratio(name, rows, k, budget=10.0):
    """Return the smallest seconds of the measure and of the cosine, of up to three calls."""
    plain, measure = get_measure("cosine"), get_measure(name, **parameters(name, rows))
    some = rows[:3000]
    seconds(get_measure(name, **parameters(name, some)), some, k)
    times, started = [], time.perf_counter()
    while len(times) < 3 and (not times or time.perf_counter() - started < budget):
        times.append((seconds(measure, rows, k), seconds(plain, rows, k)))
    return np.min(times, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kinds = ("gaussian", "spiky", "real")
    parser.add_argument("--rows", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--n", type=int, default=40_000)
    parser.add_argument("--d", type=int, default=128)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--cache", type=Path, default=Path(), help="folder that keeps the SVD")
    parser.add_argument("--measures", nargs="+", choices=list_measures())
    given = parser.parse_args()
    over = []
    for kind in given.rows:
        rows = rows_of(kind, given.n, given.d, given.cache)
        if rows is None:
            print(f"{kind}: the decks are not there, skipped", file=sys.stderr)
            continue
        seconds(get_measure("cosine"), rows, given.k)
        print(f"\n{kind}, {rows.shape[0]:,} x {rows.shape[1]}, k = {given.k}\n")
        print("| measure | seconds | cosine | ratio | limit |\n|---|---|---|---|---|", flush=True)
        for name in given.measures or [name for name in list_measures() if name not in LEFT_OUT]:
            own, base = ratio(name, rows, given.k)
            limit = LIMITS.get(name, LIMIT)
            mark = f"**{own / base:.2f}**" if own > limit * base else f"{own / base:.2f}"
            over += [(kind, name)] if own > limit * base else []
            print(f"| {name} | {own:.3f} | {base:.3f} | {mark} | {limit:.0f} |", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
