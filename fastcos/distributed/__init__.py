"""Search, products, SVD and comparison on a Dask cluster (``pip install distributed``).

Inputs are files that every worker sees under the same path. A task gets a path and a range of rows,
maps them, and returns small arrays. Large arrays are not scattered, so a worker that dies loses no
data. Blocks follow from the size of the data and are merged in a fixed tree::

    top_k            blocks of queries x ranges of items -> best k, merged in a tree -> Checkpoint
    gram_matmul, randomized_svd, fit
                     ClusterShards -> a product per shard, added in a tree
    compare          this process fits the models; workers evaluate the cells

``top_k`` is bit-identical to :func:`fastcos.top_k`. Products are bit-identical on any number of
workers, and an SVD agrees with that of one machine within its certificate. A worker's tasks share
one pool of as many threads as the worker has. Dashboard, reports and scheduling are Dask's.
"""

from fastcos.distributed.cluster import compare, fit, gram_matmul, randomized_svd, top_k

__all__ = ["compare", "fit", "gram_matmul", "randomized_svd", "top_k"]
