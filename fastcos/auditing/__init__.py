"""How much of the cosines of given embeddings is a free choice of the parametrisation."""

from fastcos.auditing.attacks import vertex_attack
from fastcos.auditing.canonical import canonicalize, query_metric
from fastcos.auditing.certificates import certified_neighbors
from fastcos.auditing.cosine_bounds import (
    cosine_interval,
    fisher_z_interval,
    rescaling_distance,
    tv_index,
    unbounded_range,
)
from fastcos.auditing.embeddings import audit
from fastcos.auditing.label_recovery import recovery_range
from fastcos.auditing.model_diff import version_change
from fastcos.auditing.report import Audit

__all__ = [
    "Audit",
    "audit",
    "canonicalize",
    "certified_neighbors",
    "cosine_interval",
    "fisher_z_interval",
    "query_metric",
    "recovery_range",
    "rescaling_distance",
    "tv_index",
    "unbounded_range",
    "version_change",
    "vertex_attack",
]
