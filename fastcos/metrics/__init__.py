"""Scores that judge an embedding; none holds a matrix of items by items.

Recovery of labels (``pair_auc``, ``map_at_r``, ``silhouette``, ...), agreement of two embeddings or
two lists of neighbours, and the shape of one embedding. Cosines are those of the rows as given: to
judge another measure, give the rows that it maps the items to.
"""

from fastcos.metrics.alignment import ModelChange, cca_similarity, cka, model_change, procrustes
from fastcos.metrics.auc import PairAUC, pair_auc
from fastcos.metrics.clustering import ClusteringScores, clustering_scores
from fastcos.metrics.hubness import Hubness, hubness
from fastcos.metrics.list_overlap import (
    RankBiasedOverlap,
    jaccard_at_k,
    kendall_distance,
    overlap_at_k,
    rank_biased_overlap,
)
from fastcos.metrics.popularity import PopularityBias, popularity_bias
from fastcos.metrics.ranking import ndcg_at_k, recall_at_k
from fastcos.metrics.retrieval import MapAtR, NeighborPurity, map_at_r, neighbor_purity
from fastcos.metrics.separation import Silhouette, WithinBetween, silhouette, within_between
from fastcos.metrics.similarity_analysis import RSA, rsa
from fastcos.metrics.spectrum import (
    MeanCosine,
    effective_rank,
    isoscore,
    mean_cosine,
    participation_ratio,
)
from fastcos.metrics.stratified_auc import StratifiedAUC, stratified_auc
from fastcos.metrics.trustworthiness import Trustworthiness, trustworthiness

__all__ = [
    "RSA",
    "ClusteringScores",
    "Hubness",
    "MapAtR",
    "MeanCosine",
    "ModelChange",
    "NeighborPurity",
    "PairAUC",
    "PopularityBias",
    "RankBiasedOverlap",
    "Silhouette",
    "StratifiedAUC",
    "Trustworthiness",
    "WithinBetween",
    "cca_similarity",
    "cka",
    "clustering_scores",
    "effective_rank",
    "hubness",
    "isoscore",
    "jaccard_at_k",
    "kendall_distance",
    "map_at_r",
    "mean_cosine",
    "model_change",
    "ndcg_at_k",
    "neighbor_purity",
    "overlap_at_k",
    "pair_auc",
    "participation_ratio",
    "popularity_bias",
    "procrustes",
    "rank_biased_overlap",
    "recall_at_k",
    "rsa",
    "silhouette",
    "stratified_auc",
    "trustworthiness",
    "within_between",
]
