"""Rounding errors of metrics, of transformers before training, and of the canonical forms."""

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import metrics
from fastcos.models import preprocessing
from tests.robustness.rounding_formulas import DEPTH, ITEMS, NOTHING, less, mean, norm
from tests.robustness.rounding_truth import Line, Worst, cases, cosine, dot, exact, pairwise, terms

# The bound for a double sum, over the items and over the dimensions.
SUMS = ITEMS + 4 * DEPTH
# The bound for an SVD or a QR decomposition. LAPACK promises that the errors of these
# decompositions are a few ULP of the norm of the matrix. For effective_rank, this bound is
# multiplied by 37, because the logarithm of a share lies between -37 and 0.
FACTORED = 8 * (ITEMS + DEPTH)
LABELS = np.arange(ITEMS) % 4


def matrix(rows: Any) -> Any:
    return mpmath.matrix(rows)


def singular_values(rows: Any) -> Any:
    return sorted(mpmath.svd_r(matrix(rows), compute_uv=False), reverse=True)


def frobenius(A: Any) -> Any:
    return mpmath.sqrt(mpmath.fsum(a * a for a in A))


def centred(rows: Any) -> tuple[Any, Any]:
    """Return the centred rows, and the factor by which centring reduces the norm of the rows."""
    moved = [less(row, mean(rows)) for row in rows]
    return moved, mpmath.sqrt(mpmath.fsum(norm(x) ** 2 for x in rows)) / frobenius(matrix(moved))


def correlation(x: Any, y: Any) -> tuple[Any, Any]:
    """Return Pearson's correlation, and the factor by which centring amplifies errors."""
    a, b = ([v - mpmath.fsum(side) / len(side) for v in side] for side in (x, y))
    if not any(a) or not any(b):
        return 0, NOTHING
    return dot(a, b) / norm(a) / norm(b), norm(x) / norm(a) + norm(y) / norm(b)


# metrics of one embedding


def shapes(rows: Any) -> Iterator[tuple[str, Any, Any, str, float, Any]]:
    """Yield the name, truth, size, unit, bound and function of each metric of the items."""
    s = singular_values(rows)
    shares = [value / mpmath.fsum(s) for value in s if value]
    rank = mpmath.exp(-mpmath.fsum(q * mpmath.log(q) for q in shares))
    yield "effective_rank", rank, rank, "result", 37 * FACTORED, metrics.effective_rank

    def ratio(values: Any) -> Any:
        return dot(values, values) ** 2 / mpmath.fsum(v**4 for v in values)

    yield "participation_ratio", ratio(s), ratio(s), "result", FACTORED, metrics.participation_ratio
    moved, lost = centred(rows)
    truth = (ratio(singular_values(moved)) - 1) / (DEPTH - 1)
    yield "isoscore", truth, lost, "condition", FACTORED, metrics.isoscore


def of_labels(rows: Any) -> Iterator[tuple[str, Any, Any, str, float, Any]]:
    """Yield the same six values as `shapes` for each metric that uses items and their labels."""
    table = [[cosine(x, y) for y in rows] for x in rows]
    pairs = list(itertools.combinations(range(ITEMS), 2))
    same = [table[i][j] for i, j in pairs if LABELS[i] == LABELS[j]]
    other = [table[i][j] for i, j in pairs if LABELS[i] != LABELS[j]]
    means = [mpmath.fsum(group) / len(group) for group in (same, other)]
    variances = [
        mpmath.fsum((c - m) ** 2 for c in group) / len(group)
        for group, m in zip((same, other), means, strict=True)
    ]
    for at, name in enumerate(("within", "between")):
        yield (
            f"within_between, {name}",
            means[at],
            1,
            "1",
            ITEMS * SUMS,
            (lambda B, name=name: getattr(metrics.within_between(B, LABELS), name)),
        )
    spread = mpmath.sqrt(mpmath.fsum(variances) / 2)
    contrast = (means[0] - means[1]) / spread
    yield (
        "within_between, contrast", contrast, (1 + abs(contrast)) / spread**2, "condition",
        ITEMS * SUMS, lambda B: metrics.within_between(B, LABELS).contrast,
    )  # fmt: skip
    values, least = [], mpmath.mpf(2)
    for i in range(ITEMS):
        apart = [
            mpmath.fsum(1 - table[i][j] for j in range(ITEMS) if j != i and LABELS[j] == c)
            for c in range(4)
        ]
        a = apart.pop(LABELS[i]) / (ITEMS // 4 - 1)
        b = min(apart) / (ITEMS // 4)
        values.append((b - a) / max(a, b))
        least = min(least, max(a, b))
    size = 1 / least if least > 1e-12 else NOTHING
    silhouette = mpmath.fsum(values) / ITEMS
    yield (
        "silhouette",
        silhouette,
        size,
        "condition",
        SUMS,
        (lambda B: metrics.silhouette(B, LABELS).value),
    )
    wins = sum(2 * (s > o) + (s == o) for s in same for o in other)
    near = min(abs(s - o) for s in same for o in other if s != o)
    # Cosines whose difference is smaller than their rounding errors count as equal.
    size = 1 if near > 1e-12 else NOTHING
    yield (
        "pair_auc",
        mpmath.mpf(int(wins)) / (2 * len(same) * len(other)),
        size,
        "1",
        1,
        (lambda B: metrics.pair_auc(B, LABELS).value),
    )


# metrics of two embeddings


def two(X: Any, Y: Any) -> Iterator[tuple[str, Any, Any, str, float, Any]]:
    (A, lost_x), (B, lost_y) = centred(X), centred(Y)
    A, B, lost = matrix(A), matrix(B), lost_x + lost_y
    C = A.T * B
    truth = frobenius(C) ** 2 / frobenius(A.T * A) / frobenius(B.T * B)
    yield "cka", truth, lost, "condition", FACTORED, metrics.cka
    s = mpmath.svd_r(C, compute_uv=False)
    nuclear = mpmath.fsum(s) / frobenius(A) / frobenius(B)
    yield "procrustes", 1 - nuclear**2, lost, "condition", FACTORED, metrics.procrustes
    spectra = [singular_values(side.tolist()) for side in (A, B)]
    conditions = [s[0] / s[-1] if s[-1] else NOTHING for s in spectra]
    if max(conditions) < 1e10:  # directions that only consist of rounding errors are left out
        grams = [mpmath.inverse(side.T * side) for side in (A, B)]
        product = grams[0] * C * grams[1] * C.T
        truth = mpmath.fsum(product[i, i] for i in range(DEPTH)) / DEPTH
        size = sum(conditions) * lost
        yield "cca_similarity", truth, size, "condition", FACTORED, metrics.cca_similarity
    tables = [[cosine(side[i], side[j]) for i, j in itertools.combinations(range(ITEMS), 2)]
              for side in (X, Y)]  # fmt: skip
    value, _ = correlation(*tables)
    variances = [population_variance(table) for table in tables]
    size = sum(1 / v for v in variances) if min(variances) > 1e-12 else NOTHING
    yield "rsa", value, size, "condition", ITEMS * SUMS, lambda X, Y: metrics.rsa(X, Y).value


def population_variance(values: Any) -> Any:
    middle = mpmath.fsum(values) / len(values)
    return mpmath.fsum((v - middle) ** 2 for v in values) / len(values)


def change(worst: Worst, names: Any, Q: Any, B: Any, Y: Any) -> None:
    """Record the error of model_change from the model (Q, B) to the model (Q, Y)."""
    P, first, second = ([exact(row) for row in rows] for rows in (Q, B, Y))
    truth = frobenius(matrix(P) * (matrix(first) - matrix(second)).T)
    size = frobenius(matrix(P)) * (frobenius(matrix(first)) + frobenius(matrix(second)))
    value = metrics.model_change(Q, B, Q, Y).value
    worst.note(("model_change", *names), "terms", FACTORED, value, truth, size)


def popularity(worst: Worst, names: Any, B: Any, rows: Any) -> None:
    random = np.random.default_rng(2)
    counts = random.integers(1, 1000, ITEMS).astype(np.float64)
    lists = random.permuted(np.tile(np.arange(ITEMS), (ITEMS, 1)), axis=1)[:, :3]
    bias = metrics.popularity_bias(B, counts, lists)
    logs = [mpmath.log(c) for c in exact(counts)]
    means = [mpmath.fsum(cosine(x, y) for y in rows if y is not x) / (ITEMS - 1) for x in rows]
    spread = norm([m - mpmath.fsum(means) / ITEMS for m in means])
    value, size = correlation(logs, means)
    size = size + ITEMS / spread if spread > 1e-12 else NOTHING
    name, bound = "popularity_bias", ITEMS * SUMS
    note = worst.note
    note((f"{name}, cosine", *names), "condition", bound, bias.cosine_correlation, value, size)
    value, size = correlation(logs, list(map(norm, rows)))
    # According to the documentation, the result is NaN if the lengths are equal within 1e-13. The
    # documentation also says that subnormal lengths are rounded. The result is not judged in either
    # case.
    size = size if size < 1e12 and np.abs(B).max() > 1e-307 else NOTHING
    note((f"{name}, length", *names), "condition", bound, bias.norm_correlation, value, size)
    order = np.argsort(counts, kind="stable")
    deciles = np.array_split(np.array(means, object)[order], 10)
    truth = [mpmath.fsum(decile) / len(decile) for decile in deciles]
    note((f"{name}, deciles", *names), "1", bound, bias.decile_cosines, truth, 1)


def of_lists(worst: Worst, seed: int) -> None:
    """Record the errors of list metrics, each of which is a fraction or a short weighted sum."""
    random = np.random.default_rng(seed)
    tables = [random.permuted(np.tile(np.arange(ITEMS), (ITEMS, 1)), axis=1)[:, :5]
              for _ in range(2)]  # fmt: skip
    first, second = (table.tolist() for table in tables)
    names = ("int64", "random lists")
    n, one = ITEMS, mpmath.mpf(1)
    shared = [len(set(a) & set(b)) for a, b in zip(first, second, strict=True)]
    truth = mpmath.fsum(one * s / (10 - s) for s in shared) / n
    worst.note(("jaccard_at_k", *names), "1", n, metrics.jaccard_at_k(*tables), truth, 1)
    truth = mpmath.fsum(one * s / 5 for s in shared) / n
    worst.note(("overlap_at_k", *names), "1", n, metrics.overlap_at_k(*tables), truth, 1)
    q = mpmath.mpf(0.9)
    values = []
    for a, b in zip(first, second, strict=True):
        X = [len(set(a[:d]) & set(b[:d])) for d in range(6)]
        tail = mpmath.fsum(X[d] * q**d / d for d in range(1, 6))
        values.append(X[5] * q**5 / 5 + (1 - q) / q * tail)
    value = metrics.rank_biased_overlap(*tables, persistence=0.9).value
    worst.note(("rank_biased_overlap", *names), "1", n, value, mpmath.fsum(values) / n, 1)
    counts = exact(np.bincount(tables[0].ravel(), minlength=n))
    middle = mpmath.fsum(counts) / n
    third = mpmath.fsum((c - middle) ** 3 for c in counts) / n
    size = population_variance(counts) ** mpmath.mpf(1.5)
    hubs = metrics.hubness(tables[0])
    worst.note(("hubness, skewness", *names), "1", 4 * n, hubs.skewness, third / size, 1)
    truth = mpmath.fsum(abs(c - middle) for c in counts) / (2 * mpmath.fsum(counts))
    worst.note(("hubness, Robin Hood", *names), "1", n, hubs.robin_hood, truth, 1)


# transformers


def transformers(worst: Worst, names: Any, B: Any, rows: Any) -> None:
    kind = B.dtype
    units = [[a / norm(x) if any(x) else a for a in x] for x in rows]
    for name, X in (("NormalizeRows", B), ("NormalizeRows, sparse", sp.csr_array(B))):
        result = preprocessing.NormalizeRows().fit_transform(X)
        result = result.toarray() if sp.issparse(result) else result
        worst.note((name, *names), "1", 2 * DEPTH, result, units, 1, kind)
    columns = list(zip(*rows, strict=True))
    scaler = preprocessing.StandardizeColumns().fit(B)
    size = [mpmath.fsum(map(abs, column)) / ITEMS for column in columns]
    name = "StandardizeColumns, means"
    worst.note((name, *names), "terms", ITEMS, scaler.mean_, mean(rows), size)
    if np.abs(B).max() > 1e-150:  # as documented
        deviations = [mpmath.sqrt(population_variance(column)) for column in columns]
        size = [s + d for s, d in zip(size, deviations, strict=True)]
        name = "StandardizeColumns, deviations"
        worst.note((name, *names), "terms", SUMS, scaler.scale_, deviations, size)
    if np.abs(B).max() > 1e-307:
        weights = preprocessing.PopularityWeights(0.5, 0.25).fit(B)
        popular = [mpmath.fsum(map(abs, column)) for column in columns]
        active = [mpmath.fsum(map(abs, row)) for row in rows]
        truth = [[x / mpmath.sqrt(p) / a ** mpmath.mpf(0.25) if x else x
                  for x, p in zip(row, popular, strict=True)]
                 for row, a in zip(rows, active, strict=True)]  # fmt: skip
        worst.note(
            ("PopularityWeights", *names), "result", SUMS, weights.transform(B), truth, truth, kind
        )
    of_rows, of_columns = preprocessing.biases(B)
    assert of_rows is not None
    assert of_columns is not None
    truth = [mpmath.fsum(row) / DEPTH for row in rows]
    size = [mpmath.fsum(map(abs, row)) / DEPTH for row in rows]
    worst.note(("biases, rows", *names), "terms", DEPTH, of_rows, truth, size)


def ppmi(worst: Worst, seed: int) -> None:
    X = np.random.default_rng(seed).poisson(1.0, (30, DEPTH)).astype(np.float64)
    result = preprocessing.ShiftedPPMI().fit(X).ppmi_.toarray()
    counts = [[dot(x, y) if i != j else mpmath.mpf(0) for j, y in enumerate(map(exact, X.T))]
              for i, x in enumerate(map(exact, X.T))]  # fmt: skip
    totals = [mpmath.fsum(row) for row in counts]
    smooth = [t ** mpmath.mpf(0.75) for t in totals]
    everything = mpmath.fsum(smooth)
    truth = [[max(0, mpmath.log(c * everything / (totals[i] * smooth[j]))) if c else mpmath.mpf(0)
              for j, c in enumerate(row)] for i, row in enumerate(counts)]  # fmt: skip
    size = mpmath.log(everything)
    worst.note(("ShiftedPPMI", "float64", "counts"), "ln of the sum", 8, result, truth, size)


# No other script measures the rounding errors of canonicalize, query_metric and rmatmul.


def repairs(worst: Worst, names: Any, Q: Any, B: Any) -> None:
    left, right = [exact(x) for x in Q], [exact(y) for y in B]
    product = [[dot(x, y) for y in right] for x in left]
    with warnings.catch_warnings():
        # There are only three users, so a warning says that the rank is below the width.
        warnings.simplefilter("ignore")
        canonical = fastcos.canonicalize(Q, B)
    products = pairwise(dot, canonical.users, canonical.items)
    columns = zip(zip(*left, strict=True), zip(*right, strict=True), strict=True)
    size = mpmath.fsum(norm(p) * norm(q) for p, q in columns)
    eps = 2.0**29 if Q.dtype == np.float32 else 1.0  # values below the eps of float32 are cut off
    name = "canonicalize, predictions"
    worst.note((name, *names), "terms", FACTORED * eps, products, product, size)
    values = canonical.singular_values[: len(Q)]
    truth, name = singular_values(product)[: len(Q)], "canonicalize, singular values"
    worst.note((name, *names), "terms", FACTORED * eps, values, truth, size)
    moved, _ = centred(right)
    truth = (matrix(moved).T * matrix(moved) / ITEMS).tolist()
    sizes = [norm(column) for column in zip(*right, strict=True)]
    # The errors of orthogonal reductions in float64 are proportional to the length of the largest
    # column.
    size = max(sizes) ** 2 / ITEMS
    # According to the documentation, smaller products are rounded like other float64 products.
    if size > 1e-290:
        worst.note(
            ("query_metric", *names), "largest column²", FACTORED, fastcos.query_metric(B).metric,
            truth, size,
        )  # fmt: skip


def transposed_products(worst: Worst, names: Any, Q: Any, B: Any) -> None:
    product = fastcos.rmatmul(sp.csr_array(B.T), np.ascontiguousarray(Q.T))
    truth, size = pairwise(dot, B, Q), pairwise(terms, B, Q)
    worst.note(("rmatmul", *names), "terms", DEPTH, product, truth, size, Q.dtype)


def metric_lines(repeats: int) -> Iterator[Line]:
    worst = Worst()
    for dtype in (np.float32, np.float64):
        random = np.random.default_rng(0)
        turned = np.linalg.qr(random.standard_normal((DEPTH, DEPTH)))[0]
        other = random.standard_normal((ITEMS, DEPTH)).astype(dtype)
        for values, Q, B in cases(dtype, repeats, ITEMS, DEPTH):
            names, rows = (np.dtype(dtype).name, values), [exact(row) for row in B]
            for name, truth, size, unit, bound, function in (*shapes(rows), *of_labels(rows)):
                worst.note((name, *names), unit, bound, function(B), truth, size)
            for Y in (other, (B @ turned).astype(dtype)):
                for name, truth, size, unit, bound, function in two(
                    rows, [exact(row) for row in Y]
                ):
                    worst.note((name, *names), unit, bound, function(B, Y), truth, size)
                change(worst, names, Q, B, Y)
            popularity(worst, names, B, rows)
            transformers(worst, names, B, rows)
            repairs(worst, names, Q, B)
            transposed_products(worst, names, Q, B)
    for seed in range(repeats):
        of_lists(worst, seed)
        ppmi(worst, seed)
    yield from worst.lines()
