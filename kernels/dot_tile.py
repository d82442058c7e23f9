"""Float64 dot products of 6 rows with 32 columns at a time, as LLVM vector IR.

Every product and every sum is rounded on its own, in the order of the dimensions: the bits are
those of the plain loop, whatever the vector width. The IR names no instruction, so it compiles for
every CPU; the number of columns held in registers at once follows the CPU's vectors.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .cpu import supported_isas
from .jit import kernel

ROWS, COLUMNS = 6, 32
# 6 x 32 sums fill 24 of 32 wide registers; 6 x 8 fill 12 of 16 narrow ones
WIDTH = COLUMNS if "avx512" in supported_isas() else 8
LANES = 8
_F64, _I64 = ir.DoubleType(), ir.IntType(64)
_VECTOR = ir.VectorType(_F64, LANES)
_PARTS = range(WIDTH // LANES)


@intrinsic
def _dots(typing, rows, first_row, panels, panel, column, out):
    """out[r, column:column+WIDTH] = rows[first_row + r] . panels[panel, :, column:column+WIDTH].

    r runs over 0 .. 5; a row past the last is read as the last.
    """
    signature = types.void(rows, first_row, panels, panel, column, out)

    def codegen(context, builder, signature, arguments):
        tile = _Tile(context, builder, signature, arguments)
        tile.store(tile.sums_over_dimensions())
        return context.get_dummy_value()

    return signature, codegen


class _Tile:
    """Writes the loop over the dimensions of one tile."""

    def __init__(self, context, builder, signature, arguments):
        self._builder = builder
        _, first_row, _, panel, column, _ = arguments
        arrays = [
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 5)
        ]
        n_rows = builder.extract_value(arrays[0].shape, 0)
        self._depth = builder.extract_value(arrays[0].shape, 1)
        last = builder.sub(n_rows, _I64(1))
        self._rows = []
        for r in range(ROWS):
            row = builder.add(first_row, _I64(r))
            row = builder.select(builder.icmp_signed("<", row, last), row, last)
            self._rows.append(builder.gep(arrays[0].data, [builder.mul(row, self._depth)]))
        start = builder.mul(builder.mul(panel, self._depth), _I64(COLUMNS))
        self._panel = builder.gep(arrays[1].data, [builder.add(start, column)])
        self._out = builder.gep(arrays[2].data, [column])

    def _lanes_at(self, pointer, part):
        first = self._builder.gep(pointer, [_I64(part * LANES)])
        return self._builder.bitcast(first, _VECTOR.as_pointer())

    def _broadcast(self, value):
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        first = self._builder.insert_element(undefined, value, ir.IntType(32)(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self._builder.shuffle_vector(first, undefined, lanes)

    def sums_over_dimensions(self):
        builder = self._builder
        before = builder.block
        head, body, after = (
            builder.function.append_basic_block(f"dimension.{name}")
            for name in ("head", "body", "end")
        )
        builder.branch(head)
        builder.position_at_end(head)
        dimension = builder.phi(_I64)
        dimension.add_incoming(_I64(0), before)
        sums = [builder.phi(_VECTOR) for _ in range(ROWS) for _ in _PARTS]
        for phi in sums:
            phi.add_incoming(ir.Constant(_VECTOR, [0.0] * LANES), before)
        builder.cbranch(builder.icmp_signed("<", dimension, self._depth), body, after)
        builder.position_at_end(body)
        line = builder.gep(self._panel, [builder.mul(dimension, _I64(COLUMNS))])
        columns = [builder.load(self._lanes_at(line, part), align=8) for part in _PARTS]
        for r in range(ROWS):
            value = self._broadcast(builder.load(builder.gep(self._rows[r], [dimension])))
            for part in _PARTS:
                phi = sums[r * len(_PARTS) + part]
                total = builder.fadd(phi, builder.fmul(value, columns[part]))
                phi.add_incoming(total, builder.block)
        dimension.add_incoming(builder.add(dimension, _I64(1)), builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return sums

    def store(self, sums):
        for r in range(ROWS):
            line = self._builder.gep(self._out, [_I64(r * COLUMNS)])
            for part in _PARTS:
                target = self._lanes_at(line, part)
                self._builder.store(sums[r * len(_PARTS) + part], target, align=8)


@kernel
def dot_tile(rows, first_row, panels, panel, tile):
    """tile[r, c] = rows[first_row + r] . column c of the panel, for 6 rows and 32 columns.

    rows (n, d) float64, C order; panels (P, d, 32) float64, as pack_rows makes them; tile (6, 32)
    float64, out. A row past the last is read as the last. O(192 d).
    """
    for column in range(0, COLUMNS, WIDTH):
        _dots(rows, first_row, panels, panel, column, tile)


@kernel
def dot_tile_plain(rows, first_row, panels, panel, tile):
    """Do what dot_tile does, without vector IR."""
    for r in range(ROWS):
        row = min(first_row + r, rows.shape[0] - 1)
        for column in range(COLUMNS):
            total = 0.0
            for dimension in range(rows.shape[1]):
                total += rows[row, dimension] * panels[panel, dimension, column]
            tile[r, column] = total


@kernel
def pack_rows(lo, hi, rows, panels):
    """Lay out panels lo .. hi: panels[q, :, c] = rows[32 q + c], zeros past the last row.

    rows (n, d) float64; panels (ceil(n / 32), d, 32) float64, out. O(32 (hi - lo) d).
    """
    for panel in range(lo, hi):
        for column in range(COLUMNS):
            row = panel * COLUMNS + column
            for dimension in range(rows.shape[1]):
                inside = row < rows.shape[0]
                panels[panel, dimension, column] = rows[row, dimension] if inside else 0.0


@kernel
def products_rows(lo, hi, rows, panels, out):
    """out[i, j] = rows[i] . row j of the packed matrix, for rows lo .. hi.

    rows (n, d) float64; panels (ceil(m / 32), d, 32) float64; out (n, m) float64, out.
    O((hi - lo) m d) time.
    """
    tile = np.empty((ROWS, COLUMNS))
    for panel in range(panels.shape[0]):
        first_column = panel * COLUMNS
        width = min(COLUMNS, out.shape[1] - first_column)
        for first_row in range(lo, hi, ROWS):
            dot_tile(rows, first_row, panels, panel, tile)
            for r in range(min(ROWS, hi - first_row)):
                out[first_row + r, first_column : first_column + width] = tile[r, :width]
