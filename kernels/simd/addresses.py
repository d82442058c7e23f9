"""Arrays that kernels make from an address in memory, and read-only views of arrays."""

from ..jit import cgutils, intrinsic, types
from .emit import I64, pointer


@intrinsic
def as_read_only(typingctx, array):
    """Return an array as read-only, so that a kernel compiles once for its own and given arrays."""

    def codegen(context, builder, signature, arguments):
        if context.enable_nrt:
            context.nrt.incref(builder, signature.return_type, arguments[0])
        return arguments[0]

    return array.copy(readonly=True)(array), codegen


@intrinsic
def array_at(typingctx, table, place, like):
    """Return the array at the address table[place], read-only and with the dtype of `like`.

    The array has table[place + 1] elements.
    """
    kind = types.Array(like.dtype, 1, "C", readonly=True)

    def codegen(context, builder, signature, arguments):
        entry = pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        address, count = builder.load(entry), builder.load(builder.gep(entry, [I64(1)]))
        result = context.make_array(kind)(context, builder)
        size = I64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        result.meminfo = cgutils.get_null_value(result.meminfo.type)  # the caller keeps the memory
        result.parent = cgutils.get_null_value(result.parent.type)
        result.nitems, result.itemsize = count, size
        result.data = builder.inttoptr(address, result.data.type)
        result.shape = cgutils.pack_array(builder, [count])
        result.strides = cgutils.pack_array(builder, [size])
        return result._getvalue()

    return kind(table, place, like), codegen
