"""Calibration of scores: the share of random pairs that reach each score.

Two unrelated texts may have a cosine of 0.7 in one model and of 0.1 in another model. Instead of a
cosine, you specify the false-positive rate that you accept. A calibration scores all pairs of a
model's vectors, and computes the threshold for this false-positive rate from the scores. The
package consists of the following modules:

- ``calibrate`` draws samples of the rows, and scores all pairs of sampled rows.
- ``histogram`` counts the scores in 2^16 bins, and counts the high scores of each row.
- ``tail`` fits a generalised Pareto distribution to the highest scores.
- ``threshold_range`` searches for the lowest and the highest threshold under rescalings D.
- ``distribution`` computes thresholds, p-values, false discovery rates and expected numbers of
  false positives.
- ``result`` contains the class ``Calibration``: the distribution, with intervals, a verdict and
  notes. ``files`` saves and loads calibrations as JSON.
- ``labelled`` computes error rates and probabilities from labelled pairs (``calibrate_pairs``).
- ``pairs`` returns examples of pairs with scores near a threshold, and scores of chosen pairs.

A threshold is an ordinary score: you can pass it as ``min_score`` to :func:`fastcos.top_k` or as
``threshold`` to :func:`fastcos.neighbors_above`. The intervals of a calibration take into account
that the rows are a sample. Each row occurs in many pairs, so even a large number of pairs is weak
evidence if there are few rows.
"""
