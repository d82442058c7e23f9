"""The instruction sets of the tiles, and the properties of each instruction set.

A kernel takes an instruction set as its first argument. Every instruction set is a separate Python
type, so Numba compiles a kernel separately for each instruction set. All choices that depend on the
instruction set are therefore made at compile time.
"""

from collections import namedtuple

from ..jit import intrinsic_of, types


class InstructionSet:
    """Properties of an instruction set; the operations of this package depend on them.

    Attributes
    ----------
    name : str
        The name of the instruction set in settings and messages.
    has_codes : bool
        Whether rows are packed as int8 codes; otherwise, rows are packed as float32.
    has_tile_registers : bool
        Whether products are computed in the tile registers of AMX.
    int8_lanes, int8_sums : int
        For int8 codes without AMX: the number of int32 lanes of a register, and the number of
        registers that hold sums.
    words_per_pass : int
        For int8 codes without AMX: the number of words that one pass multiplies. A pass takes this
        number of words of each query in a panel, and multiplies them by all items of a panel. The
        next pass multiplies the next words.
    least_words_by_item : int
        The full codes of items are laid out by item (``simd.panel``) if a row has at least this
        number of words, even if the items have no projection.
    float_rows, float_lanes : int
        For float32 rows: the number of items of a block, and the number of float32 lanes of a
        register.
    int16_words, int16_words_of_run : int
        The products of this number of words are added in int16 before the sum is widened to int32:
        int16_words in a tile of a block of queries, and int16_words_of_run if a few queries are
        multiplied by runs of panels (``few_queries``). The numbers are 0 if products are not added
        in int16. The codes of a query must be so small that no sum in int16 overflows
        (``query_encoding.query_step``). Adding more words takes fewer instructions, but needs
        smaller codes, which are coarser. A block of queries waits for instructions, and the scores
        of its hits are refined (``query_blocks``), so its codes may be coarse. A few queries wait
        for memory, and their hits are scored in float64 at once, so their codes must be finer.
    """

    __slots__ = ()
    name = ""
    has_codes = has_tile_registers = False
    int8_lanes = int8_sums = 0
    words_per_pass = 1 << 16  # no row has more words than this, so one pass multiplies them all
    least_words_by_item = 1 << 31  # no row has as many words
    float_rows, float_lanes = 4, 4
    int16_words = int16_words_of_run = 0


class AMX(InstructionSet, namedtuple("AMX", ())):
    """In tile registers, tdpbssd multiplies 16 x 64 signed bytes by 64 x 16 signed bytes."""

    __slots__ = ()
    name = "amx"
    has_codes = has_tile_registers = True
    # A CPU with tile registers also has AVX-512 with VNNI. If there is only one query, its codes
    # are multiplied with AVX-512.
    int8_lanes, int8_sums = 16, 16
    float_rows, float_lanes = 8, 16


class AVX512_VNNI(InstructionSet, namedtuple("AVX512_VNNI", ())):
    """vpdpbusd multiplies 4 unsigned item codes by 4 signed query codes in each of 16 lanes."""

    __slots__ = ()
    name = "vnni"
    has_codes = True
    int8_lanes, int8_sums = 16, 16
    float_rows, float_lanes = 8, 16


class AVX_VNNI(InstructionSet, namedtuple("AVX_VNNI", ())):
    """vpdpbusd multiplies 4 unsigned item codes by 4 signed query codes in each of 8 lanes."""

    __slots__ = ()
    name = "avxvnni"
    has_codes = True
    int8_lanes, int8_sums = 8, 8
    float_rows, float_lanes = 4, 8


class AVX2(InstructionSet, namedtuple("AVX2", ())):
    """Nine instructions (4 vpmaddubsw, 3 vpaddw, vpmaddwd, vpaddd) add 128 products to sums.

    A step computes 128 products: each of 8 lanes holds four words, and each word holds 4 codes. The
    instruction vpmaddubsw multiplies item codes by query codes, and adds pairs of neighbouring
    products in int16. The instruction vpaddw adds the results of the four words in int16. The
    instruction vpmaddwd widens the sums to int32, and vpaddd adds them to the totals. Widening
    every result of vpmaddubsw separately would take twelve instructions instead of nine.
    """

    __slots__ = ()
    name = "avx2"
    has_codes = True
    # With 8 registers of sums, the compiler would keep some of the sums in memory. One pass
    # multiplies 128 words of each of the 32 queries of a panel. These words take 16 kB, which is
    # half of the first-level cache of most CPUs.
    int8_lanes, int8_sums = 8, 4
    words_per_pass = 128
    # A hit is refined by multiplying the codes of one item. If these codes lie together, this takes
    # a seventh of the time. A search with one query then multiplies narrow rows more slowly: by 2.5
    # times for 64 columns, 1.5 times for 128, 1.2 times for 256, and not at all from 384 columns
    # (96 words) on, as we measured with 60,000 rows on a Zen 3.
    least_words_by_item = 96
    float_rows, float_lanes = 4, 8
    int16_words, int16_words_of_run = 4, 2


class AVX512_FLOAT(InstructionSet, namedtuple("AVX512_FLOAT", ())):
    """Rows are float32, and are multiplied in registers of 16 lanes."""

    __slots__ = ()
    name = "avx512"
    float_rows, float_lanes = 8, 16


class GENERIC(InstructionSet, namedtuple("GENERIC", ())):
    """Rows are float32, and are multiplied in registers of 4 lanes; this set works on any CPU."""

    __slots__ = ()
    name = "generic"


# This dictionary maps the name of an instruction set to the object that is passed to kernels. The
# instruction set with the widest registers comes first.
INSTRUCTION_SETS = {
    instruction_set.name: instruction_set()
    for instruction_set in (AMX, AVX512_VNNI, AVX_VNNI, AVX2, AVX512_FLOAT, GENERIC)
}


def of(signature):
    """Return the instruction set that is the first argument type of a signature."""
    return signature.args[0].instance_class


def _constant(attribute):
    """Make a function for kernels, which reads one attribute of an instruction set.

    In compiled kernels, the result is a constant, so branches that depend on it disappear.
    """

    def plain(isa):
        return getattr(isa, attribute)

    @intrinsic_of(plain)
    def read(typingctx, isa):
        value = getattr(isa.instance_class, attribute)
        kind = types.boolean if isinstance(value, bool) else types.int64

        def codegen(context, builder, signature, arguments):
            return context.get_constant(kind, value)

        return kind(isa), codegen

    return read


has_codes = _constant("has_codes")
has_tile_registers = _constant("has_tile_registers")
least_words_by_item = _constant("least_words_by_item")
int16_words = _constant("int16_words")
int16_words_of_run = _constant("int16_words_of_run")
