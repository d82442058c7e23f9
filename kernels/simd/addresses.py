"""Arrays that kernels build from addresses, and arrays that are only read."""

from ..jit import cgutils, intrinsic, types
from .emit import I64, pointer


@intrinsic
def as_read(typingctx, array):
    """Return an array as read-only, so that arrays of callers and of kernels have one type."""

    def codegen(context, builder, signature, arguments):
        if context.enable_nrt:
            context.nrt.incref(builder, signature.return_type, arguments[0])
        return arguments[0]

    return array.copy(readonly=True)(array), codegen


@intrinsic
def array_at(typingctx, slots, place, like):
    """Return the array at address slots[place], with slots[place + 1] elements of like's dtype."""
    kind = types.Array(like.dtype, 1, "C", readonly=True)

    def codegen(context, builder, signature, arguments):
        slot = pointer(context, builder, signature.args[0], arguments[0], arguments[1])
        address, count = builder.load(slot), builder.load(builder.gep(slot, [I64(1)]))
        result = context.make_array(kind)(context, builder)
        size = I64(context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        result.meminfo = cgutils.get_null_value(result.meminfo.type)  # the caller keeps the memory
        result.parent = cgutils.get_null_value(result.parent.type)
        result.nitems, result.itemsize = count, size
        result.data = builder.inttoptr(address, result.data.type)
        result.shape = cgutils.pack_array(builder, [count])
        result.strides = cgutils.pack_array(builder, [size])
        return result._getvalue()

    return kind(slots, place, like), codegen
