"""Random numbers by Philox4x32-10; each number is a function of a counter and a key.

No state passes from one number to the next, so the numbers of a row do not depend on other rows.
Source: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, SC 2011. Words
of 32 bits are held in int64. A product of two words may overflow int64, but its lower 64 bits are
correct, and only these bits are used.
"""

from .jit import borrowing_kernel

# The mask of a 32-bit word.
_WORD = 0xFFFFFFFF


@borrowing_kernel
def philox(word_0, word_1, word_2, word_3, key_0, key_1):
    """Return four random words for a counter of four words and a key of two words."""
    for _ in range(10):
        product, other_product = word_0 * 0xD2511F53, word_2 * 0xCD9E8D57
        word_0, word_1, word_2, word_3 = (
            ((other_product >> 32) & _WORD) ^ word_1 ^ key_0,
            other_product & _WORD,
            ((product >> 32) & _WORD) ^ word_3 ^ key_1,
            product & _WORD,
        )
        key_0 = (key_0 + 0x9E3779B9) & _WORD
        key_1 = (key_1 + 0xBB67AE85) & _WORD
    return word_0, word_1, word_2, word_3


@borrowing_kernel
def uniform_pair(step, stream, row, key_0, key_1):
    """Return two independent uniform numbers with 52 random bits each, strictly between 0 and 1.

    The numbers depend only on (step, stream, row, key), where `step` and `stream` must be below
    2^32, and `row` must be below 2^63.
    """
    a, b, c, d = philox(step, stream, row & _WORD, row >> 32, key_0, key_1)
    scale = 2.0**-52
    return (((a << 20) | (b >> 12)) + 0.5) * scale, (((c << 20) | (d >> 12)) + 0.5) * scale
