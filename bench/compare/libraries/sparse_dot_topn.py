"""sparse_dot_topn: the top k of a product of sparse matrices."""

import numpy as np
from scipy.sparse import csr_matrix, diags_array
from sparse_dot_topn import sp_matmul_topn

from bench.compare.rows import n_threads

NAME = "sparse_dot_topn"
REQUIRES = "sparse_dot_topn>=1.2"


def sparse_join(X, k):
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=0, dtype=np.float64)).ravel())
    scaled = X.astype(np.float64) @ diags_array(1 / np.where(norms > 0, norms, 1))
    columns = csr_matrix(scaled.astype(np.float32))
    rows = csr_matrix(columns.T.tocsr())

    def call():
        return sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=n_threads(), sort=True)

    return call, lambda product: best_of_rows(product, k)


def best_of_rows(product, k):
    """For each row, skip the best entry (the item itself), and return the k next best entries."""
    best = np.zeros((product.shape[0], k + 1))
    for row, first, last in zip(best, product.indptr, product.indptr[1:], strict=False):
        entries = np.sort(product.data[first:last])[::-1][: k + 1]
        row[: len(entries)] = entries
    return best[:, 1:]
