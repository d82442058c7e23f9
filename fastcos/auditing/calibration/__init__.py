"""Calibration: the meaning of a score, as the share of random pairs that reach it.

Unrelated texts have a cosine of 0.7 in one model and of 0.1 in another. A threshold is therefore
specified by its false-positive rate, and computed from the distribution of the scores of all pairs
of vectors of the same model::

    items, queries
      |
    calibrate                 samples of rows, passes over the scores of all their pairs
      +-- histogram           exact counts in 2^16 bins; scores of each row above some levels
      +-- tail                generalised Pareto distribution, beyond the observed scores
      +-- rescaled            how far rescalings D move the threshold: threshold_range
      |
    distribution              threshold, p_value, expected_false, false_discovery_rate
      |
    Calibration (result)      intervals over rows, verdict, notes; files: save and load as JSON

    labelled                  calibrate_pairs: error rates and probabilities from labelled pairs
    pairs                     pairs_near: examples next to a threshold; score_pairs

A threshold is an ordinary score, for ``min_score`` of :func:`fastcos.top_k` or ``threshold`` of
:func:`fastcos.neighbors_above`. Intervals describe the sampling of rows: since pairs share rows,
many pairs of few rows are weak evidence.
"""
