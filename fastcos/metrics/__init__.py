"""Scores that judge an embedding; none holds a matrix of items by items.

Recovery of labels (``pair_auc``, ``map_at_r``, ``silhouette``, ...), agreement of two embeddings or
two lists of neighbours, and the shape of one embedding. Cosines are those of the rows as given: to
judge another measure, give the rows that it maps the items to.
"""

from fastcos.metrics.clustering import ClusteringScores, clustering_scores
from fastcos.metrics.lists import jaccard_at_k, overlap_at_k
from fastcos.metrics.auc import PairAUC, pair_auc
from fastcos.metrics.precision import MapAtR, NeighborPurity, map_at_r, neighbor_purity
from fastcos.metrics.separation import Silhouette, WithinBetween, silhouette, within_between
from fastcos.metrics.shape import effective_rank

__all__ = [
    "ClusteringScores",
    "MapAtR",
    "NeighborPurity",
    "PairAUC",
    "Silhouette",
    "WithinBetween",
    "clustering_scores",
    "effective_rank",
    "jaccard_at_k",
    "map_at_r",
    "neighbor_purity",
    "overlap_at_k",
    "pair_auc",
    "silhouette",
    "within_between",
]
