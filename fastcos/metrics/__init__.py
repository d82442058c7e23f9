"""Scores of embeddings, and of neighbour lists that the caller passes.

No function of this package allocates an items x items matrix. Functions that score neighbour lists
do not search for neighbours: the caller passes the lists, which come from ``top_k`` or from another
system. The inputs of the functions are:

- rows and labels: ``pair_auc``, ``stratified_auc``, ``map_at_r``, ``silhouette``,
  ``within_between`` and ``clustering_scores``;
- neighbour lists: ``neighbor_purity``, ``hubness`` and ``popularity_bias``;
- two neighbour lists per query: ``jaccard_at_k``, ``overlap_at_k`` and ``rank_biased_overlap``;
- recommendations and held-out items: ``recall_at_k``, ``precision_at_k``, ``hit_rate_at_k``,
  ``mrr_at_k``, ``map_at_k`` and ``ndcg_at_k``;
- one embedding: ``effective_rank``, ``participation_ratio``, ``isoscore`` and ``mean_cosine``;
- two embeddings: ``rsa``, ``cka``, ``cca_similarity``, ``procrustes`` and ``trustworthiness``;
- two models: ``model_change``.

A metric of rows and labels validates its arguments, leaves out zero rows and divides the other rows
by their norms (``labelled_rows``). For p rows with k columns and C labels, ``within_between`` takes
O(p k k) time and ``silhouette`` takes O(p k C) time, because both are computed from sums of rows.
The functions ``pair_auc``, ``stratified_auc`` and ``map_at_r`` require the cosines of all pairs. A
kernel of ``kernels.pair_reductions`` reads packed rows (``packed``) and computes these cosines in
tiles. The kernel takes O(p p k) time and O(p k) memory. The function ``clustering_scores`` runs
k-means.

Metrics whose input is rows compare these rows by their cosine. To score another similarity measure,
pass the rows to which this measure maps the items. Results are bit-for-bit identical for any number
of threads. The field ``n_left_out`` of a result is the number of rows that the score does not use.
The functions raise ValueError if a number is not finite, if the lengths of rows and labels differ,
if a list contains a repeated or unknown item, or if the score is undefined for the data.
"""

from fastcos.metrics.alignment import (
    RSA,
    ModelChange,
    Trustworthiness,
    cca_similarity,
    cka,
    model_change,
    procrustes,
    rsa,
    trustworthiness,
)
from fastcos.metrics.auc import PairAUC, StratifiedAUC, pair_auc, stratified_auc
from fastcos.metrics.clustering import ClusteringScores, clustering_scores
from fastcos.metrics.hubness import Hubness, PopularityBias, hubness, popularity_bias
from fastcos.metrics.labelled import Score
from fastcos.metrics.list_overlap import (
    RankBiasedOverlap,
    jaccard_at_k,
    overlap_at_k,
    rank_biased_overlap,
)
from fastcos.metrics.retrieval import (
    NeighborPurity,
    hit_rate_at_k,
    map_at_k,
    map_at_r,
    mrr_at_k,
    ndcg_at_k,
    neighbor_purity,
    precision_at_k,
    recall_at_k,
)
from fastcos.metrics.separation import WithinBetween, silhouette, within_between
from fastcos.metrics.spectrum import effective_rank, isoscore, mean_cosine, participation_ratio

__all__ = [
    "RSA",
    "ClusteringScores",
    "Hubness",
    "ModelChange",
    "NeighborPurity",
    "PairAUC",
    "PopularityBias",
    "RankBiasedOverlap",
    "Score",
    "StratifiedAUC",
    "Trustworthiness",
    "WithinBetween",
    "cca_similarity",
    "cka",
    "clustering_scores",
    "effective_rank",
    "hit_rate_at_k",
    "hubness",
    "isoscore",
    "jaccard_at_k",
    "map_at_k",
    "map_at_r",
    "mean_cosine",
    "model_change",
    "mrr_at_k",
    "ndcg_at_k",
    "neighbor_purity",
    "overlap_at_k",
    "pair_auc",
    "participation_ratio",
    "popularity_bias",
    "precision_at_k",
    "procrustes",
    "rank_biased_overlap",
    "recall_at_k",
    "rsa",
    "silhouette",
    "stratified_auc",
    "trustworthiness",
    "within_between",
]
