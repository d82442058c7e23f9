"""Times of measures, relative to the cosine: `python -m bench.lab.measure_costs [NAME ...]`.

The script prints a Markdown table for each kind of rows. Rows of the kind "gaussian" have
independent entries and are the hardest to filter. Rows of the kind "spiky" have only a few large
entries, and their norms differ by a factor of about a thousand. Rows of the kind "clustered" have
64 clusters and a common mean. If a NAME is the path of a file, the script also prints a table for
the rows of this file. After a warm-up, every measure is timed alternately with the cosine, and the
table shows medians. All measures take half an hour on two cores.
"""

import sys
from functools import partial
from pathlib import Path

import numpy as np

from bench import data
from bench.lab.markdown import print_table
from bench.lab.timing import in_turns
from fastcos import get_measure, io, list_measures, top_k

K, ROWS, COLUMNS = 10, 40_000, 128
# These measures are left out, because the benchmark has no suitable rows for them. One of them
# needs bags of words, and the other one needs rows that consist of two halves.
EXCLUDED = {"word_rotators_distance", "weight_cosine"}


def spiky(n, d):
    """Return rows that have only a few large entries, scaled by factors from 0.03 to 30."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((n, d)) ** 5 * 10 ** random.uniform(-1.5, 1.5, (n, 1))
    return rows.astype(np.float32)


KINDS = {
    "gaussian": lambda: data.gaussian(ROWS, COLUMNS),
    "spiky": lambda: spiky(ROWS, COLUMNS),
    "clustered": lambda: data.embeddings(ROWS, COLUMNS),
}


def rows_of(path):
    """Return the vectors of a file."""
    return np.asarray(io.read_vectors(path).vectors, np.float32)


def measure_of(name, rows):
    """Return a measure, created with the arguments that its class requires for these rows."""
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


def rows_of_table(names, rows):
    """For each measure, yield its name, its time, the time of the cosine, and their ratio."""
    for name in names:
        measures = measure_of(name, rows), get_measure("cosine")
        turns = in_turns(*(partial(top_k, rows, k=K, measure=measure) for measure in measures))
        spent, base = np.median(turns, axis=0)
        yield name, spent, base, spent / base


def main():
    files = {name: partial(rows_of, name) for name in sys.argv[1:] if Path(name).exists()}
    names = [name for name in sys.argv[1:] if name not in files]
    names = names or [name for name in list_measures() if name not in EXCLUDED]
    for kind, make in (KINDS | files).items():
        rows = make()
        print("\n{}, {:,} x {}, k = {}\n".format(kind, *rows.shape, K))
        print_table("lrrr", ("measure", "seconds", "cosine", "ratio"), rows_of_table(names, rows))


if __name__ == "__main__":
    main()
