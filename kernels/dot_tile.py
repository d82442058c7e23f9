"""Float64 dot products of 6 rows with 32 columns at a time, as LLVM vector IR.

Every product and every sum is rounded separately, in the order of the dimensions: results are
bit-identical to the plain loop, for every vector width. The IR names no instruction, so it
compiles for every CPU.
"""

import numpy as np

from .cpu import ISA_FEATURES, cpu_features
from .jit import borrowing_kernel, intrinsic, ir, kernel, types
from .simd.emit import F64, I64, broadcast, load, loop, store

# rows of a tile
ROWS = 6
# columns of a tile, and of a packed panel
COLUMNS = 32
# Columns whose sums stay in registers: 6 x 32 sums fill 24 of the 32 registers of AVX-512, 6 x 8
# fill 12 of the 16 registers of AVX2. The features of the CPU decide, because cpu.supported_isas
# requests a permission from Linux for the whole process, which an import must not do.
WIDTH = COLUMNS if cpu_features().issuperset(ISA_FEATURES["avx512"]) else 8
# numbers in one vector of IR: one 512-bit register of float64
LANES = 8


@intrinsic
def _dots(typing, rows, first_row, panels, panel, column, out):
    """out[r, column:column+WIDTH] = rows[first_row + r] . panels[panel, :, column:column+WIDTH].

    r runs over 0 .. 5; a row past the last is read as the last row.
    """

    def codegen(context, builder, signature, arguments):
        matrices = [
            context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 2, 5)
        ]
        depth, vector = builder.extract_value(matrices[0].shape, 1), ir.VectorType(F64, LANES)
        last = builder.sub(builder.extract_value(matrices[0].shape, 0), I64(1))
        row_starts = []
        for r in range(ROWS):
            row = builder.add(arguments[1], I64(r))
            row = builder.select(builder.icmp_signed("<", row, last), row, last)
            row_starts.append(builder.gep(matrices[0].data, [builder.mul(row, depth)]))
        start = builder.mul(builder.mul(arguments[3], depth), I64(COLUMNS))
        panel_start = builder.gep(matrices[1].data, [builder.add(start, arguments[4])])
        parts = range(0, WIDTH, LANES)

        def step(dimension, sums):
            line = builder.gep(panel_start, [builder.mul(dimension, I64(COLUMNS))])
            columns = [load(builder, line, vector, part) for part in parts]
            totals = iter(sums)
            results = []
            for row_start in row_starts:
                entry = builder.load(builder.gep(row_start, [dimension]))
                value = broadcast(builder, entry, vector)
                for column in columns:
                    results.append(builder.fadd(next(totals), builder.fmul(value, column)))
            return results

        zero = ir.Constant(vector, [0.0] * LANES)
        sums = iter(loop(builder, depth, [zero] * (ROWS * len(parts)), step))
        tile = builder.gep(matrices[2].data, [arguments[4]])
        for r in range(ROWS):
            for part in parts:
                store(builder, next(sums), tile, r * COLUMNS + part)
        return context.get_dummy_value()

    return types.void(rows, first_row, panels, panel, column, out), codegen


@borrowing_kernel
def dot_tile(rows, first_row, panels, panel, tile):
    """tile[r, c] = rows[first_row + r] . column c of the panel, for 6 rows and 32 columns.

    rows (n, d) float64, C order; panels (P, d, 32) float64, as pack_rows makes them; tile (6, 32)
    float64, out. A row past the last is read as the last row. O(192 d).
    """
    for column in range(0, COLUMNS, WIDTH):
        _dots(rows, first_row, panels, panel, column, tile)


@borrowing_kernel
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
                for c in range(width):
                    out[first_row + r, first_column + c] = tile[r, c]
