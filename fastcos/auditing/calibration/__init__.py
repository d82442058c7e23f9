"""Calibration: the meaning of a score, as the share of random pairs that reach the score.

Two unrelated texts may have a cosine of 0.7 in one model and of 0.1 in another model. Instead of a
cosine, you therefore specify the false-positive rate that you accept, and a calibration computes
the threshold for this rate from the scores of all pairs of vectors of the model::

    items, queries
      |
    calibrate                 samples of rows, passes over the scores of all their pairs
      +-- histogram           exact counts in 2^16 bins; scores of each row above some levels
      +-- tail                generalised Pareto distribution of the highest scores
      +-- threshold_range     how far rescalings D move the threshold
      |
    distribution              threshold, p_value, expected_false, false_discovery_rate
      |
    Calibration (result)      intervals over rows, verdict, notes; files: save and load as JSON

    labelled                  calibrate_pairs: error rates and probabilities from labelled pairs
    pairs                     pairs_near: examples next to a threshold; score_pairs

A threshold is an ordinary score: you can pass it as ``min_score`` to :func:`fastcos.top_k` or as
``threshold`` to :func:`fastcos.neighbors_above`. The intervals of a calibration take into account
that the rows are a sample: several pairs contain the same row, so even a large number of pairs is
weak evidence if the number of rows is small.
"""
