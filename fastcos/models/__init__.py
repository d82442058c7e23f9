"""Matrix factorisations and preprocessing."""

from fastcos.models.cosine_mf import CosineMF
from fastcos.models.linear_mf import AmbiguousSolutionWarning, LinearMF
from fastcos.models.preprocessing import (
    NormalizeRows,
    PopularityWeights,
    ShiftedPPMI,
    StandardizeColumns,
)

__all__ = [
    "AmbiguousSolutionWarning",
    "CosineMF",
    "LinearMF",
    "NormalizeRows",
    "PopularityWeights",
    "ShiftedPPMI",
    "StandardizeColumns",
]
