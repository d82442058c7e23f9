"""Products of sparse matrices in memory or on disk, and a truncated SVD with error bounds.

::

    sparse X ------- csr.as_interactions --+
    dense X, LinearOperator ---------------+-> operators.as_operator -> Operator
    InteractionShards (rows on disk) ------+        |  matmul, rmatmul, gram_matmul, gram
                                                    v
    matmul, rmatmul, gram_matmul (products)     randomized_svd, svd_residuals (svd)
                                                    |
                                                block_lanczos: eigenpairs of X'X

An :class:`~fastcos.linalg.operators.Operator` computes products of the centred and scaled X,
without making a sparse X dense. The product X A is computed row by row. A sum over rows, such as
X'Y, is divided into fixed parts, and the parts are added in a fixed order (`partial_sums`).
Therefore results are bit-identical for any number of threads and any shard boundaries. Large
results reuse the memory of earlier results that have been freed (`parallel.buffer_pool`). The SVD
iterates on X'X, or on X X' if X has more columns than rows. For each singular triplet, the SVD
returns a float64 residual that certifies the accuracy of the triplet. Other packages of fastcos use
the modules `transpose` and `column_stats`.
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
