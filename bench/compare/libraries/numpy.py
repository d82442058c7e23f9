"""NumPy: a matrix product of unit rows, then argpartition."""

import numpy as np

from bench.compare.rows import best_of_products, unit, without_itself
from bench.compare.settings import openblas

NAME = "NumPy"
REQUIRES = "numpy>=2"
SETTINGS = openblas()


def search(items, queries, k):
    transposed, queries = unit(items).T, unit(queries)
    return (lambda: best_of_products(lambda block: block @ transposed, queries, k)), np.asarray


def self_join(rows, k):
    def call():
        units = unit(rows)
        return best_of_products(lambda block: block @ units.T, units, k + 1)

    return call, without_itself
