"""Single pairs: those with scores next to a threshold, and scores of given ones."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.histogram import queries_per_block
from fastcos.search.blocks import score_blocks
from fastcos.similarity.base import Measure, get_measure
from fastcos.similarity.linear import as_pairs
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers

# queries among whose pairs examples are chosen
_QUERIES = 500


class NearPairs(NamedTuple):
    """Pairs with scores near a threshold, highest score first.

    Attributes
    ----------
    queries, items : ndarray (n,), int64
        Row numbers.
    scores : ndarray (n,), float64
    """

    queries: Integers
    items: Integers
    scores: Floats


def pairs_near(
    items: Any,
    threshold: float,
    queries: Any = None,
    *,
    n_each: int = 5,
    measure: str | Measure = "cosine",
    random_state: int | np.random.Generator = 0,
) -> NearPairs:
    """Examples of pairs just above and just below a threshold.

    Parameters
    ----------
    items : array_like (m, d)
    threshold : float
    queries : array_like (n, d), optional
        None: pairs of different items. Of more than 500 queries, 500 are drawn.
    n_each : int
        Pairs on each side, at most.
    measure : str or Measure
        As in :func:`fastcos.top_k`.
    random_state : int or Generator

    Returns
    -------
    NearPairs
        No more than one pair of each query; fewer where there are no others.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import pairs_near
    >>> near = pairs_near(np.random.default_rng(0).standard_normal((100, 8)), 0.5, n_each=2)
    >>> (near.scores >= 0.5).tolist()
    [True, True, False, False]
    """
    threshold = validation.as_real("threshold", threshold)
    n_each = validation.as_count("n_each", n_each)
    generator = validation.as_generator("random_state", random_state)
    X = validation.as_rows("items", items)
    Q = X if queries is None else validation.as_rows("queries", queries)
    validation.check_same_width("queries", Q, "items", X)
    validation.check_scorable("queries", Q, X)
    drawn = np.sort(generator.choice(len(Q), min(_QUERIES, len(Q)), replace=False))
    fitted = get_measure(measure).fit(X)
    above: list[Any] = []
    below: list[Any] = []
    block = queries_per_block(len(X))
    for rows, scores in score_blocks(fitted, validation.read_only(Q[drawn]), X, block):
        numbers = drawn[rows]
        if queries is None:
            # each pair once, and none of a row with itself
            scores[np.arange(len(X)) <= numbers[:, None]] = np.nan
        for side, inside in ((above, scores >= threshold), (below, scores < threshold)):
            distances = np.where(inside, np.abs(scores - threshold), np.inf)
            columns = distances.argmin(axis=1)
            least = distances[np.arange(len(numbers)), columns]
            kept = np.isfinite(least)
            side.append((numbers[kept], columns[kept], least[kept]))
    chosen = []
    for side, sign in ((above, 1), (below, -1)):
        query, item, distance = map(np.concatenate, zip(*side, strict=True))
        best = np.argsort(distance, kind="stable")[:n_each]
        chosen.append((query[best], item[best], threshold + distance[best] * sign))
    query, item, score = map(np.concatenate, zip(*chosen, strict=True))
    order = np.argsort(-score, kind="stable")
    return NearPairs(query[order], item[order], score[order])


def score_pairs(items: Any, pairs: Any, *, measure: str | Measure = "cosine") -> Floats:
    """Scores of pairs of items, such as labelled ones.

    Parameters
    ----------
    items : array_like (m, d)
    pairs : array_like (n, 2), int
        Row numbers.
    measure : str or Measure
        As in :func:`fastcos.top_k`.

    Returns
    -------
    ndarray (n,), float64

    Examples
    --------
    >>> from fastcos.auditing import score_pairs
    >>> score_pairs([[1.0, 0.0], [3.0, 4.0], [0.0, 1.0]], [[0, 1], [2, 0]]).round(3).tolist()
    [0.6, 0.0]
    """
    X = validation.as_rows("items", items)
    numbers = as_pairs("pairs", pairs, len(X), least=0)
    return pair_scores(get_measure(measure).fit(X), X, numbers)
