"""turbovec: codes of 4 bits per number, an approximation that is reported with its recall."""

import numpy as np
from turbovec import TurboQuantIndex

from bench.compare.rows import unit

NAME = "turbovec, 4 bits"
REQUIRES = "turbovec>=1"
EXACT = False


def search(items, queries, k):
    items, queries = unit(items), unit(queries)
    index = TurboQuantIndex(dim=items.shape[1], bit_width=4)
    index.calibrate(items[np.random.default_rng(0).permutation(len(items))[:1024]])
    index.add(items)
    index.prepare()
    return (lambda: index.search(queries, k=k)), lambda result: np.asarray(result[1])
