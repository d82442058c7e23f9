"""Audit of embeddings: how much their cosines depend on the parametrisation of the model.

A rescaling is a diagonal matrix D with positive entries. If the users of a model are multiplied by
D, and the items by the inverse of D, all predictions stay the same, but the cosines and the
neighbours of the items change. This package bounds the change of cosines, and searches for
rescalings that remove an item from the nearest neighbours of another item. The package also
compares the neighbours under other parametrisations of the model, and offers similarities that do
not depend on D.

The function ``audit`` in ``item_audit`` draws samples of the items, runs one search (``top_k``) for
the neighbours of all items, and calls the following modules:

- ``neighbor_edges`` finds the nearest items of sampled rows.
- ``robustness`` computes bounds on the share of neighbours that survive all rescalings.
- ``certificates`` proves for some neighbours that no rescaling removes them. The share of
  neighbours for which the proof succeeds is a lower bound on the share that survives all
  rescalings.
- ``attacks`` searches for rescalings that remove a neighbour. The share of neighbours that survive
  all rescalings is at most the share that no attack removes.
- ``worst_rescaling`` searches for the single rescaling, or the single linear map, under which the
  most neighbours are replaced.
- ``variants`` computes other parametrisations of the model, and invariant baselines.
- ``label_recovery`` searches for the lowest and the highest AUC of labels under rescalings.
- ``report`` and ``audit_records`` contain the result, with numbers, a verdict and advice.

Other modules of the package answer other questions:

- ``model_diff`` measures how much of the change between two versions of a model is a real change,
  and how much is only a change of basis.
- ``alignment`` maps a new version of a model to the coordinates of the old version.
- ``calibration`` shows what a score means: it computes the threshold for each false-positive rate.
- ``fastcos.similarity.gradient_noise`` predicts the scales that stochastic gradient descent gives
  to the dimensions, so that ``audit`` can recognise these scales.

An edge is a pair of an item and one of its k nearest neighbours. An edge or a neighbour survives a
map if the neighbour is still among the k nearest items after the map has been applied to all items.
The condition number (or condition) of D is the largest entry of D divided by the smallest. The
condition number of a linear map G is the largest singular value of G divided by the smallest. The
sensitivity index of an embedding is the mean of :func:`tv_index` over the edges of the embedding.
The compiled loops of this package are in the modules ``certificates``, ``attacks``, ``intervals``
and ``worst_rescaling`` of ``fastcos.kernels``.
"""

from fastcos.auditing.alignment import Alignment, align
from fastcos.auditing.attacks import vertex_attack
from fastcos.auditing.calibration.calibrate import calibrate
from fastcos.auditing.calibration.labelled import LabelledCalibration, calibrate_pairs
from fastcos.auditing.calibration.pairs import NearPairs, pairs_near, score_pairs
from fastcos.auditing.calibration.result import Calibration
from fastcos.auditing.calibration.tail import Tail
from fastcos.auditing.calibration.threshold_range import ThresholdRange, threshold_range
from fastcos.auditing.certificates import certified_neighbors
from fastcos.auditing.encoder_map import EncoderMap, map_encoder
from fastcos.auditing.item_audit import audit
from fastcos.auditing.label_recovery import label_recovery_range
from fastcos.auditing.model_diff import diff_models
from fastcos.auditing.report import Audit
from fastcos.auditing.worst_rescaling import WorstRescaling, worst_rescaling
from fastcos.similarity.canonical import canonicalize, query_metric
from fastcos.similarity.cosine_bounds import (
    cosine_interval,
    fisher_z_interval,
    rescaling_distance,
    tv_index,
    unbounded_range,
)
from fastcos.similarity.gradient_noise import GradientNoise, gradient_noise

__all__ = [
    "Alignment",
    "Audit",
    "Calibration",
    "EncoderMap",
    "GradientNoise",
    "LabelledCalibration",
    "NearPairs",
    "Tail",
    "ThresholdRange",
    "WorstRescaling",
    "align",
    "audit",
    "calibrate",
    "calibrate_pairs",
    "canonicalize",
    "certified_neighbors",
    "cosine_interval",
    "diff_models",
    "fisher_z_interval",
    "gradient_noise",
    "label_recovery_range",
    "map_encoder",
    "pairs_near",
    "query_metric",
    "rescaling_distance",
    "score_pairs",
    "threshold_range",
    "tv_index",
    "unbounded_range",
    "vertex_attack",
    "worst_rescaling",
]
