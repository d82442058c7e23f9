"""Compiled kernels, which operate on plain arrays; the package is installed as ``fastcos.kernels``.

A call of a kernel, ``name(lo, hi, inputs..., outputs...)``, computes rows [lo, hi) of a result. If
the operation is divided into tasks, the call performs tasks [lo, hi). A kernel is serial, releases
the GIL, writes only its part of the outputs and returns None. A kernel never raises an error,
because its callers validate the arguments. Results are bit-for-bit identical for every division
into blocks, every order of blocks and every number of threads. Inputs are passed as read-only
views, except a mask of allowed items, which is always writeable (``records.QueryFilters``). One
compiled signature therefore serves writeable and read-only arrays, and a kernel cannot write to an
input that is passed as a read-only view. The rows of a search are passed as bytes
(``records.Rows``), so the same compiled signature serves rows of all number types. Outputs are the
last arguments::

    fastcos.parallel.run(kernel, boundaries, inputs..., outputs...)
        pool of threads (default), or one prange loop (compiler.prange_driver)
            kernel(lo, hi, ...)      public, one call per block of rows
                leaf(row, ...)       one row or item; calls the operations of ``simd``

A kernel is ordinary Python. To understand a kernel, read its file, and the docstrings of the
functions that it imports. To understand the search of one query, for example, read ``few_queries``
from top to bottom; its docstring says what the imported functions do.

``jit.kernel`` compiles without fastmath, so operations are executed in the order in which they are
written. ``jit.relaxed_kernel`` allows contraction and reassociation. Relaxed kernels are used for
training, and for choosing candidates. The final scores of candidates are computed without fastmath.

A kernel is compiled when it is first called. At this call, ``jit`` imports ``compiler``, and
``compiler`` obtains a Numba dispatcher for the kernel from ``numba_internals``. ``numba_internals``
replaces the dispatcher's cache with the files of ``code_cache``. The files store compiled code
under a digest of everything that a kernel uses (``fingerprint``). The dispatcher loads the code
from a file, or compiles the code and saves it. Only ``compiler`` and ``numba_internals`` import
Numba at the top of the file. A process that finds native code for every kernel that it calls
(``native``) never imports Numba.

The files of this package serve the following purposes.

Dense search:

- ``few_queries`` compares each of a few queries with the codes of all items.
- ``projected_queries`` does the same for items that have a projection.
- ``tile_top_k`` searches for many queries, in tiles of 32 x 32 pairs, with ``query_blocks`` and
  ``candidate_buffers``.
- ``self_join`` multiplies each pair of rows once; it uses ``candidate_buffers``, too.
- ``range_search`` finds all items above a score, with ``query_blocks``.
- ``candidate_filter`` decides which pairs may be dropped, and contains the proof;
  ``projection_filter`` drops pairs by their projected codes.
- ``packing``, ``query_encoding`` and ``projection`` compute the codes of items and queries.
- ``pair_scores`` computes exact scores, and ``select`` selects and sorts the best of them.
- ``exhaustive_top_k`` scores every pair, and ``listed_items`` scores listed pairs.
- ``bits`` searches rows of packed bits.

Other operations:

- ``sparse_top_k`` searches sparse rows by ``inverted_lists``.
- ``sparse`` and ``sparse_blocks`` compute products of sparse matrices, ``csr`` validates and
  transposes such matrices, and ``tall_skinny`` computes the dense products of the SVD.
- ``row_transforms`` and ``normal_cdf`` compute similarity measures.
- ``pair_reductions`` (with ``dot_tile``), ``label_ranks`` (with ``row_argsort``), ``knn_vote`` and
  ``label_permutations`` compute metrics.
- ``attacks``, ``certificates``, ``intervals`` and ``worst_rescaling`` compute how rescalings change
  cosines and neighbours, for the audit. ``attacks`` uses ``certificates``, and ``certificates``
  uses ``intervals``.
- ``training`` trains models, and ``sampling`` draws data with the random numbers of ``philox``.

Infrastructure:

- ``records`` defines named tuples of the arguments that Python passes to kernels.
- ``jit`` runs the code of a kernel. Native code is loaded by ``native``, and was built by
  ``build``. Other code is compiled by ``compiler``, with the help of ``numba_internals``,
  ``code_cache`` and ``fingerprint``.
- ``cpu`` knows the features of the CPU.
- ``simd`` contains the operations that need vector registers, with one file per purpose.
- ``tiles`` holds the limits and the memory of tiles.
- ``probes`` measures the memory bandwidth and the peak speed. Benchmarks compare their results with
  these two limits.
"""

if __name__ != "fastcos.kernels":
    raise ImportError(f"import fastcos.kernels, not {__name__!r}: every kernel would compile twice")
