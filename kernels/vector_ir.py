"""Words for writing LLVM vector code from Numba: used by the register tiles and the exact scores.

Numba has no vector type and its vectoriser keeps 256-bit registers on many CPUs, so the few loops
that decide the speed are written as vector IR inside an intrinsic. LLVM legalises vectors wider
than the CPU's registers, so portable operations (load, multiply, add, shuffle) run everywhere with
the same bits; only intrinsics named after a CPU need its features.
"""

from llvmlite import ir
from numba.core import cgutils

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
BYTES = I8.as_pointer()


def pointer(context, builder, array_type, array, offset):
    """Pointer to element `offset` of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def byte_pointer(context, builder, array_type, array, offset):
    """The same, as a pointer to bytes."""
    return builder.bitcast(pointer(context, builder, array_type, array, offset), BYTES)


def load(builder, start, vector_type, offset=0):
    """One vector from `offset` elements after a typed pointer; no alignment is assumed."""
    at = builder.gep(start, [I64(offset)]) if isinstance(offset, int) else start
    size = {I8: 1, I32: 4, F32: 4, F64: 8}[vector_type.element]
    return builder.load(builder.bitcast(at, vector_type.as_pointer()), align=size)


def broadcast(builder, scalar, vector_type):
    """A vector whose every lane is the scalar."""
    undefined = ir.Constant(vector_type, ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    lanes = ir.Constant(ir.VectorType(I32, vector_type.count), [0] * vector_type.count)
    return builder.shuffle_vector(first, undefined, lanes)


def function(builder, name, result, arguments):
    """Declare an LLVM function or intrinsic once per module."""
    kind = ir.FunctionType(result, arguments)
    return cgutils.get_or_insert_function(builder.module, kind, name)


def loop(builder, count, carried, step):
    """Emit a loop of carried = step(k, carried), with every carried value in a register."""
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(I64)
    k.add_incoming(I64(0), before)
    values = []
    for start in carried:
        value = builder.phi(start.type)
        value.add_incoming(start, before)
        values.append(value)
    builder.cbranch(builder.icmp_signed("<", k, count), body, after)
    builder.position_at_end(body)
    results = step(k, values)
    k.add_incoming(builder.add(k, I64(1)), builder.block)
    for value, result in zip(values, results, strict=True):
        value.add_incoming(result, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return values


def sum_lanes(builder, vector):
    """Sum of the lanes by halves: lane l and l + 8, then l + 4, ... in this fixed order."""
    count = vector.type.count
    undefined = ir.Constant(vector.type, ir.Undefined)
    while count > 1:
        count //= 2
        kind = ir.VectorType(I32, count)
        low = builder.shuffle_vector(vector, undefined, ir.Constant(kind, list(range(count))))
        high = builder.shuffle_vector(
            vector, undefined, ir.Constant(kind, list(range(count, 2 * count)))
        )
        vector = builder.fadd(low, high)
        undefined = ir.Constant(vector.type, ir.Undefined)
    return builder.extract_element(vector, I32(0))
