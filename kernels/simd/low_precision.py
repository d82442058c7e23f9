"""The number types of rows, and the conversion of numbers of one or two bytes to floats.

The bits of float16 numbers are stored in uint16 arrays, and the bits of bfloat16 numbers in int16
arrays.
"""

import math

import numpy as np

from ..cpu import has_instruction
from ..jit import ir, types
from .emit import F16, F32, F64, I8, I16, I32

# The codes of the number types of rows (``records.Rows``).
FLOAT64, FLOAT32, FLOAT16, BFLOAT16, INT8 = range(5)
# For each number type, ARRAY_TYPES names the NumPy type of the arrays that hold its numbers. The
# numbers of float16 and bfloat16 are held as 16-bit integers with the same bits. ELEMENTS contains
# LLVM's type of the elements of these arrays.
ARRAY_TYPES = "float64", "float32", "uint16", "int16", "int8"
ELEMENTS = F64, F32, I16, I16, I8
N_NUMBER_TYPES = len(ARRAY_TYPES)


def dtype_of(number_type):
    """Return the Numba type that arrays use to store numbers of the given number type."""
    return getattr(types, ARRAY_TYPES[number_type])


def numbers_of(row):
    """Convert a row of any supported type to a list of Python floats."""
    if row.dtype == np.uint16:
        row = row.view(np.float16)
    elif row.dtype == np.int16:
        row = (row.astype(np.int32) << 16).view(np.float32)
    return row.astype(np.float64).tolist()


def emit_float(builder, value, dtype, element):
    """Emit the conversion of a scalar or a vector of this dtype to floats of type `element`."""

    def like(kind):
        return ir.VectorType(kind, value.type.count) if is_vector else kind

    def constant(kind, number):
        return ir.Constant(like(kind), [number] * value.type.count if is_vector else number)

    is_vector = isinstance(value.type, ir.VectorType)
    if dtype.bitwidth == 8:
        return builder.sitofp(value, like(element))
    if isinstance(dtype, types.Integer) and not dtype.signed and has_instruction("f16c"):
        value = builder.fpext(builder.bitcast(value, like(F16)), like(F32))
    elif isinstance(dtype, types.Integer):
        bits = builder.zext(value, like(I32))
        if dtype.signed:
            bits = builder.shl(bits, constant(I32, 16))
        else:
            sign = builder.shl(builder.and_(bits, constant(I32, 0x8000)), constant(I32, 16))
            bits = builder.shl(builder.and_(bits, constant(I32, 0x7FFF)), constant(I32, 13))
            # The bits of a float16 exponent represent the exponent plus 15, and the bits of a
            # float32 exponent represent the exponent plus 127.
            size = builder.fmul(builder.bitcast(bits, like(F32)), constant(F32, 2.0**112))
            is_number = builder.fcmp_ordered("<", size, constant(F32, 2.0**16))
            size = builder.select(is_number, size, constant(F32, math.inf))
            bits = builder.or_(builder.bitcast(size, like(I32)), sign)
        value = builder.bitcast(bits, like(F32))
    if value.type == like(element):
        return value
    return (builder.fpext if element == F64 else builder.fptrunc)(value, like(element))
