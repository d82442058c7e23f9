"""Time and memory against size: `python -m bench.lab.curves > curves.csv`.

    python -m bench.lab.curves self_join gram_matmul     # the curves of some operations
    python -m bench.lab.curves --threads 1

Every point is measured in a new process. Its time is the median of five calls, after a first call
that compiles. Its memory is the peak memory that a call adds. The script writes CSV to stdout. For
every curve, the script writes to stderr the exponent for which x^exponent fits the measured
seconds. For comparison, it also writes the exponent of the plain method, which takes no shortcut.
"""

import argparse
import csv
import sys

import numpy as np

import fastcos
from bench import data
from bench.lab import timing


def self_join(n, d, k):
    X = data.gaussian(n, d)
    return lambda: fastcos.top_k(X, k=k)


def index_search(n, d):
    index, query = fastcos.SimilarityIndex().fit(data.gaussian(n, d)), data.gaussian(1, d, seed=1)
    return lambda: index.search(query, 10)


def gram_matmul(users, items, nnz, columns):
    X = data.interactions(users, items, nnz)
    A = data.gaussian(X.shape[1], columns)
    return lambda: fastcos.gram_matmul(X, A)


def randomized_svd(users, items, nnz, k):
    X = data.interactions(users, items, nnz)
    return lambda: fastcos.randomized_svd(X, k, tol=1e-2)


def item_neighbors(users, items, nnz):
    rows = data.interactions(users, items, nnz).T.tocsr()
    return lambda: fastcos.top_k(rows, k=10)


def audit(n, d):
    X, labels = data.labelled(n, d)
    return lambda: fastcos.audit(X, labels=labels)


def non_zeros(n):
    return n // 60, 17_000, n


DECKS, NON_ZEROS = (100_000, 17_000, 6_000_000), (1_000_000, 4_000_000, 16_000_000)
# Each curve varies one size, such as the number of rows. A curve consists of five values:
# - the operation,
# - the name of the size that varies,
# - the exponent with which the time of the plain method grows with this size,
# - a function that takes a value of the size and returns the arguments of the operation,
# - the values of the size.
CURVES = (
    (self_join, "rows", 2, lambda n: (n, 64, 10), (10_000, 20_000, 40_000, 80_000, 160_000)),
    (self_join, "rows of 768", 2, lambda n: (n, 768, 10), (5_000, 10_000, 20_000, 80_000)),
    (self_join, "columns", 1, lambda n: (20_000, n, 10), (64, 128, 256, 512, 768, 1536)),
    (self_join, "k", 0, lambda n: (20_000, 128, n), (1, 3, 10, 30, 100, 300, 1000)),
    (index_search, "items", 1, lambda n: (n, 768), (10_000, 40_000, 160_000)),
    (gram_matmul, "non-zeros", 1, lambda n: (*non_zeros(n), 64), NON_ZEROS),
    (gram_matmul, "columns", 1, lambda n: (*DECKS, n), (16, 32, 64, 128, 256)),
    (gram_matmul, "items", 0, lambda n: (100_000, n, 6_000_000, 64), (5_000, 20_000, 80_000)),
    (randomized_svd, "non-zeros", 1, lambda n: (*non_zeros(n), 64), NON_ZEROS),
    (randomized_svd, "k", 1, lambda n: (*DECKS, n), (16, 64, 128)),
    (item_neighbors, "non-zeros", 1, non_zeros, NON_ZEROS),
    (audit, "items", 2, lambda n: (n, 128), (5_000, 10_000, 20_000)),
)


def measure(operation, arguments, threads):
    """Return the median seconds of an operation, and the peak memory in MiB that a call adds."""
    fastcos.set_config(n_threads=threads)
    call = operation(*arguments)
    return float(np.median(timing.in_turns(call))), timing.added_mib(call)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = list(dict.fromkeys(operation.__name__ for operation, *_ in CURVES))
    parser.add_argument("operations", nargs="*", metavar="OPERATION", help=f"of {', '.join(names)}")
    parser.add_argument("--threads", type=int, default=fastcos.get_config().n_threads)
    arguments = parser.parse_args()
    if unknown := set(arguments.operations) - set(names):
        parser.error(f"OPERATION must be one of {', '.join(names)}, got {', '.join(unknown)}")
    output = csv.writer(sys.stdout)
    output.writerow(("operation", "varies", "value", "threads", "seconds", "added_mib"))
    for operation, axis, exponent, arguments_of, values in CURVES:
        if operation.__name__ not in (arguments.operations or names):
            continue
        times = []
        for value in values:
            parameters = operation, arguments_of(value), arguments.threads
            spent, mib = timing.in_new_process(measure, *parameters)
            times.append(spent)
            row = operation.__name__, axis, value, arguments.threads, f"{spent:.4g}", f"{mib:.0f}"
            output.writerow(row)
            sys.stdout.flush()
        slope = np.polyfit(np.log(values), np.log(times), 1)[0]
        print(
            f"{operation.__name__} by {axis}: seconds ~ x^{slope:.2f}, of the plain method "
            f"x^{exponent}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
