"""Examples of pairs with scores near a threshold, and scores of pairs that the caller chooses."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.histogram import queries_per_block
from fastcos.search.score_blocks import score_blocks
from fastcos.similarity.base import Measure, get_measure
from fastcos.similarity.linear import as_pairs
from fastcos.similarity.row_transforms import pair_scores
from fastcos.validation import Floats, Integers

# Number of sampled queries. Every example is a pair of a sampled query and an item.
_QUERIES = 500


class NearPairs(NamedTuple):
    """Pairs with scores near a threshold, in descending order of the score.

    Attributes
    ----------
    queries, items : ndarray (n,), int64
        For each pair, the row number of the query and the row number of the item.
    scores : ndarray (n,), float64
        Scores of the pairs.
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
    """Return examples of pairs just above and just below a threshold.

    Parameters
    ----------
    items : array_like (m, d)
        Item embeddings.
    threshold : float
        The threshold.
    queries : array_like (n, d), optional
        Query embeddings. If there are more than 500 queries, the function draws a sample of 500
        queries. By default, the items are also the queries, and no item is paired with itself.
    n_each : int
        The function returns at most ``n_each`` pairs above the threshold, and at most ``n_each``
        pairs below the threshold.
    measure : str or Measure
        As in :func:`fastcos.top_k`.
    random_state : int or Generator
        Seed of the sample of queries.

    Returns
    -------
    NearPairs
        The pairs whose scores are nearest to the threshold. Each query contributes at most one pair
        above the threshold and at most one pair below it. If too few queries have a pair above the
        threshold, the result contains fewer than ``n_each`` pairs above the threshold. The same
        holds for the pairs below the threshold.

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
    query_rows = np.sort(generator.choice(len(Q), min(_QUERIES, len(Q)), replace=False))
    fitted = get_measure(measure).fit(X)
    above: list[Any] = []
    below: list[Any] = []
    block = queries_per_block(len(X))
    for rows, scores in score_blocks(fitted, validation.read_only(Q[query_rows]), X, block):
        numbers = query_rows[rows]
        if queries is None:
            # Leave out the pairs of a row with itself, and one of the two copies of each remaining
            # pair.
            scores[np.arange(len(X)) <= numbers[:, None]] = np.nan
        for side_pairs, is_on_side in ((above, scores >= threshold), (below, scores < threshold)):
            distances = np.where(is_on_side, np.abs(scores - threshold), np.inf)
            columns = distances.argmin(axis=1)
            nearest_distances = distances[np.arange(len(numbers)), columns]
            has_pair = np.isfinite(nearest_distances)
            side_pairs.append((numbers[has_pair], columns[has_pair], nearest_distances[has_pair]))
    examples = []
    for side_pairs, sign in ((above, 1), (below, -1)):
        query, item, distance = map(np.concatenate, zip(*side_pairs, strict=True))
        best = np.argsort(distance, kind="stable")[:n_each]
        examples.append((query[best], item[best], threshold + distance[best] * sign))
    query, item, score = map(np.concatenate, zip(*examples, strict=True))
    order = np.argsort(-score, kind="stable")
    return NearPairs(query[order], item[order], score[order])


def score_pairs(items: Any, pairs: Any, *, measure: str | Measure = "cosine") -> Floats:
    """Return the scores of chosen pairs of items, such as labelled pairs.

    Parameters
    ----------
    items : array_like (m, d)
        Item embeddings.
    pairs : array_like (n, 2), int
        Row numbers of the items of each pair.
    measure : str or Measure
        As in :func:`fastcos.top_k`. The measure is fitted to all items.

    Returns
    -------
    ndarray (n,), float64
        Score of each pair.

    Examples
    --------
    >>> from fastcos.auditing import score_pairs
    >>> score_pairs([[1.0, 0.0], [3.0, 4.0], [0.0, 1.0]], [[0, 1], [2, 0]]).round(3).tolist()
    [0.6, 0.0]
    """
    X = validation.as_rows("items", items)
    numbers = as_pairs("pairs", pairs, len(X), min_pairs=0)
    return pair_scores(get_measure(measure).fit(X), X, numbers)
