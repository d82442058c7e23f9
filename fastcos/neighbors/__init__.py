"""Nearest neighbours: top_k, SimilarityIndex, radius search and re-ranking."""

from fastcos.neighbors.blocks import similarity_blocks
from fastcos.neighbors.index import SimilarityIndex
from fastcos.neighbors.radius import neighbors_above
from fastcos.neighbors.rerank import STSScorer, rerank
from fastcos.neighbors.search import top_k
from fastcos.neighbors.types import Neighbors

__all__ = [
    "Neighbors",
    "STSScorer",
    "SimilarityIndex",
    "neighbors_above",
    "rerank",
    "similarity_blocks",
    "top_k",
]
