"""Prefetches into the caches, loads of 64 bits, arrays at given addresses, and read-only arrays."""

from ..jit import cgutils, intrinsic, intrinsic_of, ir, types
from .emit import BYTES, I32, I64, byte_pointer, element_size, function, pointer


def emit_prefetch(builder, at, level=1):
    """Emit code that prefetches the cache line at `at` into the cache with the number `level`."""
    fetch = function(builder, "llvm.prefetch.p0", ir.VoidType(), [BYTES, I32, I32, I32])
    # LLVM numbers the caches in reverse, so ``4 - level`` is 3 for the first-level cache. The 0
    # before it marks a prefetch for reading. The 1 after it selects the data cache (not the
    # instruction cache).
    builder.call(fetch, [at, I32(0), I32(4 - level), I32(1)])


def _prefetch_plain(array, i):
    """Do nothing, because plain Python cannot prefetch."""


@intrinsic_of(_prefetch_plain)
def prefetch(typingctx, array, i):
    """Prefetch the cache line of array[i] into the first-level cache.

    The index i may lie outside the array, because a prefetch of an invalid address has no effect.
    """

    def codegen(context, builder, sig, arguments):
        at = byte_pointer(context, builder, sig.args[0], arguments[0], arguments[1])
        emit_prefetch(builder, at)
        return context.get_dummy_value()

    return types.void(array, i), codegen


def _prefetch_row_plain(rows, start, size):
    """Do nothing, because plain Python cannot prefetch."""


@intrinsic_of(_prefetch_row_plain)
def prefetch_row(typingctx, rows, start, size):
    """Prefetch the cache lines of rows[start : start + size], where `rows` is a flat array.

    The rows are prefetched into the second-level cache, because a few wide rows fill the
    first-level cache. With prefetches into the first-level cache, scoring a pair takes 160 ns; with
    prefetches into the second-level cache, scoring a pair takes 100 ns (30,000 rows of 384 columns,
    scored in the order of the items). For rows of 1,536 columns, scoring a pair takes 680 ns with
    prefetches into the first-level cache, and 440 ns with prefetches into the second-level cache.
    For rows of 128 columns, prefetches into the first level and into the second level are equally
    fast.
    """

    def codegen(context, builder, sig, a):
        first = byte_pointer(context, builder, sig.args[0], a[0], a[1])
        lines = builder.lshr(builder.mul(a[2], I64(sig.args[0].dtype.bitwidth // 8)), I64(6))
        with cgutils.for_range(builder, builder.add(lines, I64(1))) as line:
            at = builder.gep(first, [builder.mul(line.index, I64(64))])
            emit_prefetch(builder, at, level=2)
        return context.get_dummy_value()

    return types.void(rows, start, size), codegen


def _load_64_bits_plain(array, start):
    return array[start : start + 8 // array.itemsize].view("u8")[0]


@intrinsic_of(_load_64_bits_plain)
def load_64_bits(typingctx, array, start):
    """Return an integer: the 64 bits that begin at element `start` of an array."""

    def codegen(context, builder, sig, arguments):
        at = pointer(context, builder, sig.args[0], *arguments)
        size = element_size(at)
        return builder.load(builder.bitcast(at, ir.PointerType(I64)), align=size)

    return types.uint64(array, start), codegen


@intrinsic
def as_read_only(typingctx, array):
    """Return a read-only view of an array.

    A kernel receives its inputs as read-only arrays, but it can write to the arrays that it
    creates. The kernel may pass arrays of both kinds to a second kernel. The second kernel would
    then be compiled twice: for read-only and for writeable arrays. To avoid this, the first kernel
    passes read-only views of the arrays that it has created.
    """

    def codegen(context, builder, signature, arguments):
        if context.enable_nrt:
            context.nrt.incref(builder, signature.return_type, arguments[0])
        return arguments[0]

    return array.copy(readonly=True)(array), codegen


@intrinsic
def array_at(typingctx, table, place, like):
    """Return the array at the address table[place], read-only and with the dtype of `like`.

    The array has one dimension and table[place + 1] elements.
    """
    kind = types.Array(like.dtype, 1, "C", readonly=True)

    def codegen(context, builder, signature, arguments):
        entry = pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        address, count = builder.load(entry), builder.load(builder.gep(entry, [I64(1)]))
        result = context.make_array(kind)(context, builder)
        size = I64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        result.meminfo = cgutils.get_null_value(result.meminfo.type)  # the caller owns the memory
        result.parent = cgutils.get_null_value(result.parent.type)
        result.nitems, result.itemsize = count, size
        result.data = builder.inttoptr(address, result.data.type)
        result.shape = cgutils.pack_array(builder, [count])
        result.strides = cgutils.pack_array(builder, [size])
        return result._getvalue()

    return kind(table, place, like), codegen
