"""Sparse products, operators larger than memory, and a randomized SVD with residual bounds.

::

    sparse X ------- csr.as_interactions --+
    dense X, LinearOperator ---------------+-> operators.as_operator -> Operator
    InteractionShards (rows on disk) ------+        |  matmul, rmatmul, gram_matmul, gram
                                                    v
    matmul, rmatmul, gram_matmul (products)     randomized_svd, svd_residuals (svd)
                                                    |
                                                block_lanczos: eigenpairs of X'X

An :class:`~fastcos.linalg.operators.Operator` multiplies by X, centred and scaled, without making a
sparse X dense. X A is computed row by row. Sums over rows are added in a fixed order of fixed parts
(`partial_sums`), so results are bit-identical for any number of threads and any shard boundaries.
Large results reuse the memory of earlier results that have been freed (`parallel.buffer_pool`). The
modules `transpose` and `column_stats` are used by other packages. The SVD iterates on X'X, or on X
X' if X has more columns than rows, and certifies each singular triplet by its residual in float64.
"""

from fastcos.linalg.products import gram_matmul, matmul, rmatmul
from fastcos.linalg.shards import InteractionShards
from fastcos.linalg.svd import SVD, randomized_svd, svd_residuals

__all__ = [
    "SVD",
    "InteractionShards",
    "gram_matmul",
    "matmul",
    "randomized_svd",
    "rmatmul",
    "svd_residuals",
]
