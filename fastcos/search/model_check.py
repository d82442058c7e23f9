"""Check whether queries, calibrations and saved indexes belong to the model of an index.

If two rows were made by different models, their score is meaningless, but the score does not reveal
the mistake. An index can therefore store the name of the model that made its rows. The name is
checked whenever the index is opened for a model, refreshed, saved over an older index, or searched
with a calibration. Two models whose rows have different numbers of columns always count as
different. Canaries, which are the rows of a few fixed inputs, reveal that a model has changed while
its name stayed the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.storage import OccupiedError
from fastcos.validation import Floats, Rows


@dataclass(frozen=True)
class ModelFacts:
    """The facts about a model that an index stores: its name or None, and the number of columns."""

    name: str | None
    width: int

    @classmethod
    def of_header(cls, fields: Mapping[str, Any]) -> "ModelFacts":
        """Read the facts about the model from the header of a saved index."""
        # The header is not checked here; the fields of a damaged header may have any type.
        return cls(fields.get("model"), fields.get("width"))  # type: ignore[arg-type]

    def difference(self, other: "ModelFacts") -> str:
        """Return how another model differs from this model, as a phrase for an error message.

        The result is "" if the models do not differ. If this model has a name, the other model must
        have the same name. If this model has no name, the names are not compared.
        """
        if self.name is not None and other.name != self.name:
            other_name = "no name" if other.name is None else validation.format_value(other.name)
            return f"(the model {validation.format_value(self.name)}), got {other_name}"
        if other.width == self.width:
            return ""
        return f"(a model with {self.width} columns), got {other.width} columns"


def as_model(model: object) -> str | None:
    """Return the name of a model, such as "minilm@2", or None; raise an error for other values."""
    if model is None:
        return None
    name = validation.as_instance("model", model, str, 'a name such as "minilm@2"')
    if not name.strip():
        raise ValueError(
            f'model must be a name such as "minilm@2", got {validation.format_value(name)}'
        )
    return name


def check_opened_for(model: str | None, requested_model: str | None) -> None:
    """Raise ValueError if an index does not store the name of the model for which it is opened."""
    if requested_model is None or model == requested_model:
        return
    if model is not None:
        check_same_model("model", model, requested_model)
    raise ValueError(
        f"model must be None for an index without a model name, got {requested_model!r}. To name "
        "the model of the index, open the index without model=, set index.model, and save the index"
    )


def check_successor(path: Path, current: ModelFacts, saved: ModelFacts) -> None:
    """Raise ValueError if the index that another process saved belongs to a different model.

    `current` is the model of the index that is refreshed, and `saved` is the model of the saved
    index.
    """
    if difference := current.difference(saved):
        raise ValueError(
            f"{path} must hold an index of the same model as this index {difference}. Nothing was "
            "loaded, and searches continue as before. To open the new index, use "
            "SimilarityIndex.open"
        )


def check_predecessor(path: Path, saved: ModelFacts, current: ModelFacts) -> None:
    """Raise OccupiedError if a save would replace the index of another model."""
    if difference := saved.difference(current):
        raise OccupiedError(
            f"the index must be of the same model as the index saved in {str(path)!r} "
            f"{difference}. The saved index was not changed. To replace it, use replace=True"
        )


def check_same_model(name: str, index_model: str | None, other_model: str | None) -> None:
    """Raise ValueError if the model names of an index and another object exist and differ."""
    if index_model is not None and other_model is not None and index_model != other_model:
        index_name, other_name = map(validation.format_value, (index_model, other_model))
        raise ValueError(
            f"{name} must be of the same model as the index ({index_name}), got {other_name}"
        )


def as_canaries(rows: Any, width: int) -> Rows:
    """Return a validated copy of the canaries, which must have `width` columns."""
    canaries = validation.as_rows("canaries", rows)
    validation.check_width("canaries", canaries, "the items of the index", width)
    return validation.read_only(canaries.copy())


def canary_cosines(saved_canaries: Rows, rows: Any) -> Floats:
    """Return, for each canary, the cosine (c,) between its saved row and its new row."""
    saved_rows = np.asarray(saved_canaries, np.float64)
    current_rows = as_canaries(rows, saved_rows.shape[1]).astype(np.float64)
    if len(current_rows) != len(saved_rows):
        raise ValueError(
            f"rows must contain one row per canary ({len(saved_rows)} rows), got "
            f"{len(current_rows)} rows"
        )
    norms = np.linalg.norm(current_rows, axis=1) * np.linalg.norm(saved_rows, axis=1)
    cosines: Floats = (current_rows * saved_rows).sum(axis=1) / np.where(norms > 0, norms, 1)
    return cosines
