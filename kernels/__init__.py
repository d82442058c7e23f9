"""Compiled loops over plain arrays; installed as ``fastcos.kernels``.

How a kernel is built
---------------------
A *rows kernel* ``name(lo, hi, inputs..., outputs...)`` does the rows [lo, hi) of one operation. It
is serial, releases the GIL, writes only to output rows that belong to [lo, hi), returns None and
never raises: the caller (``fastcos.validation``) has settled every argument. Therefore the answer
cannot depend on how the rows are cut, on the order in which the cuts run, or on the number of
threads.

Who drives it
-------------
``fastcos.parallel`` cuts the rows by work and calls the kernel once per block on a pool of threads
that belongs to the process. The same kernels can be driven by one compiled ``prange`` loop
(``jit.prange_driver``); that is opt-in, because the OpenMP and workqueue layers under it return
uninitialised memory, silently, in a forked child that handles SIGTERM or SIGABRT.

What the flags promise
----------------------
``jit.kernel`` compiles without fastmath: the bits are those of the written order of operations.
``jit.screen_kernel`` may contract and reassociate: it only chooses candidates, with a rigorous
margin, that a plain kernel scores again.

Inputs arrive as read-only views. One compiled signature then serves writable, read-only and mapped
arrays, and a kernel that writes to an input does not compile.
"""

if __name__ != "fastcos.kernels":
    raise ImportError(f"import fastcos.kernels, not {__name__!r}: every kernel would compile twice")
