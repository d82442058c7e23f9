"""Exact similarity at scale, and the truth about what cosine similarity means.

Names are loaded on first use, so that ``import fastcos`` stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastcos import metrics as metrics
    from fastcos.attacks import vertex_attack as vertex_attack
    from fastcos.auditing import audit as audit
    from fastcos.card import Audit as Audit
    from fastcos.certificates import certified_neighbors as certified_neighbors
    from fastcos.comparison import Comparison as Comparison
    from fastcos.comparison import Scores as Scores
    from fastcos.comparison import Standings as Standings
    from fastcos.comparison import compare as compare
    from fastcos.comparison import compare_vectors as compare_vectors
    from fastcos.config import Config as Config
    from fastcos.config import get_config as get_config
    from fastcos.config import set_config as set_config
    from fastcos.cosine_mf import CosineMF as CosineMF
    from fastcos.datasets import Simulation as Simulation
    from fastcos.datasets import simulate_interactions as simulate_interactions
    from fastcos.factorization import AmbiguousSolutionWarning as AmbiguousSolutionWarning
    from fastcos.factorization import LinearMF as LinearMF
    from fastcos.index import SimilarityIndex as SimilarityIndex
    from fastcos.intervals import cosine_interval as cosine_interval
    from fastcos.intervals import fisher_z_interval as fisher_z_interval
    from fastcos.intervals import rescaling_distance as rescaling_distance
    from fastcos.intervals import tv_index as tv_index
    from fastcos.intervals import unbounded_range as unbounded_range
    from fastcos.io import Interactions as Interactions
    from fastcos.io import ingest_interactions as ingest_interactions
    from fastcos.io import read_interactions as read_interactions
    from fastcos.measure import get_measure as get_measure
    from fastcos.measure import measures as measures
    from fastcos.neighbor_pairs import neighbors_above as neighbors_above
    from fastcos.neighbors import Neighbors as Neighbors
    from fastcos.neighbors import similarity_blocks as similarity_blocks
    from fastcos.neighbors import top_k as top_k
    from fastcos.neighbors_transformer import NeighborsTransformer as NeighborsTransformer
    from fastcos.preprocessing import NormalizeRows as NormalizeRows
    from fastcos.preprocessing import PopularityWeights as PopularityWeights
    from fastcos.preprocessing import ShiftedPPMI as ShiftedPPMI
    from fastcos.preprocessing import StandardizeColumns as StandardizeColumns
    from fastcos.products import gram_matmul as gram_matmul
    from fastcos.products import matmul as matmul
    from fastcos.products import rmatmul as rmatmul
    from fastcos.recovery import recovery_range as recovery_range
    from fastcos.repairs import canonicalize as canonicalize
    from fastcos.repairs import query_metric as query_metric
    from fastcos.reranking import STSScorer as STSScorer
    from fastcos.reranking import rerank as rerank
    from fastcos.rescaling import Rescaling as Rescaling
    from fastcos.rescaling import rescalings as rescalings
    from fastcos.shards import InteractionShards as InteractionShards
    from fastcos.storage import FastcosFormatError as FastcosFormatError
    from fastcos.svd import SVD as SVD
    from fastcos.svd import randomized_svd as randomized_svd
    from fastcos.svd import svd_residuals as svd_residuals
    from fastcos.versions import version_change as version_change

    __version__: str

_HOMES = {
    "attacks": ("vertex_attack",),
    "auditing": ("audit",),
    "card": ("Audit",),
    "certificates": ("certified_neighbors",),
    "comparison": ("Comparison", "Scores", "Standings", "compare", "compare_vectors"),
    "config": ("Config", "get_config", "set_config"),
    "cosine_mf": ("CosineMF",),
    "datasets": ("Simulation", "simulate_interactions"),
    "factorization": ("AmbiguousSolutionWarning", "LinearMF"),
    "intervals": (
        "cosine_interval",
        "fisher_z_interval",
        "rescaling_distance",
        "tv_index",
        "unbounded_range",
    ),
    "index": ("SimilarityIndex",),
    "io": ("Interactions", "ingest_interactions", "read_interactions"),
    "measure": ("get_measure", "measures"),
    "neighbor_pairs": ("neighbors_above",),
    "neighbors": ("Neighbors", "similarity_blocks", "top_k"),
    "neighbors_transformer": ("NeighborsTransformer",),
    "preprocessing": ("NormalizeRows", "PopularityWeights", "ShiftedPPMI", "StandardizeColumns"),
    "products": ("gram_matmul", "matmul", "rmatmul"),
    "recovery": ("recovery_range",),
    "repairs": ("canonicalize", "query_metric"),
    "reranking": ("STSScorer", "rerank"),
    "rescaling": ("Rescaling", "rescalings"),
    "shards": ("InteractionShards",),
    "storage": ("FastcosFormatError",),
    "svd": ("SVD", "randomized_svd", "svd_residuals"),
    "versions": ("version_change",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [*sorted(_HOME_OF), "metrics"]


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("fastcos.metrics")
    if name == "__version__":
        return import_module("importlib.metadata").version("fastcos")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'fastcos' has no attribute {name!r}")
    return getattr(import_module(f"fastcos.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
