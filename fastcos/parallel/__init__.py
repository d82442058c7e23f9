"""Run kernels over blocks of rows on a pool of threads, with progress and cancellation.

A kernel is a serial compiled function that releases the GIL and works on rows [lo, hi). Kernels run
in the threads that call fastcos, in the threads of this package's pool, and in the thread that
``search.projection`` starts to add a projection to an index::

    row_blocks(n, size) or work_blocks(indptr, work)    block boundaries, from the data alone
            |
    run(kernel, blocks, *arrays, n_threads, progress)      or Kernel.call(type_key, lo, hi, *arrays)
            |                                              in the calling thread, with less overhead
            |-- only one block, or run is called by a kernel: the calling thread runs the blocks
            |-- backend "pool": the calling thread and the pool's threads take one block at a time
            +-- backend "prange": one OpenMP or TBB loop, if a trial shows that it is safe

Most output arrays come from :func:`unfilled`, which fills them with a value that no kernel ever
writes. A row that no block has written can therefore be recognised. To save time, the module
``search.launch`` leaves its output arrays uninitialised. Each block writes only its own rows, so
results are bit-for-bit identical for any number of threads. A thread that changes a shared object
holds :func:`writer_lock`. A :class:`lazy_attribute` is computed once, at first use, even if several
threads ask for it at the same time. In a forked child process, no lock of fastcos is held, even if
a thread of the parent process held the lock during the fork. Code that multiplies or factorises
matrices with NumPy or SciPy holds :func:`blas_lock`. Between two kernels, code that multiplies or
factorises small matrices also limits BLAS to one thread with :func:`one_blas_thread`.

:mod:`fastcos.parallel.memmap` reads a memory-mapped file block by block, so that the file is never
in memory as a whole. The same module decides which rows kernels can read without conversion.
:mod:`fastcos.parallel.buffer_pool` reuses the memory of large arrays.
"""

from fastcos.parallel.blas import blas_lock as blas_lock, one_blas_thread as one_blas_thread
from fastcos.parallel.forks import at_fork as at_fork
from fastcos.parallel.pool import (
    Blocks as Blocks,
    Progress as Progress,
    attribute_lock as attribute_lock,
    lazy_attribute as lazy_attribute,
    reset as reset,
    row_blocks as row_blocks,
    rows_at_work as rows_at_work,
    run as run,
    unfilled as unfilled,
    work_blocks as work_blocks,
    writer_lock as writer_lock,
)
