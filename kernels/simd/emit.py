"""Helpers that emit LLVM vector IR inside Numba intrinsics.

Numba has no vector type, and on many CPUs its vectoriser uses only 256-bit registers. The few loops
that determine the speed of fastcos are therefore written as vector IR. LLVM splits vectors that are
wider than the registers of the CPU, so portable operations (load, multiply, add, shuffle) run on
every CPU and give the same bits. Some intrinsics of LLVM are named after an instruction set, such
as ``llvm.x86.avx2.pmadd.wd``. Code that calls an intrinsic of one instruction set runs only on CPUs
with this instruction set.
"""

from ..jit import cgutils, ir

# The types of numbers and pointers in LLVM's intermediate code.
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32, F64 = ir.HalfType(), ir.FloatType(), ir.DoubleType()
BYTES = I8.as_pointer()
_BYTES_OF = {I8: 1, I16: 2, I32: 4, I64: 8, F32: 4, F64: 8}


def pointer(context, builder, array_type, array, offset):
    """Return a pointer to element `offset` of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [offset])


def pointers(context, builder, signature, arguments, *places):
    """Return one pointer for each place; a place is an element of an array argument.

    A place is given as a pair: the position of the argument, and the offset of the element.
    """
    return [pointer(context, builder, signature.args[i], arguments[i], at) for i, at in places]


def byte_pointer(context, builder, array_type, array, offset):
    """Return a pointer to element `offset` of a contiguous array, as a pointer to bytes."""
    return builder.bitcast(pointer(context, builder, array_type, array, offset), BYTES)


def element_type(start):
    """Return the type of the elements to which a pointer points.

    LLVM's pointers no longer have an element type, but llvmlite still stores the element type in
    some pointers, such as those of Numba's arrays. In this package, only this function reads the
    stored element type.
    """
    return start.type.pointee


def element_size(start):
    """Return the size, in bytes, of the element to which a pointer points."""
    return _BYTES_OF[element_type(start)]


def load(builder, start, vector_type, offset=0):
    """Emit code that loads the vector that begins `offset` elements after the pointer `start`.

    The address of the vector need only be aligned to the size of one element.
    """
    at = builder.bitcast(builder.gep(start, [I64(offset)]), vector_type.as_pointer())
    return builder.load(at, align=_BYTES_OF[vector_type.element])


def store(builder, vector, start, offset=0):
    """Emit code that stores a vector `offset` elements after the pointer `start`.

    The address of the vector need only be aligned to the size of one element.
    """
    at = builder.bitcast(builder.gep(start, [I64(offset)]), vector.type.as_pointer())
    builder.store(vector, at, align=_BYTES_OF[vector.type.element])


def broadcast(builder, scalar, vector_type):
    """Return a vector with the scalar in every lane."""
    undefined = ir.Constant(vector_type, ir.Undefined)
    first = builder.insert_element(undefined, scalar, I32(0))
    lanes = ir.Constant(ir.VectorType(I32, vector_type.count), [0] * vector_type.count)
    return builder.shuffle_vector(first, undefined, lanes)


def function(builder, name, result, arguments):
    """Return an LLVM function or intrinsic; declare it if the module does not yet declare it."""
    function_type = ir.FunctionType(result, arguments)
    return cgutils.get_or_insert_function(builder.module, function_type, name)


def loop(builder, count, carried, step):
    """Emit `for k in range(count): carried = step(k, carried)`; return the last `carried`.

    `carried` is the list of the loop-carried values, which stay in registers.
    """
    return while_loop(builder, count, carried, step)[1]


def while_loop(builder, end, carried, step, condition=None, first=None, stride=1):
    """Emit the loop `for k in range(first, end, stride): carried = step(k, carried)`.

    The function returns the last `k` and the last `carried`. If `first` is None, k begins with 0.
    If a condition is given, the loop ends at the first k for which condition(k) is false.
    """
    before = builder.block
    head, body, after = (builder.append_basic_block(name) for name in ("head", "body", "after"))
    builder.branch(head)
    builder.position_at_end(head)
    k = builder.phi(I64)
    k.add_incoming(I64(0) if first is None else first, before)
    values = []
    for start in carried:
        value = builder.phi(start.type)
        value.add_incoming(start, before)
        values.append(value)
    within = builder.icmp_signed("<", k, end)
    if condition is not None:
        look = builder.append_basic_block("look")
        builder.cbranch(within, look, after)
        builder.position_at_end(look)
        within = condition(k)
    builder.cbranch(within, body, after)
    builder.position_at_end(body)
    results = step(k, values)
    k.add_incoming(builder.add(k, I64(stride)), builder.block)
    for value, result in zip(values, results, strict=True):
        value.add_incoming(result, builder.block)
    builder.branch(head)
    builder.position_at_end(after)
    return k, values


def fold(builder, vector, operation):
    """Combine all lanes of a vector by an operation, and return the result.

    Lanes are combined in pairs. If there are 16 lanes, each lane l < 8 is combined with lane l + 8,
    then each lane l < 4 with lane l + 4, and so on.
    """
    count = vector.type.count
    while count > 1:
        count //= 2
        undefined = ir.Constant(vector.type, ir.Undefined)
        low, high = (
            builder.shuffle_vector(
                vector, undefined, ir.Constant(ir.VectorType(I32, count), list(lanes))
            )
            for lanes in (range(count), range(count, 2 * count))
        )
        vector = operation(low, high)
    return builder.extract_element(vector, I32(0))
