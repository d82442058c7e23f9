"""The format in which rows are packed for an instruction set: int8 codes or float32 numbers."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.kernels import tiles
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS

# Rows with fewer columns are padded with zeros to this many columns, before they are rotated and
# quantised to int8.
_MIN_ROTATED_COLUMNS = 16


class TileLayout(NamedTuple):
    """The format of packed rows for an instruction set and a number of columns.

    Attributes
    ----------
    isa : str
        Name of the instruction set.
    quantised : bool
        Whether rows are int8 codes; if not, they are float32 numbers.
    words : int
        Number of 4-byte words in a packed row.
    error : float
        Bound on the rounding error of a float32 inner product of unit rows; 0 for int8 codes.
    """

    isa: str
    quantised: bool
    words: int
    error: float

    def is_by_item(self, has_projection: bool) -> bool:
        """Return whether the words of each packed item lie together (``kernels.simd.panel``)."""
        is_wide = self.words >= INSTRUCTION_SETS[self.isa].least_words_by_item
        return self.quantised and self.isa != "amx" and (has_projection or is_wide)

    def empty_array(self) -> npt.NDArray[Any]:
        """Return an empty array of the number type in which packed rows are stored."""
        return np.empty(0, np.int32 if self.quantised else np.float32)


def tile_layout(isa: str, n_columns: int) -> TileLayout:
    """Return the layout in which an instruction set searches rows of this many columns.

    Rows are packed as int8 codes under two conditions: the instruction set can multiply codes, and
    an inner product of two rows of codes fits into an int32. If rows cannot be packed as int8
    codes, they are packed as float32 numbers.
    """
    if n_columns > tiles.MAX_CODED_COLUMNS or not INSTRUCTION_SETS[isa].has_codes:
        return float_layout(isa, n_columns)
    rotated_columns = max(n_columns, _MIN_ROTATED_COLUMNS)
    # A tile of AMX multiplies 64 codes of a row at a time; other instruction sets multiply 8 codes.
    codes = 64 if INSTRUCTION_SETS[isa].has_tile_registers else 8
    words = codes // 4 * -(-rotated_columns // codes)
    return TileLayout(isa, True, words, 0)


def float_layout(isa: str, n_columns: int) -> TileLayout:
    """Return the layout in which an instruction set reads float32 rows."""
    isa = "avx512" if INSTRUCTION_SETS[isa].float_lanes == 16 else "generic"
    return TileLayout(isa, False, n_columns, 1.1 * (n_columns + 8) * 2.0**-24)
