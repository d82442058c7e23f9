"""Operations on vector registers that Numba cannot express, one file for each of them.

An operation is an *intrinsic*: a function that kernels call, and that writes LLVM IR in its place.
Its plain-Python meaning stands beside it. That is what runs with ``NUMBA_DISABLE_JIT``, and what the
tests of ``tests/kernels/simd`` compare the IR with, on every instruction set that the CPU has.

``emit`` has the few helpers that write IR: loads, stores, broadcasts, loops. ``instruction_sets``
enumerates the instruction sets of the tiles and says what each of them does. No other folder
contains LLVM IR.
"""
