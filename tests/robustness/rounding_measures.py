"""The rounding errors of every measure's scores, before the scores are rounded to float32."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import mpmath
import numpy as np

import fastcos
from fastcos import LinearMF
from fastcos.kernels import pair_scores
from fastcos.kernels.records import rows_of
from fastcos.search.rerank import WordRotatorsScorer
from fastcos.similarity.encoded_rows import METRIC_TYPES, encode_rows
from tests.robustness.rounding_formulas import (
    DEPTH,
    ITEMS,
    NEAREST,
    Rows,
    Truth,
    angular,
    augmented,
    centred,
    csls,
    dis_sim_local,
    euclid,
    inner,
    layer_norm,
    local_scaling,
    metric_of,
    moment,
    mutual_proximity,
    norm,
    norm_angle,
    of_pairs,
    plain,
    query_normalized,
    radial,
    recos,
    scaled,
    spearman,
    times,
    unit_columns,
    whitened,
    without_top,
    zscores,
)
from tests.robustness.rounding_truth import Line, Worst, cases, cosine, dot, exact

# The rounding errors of a mean, a map and a product add up. Every entry that is within 45 ULP of a
# mean is set to 0.
MAPPED = 45 + ITEMS + 4 * DEPTH
# Measures with this bound use the eigenvectors of a Gram matrix. LAPACK promises that the error of
# an eigenvector is not larger than a few rounding errors.
FACTORED = 8 * (ITEMS + DEPTH)
# Measures with this bound divide by a standard deviation, and compute it from sums of squared inner
# products over all items.
POPULATION = 8 * (ITEMS + DEPTH * DEPTH)


def raw_scores(metric_type: str, Q: Any, B: Any, bias: Any = None) -> Any:
    """Encode the rows; return the raw float64 scores by which the engine ranks all pairs."""
    left, right = (
        encode_rows(rows, added, 1, metric_type) for rows, added in ((Q, None), (B, bias))
    )
    if left.rows.dtype != right.rows.dtype:
        raise AssertionError("both sides must be encoded to one type")
    result, columns = np.full((len(Q), len(B)), np.nan), np.arange(len(B))
    for i in range(len(Q)):
        pair_scores.score_pairs(
            METRIC_TYPES[metric_type], rows_of(left.rows), i, left.norms[i], rows_of(right.rows),
            right.norms, right.bias, columns, len(B), result[i],
        )  # fmt: skip
    return result


def score(name: str, Q: Any, B: Any, **parameters: Any) -> Any:
    """Return the float64 scores of all pairs, before the engine rounds them."""
    measure: Any = fastcos.get_measure(name, **parameters).fit(B)
    if hasattr(measure, "rescore"):
        columns = np.tile(np.arange(B.shape[0]), (Q.shape[0], 1))
        return measure.to_score(measure.rescore(Q, measure.precompute(B), columns), Q)
    queries, items = measure.encode_queries(Q), measure.encode_items(B)
    raw = raw_scores(measure.metric_type, queries, items, measure.item_bias(B))
    return measure.to_score(raw, Q)


# For each measure, PLAIN or LEARNED contains three values: the function that returns the truth for
# (Q, B), the unit of the error, and the bound of the error. with_parameters() yields the measures
# that need parameters.

PLAIN = {
    "cosine": (plain, "1", 4 * DEPTH),
    "user_item_cosine": (plain, "1", 4 * DEPTH),
    "rescaled_cosine": (plain, "1", 4 * DEPTH),
    "rescaled_cosine:identity": (plain, "1", 4 * DEPTH),
    "eq2_cosine": (plain, "1", 4 * DEPTH),
    "dot": (inner, "terms", 2 * DEPTH),
    "user_item_dot": (inner, "terms", 2 * DEPTH),
    "neg_euclidean": (euclid, "result", 2 * DEPTH),
    "angular": (angular, "condition", 4 * DEPTH),
    "norm_angle_distance": (norm_angle, "condition", 4 * DEPTH),
    "layer_norm_cosine": (layer_norm, "condition", 4 * DEPTH),
    "spearman_dims": (spearman, "1", 4 * DEPTH),
    "recos": (recos, "condition", 4 * DEPTH),
    "radial_cosine": (radial, "root of norms", 4 * DEPTH),
}
LEARNED: dict[str, tuple[Any, str, float]] = {
    "scaled_similarity": (scaled, "terms", ITEMS + 4 * DEPTH),
    "feature_augmented": (augmented, "terms", 2 * ITEMS + 4 * DEPTH),
    "centered_cosine": (centred, "condition", MAPPED),
    "unit_column_cosine": (unit_columns, "1", ITEMS + 4 * DEPTH),
    "zscore_cosine": (zscores, "condition", MAPPED),
    "all_but_the_top": (without_top, "condition", FACTORED),
    "whitened_cosine": (whitened, "condition", FACTORED),
    "ica_cosine": (whitened, "condition", FACTORED),
    "causal_inner_product": (
        functools.partial(whitened, from_middle=False), "condition", FACTORED
    ),
    "csls": (csls, "1", 8 * DEPTH),
    "local_scaling": (local_scaling, "condition", 8 * DEPTH),
    "dis_sim_local": (dis_sim_local, "terms", 8 * DEPTH),
    "query_normalized": (query_normalized, "condition", POPULATION),
    "mutual_proximity": (mutual_proximity, "condition", POPULATION),
}  # fmt: skip
# The documentation of the measures in UNKEPT says that they lose digits for float64 rows below
# 1e-150. The documentation of the measures in UNKEPT_SUBNORMAL says that they lose digits for
# subnormal rows.
UNKEPT = (
    "unit_column_cosine", "zscore_cosine", "all_but_the_top", "whitened_cosine", "ica_cosine",
    "causal_inner_product", "popularity_whitened_cosine", "weight_cosine", "neg_euclidean",
)  # fmt: skip
UNKEPT_SUBNORMAL = ("centered_cosine", "scaled_similarity", "feature_augmented")
LOCAL = ("csls", "local_scaling", "dis_sim_local")


@functools.cache
def model() -> Any:
    X = np.random.default_rng(0).poisson(0.7, (30, 12)).astype(np.float64)
    return LinearMF(DEPTH, regularization=2.0, objective="dropout").fit(X)


# The exponents of S and Σ in the items V_k S^a Σ^b.
EXPONENTS = {
    "orthonormal": (0.0, 0.0),
    "weights": (1.0, 0.0),
    "balanced": (0.5, 0.5),
    "smoothed": (1.0, 1.0),
    "data": (0.0, 1.0),
}


def rows_over(diagonal: Any) -> Callable[[Rows, Rows], Truth]:
    """Return the exact cosines of rows that are first divided by a diagonal."""
    inverse = [1 / d if d else mpmath.mpf(0) for d in diagonal]
    return lambda Q, B: lambda i, j: (cosine(times(Q[i], inverse), times(B[j], inverse)), 1)


def with_parameters(B: Any) -> Iterator[tuple[str, str, Any, str, float, Any]]:
    """Yield every measure that has parameters.

    For each measure, yield six values: the name of the measure, the name of its row in the table,
    the function that computes the exact scores, the unit of the error, the bound of the error, and
    the parameters of the measure.
    """
    random = np.random.default_rng(1)
    factor = random.standard_normal((DEPTH, DEPTH))
    S = factor @ factor.T
    S = (S + S.T) / 2
    exact_S = mpmath.matrix([exact(row) for row in S])
    soft = functools.partial(metric_of, exact_S)
    yield "soft_cosine", "soft_cosine", soft, "condition", FACTORED, {"matrix": S}
    # The rows in `other` are well conditioned in the first pass, and badly conditioned in the
    # second pass.
    for condition in (1.0, 1e4):
        other = random.standard_normal((ITEMS, DEPTH)) * np.geomspace(1, 1 / condition, DEPTH)
        there = moment([exact(row) for row in other])
        truth = functools.partial(metric_of, there)
        parameters = {"other": other}
        uncentred = parameters | {"centered": False}
        yield "query_metric_cosine", "query_metric_cosine", truth, "condition", FACTORED, uncentred
        for name in ("project_back_items", "project_back_users"):
            yield name, name, truth, "condition", FACTORED, parameters
    popularity = random.uniform(1, 100, len(B))
    total = mpmath.fsum(exact(popularity))
    shares = [share / total for share in exact(popularity)]
    popular = functools.partial(whitened, shares=shares)
    name = "popularity_whitened_cosine"
    yield name, name, popular, "condition", FACTORED, {"popularity": popularity}
    s, sigma = exact(model().shrinkage_), exact(model().singular_values_)
    for name, (a, b) in EXPONENTS.items():
        diagonal = [x ** (mpmath.mpf(0.5) - a) * y ** (-b) for x, y in zip(s, sigma, strict=True)]
        name, parameters = f"rescaled_cosine:{name}", {"model": model()}
        yield name, name, rows_over(diagonal), "1", 8 * DEPTH, parameters
    shrunk = [mpmath.sqrt(x / max(y - 3, 0)) if y > 3 else 0 for x, y in zip(s, sigma, strict=True)]
    parameters = {"model": model(), "regularization": 3.0}
    yield "eq2_cosine", "eq2_cosine of a model", rows_over(shrunk), "1", 8 * DEPTH, parameters
    pairs = np.array([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]])
    parameters = {"pairs": pairs, "targets": np.array([1.0, 0, 1, 0, 1, 0])}
    fitted: Any = fastcos.get_measure("learned_diagonal", **parameters).fit(B)
    root = rows_over([1 / r for r in exact(fitted.root_)])
    yield "learned_diagonal", "learned_diagonal, as fitted", root, "1", 8 * DEPTH, parameters


def weight_lines(worst: Worst, dtype: str, values: str, Q: Any, B: Any) -> None:
    """Record the errors of weight_cosine for rows [a, b] without negative entries."""
    Q, B = (np.abs(np.hstack([rows, rows[:, ::-1]])) for rows in (Q, B))
    scores, left, right = (
        score_or_none(values, "weight_cosine", Q, B, {}),
        *([exact(r) for r in X] for X in (Q, B)),
    )

    def own(row: Any) -> Any:
        return mpmath.sqrt(dot(row[:DEPTH], row[DEPTH:]))

    truth = [[dot(x[:DEPTH], y[DEPTH:]) / own(x) / own(y) if own(x) and own(y) else mpmath.mpf(0)
              for y in right] for x in left]  # fmt: skip
    if scores is not None:
        names = ("weight_cosine", dtype, values)
        worst.note(names, "result", 8 * DEPTH, scores, truth, truth)


def word_lines(worst: Worst, repeats: int) -> None:
    """Record the errors of word_rotators_distance between bags of two words."""
    for seed in range(repeats):
        random = np.random.default_rng(seed)
        vectors = random.standard_normal((4, DEPTH))
        for values, V in (("ordinary", vectors), ("tiny", 1e-150 * vectors)):
            bags = np.array([[1.0, 2, 0, 0], [0, 0, 3, 1]]) * random.uniform(0.5, 2, (2, 4))
            (result,), rows = WordRotatorsScorer(V, bags)(0, [1]), [exact(v) for v in V]
            masses = [[w * norm(v) for w, v in zip(exact(bag), rows, strict=True)] for bag in bags]
            (a, _, _, _), (_, _, b, _) = ([m / mpmath.fsum(bag) for m in bag] for bag in masses)
            cost = [[1 - cosine(rows[i], rows[j]) for j in (2, 3)] for i in (0, 1)]
            ends = []
            for moved in (max(mpmath.mpf(0), a + b - 1), min(a, b)):
                plan = [[moved, a - moved], [b - moved, 1 - a - b + moved]]
                ends.append(mpmath.fsum(map(dot, plan, cost)))
            names = ("word_rotators_distance", "float64", values)
            worst.note(names, "1", 8 * DEPTH, result, -min(ends), 1)


def score_or_none(values: str, name: str, Q: Any, B: Any, parameters: Any) -> Any:
    """Return scores, or None if the documentation says that they are undefined or lose digits."""
    if B.dtype == np.float64:
        size = min(np.abs(Q).max(), np.abs(B).max())
        if (name in UNKEPT and size < 1e-150) or (name in UNKEPT_SUBNORMAL and size < 1e-307):
            return None
    try:
        return score(name, Q, B, **parameters)
    except ValueError as refused:
        if values == "many decades" and "must vary in all" in str(refused):
            return None
        if values == "huge and tiny" and "rows of a measure must be finite" in str(refused):
            return None
        refused.add_note(f"{name} of {values}")
        raise


def note(
    worst: Worst, names: tuple[str, str, str], unit: str, bound: float, scores: Any, pair: Truth
) -> None:
    n, p = scores.shape
    both = [[pair(i, j) for j in range(p)] for i in range(n)]
    truth, size = ([[cell[at] for cell in row] for row in both] for at in (0, 1))
    worst.note(names, unit, bound, scores, truth, size)


def measure_lines(repeats: int) -> Iterator[Line]:
    worst = Worst()
    for dtype in (np.float32, np.float64):
        kind = np.dtype(dtype).name
        for values, Q, B in cases(dtype, repeats, ITEMS, DEPTH):
            left, right = [exact(row) for row in Q], [exact(row) for row in B]
            for name, (pair, unit, bound) in PLAIN.items():
                scores = score_or_none(values, name, Q, B, {})
                if scores is not None:
                    truth = of_pairs(pair)(left, right)
                    note(worst, (name, kind, values), unit, bound, scores, truth)
            for name, (of, unit, bound) in LEARNED.items():
                parameters = {"n_neighbors": NEAREST} if name in LOCAL else {}
                scores = score_or_none(values, name, Q, B, parameters)
                if scores is not None:
                    note(worst, (name, kind, values), unit, bound, scores, of(left, right))
            for name, row, of, unit, bound, parameters in with_parameters(B):
                scores = score_or_none(values, name, Q, B, parameters)
                if scores is not None:
                    note(worst, (row, kind, values), unit, bound, scores, of(left, right))
            weight_lines(worst, kind, values, Q, B)
    word_lines(worst, repeats)
    yield from worst.lines()
