"""The thread pool under every kernel: blocks of rows, progress, cancellation.

A kernel is serial, releases the GIL, and works on rows [lo, hi). Only this package starts threads
that run kernels::

    row_blocks(n, size) or work_blocks(indptr, work)    block boundaries, from the data alone
            |
    run(kernel, blocks, *arrays, n_threads, progress)
            |-- one block, or a call from inside a block: in the calling thread
            |-- backend "pool": the caller and helping threads take block after block
            +-- backend "prange": one OpenMP or TBB loop, if a trial shows that it is safe

Outputs come from :func:`unfilled`, so that a row that no block has written can be recognised. Each
block writes its own rows, so results are bit-identical on any number of threads. Objects that
several threads share are changed under :func:`writer_lock`, and their attributes are made once, at
first use, by :class:`lazy_attribute`. A lock of fastcos that a thread holds during a fork is free
in the child process. Small matrices that are needed between kernels are multiplied and factorised
under :func:`one_blas_thread`. Other products and factorisations of searches, models and linear
algebra run under :func:`blas_lock`.

:mod:`fastcos.parallel.memmap` reads blocks of rows of a memory-mapped file, which is never held in
memory as a whole, and tells apart the kinds of rows that kernels read.
:mod:`fastcos.parallel.buffer_pool` reuses the memory of large results.
"""

from fastcos.parallel.blas import blas_lock as blas_lock, one_blas_thread as one_blas_thread
from fastcos.parallel.forks import at_fork as at_fork
from fastcos.parallel.pool import (
    Blocks as Blocks,
    Progress as Progress,
    attribute_lock as attribute_lock,
    call as call,
    lazy_attribute as lazy_attribute,
    reset as reset,
    row_blocks as row_blocks,
    rows_at_work as rows_at_work,
    run as run,
    unfilled as unfilled,
    work_blocks as work_blocks,
    writer_lock as writer_lock,
)
