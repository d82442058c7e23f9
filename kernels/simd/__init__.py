"""Operations on vector registers that cannot be written in Numba.

Each file contains operations for one purpose. An operation is an *intrinsic*, which emits LLVM IR,
the intermediate code of the compiler. Where a kernel calls the intrinsic, the compiler inserts this
IR. If an operation can be written briefly in plain Python, a plain function stands beside the
intrinsic. The plain function runs if the environment variable ``NUMBA_DISABLE_JIT`` is set. For
every instruction set of the CPU, the tests compare the results of the plain function with those of
the IR. You need not read this package to understand a kernel: the docstring of each operation says
what it computes.

- ``tile_scores``: approximate scores of 32 items with 32 queries, or with one query; ``panel``
  describes the layout.
- ``hits``: the scores of a tile that reach the thresholds of their queries.
- ``hadamard``: butterflies of the rotation of a row.
- ``quantise``: a scaled and shifted row in float32, and its int8 codes.
- ``low_precision``: the number types of rows, and the conversion of float16, bfloat16 and int8
  numbers to floats.
- ``pair_products``: float64 sums over two rows, in the order that defines exact scores.
- ``row_products``: the sums of ``pair_products``, and scaled rows, for number types that are known
  only at run time.
- ``sparse_row``: sums over the non-zeros of a row.
- ``sums_above``: the sums of a sparse search that reach a bound.
- ``dot_tile``: float64 products for metrics.
- ``tall_skinny``: products of the basis of an SVD.
- ``hamming``: bits that rows have in common.
- ``memory``: prefetches, and arrays at an address.
- ``arithmetic``: a multiply-add that rounds only once, and the position of the lowest set bit of a
  word.

``emit`` contains the helpers that emit IR for loads, stores, broadcasts and loops.
``instruction_sets`` lists the instruction sets of the tiles and their properties. Outside this
folder, only ``compiler`` and ``numba_internals`` emit LLVM IR, namely the code that calls a kernel.
"""
