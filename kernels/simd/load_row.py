"""Loading of a row of numbers of any type as float32, with a scale and a shift."""

from ..jit import intrinsic, ir, types
from .emit import F32, F64, I64, broadcast, element_type, load, loop, pointer, pointers, store
from .low_precision import emit_float

# The number of float32 numbers in a vector.
LANES = 16


@intrinsic
def load_elements(typingctx, row, start, factor, coefficient, shift, out, depth):
    """Set out[j] to factor row[start + j] - coefficient shift[j], for every j below `depth`.

    row and out are flat. If shift is the empty tuple (), nothing is subtracted.
    """

    def codegen(context, builder, sig, a):
        dtype = sig.args[0].dtype
        source, target = pointers(context, builder, sig, a, (0, a[1]), (5, I64(0)))
        shifts = None
        if isinstance(sig.args[4], types.Array):
            shifts = pointer(context, builder, sig.args[4], a[4], I64(0))

        def store_scaled(at, lanes):
            def read(array):
                vector = ir.VectorType(element_type(array), lanes)
                return load(builder, builder.gep(array, [at]), vector)

            def scaled(number, value):
                return builder.fmul(broadcast(builder, number, value.type), value)

            value = scaled(a[2], emit_float(builder, read(source), dtype, F64))
            if shifts is not None:
                value = builder.fsub(value, scaled(a[3], read(shifts)))
            value = builder.fptrunc(value, ir.VectorType(F32, lanes))
            store(builder, value, builder.gep(target, [at]))
            return []

        # Whole vectors are followed by single numbers.
        end = builder.and_(a[6], I64(-LANES))
        n_vectors, n_singles = builder.lshr(a[6], I64(4)), builder.and_(a[6], I64(LANES - 1))
        loop(builder, n_vectors, [], lambda k, _: store_scaled(builder.mul(k, I64(LANES)), LANES))
        loop(builder, n_singles, [], lambda k, _: store_scaled(builder.add(end, k), 1))
        return context.get_dummy_value()

    return types.void(row, start, factor, coefficient, shift, out, depth), codegen
