"""Compiled kernels, which operate on plain arrays; the package is installed as ``fastcos.kernels``.

A kernel ``name(lo, hi, inputs..., outputs...)`` computes rows [lo, hi) of the result of an
operation, or tasks [lo, hi) if the operation is divided into tasks. A kernel is serial, releases
the GIL, writes only its part of the outputs and returns None. A kernel never raises an error,
because its callers validate the arguments. Results are bit-for-bit identical for every division
into blocks, every order of blocks and every number of threads. Inputs are passed as read-only
views, except a mask of allowed items, which is always writeable (``records.QueryFilters``). One
compiled signature therefore serves writeable and read-only arrays, and a kernel cannot write to an
input that is passed as a read-only view. The rows of a search are passed as bytes
(``records.Rows``), so one compiled signature also serves rows of every number type. Outputs are the
last arguments::

    fastcos.parallel.run(kernel, boundaries, inputs..., outputs...)
        pool of threads (default), or one prange loop (compiler.prange_driver)
            kernel(lo, hi, ...)      public, one call per block of rows
                leaf(row, ...)       one row or item; calls the operations of ``simd``

A kernel is ordinary Python. To understand a kernel, read its file, and the docstrings of the
functions that it imports. To understand the search of one query, for example, read ``few_queries``
from top to bottom; its docstring names what else to read.

``jit.kernel`` compiles without fastmath, so operations are executed in the order in which they are
written. ``jit.relaxed_kernel`` allows contraction and reassociation. Relaxed kernels are used for
training, and for choosing candidates. The final scores of candidates are computed without fastmath.

A kernel is compiled when it is first called: ``jit`` imports ``compiler``, which obtains a
dispatcher of Numba from ``numba_internals``. ``numba_internals`` replaces the dispatcher's cache
with the files of ``code_cache``. The files store compiled code under a digest of everything that a
kernel uses (``fingerprint``). The dispatcher loads the code from a file, or compiles the code and
saves it. Only ``compiler`` and ``numba_internals`` import Numba at the top of the file. A process
that finds native code for every kernel that it calls (``native``) never imports Numba.

In the following table, the file after an arrow uses the file before the arrow. In the last row of
the table, the file before an arrow uses the file after the arrow.

================ =================================================================================
dense search     few_queries: a few queries, each of which is compared with the codes of all items;
                 projected_queries: the same search for items that have a projection;
                 query_blocks -> candidate_buffers -> tile_top_k: many queries, in tiles of 32 x 32
                 pairs;
                 candidate_buffers -> self_join: each pair of rows is multiplied once;
                 query_blocks -> range_search: all items above a score;
                 used by all of these: query_encoding, candidate_filter (which pairs may be dropped,
                 with the proof), projection_filter, pair_scores (exact scores) and select;
                 packing -> query_encoding -> projection: codes of items and queries;
                 exhaustive_top_k: every pair is scored; listed_items: listed pairs are scored;
                 bits: rows of packed bits
sparse search    inverted_lists -> sparse_top_k
sparse products  sparse, sparse_blocks; csr: validation, transpose; tall_skinny: SVD
measures         row_transforms, normal_cdf
metrics          dot_tile -> pair_reductions; row_argsort -> label_ranks; knn_vote;
                 label_permutations
audit            intervals -> certificates -> attacks; worst_rescaling
models, data     training; philox -> sampling
machine          tiles: limits and memory of the tiles; probes: memory bandwidth and peak speed,
                 with which benchmarks are compared
arguments        records: named tuples of the arguments that Python passes to search kernels
infrastructure   jit -> native (build) or compiler -> numba_internals, code_cache,
                 fingerprint; cpu;
                 simd: the operations that need vector registers, one file for each
================ =================================================================================
"""

if __name__ != "fastcos.kernels":
    raise ImportError(f"import fastcos.kernels, not {__name__!r}: every kernel would compile twice")
