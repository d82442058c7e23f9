"""Tasks on which candidates are evaluated, unit by unit.

``label_recovery`` scores labelled items by the labels of their neighbours, ``held_out`` scores
users by their held-out interactions, and ``rated_pairs`` scores pairs by the agreement of scores
and ratings. Each task has two methods: ``score(candidate, embeddings)`` returns arrays over the
units, and ``evaluation(scores)`` combines the arrays of all candidates for ``bootstrap.rank``.
"""
