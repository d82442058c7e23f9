"""Tasks on which candidates are evaluated, unit by unit.

``label_recovery`` scores labelled items by the labels of their neighbours, ``held_out`` users by
their held-out interactions, ``rated_pairs`` pairs by the agreement of scores and ratings. Each
task has two methods: ``score(candidate, embeddings)`` returns arrays over the units, and
``evaluation(scores)`` collects those of all candidates for ``bootstrap.rank``.
"""
