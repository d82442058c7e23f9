"""The tasks of a comparison; on each task, every candidate receives one score per unit.

The units of ``label_recovery`` are labelled items, whose neighbours should have the same label. The
units of ``held_out`` are users, whose recommendations should contain their held-out interactions.
The units of ``rated_pairs`` are pairs, whose scores should agree with ratings. Each task has two
methods. The method ``score(candidate, embeddings)`` returns arrays of scores with one entry per
unit. The method ``evaluation(scores)`` combines the arrays of all candidates into an ``Evaluation``
for ``bootstrap.rank``.
"""
