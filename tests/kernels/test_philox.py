import numpy as np
import pytest
import scipy.stats

from fastcos.kernels.jit import kernel
from fastcos.kernels.philox import philox, uniform_pair

# Known answers for philox4x32 with 10 rounds, from kat_vectors of the authors' library Random123.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


@kernel
def fill(rows, key_0, key_1, pairs):
    for i in range(rows):
        for step in range(pairs.shape[1]):
            pairs[i, step, 0], pairs[i, step, 1] = uniform_pair(step, 0, i, key_0, key_1)


def uniform_numbers(rows, steps, key=(3, 4)):
    pairs = np.full((rows, steps, 2), np.nan)
    fill(rows, *key, pairs)
    return pairs


def words(text):
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_equals_known_answers(counter, key, answer):
    assert list(philox(*words(counter), *words(key))) == words(answer)


def test_uniform_pair_uses_52_bits_of_two_words():
    a, b, c, d = philox(7, 1, 5, 2, 3, 4)
    u, v = uniform_pair(7, 1, 5 + (2 << 32), 3, 4)
    assert u == ((a << 20 | b >> 12) + 0.5) / 2**52
    assert v == ((c << 20 | d >> 12) + 0.5) / 2**52


def test_uniform_pair_is_uniform_across_rows_and_steps():
    pairs = uniform_numbers(100, 500)
    assert pairs.min() > 0
    assert pairs.max() < 1
    assert scipy.stats.kstest(pairs.ravel(), "uniform").pvalue > 1e-3
    # Three kinds of pairs must be spread evenly over a grid of 16 x 16 cells: the two numbers of
    # one step, numbers of consecutive steps, and numbers of consecutive rows.
    for x, y in (
        (pairs[..., 0], pairs[..., 1]),
        (pairs[:, :-1, 1], pairs[:, 1:, 0]),
        (pairs[:-1], pairs[1:]),
    ):
        cells = np.histogram2d(x.ravel(), y.ravel(), bins=16, range=[(0, 1)] * 2)[0]
        assert scipy.stats.chisquare(cells.ravel()).pvalue > 1e-3


def test_uniform_pair_has_uniform_low_bits():
    whole = np.floor(uniform_numbers(50, 500) * 2**52).astype(np.int64)
    for shift in (0, 8, 16):
        counts = np.bincount((whole.ravel() >> shift) & 255, minlength=256)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_uniform_pair_differs_between_rows_and_keys():
    numbers = [uniform_numbers(50, 40, key).ravel() for key in ((3, 4), (4, 3), (3, 5))]
    assert len(np.unique(np.concatenate(numbers))) == 3 * 50 * 40 * 2
