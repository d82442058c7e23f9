import numpy as np

from fastcos.kernels import listed_items, pair_scores, records
from tests.kernels.inputs import frozen, frozen_rows
from tests.oracles import dense

FORMS = {pair_scores.DOT: "dot", pair_scores.COSINE: "cosine", pair_scores.EUCLIDEAN: "euclidean"}


def test_score_listed_items_has_the_bits_of_plain_sums():
    rng = np.random.default_rng(0)
    for depth in (5, 16, 37):
        Q, X = (rng.standard_normal((n, depth)).astype(np.float32) for n in (6, 30))
        X[3], X[4, 2], X[5, 1], X[6] = 0.0, np.nan, np.inf, 1e-30
        numbers, columns = np.sort(rng.integers(0, 6, 50)), rng.integers(0, 30, 50)
        columns[7:11] = 3, 4, 5, 6
        norms = np.sqrt(dense.keys(Q, Q, "dot").diagonal())
        for metric_type, form in FORMS.items():
            scores = np.full(50, -7.0)
            with np.errstate(invalid="ignore"):
                expected = dense.keys(Q, X, form)[numbers, columns]
            expected[np.isin(columns, [4, 5])] = np.nan
            scoring = records.PairScoring(
                metric_type,
                frozen_rows(Q),
                *frozen(norms),
                frozen_rows(X),
                *frozen(np.zeros(0), np.zeros(0)),
            )
            listed = frozen(numbers, columns)
            listed_items.score_listed_items(2, 50, scoring, *listed, 0.0, scores)
            np.testing.assert_array_equal(scores[2:], expected[2:])
            assert (scores[:2] == -7).all()
        listed_items.score_listed_items(2, 50, scoring, *listed, 1e-20, scores)
        assert (np.isnan(scores[2:]) == np.isin(columns[2:], [3, 4, 5, 6])).all()
