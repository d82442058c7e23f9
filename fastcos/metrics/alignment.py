"""Similarity of two embeddings of the same items, and distance between two models' predictions.

The measures in this module compare whole embeddings (CKA, CCA, Procrustes, RSA) and the
neighbourhoods of their items (trustworthiness).
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.metrics.labelled import (
    CHUNK,
    check_varying,
    cross_products,
    packed,
    same_rows,
    unit_rows,
)
from fastcos.similarity.moments import triangle
from fastcos.validation import Floats, Integers

# Deviations and variances of at most _ROUNDING count as 0, because they may be rounding errors.
_ROUNDING = 1e-13
# The two-sided 95 % quantile of the standard normal distribution.
_NORMAL_95 = 1.959963984540054


def cka(first: Any, second: Any) -> float:
    """Return the linear centred kernel alignment (CKA) of two embeddings.

    CKA is |Y'X|^2 / (|X'X| |Y'Y|), where X and Y are the embeddings with centred columns and |.| is
    the Frobenius norm.

    CKA lies between 0 and 1. CKA does not change if either embedding is rotated, translated, or
    multiplied by a number, but it usually changes if the columns are rescaled. The function takes
    O(p k k) time.

    Source: Kornblith et al., ICML 2019, arXiv:1905.00414, section 3.

    Parameters
    ----------
    first, second : array_like (p, k1), (p, k2), float32 or float64
        One row per item; row i of both embeddings belongs to the same item. The rows of an
        embedding must not all be equal.

    Examples
    --------
    >>> from fastcos.metrics import cka
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(cka(items, [[3 - 2 * y, 2 * x] for x, y in items]), 12)
    1.0
    """
    X, Y = _centred(first, second)
    norms = np.linalg.norm(cross_products(X, X)) * np.linalg.norm(cross_products(Y, Y))
    return float(min(np.square(cross_products(X, Y)).sum() / norms, 1.0))


def cca_similarity(first: Any, second: Any) -> float:
    """Return the mean squared canonical correlation of two embeddings, |Q_x'Q_y|^2 / r.

    Q_x and Q_y are orthonormal bases of the centred columns of the two embeddings, |.| is the
    Frobenius norm, and r is the smaller of the ranks of the two embeddings. The similarity lies
    between 0 and 1, and it is 1 if one embedding is a linear function of the other. The similarity
    does not change if either embedding is translated or mapped by an invertible linear map, such as
    a rescaling. The similarity therefore compares the information in two embeddings, not their
    cosines. The function takes O(p k k) time.

    Source: Hotelling, Biometrika 28 (1936); Kornblith et al. 2019, arXiv:1905.00414, table 1.

    Parameters
    ----------
    first, second
        As in :func:`cka`. The embeddings should have many more rows than columns; otherwise, the
        similarity is near 1 for any two embeddings.

    Examples
    --------
    >>> from fastcos.metrics import cca_similarity
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(cca_similarity(items, [[100 * x, y] for x, y in items]), 12)
    1.0
    """
    X, Y = _centred(first, second)
    Q, R = _basis(X), _basis(Y)
    value = np.square(cross_products(Q, R)).sum() / min(Q.shape[1], R.shape[1])
    return float(min(value, 1.0))


def procrustes(first: Any, second: Any) -> float:
    """Return the disparity of two embeddings after the best translation, scaling and rotation.

    The disparity is 1 - |X'Y|_*^2, where X and Y are the embeddings, centred and scaled to
    Frobenius norm 1, and |.|_* is the nuclear norm. The disparity lies between 0 and 1, and it is 0
    if one embedding is a translated, rotated, reflected or scaled copy of the other. The embeddings
    may have different numbers of columns. A rescaling of the columns usually changes the disparity.
    The function takes O(p k k) time.

    Source: Schönemann, Psychometrika 31 (1966); scipy.spatial.procrustes.

    Parameters
    ----------
    first, second
        As in :func:`cka`.

    Examples
    --------
    >>> from fastcos.metrics import procrustes
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(procrustes(items, [[3 - 2 * y, 2 * x] for x, y in items]), 12)
    0.0
    """
    X, Y = _centred(first, second)
    products = cross_products(X, Y)
    with parallel.blas_lock():
        nuclear = np.linalg.svd(products, compute_uv=False).sum()
        nuclear /= np.linalg.norm(X) * np.linalg.norm(Y)
    return float(max(1 - nuclear * nuclear, 0.0))


class ModelChange(NamedTuple):
    """The distance between the predictions of two models.

    Attributes
    ----------
    value : float
        Frobenius norm of the difference between the predictions.
    relative : float
        ``value`` divided by the norm of the predictions of the first model. If only the second
        model makes predictions other than 0, ``relative`` is infinite.
    """

    value: float
    relative: float


def model_change(
    first_users: Any, first_items: Any, second_users: Any, second_items: Any
) -> ModelChange:
    """Return the distance between the predictions of two models, |P1 Q1' - P2 Q2'|.

    P1 and P2 are the user factors of the models, Q1 and Q2 are their item factors, and |.| is the
    Frobenius norm.

    The distance depends only on the predictions. Rescalings and other invertible maps of the
    factors do not change the distance if they preserve the predictions. If the distance is about 0,
    the two models make the same predictions, although their factors may differ. The n x p matrix of
    predictions is never formed: the distance is computed from the triangular factors of (P1, -P2)
    and (Q1, Q2). The rounding errors of the distance are therefore proportional to the size of the
    predictions, not to its square. The function takes O((n + p) k k) time.

    Parameters
    ----------
    first_users, second_users : array_like (n, k1), (n, k2), float32 or float64
        User factors of the two models.
    first_items, second_items : array_like (p, k1), (p, k2), float32 or float64
        Item factors of the two models.

    Returns
    -------
    ModelChange

    Examples
    --------
    >>> from fastcos.metrics import model_change
    >>> model_change([[1, 2]], [[3, 4]], [[2, 4]], [[1.5, 2]])
    ModelChange(value=0.0, relative=0.0)
    """
    P1, P2 = same_rows("first_users", first_users, "second_users", second_users)
    Q1, Q2 = same_rows("first_items", first_items, "second_items", second_items)
    validation.check_same_width("first_items", Q1, "first_users", P1)
    validation.check_same_width("second_items", Q2, "second_users", P2)
    users = triangle(np.concatenate([P1, -P2.astype(np.float64)], axis=1))
    items = triangle(np.concatenate([Q1, Q2.astype(np.float64)], axis=1))
    k = P1.shape[1]
    with parallel.blas_lock():
        value = _size_of(users @ items.T)
        size = _size_of(users[:, :k] @ items[:, :k].T)
    return ModelChange(value, value / size if size else (np.inf if value else 0.0))


def _size_of(matrix: Floats) -> float:
    """Return the Frobenius norm of a matrix, even if squares of its entries would overflow."""
    largest = float(np.abs(matrix).max())
    return largest * float(np.linalg.norm(matrix / largest)) if largest else 0.0


def _centred(first: Any, second: Any) -> tuple[Floats, Floats]:
    """Return both embeddings with centred columns, scaled by powers of two.

    Each embedding is divided by a power of two near its largest magnitude, so that squares do not
    overflow.
    """
    centred = []
    for name, rows in zip(
        ("first", "second"), same_rows("first", first, "second", second), strict=True
    ):
        largest = float(np.abs(rows).max())
        scaled: Floats = np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))
        scaled -= scaled.mean(axis=0)
        check_varying(name, bool(np.abs(scaled).max() > _ROUNDING), "rows")
        centred.append(scaled)
    return centred[0], centred[1]


def _basis(rows: Floats) -> Floats:
    """Return an orthonormal basis of the column space.

    Directions whose singular values may be rounding errors are left out.
    """
    with parallel.blas_lock():
        Q, sigma, _ = np.linalg.svd(rows, full_matrices=False)
    return Q[:, sigma > sigma[0] * max(rows.shape) * np.finfo(np.float64).eps]


class RSA(NamedTuple):
    """The correlation of the cosines in one embedding with the cosines in another embedding.

    Attributes
    ----------
    value : float
        Correlation, from -1 to 1.
    low, high : float
        Ends of a 95 % confidence interval of the correlation. If all pairs of items were used, both
        ends equal ``value``.
    n_left_out : int
        Number of items with a zero row in either embedding.
    """

    value: float
    low: float
    high: float
    n_left_out: int


def rsa(
    first: Any,
    second: Any,
    *,
    method: str = "pearson",
    n_pairs: int = 100_000,
    random_state: int = 0,
) -> RSA:
    """Return the representational similarity (RSA), a correlation of the cosines of two embeddings.

    Every pair of items has a cosine in each of the two embeddings. Over all pairs, the RSA is the
    correlation between the cosine in the first embedding and the cosine in the second embedding.

    Pearson's correlation is computed exactly, from k x k Gram matrices in O(p k k) time. Let A and
    B be the unit rows of the two embeddings, and let |.| be the Frobenius norm. Each of the
    following sums is over all ordered pairs of different items. The sum of the cosines in A is |sum
    of the rows of A|^2 - p. The sum of the squared cosines in A is |A'A|^2 - p. The sum of the
    products of the cosine in A and the cosine in B is |A'B|^2 - p. If there are at most n_pairs
    pairs of items, Spearman's correlation r is computed from all of them; otherwise r is computed
    from n_pairs pairs, which are drawn with replacement. The confidence interval of Spearman's
    correlation is computed from Fisher's z, with the variance (1 + r^2 / 2) / (n_pairs - 3). A
    rescaling of the columns usually changes both Pearson's and Spearman's correlation.

    Sources: Kriegeskorte, Mur and Bandettini, Frontiers in Systems Neuroscience 2 (2008); for the
    interval, Bonett and Wright, Psychometrika 65 (2000).

    Parameters
    ----------
    first, second
        As in :func:`cka`, with at least three items whose rows are non-zero in both embeddings.
    method : {"pearson", "spearman"}
        The correlation coefficient.
    n_pairs : int
        Number of pairs of items that are sampled if ``method`` is "spearman".
    random_state : int or Generator
        Seed of the sample of pairs.

    Returns
    -------
    RSA

    Examples
    --------
    >>> from fastcos.metrics import rsa
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(rsa(items, [[-y, x] for x, y in items]).value, 12)
    1.0
    """
    method = validation.as_choice("method", method, ("pearson", "spearman"))
    n_pairs = validation.as_count("n_pairs", n_pairs, 4)
    random = validation.as_generator("random_state", random_state)
    A, B, n_left_out = _directed("first", first, "second", second)
    if method == "pearson":
        value = _pearson(A, B)
        low = high = value
    else:
        value, low, high = _spearman(A, B, n_pairs, random)
    return RSA(value, low, high, n_left_out)


def _directed(name: str, first: Any, other_name: str, second: Any) -> tuple[Floats, Floats, int]:
    """Return the unit rows of both embeddings, for the items with non-zero rows in both.

    The third result is the number of items whose row is zero in at least one embedding.
    """
    X, Y = same_rows(name, first, other_name, second)
    is_used = X.any(axis=1) & Y.any(axis=1)
    n_used = int(is_used.sum())
    n = validation.check_enough(name, n_used, 3, "items whose rows are non-zero in both embeddings")
    return unit_rows(X[is_used]), unit_rows(Y[is_used]), len(X) - n


def _pearson(A: Floats, B: Floats) -> float:
    n = len(A)
    n_pairs = n * (n - 1) / 2
    mean_a, mean_b = ((np.square(rows.sum(axis=0)).sum() - n) / 2 / n_pairs for rows in (A, B))

    def covariance(X: Floats, Y: Floats, product_of_means: float) -> float:
        mean_product = (np.square(cross_products(X, Y)).sum() - n) / 2 / n_pairs
        return float(mean_product - product_of_means)

    variances = covariance(A, A, mean_a * mean_a), covariance(B, B, mean_b * mean_b)
    check_varying("first", variances[0] > _ROUNDING, "cosines")
    check_varying("second", variances[1] > _ROUNDING, "cosines")
    value = covariance(A, B, mean_a * mean_b) / np.sqrt(variances[0] * variances[1])
    return float(np.clip(value, -1, 1))


def _spearman(
    A: Floats, B: Floats, n_pairs: int, random: np.random.Generator
) -> tuple[float, float, float]:
    from scipy.stats import rankdata  # Importing scipy.stats takes 0.7 s, so it is deferred.

    i, j = _pairs(len(A), n_pairs, random)
    ranks = [rankdata(_cosines(rows, i, j)) for rows in (A, B)]
    check_varying("first", bool(np.ptp(ranks[0]) > 0), "cosines")
    check_varying("second", bool(np.ptp(ranks[1]) > 0), "cosines")
    value = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    if len(A) * (len(A) - 1) // 2 <= n_pairs or abs(value) == 1:
        return value, value, value
    half = _NORMAL_95 * np.sqrt((1 + value * value / 2) / (n_pairs - 3))
    centre = np.arctanh(value)
    return value, float(np.tanh(centre - half)), float(np.tanh(centre + half))


def _pairs(n: int, n_pairs: int, random: np.random.Generator) -> tuple[Integers, Integers]:
    """Return all pairs of n rows, or a sample of n_pairs pairs if there are more than n_pairs."""
    if n * (n - 1) // 2 <= n_pairs:
        return np.triu_indices(n, 1)
    i, j = random.integers(n, size=n_pairs), random.integers(n - 1, size=n_pairs)
    return i, j + (j >= i)


def _cosines(rows: Floats, i: Integers, j: Integers) -> Floats:
    values = np.empty(len(i))
    for first in range(0, len(i), CHUNK):
        chunk = slice(first, first + CHUNK)
        values[chunk] = np.einsum("ij,ij->i", rows[i[chunk]], rows[j[chunk]])
    return values


class Trustworthiness(NamedTuple):
    """How well an embedding preserves the nearest neighbours of the original rows.

    Both scores are 1 if every item has the same k nearest neighbours in the embedding and in the
    original.

    Attributes
    ----------
    trustworthiness : float
        Score from 0 to 1. Items that are neighbours in the embedding, but not in the original,
        reduce the score.
    continuity : float
        Score from 0 to 1. Items that are neighbours in the original, but not in the embedding,
        reduce the score.
    n_left_out : int
        Number of items with a zero row in either embedding.
    """

    trustworthiness: float
    continuity: float
    n_left_out: int


def trustworthiness(
    original: Any, embedding: Any, *, k: int = 5, n_threads: int | None = None
) -> Trustworthiness:
    """Return the trustworthiness and the continuity of an embedding of the original rows.

    The trustworthiness is 1 - 2 / (n k (2n - 3k - 1)) Σ_i Σ_{j in U_k(i)} (r(i, j) - k), where n is
    the number of items with non-zero rows. The set U_k(i) contains the items that are among the k
    nearest items of i in the embedding but not in the original. The number r(i, j) is the rank of j
    among the neighbours of i in the original. The continuity is computed like the trustworthiness,
    but with the original and the embedding exchanged. Neighbours are ranked by cosine and, for
    equal cosines, by ascending row number.

    For embeddings of d columns, the function takes O(n n d) time. Each thread takes O(n) memory, in
    addition to copies of the inputs. Results are bit-for-bit identical for any number of threads.

    Source: Venna and Kaski, ICANN 2001.

    Parameters
    ----------
    original, embedding : array_like (p, k1), (p, k2), float32 or float64
        One row per item; row i of both matrices belongs to the same item.
    k : int
        Number of neighbours, less than half of the number of items with non-zero rows.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.

    Returns
    -------
    Trustworthiness

    Examples
    --------
    >>> from fastcos.metrics import trustworthiness
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2], [-1, 0], [3, -1]]
    >>> trustworthiness(items, [[2 * x, 2 * y] for x, y in items], k=2)
    Trustworthiness(trustworthiness=1.0, continuity=1.0, n_left_out=0)
    """
    *sides, n_left_out = _directed("original", original, "embedding", embedding)
    A, B = map(validation.read_only, sides)
    n = len(A)
    k = validation.as_count("k", k, 1, (n - 1) // 2)
    excess = parallel.unfilled((n, 2), np.int64)
    parallel.run(
        pair_reductions.rank_excess_rows, parallel.row_blocks(n, 48), A, packed(A, n_threads), B,
        packed(B, n_threads), k, excess, n_threads=n_threads,
    )  # fmt: skip
    false_excess, missing_excess = excess.sum(axis=0).tolist()
    largest_excess = n * k * (2 * n - 3 * k - 1) / 2
    trust, continuity = 1 - false_excess / largest_excess, 1 - missing_excess / largest_excess
    return Trustworthiness(trust, continuity, n_left_out)
