"""A script: measures the largest rounding errors of numeric operations, compared with mpmath.

    python -m tests.robustness.rounding_errors [--repeats 20]

Every operation is tested on ordinary rows and on difficult rows: cancelling sums, near-duplicates,
magnitudes over many decades, and subnormal, tiny and huge values. SVDs are also tested on
ill-conditioned matrices, and on matrices with repeated singular values. The script prints a
Markdown table with the largest error and the allowed bound of each operation. Errors and bounds are
expressed in units in the last place (ULP) of a "size"; each row of the table names its size. The
script exits with status 1 if an error exceeds its bound.

These sizes are in the table:

- "result": the exact result.
- "1": the number 1.
- "terms": the sum of the absolute values of the products that are added. This size is used for sums
  that may cancel.
- "s[0]² / s": the square of the largest singular value, divided by the tested singular value. This
  size is used for singular values that are computed from a Gram matrix.
- "condition": the input of a subtraction, an inversion or a division, divided by the result of this
  operation. The formulas are in rounding_formulas.py and rounding_metrics.py.
"""

import argparse
import itertools
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import metrics
from fastcos.similarity.encoded_rows import encode_rows
from tests.robustness.rounding_measures import measure_lines, raw_scores
from tests.robustness.rounding_metrics import metric_lines
from tests.robustness.rounding_truth import (
    DEPTH,
    STEPS,
    Line,
    cases,
    cosine,
    distance,
    dot,
    exact,
    pairwise,
    terms,
    ulps,
)

# Each of the following functions carries out one operation on (Q, B). It returns six values: the
# result, the truth, the size, the data type, the unit, and the bound.


def scores(measure: str, Q: Any, B: Any) -> Any:
    """Return the float32 scores that top_k returns for all pairs."""
    neighbors = fastcos.top_k(Q, B, B.shape[0], measure=measure)
    result = np.full((Q.shape[0], B.shape[0]), np.nan)
    np.put_along_axis(result, neighbors.indices, neighbors.scores, axis=1)
    return result


def dot_raw_scores(Q: Any, B: Any) -> Any:
    result = raw_scores("dot", Q, B)
    return result, pairwise(dot, Q, B), pairwise(terms, Q, B), np.float64, "terms", STEPS


def dot_scores(Q: Any, B: Any) -> Any:
    truth = pairwise(dot, Q, B)
    # Scores are computed and compared in float64, and only then rounded to float32. If the terms of
    # a sum nearly cancel, the rounding errors of float64 are large relative to the exact score. The
    # size of a score is therefore at least 2^-20 times the sum of the absolute values of the terms.
    size = np.maximum(np.abs(truth), pairwise(terms, Q, B) * mpmath.mpf(2) ** -20)
    return scores("dot", Q, B), truth, size, np.float32, "result", 1


def row_norms(Q: Any, B: Any) -> Any:
    B = B[(np.abs(B).max(axis=1) > 1e-150) | (B.dtype == np.float32)]
    truth = np.array([mpmath.sqrt(mpmath.fdot(x, x)) for x in map(exact, B)], object)
    return encode_rows(B, None, 1, "dot").norms, truth, truth, np.float64, "result", STEPS


def cosine_raw_scores(Q: Any, B: Any) -> Any:
    result = raw_scores("cosine", Q, B)
    return result, pairwise(cosine, Q, B), 1.0, np.float64, "1", 2 * STEPS


def cosine_scores(Q: Any, B: Any) -> Any:
    truth = pairwise(cosine, Q, B)
    size = np.maximum(np.abs(truth), 2.0**-20)
    return scores("cosine", Q, B), truth, size, np.float32, "result", 1


def sparse_cosine_scores(Q: Any, B: Any) -> Any:
    return scores("cosine", sp.csr_array(Q), sp.csr_array(B)), *cosine_scores(Q, B)[1:]


def distance_scores(Q: Any, B: Any) -> Any:
    truth = -pairwise(distance, Q, B)
    return scores("neg_euclidean", Q, B), truth, truth, np.float32, "result", 1


def block_cosines(Q: Any, B: Any) -> Any:
    ((_, result),) = fastcos.similarity_blocks(Q, B)
    return result, pairwise(cosine, Q, B), 1.0, np.float32, "1", DEPTH


def products(Q: Any, B: Any) -> Any:
    product = fastcos.matmul(sp.csr_array(Q), np.ascontiguousarray(B.T))
    return product, pairwise(dot, Q, B), pairwise(terms, Q, B), Q.dtype, "terms", DEPTH


def gram_products(Q: Any, B: Any) -> Any:
    product = fastcos.gram_matmul(sp.csr_array(B), np.ascontiguousarray(Q.T))
    inner, sizes = pairwise(dot, B, Q), pairwise(terms, B, Q)
    columns = np.array([exact(column) for column in B.T], object)
    size = np.abs(columns) @ sizes
    return product, columns @ inner, size, Q.dtype, "terms", DEPTH + len(B)


def mean_cosines(Q: Any, B: Any) -> Any:
    above = pairwise(cosine, B, B)[np.triu_indices(len(B), 1)]
    result = metrics.mean_cosine(B).value
    return np.array([result]), np.array([above.sum() / len(above)]), 1.0, np.float64, "1", STEPS


DENSE = {
    "dot, raw score": dot_raw_scores,
    "dot, score": dot_scores,
    "row norm": row_norms,
    "cosine, raw score": cosine_raw_scores,
    "cosine, score": cosine_scores,
    "cosine of sparse rows, score": sparse_cosine_scores,
    "neg_euclidean, score": distance_scores,
    "similarity_blocks, cosine": block_cosines,
    "matmul": products,
    "gram_matmul": gram_products,
    "mean_cosine": mean_cosines,
}


def dense_lines(repeats: int) -> Iterator[Line]:
    worst: dict[tuple[Any, ...], float] = {}
    for dtype in (np.float32, np.float64):
        for values, Q, B in cases(dtype, repeats):
            for operation, measured in DENSE.items():
                actual, truth, size, result, unit, bound = measured(Q, B)
                key = (operation, np.dtype(dtype).name, values, unit, bound)
                worst[key] = max(worst.get(key, 0.0), ulps(actual, truth, size, result))
    for (*names, bound), error in worst.items():
        yield Line(*names, error, bound)


# singular values


def spectra() -> Iterator[tuple[str, Any]]:
    yield "well-conditioned", np.linspace(2, 1, 8)
    yield "condition 1e3", np.geomspace(1, 1e-3, 8)
    yield "condition 1e6", np.geomspace(1, 1e-6, 8)
    yield "repeated", np.array([3.0, 3, 3, 3, 1, 1, 1, 1])
    yield "repeated, condition 1e5", np.array([1, 1, 1, 1e-2, 1e-2, 1e-5, 1e-5, 1e-5])
    yield "rank 5 of 8", np.array([2.0, 2, 1, 1, 1, 0, 0, 0])
    yield "tiny, condition 1e3", 1e-55 * np.geomspace(1, 1e-3, 8)
    yield "huge, condition 1e3", 1e55 * np.geomspace(1, 1e-3, 8)


def singular_errors(X: Any) -> tuple[float, float, float]:
    """Return three errors of a full SVD of X, in ULP.

    The first is the error of the singular values. The second is the amount by which this error
    exceeds the certified residuals. The third is the deviation of U and V from orthogonality.
    """
    values = mpmath.svd_r(mpmath.matrix(X.tolist()), compute_uv=False)
    truth = np.array(sorted(values, reverse=True), object)
    svd = fastcos.randomized_svd(X, X.shape[1])
    # Values below the resolution of a Gram matrix are returned as 0.
    clear = truth > 1e-7 * truth[0]
    assert not svd.s[~clear].any(), "a value below 1e-7 of the first must be 0"
    s, sizes = exact(svd.s[clear]), truth[0] ** 2 / truth[clear]
    certified = exact((svd.residuals * svd.s)[clear])
    beyond = [max(0, abs(truth - one).min() - far) for one, far in zip(s, certified, strict=True)]
    assert svd.U is not None
    skew = max(np.abs(W @ W.T - np.eye(len(W))).max() for W in (svd.U[:, clear].T, svd.Vt))
    return (
        ulps(svd.s[clear], truth[clear], sizes, np.float64),
        ulps(np.zeros(len(s)), np.array(beyond, object), sizes, np.float64),
        skew / 2.0**-52 * float(truth[clear][-1] / truth[0]) ** 2,
    )


def svd_lines(repeats: int) -> Iterator[Line]:
    """Measure full SVDs of 20 x 8 matrices, which use the Gram matrix in float64."""
    units = ("s[0]² / s", "s[0]² / s", "(s[0] / s)²")
    names = ("singular values", "singular values, beyond residuals", "orthogonality of U and V")
    lines = []
    for values, singular_values in spectra():
        errors = []
        for seed in range(repeats):
            random = np.random.default_rng(seed)
            left, right = (np.linalg.qr(random.standard_normal((n, 8)))[0] for n in (20, 8))
            errors.append(singular_errors(left * singular_values @ right.T))
        for name, unit, error in zip(names, units, np.max(errors, axis=0), strict=True):
            lines.append(Line(name, "float64", values, unit, float(error), 16.0))
    yield from sorted(lines)


# intervals of cosines


def pairs(repeats: int) -> Iterator[tuple[str, Any, Any]]:
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        x, y = random.standard_normal((2, 6))
        yield "ordinary", x, y
        yield "positive", np.abs(x), np.abs(y)
        yield "near-duplicates", x, x * (1 + 1e-9 * y)
        yield "many decades", x * 10.0 ** random.uniform(-60, 60, 6), y
        yield "subnormal", np.rint(100 * x) * 5e-324, np.rint(100 * y) * 5e-324


def rescaled_cosine(x: Any, y: Any, squares: Any) -> Any:
    """Return the exact cosine of xD⁻¹ and yD⁻¹; `squares` is the diagonal of D⁻²."""
    weighted = [w * a for w, a in zip(squares, x, strict=True)]
    size = mpmath.sqrt(
        mpmath.fdot(weighted, x) * mpmath.fdot([w * b for w, b in zip(squares, y, strict=True)], y)
    )
    return mpmath.fdot(weighted, y) / size if size else mpmath.mpf(0)


def interval_lines(repeats: int) -> Iterator[Line]:
    """Compare both ends of cosine_interval with the exact cosines of rescaled rows.

    The rescalings are the two that cosine_interval returns, and the corners of the box of allowed
    rescalings.
    """
    worst: dict[tuple[str, str, float], float] = {}

    def note(operation: str, values: str, bound: float, result: Any, truth: Any) -> None:
        error = ulps([result], [truth], [1.0], np.float64)
        worst[operation, values, bound] = max(worst.get((operation, values, bound), 0.0), error)

    for values, x, y in pairs(repeats):
        a, b = exact(x), exact(y)
        cosine_as_given = cosine(a, b)
        for condition in (1.5, 100.0):
            interval = fastcos.auditing.cosine_interval(x, y, condition)
            ends = (
                (interval.low, interval.low_rescaling),
                (interval.high, interval.high_rescaling),
            )
            for end, rescaling in ends:
                attained = rescaled_cosine(a, b, [1 / d**2 for d in exact(rescaling)])
                note("cosine_interval, attained", values, 16, end, attained)
            corners = [
                rescaled_cosine(a, b, corner)
                for corner in itertools.product((1, mpmath.mpf(condition) ** 2), repeat=len(a))
            ]
            # A positive upper end of the interval is attained at a corner of the box. A negative
            # lower end is attained at another corner.
            if max(corners) > 0:
                note("cosine_interval, corners", values, 16, interval.high, max(corners))
            if min(corners) < 0:
                note("cosine_interval, corners", values, 16, interval.low, min(corners))
            as_float = float(cosine_as_given)
            z = fastcos.auditing.fisher_z_interval(as_float, condition)
            for end, sign in ((z.low, -1), (z.high, 1)):
                moved = mpmath.atanh(mpmath.mpf(as_float)) + sign * mpmath.log(condition)
                truth = mpmath.tanh(moved) if abs(as_float) < 1 else mpmath.mpf(as_float)
                note("fisher_z_interval", values, 16, end, truth)
    for (operation, values, bound), error in sorted(worst.items()):
        yield Line(operation, "float64", values, "1", error, bound)


def report(lines: list[Line]) -> int:
    """Print the largest error of every operation and type; return how many errors are too large."""
    of_types = "float32 rows: ULP | values | float64 rows or lists: ULP | values"
    print(f"| operation | {of_types} | size | bound |\n|---|---|---|---|---|---|---|")
    worst: dict[tuple[str, str, float], dict[str, str]] = {}
    for _, group in itertools.groupby(lines, key=lambda line: line[:2]):
        one = max(group, key=lambda line: line.error / line.bound)
        cells = worst.setdefault((one.operation, one.unit, one.bound), {})
        cells[one.dtype.replace("int64", "float64")] = f"{one.error:.2f} | {one.values}"
    for (operation, unit, bound), cells in worst.items():
        numbers = " | ".join(cells.get(dtype, " | ") for dtype in ("float32", "float64"))
        print(f"| {operation} | {numbers} | {unit} | {bound:g} |")
    passed = [line for line in lines if not line.error <= line.bound]
    for line in passed:
        print("above its bound:", line, file=sys.stderr)
    return len(passed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    repeats = parser.parse_args().repeats
    # Zero rows, and products that are too small for the data type, would cause warnings.
    warnings.simplefilter("ignore")
    lines = [*sorted(dense_lines(repeats)), *svd_lines(repeats), *interval_lines(repeats)]
    sys.exit(report([*lines, *measure_lines(repeats), *metric_lines(repeats)]) > 0)
