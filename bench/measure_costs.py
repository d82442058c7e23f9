"""Cost of measures in top_k, beside the plain cosine: `python -m bench.measure_costs [NAME ...]`.

Prints a Markdown table for rows of each kind. gaussian: independent entries, the hardest to filter;
spiky: few large entries, and norms that differ a thousandfold; cards: of the Magic decks by a
rank-128 SVD. After a warm-up every measure is timed alternately with the cosine; medians count. All
measures take half an hour on two cores.
"""

import sys
from functools import partial

import numpy as np

from bench.clock import in_turns
from bench.inputs import deck_embeddings, gaussian, required
from fastcos import get_measure, list_measures, top_k

K, ROWS, COLUMNS = 10, 40_000, 128
# their rows are bags, or two halves
LEFT_OUT = {"word_rotators_distance", "weight_cosine"}


def spiky(n, d):
    """Return rows with few large entries, and norms from 0.03 to 30."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((n, d)) ** 5 * 10 ** random.uniform(-1.5, 1.5, (n, 1))
    return rows.astype(np.float32)


KINDS = {
    "gaussian": lambda: gaussian(ROWS, COLUMNS),
    "spiky": lambda: spiky(ROWS, COLUMNS),
    "cards": lambda: required(deck_embeddings())[1],
}


def measure_of(name, rows):
    """Return a measure with what it requires for these rows."""
    random = np.random.default_rng(1)
    n, d = rows.shape

    class Model:
        shrinkage_, singular_values_ = np.linspace(1, 0.5, d), np.linspace(300, 90, d)

    other = random.standard_normal((min(n, 5_000), d)).astype(np.float32)
    pairs = random.integers(0, n, (2_000, 2))
    parameters = {
        "soft_cosine": {"features": random.standard_normal((d, 40))},
        "popularity_whitened_cosine": {"popularity": random.random(n)},
        "query_metric_cosine": {"other": other},
        "project_back_items": {"other": other},
        "project_back_users": {"other": other},
        "learned_diagonal": {"pairs": pairs, "targets": random.random(2_000)},
    }
    needs_model = name.startswith("rescaled_cosine")
    return get_measure(name, **({"model": Model} if needs_model else parameters.get(name, {})))


def main():
    names = sys.argv[1:] or [name for name in list_measures() if name not in LEFT_OUT]
    for kind, make in KINDS.items():
        rows = make()
        print(f"\n{kind}, {rows.shape[0]:,} x {rows.shape[1]}, k = {K}\n")
        print("| measure | seconds | cosine | ratio |\n|---|---|---|---|", flush=True)
        for name in names:
            measures = measure_of(name, rows), get_measure("cosine")
            turns = in_turns(*(partial(top_k, rows, k=K, measure=measure) for measure in measures))
            own, base = np.median(turns, axis=0)
            print(f"| {name} | {own:.3f} | {base:.3f} | {own / base:.2f} |", flush=True)


if __name__ == "__main__":
    main()
