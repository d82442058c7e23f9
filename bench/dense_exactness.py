"""Is dense top-k exact? `python -m bench.dense_exactness [CASES]` prints the count as JSON.

A case is a (query, k): equal indices in equal order for k settle every smaller k too. Rows are of
the families that bounds find hard, of sizes around the blocks of the engine, float32 and float64;
threads, blocks, instruction sets and splits of the queries are drawn anew for every call. The truth
is every score in float64, sorted as a whole.
"""

import json
import sys
from collections import Counter

import numpy as np

import fastcos
from fastcos import config
from fastcos.engine import scan
from fastcos.kernels import cpu
from tests.oracles import dense as dense_oracle
from tests.oracles.dense_families import FAMILIES

FORMS = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}
ROWS = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 511, 512, 513, 800)
NEIGHBOURS = (1, 2, 5, 10, 50, 100)
BLOCKS = (32, 64, 96, 160, 256)


def drawn(rng):
    """A family's rows in a random order, a measure, k, and whether rows may find themselves."""
    family, n, d = rng.choice(FAMILIES), int(rng.choice(ROWS)), int(rng.integers(1, 150))
    own = n > 1 and bool(rng.integers(2))
    most = n - own
    k = most if rng.random() < 0.05 else min(most, int(rng.choice(NEIGHBOURS)))
    X = family(n, d)[rng.permutation(n)].astype(rng.choice([np.float32, np.float64]))
    return family.__name__, X, str(rng.choice(list(FORMS))), k, own


def found_in_any_way(rng, X, k, measure, own):
    """Indices found with a drawn instruction set, block, number of threads and split."""
    config.set_config(isa=str(rng.choice(cpu.supported_isas())))
    scan._LARGEST_BLOCK = int(rng.choice(BLOCKS))
    options = {"measure": measure, "n_threads": int(rng.choice([1, 2, 3, 8]))}
    if own:
        return fastcos.top_k(X, k=k, **options).indices
    cut = int(rng.integers(len(X) + 1))
    parts = [
        fastcos.top_k(part, X, k, **options).indices for part in np.split(X, [cut]) if len(part)
    ]
    return np.concatenate(parts)


def judged(wanted, seed=0):
    """Number of cases by family, and of those that are wrong."""
    rng, cases, wrong = np.random.default_rng(seed), Counter(), 0
    isa, block = config.isa(), scan._LARGEST_BLOCK
    try:
        while cases.total() < wanted:
            name, X, measure, k, own = drawn(rng)
            truth, _ = dense_oracle.top_k(X, X, k, FORMS[measure], exclude_self=own)
            found = found_in_any_way(rng, X, k, measure, own)
            cases[name] += found.size
            wrong += int(np.cumsum(found != truth, axis=1).astype(bool).sum())
    finally:
        config.set_config(isa=isa)
        scan._LARGEST_BLOCK = block
    return {"cases": cases.total(), "wrong": wrong, "by_family": dict(cases)}


if __name__ == "__main__":
    print(json.dumps(judged(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000)))
