"""Functions that read and write calibrations as JSON, with explanations of the fields."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.distribution import PairDistribution
from fastcos.auditing.calibration.histogram import N_BINS
from fastcos.auditing.calibration.tail import Tail
from fastcos.auditing.calibration.threshold_range import ThresholdRange
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.storage.atomic_files import write_text

_FORMAT = "fastcos calibration, version 1"
_READING = (
    "The entry counts[i] is the number of pairs whose score lies in bin i. The lower edge of bin i "
    "is low + (first_bin + i) * width, and every bin is one width wide. To obtain the share of "
    "random pairs that score at least the lower edge of bin i, add up counts[i] and all later "
    "counts, and divide the sum by n_pairs. If fewer than 100 pairs reach a score above "
    "tail.start, the counts are too small for a precise share. The share of pairs that reach such "
    "a score is tail.share * (1 + tail.shape * (score - tail.start) / tail.scale) ** (-1 / "
    "tail.shape)."
)


def document(calibration: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Return a calibration as a dict for JSON, which contains the entries of ``values``."""
    nonempty_bins = np.flatnonzero(calibration.counts)
    first, last = int(nonempty_bins[0]), int(nonempty_bins[-1]) + 1
    return {
        "format": _FORMAT,
        "reading": _READING,
        "verdict": calibration.verdict,
        "notes": list(calibration.notes),
        "n_pairs": calibration.n_pairs,
        "first_bin": first,
        **values,
        "counts": calibration.counts[first:last].tolist(),
    }


def write(path: PathLike, values: dict[str, Any]) -> None:
    """Write a document atomically, with one field per line."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}"
        for key, value in values.items()
    )
    write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def read(path: PathLike, kind: type[PairDistribution]) -> Any:
    """Read a calibration from a JSON document, and return it as an object of the class ``kind``."""
    file = Path(path)
    if file.is_dir():  # `fastcos calibrate` writes a folder that contains this file.
        file /= "calibration.json"
    try:
        document = json.loads(file.read_text("utf8"))
        if document["format"] != _FORMAT:
            raise ValueError(f"format must be {_FORMAT!r}, got {document['format']!r}")
        counts = np.zeros(N_BINS, np.int64)
        first = validation.as_count("first_bin", document["first_bin"], 0, N_BINS - 1)
        counts[first : first + len(document["counts"])] = document["counts"]
        values = {field.name: document[field.name] for field in fields(kind)}
        tail, rescaling = values["tail"], values["rescaling"]
        values |= {
            "counts": counts,
            "n_given": tuple(values["n_given"]),
            "levels": np.array(values["levels"], np.float64),
            "query_counts": np.array(values["query_counts"], np.int64),
            "independent": np.array(values["independent"], np.float64),
            "tail": None if tail is None else Tail(**tail),
            "rescaling": None if rescaling is None else ThresholdRange.of(rescaling),
        }
        _check(values)
        calibration = kind(**values)
        if counts.min() < 0 or counts.sum() != calibration.n_pairs:
            raise ValueError(f"counts must sum to {calibration.n_pairs}, got {counts.sum()}")
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        reason = f"the field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise FastcosFormatError(f"{path} is not a calibration: {reason}") from None
    return calibration


def _check(values: dict[str, Any]) -> None:
    """Raise an error if a value in the document of a calibration is impossible."""
    for name in ("measure", "dataset"):
        validation.as_instance(name, values[name], str, "a string")
    validation.check_text("model", values["model"] or None)
    validation.as_flag("self_join", values["self_join"])
    validation.as_real("fpr", values["fpr"], above=0, high=1)
    validation.as_real("low", values["low"])
    validation.as_real("width", values["width"], above=0)
    n_queries = validation.as_count("n_queries", values["n_queries"])
    validation.as_count("n_items", values["n_items"])
    for name in ("n_zero", "n_duplicates"):
        validation.as_count(name, values[name], 0)
    validation.check_length("n_given", values["n_given"], 2, "queries and items")
    for count in values["n_given"]:
        validation.as_count("n_given", count)
    shapes = {"levels": (6,), "independent": (6,), "query_counts": (6, n_queries)}
    for name, shape in shapes.items():
        validation.check_shape(name, values[name].shape, shape)
    for name in ("independent", "query_counts"):
        validation.as_real(name, values[name].min(), low=0)
    validation.as_vector("levels", values["levels"], 6)
    validation.as_vector("independent", values["independent"], 6)
    if (tail := values["tail"]) is not None:
        for name in ("start", "shape"):
            validation.as_real(f"tail.{name}", getattr(tail, name))
        for name in ("share", "scale"):
            validation.as_real(f"tail.{name}", getattr(tail, name), above=0)
        validation.as_real("tail.distance", tail.distance, low=0, high=1)
        validation.as_count("tail.n_pairs", tail.n_pairs)
    if (rescaling := values["rescaling"]) is not None:
        validation.as_real("rescaling.fpr", rescaling.fpr, above=0, high=1)
        validation.as_real("rescaling.condition", rescaling.condition, low=1)
        validation.as_count("rescaling.n_rows", rescaling.n_rows)
        for name in ("given", "low", "high", "bound_low", "bound_high"):
            validation.as_real(f"rescaling.{name}", getattr(rescaling, name))
