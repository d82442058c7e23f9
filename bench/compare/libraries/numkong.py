"""NumKong multiplies packed unit rows; then NumPy's argpartition selects the nearest items."""

import numkong
import numpy as np

from bench.compare.rows import best_of_products, unit, without_itself

NAME = "NumKong"
REQUIRES = "numkong>=7"


def products_with(items):
    """Return a function that multiplies queries by packed items."""
    packed = numkong.dots_pack(items, dtype="float32")
    return lambda block: np.asarray(numkong.dots_packed(block, packed))


def search(items, queries, k):
    multiply, queries = products_with(unit(items)), unit(queries)
    return (lambda: best_of_products(multiply, queries, k)), np.asarray


def self_join(rows, k):
    def call():
        units = unit(rows)
        return best_of_products(products_with(units), units, k + 1)

    return call, without_itself
