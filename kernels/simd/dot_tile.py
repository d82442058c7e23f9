"""Float64 dot products of 6 rows with 32 columns; every operation is rounded separately."""

from ..cpu import ISA_FEATURES, cpu_features
from ..jit import intrinsic, ir, types
from .emit import F64, I64, broadcast, load, loop, store

# The number of rows of a tile.
ROWS = 6

# The number of columns in a tile, and also in a packed panel.
COLUMNS = 32

# The number of columns whose sums stay in registers. With AVX-512, 6 x 32 sums fill 24 of the 32
# registers. With AVX2, 6 x 8 sums fill 12 of the 16 registers. The width depends on cpu_features
# and not on supported_isas, because supported_isas asks Linux for permission to use the tile
# registers. This permission changes the whole process, so the import of a module must not ask for
# it.
WIDTH = COLUMNS if cpu_features().issuperset(ISA_FEATURES["avx512"]) else 8
# The number of float64 numbers in one vector of the IR; a vector has 512 bits.
LANES = 8


@intrinsic
def dot_products(typing, rows, first_row, panels, panel, column, out):
    """Set out[r, c] to the dot product of row first_row + r with column c of a panel.

    The number r runs from 0 to 5, and c runs from `column` to `column` + WIDTH - 1. Column c of a
    panel is panels[panel, :, c]. If there is no row first_row + r, the last row is read instead.
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
