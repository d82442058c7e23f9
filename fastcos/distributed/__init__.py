"""Search and factorisation on a Dask cluster."""

from fastcos.distributed.cluster import (
    compare,
    fit,
    gram_matmul,
    randomized_svd,
    top_k,
)

__all__ = ["compare", "fit", "gram_matmul", "randomized_svd", "top_k"]
