"""Exact scores of candidate lists against a loop in NumPy: `python -m bench.rescoring`.

1,000 queries with 100 candidates each among 100,000 x 768 float32 rows; the loop scores each
query's candidates in float64, as exact as ours, and sorts them; in float32 its order may differ.
The last row reads as many bytes once: nothing that reads all listed rows in one thread is faster.
Medians of five calls, after one that compiles; the answers are compared first.
"""

import numpy as np

from bench.clock import milliseconds
from fastcos.neighbors import rescore


def loop(queries, items, candidates, k, dtype):
    """The k best of each list by the cosine."""
    best = np.empty((len(queries), k), np.int64)
    for i, (query, listed) in enumerate(zip(queries, candidates, strict=True)):
        rows = items[listed].astype(dtype, copy=False)
        scores = rows @ query.astype(dtype, copy=False)
        scores /= np.sqrt(np.einsum("ij,ij->i", rows, rows))
        best[i] = listed[np.argsort(-scores, kind="stable")[:k]]
    return best


if __name__ == "__main__":
    random = np.random.default_rng(0)
    items = random.standard_normal((100_000, 768), dtype=np.float32)
    queries = random.standard_normal((1000, 768), dtype=np.float32)
    candidates = np.array([random.choice(len(items), 100, replace=False) for _ in queries])
    expected = loop(queries, items, candidates, 10, np.float64)
    assert (rescore(queries, items, candidates, 10).indices == expected).all()
    ours = milliseconds(lambda: rescore(queries, items, candidates, 10))
    one = milliseconds(lambda: rescore(queries, items, candidates, 10, n_threads=1))
    print("| 1,000 x 100 candidates, 768 columns | ms | times rescore |\n|---|---:|---:|")
    print(f"| rescore | {ours:.1f} | 1.0 |\n| rescore, one thread | {one:.1f} | {one / ours:.1f} |")
    for dtype in (np.float32, np.float64):
        seconds = milliseconds(lambda dtype=dtype: loop(queries, items, candidates, 10, dtype))
        name = np.dtype(dtype).name
        print(f"| NumPy loop, {name} | {seconds:.1f} | {seconds / ours:.1f} |")
    read = items.reshape(-1)[: candidates.size * items.shape[1]]
    seconds = milliseconds(lambda: np.dot(read, read))
    print(f"| reading as many rows, one thread | {seconds:.1f} | {seconds / ours:.1f} |")
