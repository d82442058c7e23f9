"""Sparse products, operators larger than memory, and a randomized SVD with residual bounds."""

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
