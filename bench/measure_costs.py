"""Cost of every measure in top_k, as a multiple of the plain cosine on the same rows.

    python -m bench.measure_costs [--rows gaussian spiky cards] [--n 40000] [--measures NAME ...]

gaussian: independent entries, the hardest to filter; spiky: few large entries, and norms that
differ a thousandfold; cards: of the Magic decks by a rank-128 SVD. After a warm-up every measure is
timed alternately with the cosine; medians count. Prints Markdown.
"""

import argparse

import numpy as np

from bench import inputs
from bench.clock import in_turns
from fastcos import get_measure, list_measures, top_k

K, COLUMNS = 10, 128
# their rows are bags, or two halves
LEFT_OUT = {"word_rotators_distance", "weight_cosine"}


def spiky(n, d):
    """Return rows with few large entries, and norms from 0.03 to 30."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((n, d)) ** 5 * 10 ** random.uniform(-1.5, 1.5, (n, 1))
    return rows.astype(np.float32)


ROWS = {
    "gaussian": lambda n, d: inputs.gaussian(n, d),
    "spiky": spiky,
    "cards": lambda n, d: inputs.required(inputs.deck_embeddings())[1],
}


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


def ratio(name, rows):
    """Return the median seconds of the measure and of the cosine."""
    cosine, measure = get_measure("cosine"), get_measure(name, **parameters(name, rows))
    some = rows[:3000]
    top_k(some, k=K, measure=get_measure(name, **parameters(name, some)))
    turns = in_turns(
        lambda: top_k(rows, k=K, measure=measure), lambda: top_k(rows, k=K, measure=cosine)
    )
    return np.median(turns, axis=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--n", type=int, default=40_000)
    parser.add_argument("--measures", nargs="+", choices=list_measures())
    given = parser.parse_args()
    for kind in given.rows:
        rows = ROWS[kind](given.n, COLUMNS)
        print(f"\n{kind}, {rows.shape[0]:,} x {rows.shape[1]}, k = {K}\n")
        print("| measure | seconds | cosine | ratio |\n|---|---|---|---|", flush=True)
        for name in given.measures or [name for name in list_measures() if name not in LEFT_OUT]:
            own, base = ratio(name, rows)
            print(f"| {name} | {own:.3f} | {base:.3f} | {own / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
