"""check_rows equals a plain loop, for each kind of error and each row."""

import itertools

import numpy as np
import pytest

from fastcos.kernels import csr, records
from tests.kernels.inputs import frozen


def findings_of(rows, n_columns, *, cuts=None, index="i4", value="f8"):
    """Return the findings of check_rows; each row is a list of pairs (column, value)."""
    indptr = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    indices = np.array([column for row in rows for column, _ in row], index)
    data = np.array([value for row in rows for _, value in row], value)
    unsigned = np.dtype(f"u{data.dtype.itemsize}").type
    findings = np.full(len(rows), 249, np.uint8)
    cuts = [0, len(rows)] if cuts is None else cuts
    for lo, hi in itertools.pairwise(cuts):
        csr.check_rows(
            lo,
            hi,
            records.Csr(*frozen(indptr, indices, data)),
            records.BitViews(
                *frozen(indices.view(f"u{indices.dtype.itemsize}"), data.view(unsigned)),
                magnitude=unsigned(np.iinfo(unsigned).max >> 1),
                infinity=np.array(np.inf, data.dtype).view(unsigned)[()],
            ),
            n_columns,
            findings,
        )
    return findings.tolist()


def finding(row, n_columns):
    """Return the finding that check_rows must report for one row, according to its definition."""
    columns = [column for column, _ in row]
    if any(not 0 <= column < n_columns for column in columns):
        return csr.OUT_OF_RANGE
    if not np.isfinite([value for _, value in row]).all():
        return csr.NOT_FINITE
    if columns != sorted(set(columns)):
        return csr.NOT_CANONICAL
    return csr.EXPLICIT_ZERO if any(value == 0 for _, value in row) else csr.VALID


CASES = {
    "empty": ([], csr.VALID),
    "one": ([(0, 1.0)], csr.VALID),
    "last column": ([(8, -1.0)], csr.VALID),
    "sorted": ([(0, 1.0), (1, 2.0), (8, 3.0)], csr.VALID),
    "denormal": ([(0, 5e-324), (1, -5e-324)], csr.VALID),
    "largest": ([(0, np.finfo("f8").max), (1, -np.finfo("f8").max)], csr.VALID),
    "one too far": ([(9, 1.0)], csr.OUT_OF_RANGE),
    "negative": ([(-1, 1.0)], csr.OUT_OF_RANGE),
    "most negative": ([(-(2**31), 1.0)], csr.OUT_OF_RANGE),
    "huge": ([(2**31 - 1, 1.0)], csr.OUT_OF_RANGE),
    "out of range among others": ([(0, 1.0), (9, 1.0)], csr.OUT_OF_RANGE),
    "out of range comes before NaN": ([(0, np.nan), (9, 1.0)], csr.OUT_OF_RANGE),
    "NaN": ([(0, np.nan)], csr.NOT_FINITE),
    "negative NaN": ([(0, -np.nan)], csr.NOT_FINITE),
    "infinity": ([(0, np.inf)], csr.NOT_FINITE),
    "minus infinity": ([(0, 1.0), (1, -np.inf)], csr.NOT_FINITE),
    "NaN comes before order": ([(1, 1.0), (0, np.nan)], csr.NOT_FINITE),
    "unsorted": ([(1, 1.0), (0, 1.0)], csr.NOT_CANONICAL),
    "duplicate": ([(1, 1.0), (1, 1.0)], csr.NOT_CANONICAL),
    "unsorted at the end": ([(0, 1.0), (5, 1.0), (4, 1.0)], csr.NOT_CANONICAL),
    "order comes before zeros": ([(1, 0.0), (0, 1.0)], csr.NOT_CANONICAL),
    "zero": ([(0, 1.0), (3, 0.0)], csr.EXPLICIT_ZERO),
    "minus zero": ([(3, -0.0)], csr.EXPLICIT_ZERO),
}


@pytest.mark.parametrize("index", ["i4", pytest.param("i8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES)
def test_check_rows_finds_each_case(case, index):
    row, truth = CASES[case]
    assert truth == finding(row, 9)
    assert findings_of([row], 9, index=index) == [truth]


@pytest.mark.parametrize("value", [pytest.param("f4", marks=pytest.mark.slow), "f8"])
def test_check_rows_accepts_extreme_finite_values(value):
    limits = np.finfo(value)
    rows = [[(0, float(x))] for x in (limits.max, -limits.max, limits.smallest_subnormal)]
    rows += [[(0, float(limits.smallest_subnormal))], [(0, np.inf)], [(0, np.nan)], [(0, -0.0)]]
    expected = [csr.VALID] * 4 + [csr.NOT_FINITE] * 2 + [csr.EXPLICIT_ZERO]
    assert findings_of(rows, 1, value=value) == expected


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("at", [0, 255, 256, 299])
def test_check_rows_finds_one_row_among_300(case, at):
    rows = [[(i % 9, 1.0)] for i in range(300)]
    rows[at] = CASES[case][0]
    expected = [csr.VALID] * 300
    expected[at] = CASES[case][1]
    assert findings_of(rows, 9) == expected


def test_check_rows_accepts_descents_between_rows():
    assert (
        findings_of([[(8, 1.0)], [(0, 1.0)], [(0, 1.0), (8, 1.0)], [(0, 1.0)]], 9)
        == [csr.VALID] * 4
    )


@pytest.mark.parametrize("n_cases", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_check_rows_equals_a_plain_loop(n_cases):
    rng = np.random.default_rng(0)
    for _ in range(n_cases):
        n, n_columns = int(rng.integers(1, 600)), int(rng.integers(1, 12))
        odd = rng.random() < 0.5
        rows = []
        for _ in range(n):
            columns = rng.choice(n_columns, int(rng.integers(0, n_columns + 1)), replace=False)
            row = [(int(c), float(rng.integers(1, 4))) for c in np.sort(columns)]
            if odd and row and rng.random() < 0.1:
                odd_column, odd_value = rng.integers(-1, n_columns + 1), rng.choice([0, 1, np.nan])
                row[rng.integers(len(row))] = (int(odd_column), float(odd_value))
            rows.append(row)
        truth = [finding(row, n_columns) for row in rows]
        cuts = np.unique([0, *rng.integers(0, n + 1, 3), n])
        assert findings_of(rows, n_columns, cuts=cuts) == truth


def test_check_rows_writes_its_rows_only():
    rows = [[(0, np.nan)]] * 5
    assert findings_of(rows, 1, cuts=[2, 4]) == [249, 249, csr.NOT_FINITE, csr.NOT_FINITE, 249]
