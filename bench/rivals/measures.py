"""What every measure costs in top_k, as a multiple of the plain cosine's time.

python bench/rivals/measures.py [n] [d] [k]: 40,000 x 128 Gaussian rows and k = 10 by default. Each
measure is warmed, then timed three times alternating with the cosine; the smallest times count.
Exit 1 where a ratio is above its limit.
"""

import sys
import time

import numpy as np

from fastcos import get_measure, measures, top_k

TWO_PASSES = {"csls", "local_scaling", "dis_sim_local", "mutual_proximity"}
LIMIT, LIMIT_OF_TWO_PASSES = 2.0, 3.0
# bags, and rows of two halves: another input
LEFT_OUT = {"word_rotators_distance", "weight_cosine"}


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


def main(n=40_000, d=128, k=10, only=()):
    rows = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    names = [name for name in measures() if name not in LEFT_OUT and (not only or name in only)]
    plain = get_measure("cosine")
    seconds(plain, rows, k)
    over = []
    for name in names:
        measure = get_measure(name, **parameters(name, rows))
        first = seconds(measure, rows, k)
        runs = 3 if first < 5 else 1
        times = [(seconds(plain, rows, k), seconds(measure, rows, k)) for _ in range(runs)]
        base, own = np.min(times, axis=0)
        limit = LIMIT_OF_TWO_PASSES if name in TWO_PASSES else LIMIT
        over += [name] if own > limit * base else []
        mark = " above its limit" if own > limit * base else ""
        print(f"{name:30s} {own:7.3f} s {own / base:6.2f}{mark}", flush=True)
    return 1 if over else 0


if __name__ == "__main__":
    sizes = [int(text) for text in sys.argv[1:4]]
    sys.exit(main(*sizes, only=sys.argv[4:]))
