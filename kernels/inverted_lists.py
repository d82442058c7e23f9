"""Lists of the items of every column, and the sums of inner products along them.

Where sums are int32 a list's entries are read by the 64 bits: four items that count 1 each, or two
items with their values, item in the low half and value in the high one. Short columns come by
length, which decides how often the end of a list is mispredicted. A search of the deck data, whose
lists have 31 entries, takes three quarters of the time of separate lists in the given order.
"""

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .jit import kernel
from .prefetch import prefetch
from .vector_ir import I64, pointer

# lists asked for in advance
_AHEAD = 12
_LINE = 64
_LOW_16 = np.uint64(0xFFFF)
_BITS_16, _BITS_32, _BITS_48 = np.uint64(16), np.uint64(32), np.uint64(48)


@intrinsic
def _word_of_memory(typingctx, array, start):
    signature = types.uint64(array, start)

    def codegen(context, builder, sig, arguments):
        at = pointer(context, builder, sig.args[0], *arguments)
        size = context.get_abi_sizeof(at.type.pointee)
        return builder.load(builder.bitcast(at, ir.PointerType(I64)), align=size)

    return signature, codegen


def _word_slowly(array, start):
    """The 64 bits of array from an element on."""
    return array[start : start + 8 // array.itemsize].view(np.uint64)[0]


word = _word_slowly if numba.config.DISABLE_JIT else _word_of_memory


@kernel
def find_whole_rows(lo, hi, indptr, data, are_whole):
    """are_whole[i]: rows lo .. hi of a CSR matrix hold whole numbers of int16 only.

    data (nnz,) float; are_whole (n,) bool, out.
    """
    others = 0
    for value in data[indptr[lo] : indptr[hi]]:
        others += (abs(value) >= 32768) | (np.rint(value) != value)
    are_whole[lo:hi] = others == 0


@kernel
def take_rows(lo, hi, order, indptr, indices, data, taken_indptr, taken, values):
    """Row i of the result is row order[i] of a CSR matrix, for rows lo .. hi of the result.

    indices (nnz,) int; data (nnz,) or None; taken (nnz,) int and values (nnz,) or None out.
    """
    for i in range(lo, hi):
        if i + _AHEAD < hi:  # short rows all over memory
            start = indptr[order[i + _AHEAD]]
            prefetch(indices, start)
            prefetch(indices, start + _LINE // indices.itemsize)
            if data is not None:
                prefetch(data, start)
                prefetch(data, start + _LINE // data.itemsize)
        to = taken_indptr[i]
        for t in range(indptr[order[i]], indptr[order[i] + 1]):
            taken[to] = indices[t]
            if data is not None:
                values[to] = np.int16(data[t])
            to += 1


@kernel
def add_lists(first, last, indices, values, list_indptr, list_items, list_values, sums):
    """sums[j] += <query, item j> for all items; the query's non-zeros first .. last, in order.

    With list_values None, every value is 1 where values is None too; else list_items (nnz,) int32
    hold an item in their lower and its value in their upper half.
    Short lists all over memory: the first lines of each are asked for in advance, 2x on the deck
    data. No call per list: one between compiled functions counts references.
    """
    if list_values is None:
        if values is None:
            _count(first, last, indices, list_indptr, list_items, sums)
        else:
            _add_packed(first, last, indices, values, list_indptr, list_items, sums)
    else:
        _add_values(first, last, indices, values, list_indptr, list_items, list_values, sums)


@kernel
def _count(first, last, indices, list_indptr, items, sums):
    line = _LINE // items.itemsize
    for t in range(first, last):
        if t + 2 * _AHEAD < last:
            prefetch(list_indptr, np.int64(indices[t + 2 * _AHEAD]))
        if t + _AHEAD < last:
            start = list_indptr[indices[t + _AHEAD]]
            prefetch(items, start)
            prefetch(items, start + line)
        start, stop = list_indptr[indices[t]], list_indptr[indices[t] + 1]
        if items.itemsize == 2:
            fours = stop - (stop - start) % 4
            to_next = list_indptr[indices[min(t + 1, last - 1)]] - start
            for s in range(start, fours, 4):
                if (s - start) % line == 0:
                    prefetch(items, s + to_next)
                four = word(items, s)
                sums[four & _LOW_16] += 1
                sums[(four >> _BITS_16) & _LOW_16] += 1
                sums[(four >> _BITS_32) & _LOW_16] += 1
                sums[four >> _BITS_48] += 1
            start = fours
        for s in range(start, stop):
            sums[items[s]] += 1


@kernel
def _add_packed(first, last, indices, values, list_indptr, packed, sums):
    line = _LINE // packed.itemsize
    for t in range(first, last):
        if t + 2 * _AHEAD < last:
            prefetch(list_indptr, np.int64(indices[t + 2 * _AHEAD]))
        if t + _AHEAD < last:
            start = list_indptr[indices[t + _AHEAD]]
            prefetch(packed, start)
            prefetch(packed, start + line)
            prefetch(packed, start + 2 * line)
        value = np.int32(values[t])
        start, stop = list_indptr[indices[t]], list_indptr[indices[t] + 1]
        fours = stop - (stop - start) % 4
        to_next = list_indptr[indices[min(t + 1, last - 1)]] - start
        for s in range(start, fours, 4):
            if (s - start) % line == 0:
                prefetch(packed, s + to_next)
            one, two = word(packed, s), word(packed, s + 2)
            sums[one & _LOW_16] += value * np.int32(np.int16(one >> _BITS_16))
            sums[(one >> _BITS_32) & _LOW_16] += value * np.int32(np.int64(one) >> 48)
            sums[two & _LOW_16] += value * np.int32(np.int16(two >> _BITS_16))
            sums[(two >> _BITS_32) & _LOW_16] += value * np.int32(np.int64(two) >> 48)
        for s in range(fours, stop):
            sums[packed[s] & 0xFFFF] += value * np.int32(packed[s] >> 16)


@kernel
def _add_values(first, last, indices, values, list_indptr, items, item_values, sums):
    item_line, value_line = _LINE // items.itemsize, _LINE // item_values.itemsize
    for t in range(first, last):
        if t + 2 * _AHEAD < last:
            prefetch(list_indptr, np.int64(indices[t + 2 * _AHEAD]))
        if t + _AHEAD < last:
            start = list_indptr[indices[t + _AHEAD]]
            prefetch(items, start)
            prefetch(items, start + item_line)
            prefetch(item_values, start)
            prefetch(item_values, start + value_line)
        value = sums.dtype.type(values[t])
        for s in range(list_indptr[indices[t]], list_indptr[indices[t] + 1]):
            sums[items[s]] += value * item_values[s]
