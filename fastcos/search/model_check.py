"""The model whose rows an index holds: its name, and rows that tell whether it is the same.

Scores of rows that two models made mean nothing, and no error would show it. So an index that has
the name of a model is combined only with what has the same name: ``open`` for a model, ``refresh``,
and ``save`` over what another index wrote. Another number of columns is always another model.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.storage import OccupiedError
from fastcos.validation import Floats, Rows


def as_model(model: object) -> str | None:
    """Return the name of a model, such as "minilm@2"; None for none."""
    if model is None:
        return None
    name = validation.as_instance("model", model, str, 'a name such as "minilm@2"')
    if not name.strip():
        raise ValueError(
            f'model must be a name such as "minilm@2", got {validation.format_value(name)}'
        )
    return name


def check_opened_for(model: str | None, wanted: str | None) -> None:
    """Refuse to open an index for a model that it is not of, or not known to be of."""
    if wanted is None or model == wanted:
        return
    if model is not None:
        check_same_model("model", model, wanted)
    raise ValueError(
        f"model must be None for an index that was saved without the name of its model, got "
        f"{wanted!r} (to name it, open it without model=, set index.model, and save it)"
    )


def check_successor(path: Path, fields: Mapping[str, Any], model: str | None, width: int) -> None:
    """Refuse to take up what another process saved, where another model made it."""
    stored, columns = fields.get("model"), fields.get("width")
    if difference := _difference((model, width), (stored, columns)):
        raise ValueError(
            f"{path} must hold the model that this index was opened with, {difference}: nothing "
            "was taken up, and searches go on as before (SimilarityIndex.open reads the new index)"
        )


def check_predecessor(path: Path, fields: Mapping[str, Any], model: str | None, width: int) -> None:
    """Refuse to replace an index that another model made."""
    stored, columns = fields.get("model"), fields.get("width")
    if difference := _difference((stored, columns), (model, width)):
        raise OccupiedError(
            f"path must be new, or hold an index of the same model as this one, {difference}: "
            f"{str(path)!r} stays as it was (replace=True replaces it)"
        )


def _difference(before: tuple[Any, Any], after: tuple[Any, Any]) -> str:
    """Return how the model and the width of an index differ from those before; "" if not.

    An index without a name has promised nothing, so that one with a name may follow it.
    """
    (model, width), (new_model, new_width) = before, after
    if model is not None and new_model != model:
        got = "no name" if new_model is None else validation.format_value(new_model)
        return f"which is {validation.format_value(model)}, got {got}"
    return f"of {width} columns, got {new_width}" if new_width != width else ""


def check_same_model(name: str, mine: str | None, other: str | None) -> None:
    """Refuse to combine what two models made; nothing is known of one without a name."""
    if mine is not None and other is not None and mine != other:
        here, there = map(validation.format_value, (mine, other))
        raise ValueError(f"{name} must be of the model {here} as the index, got {there}")


def check_width(name: str, rows: Any, width: int) -> None:
    """Refuse rows of another width than those of the index."""
    validation.check_same_width(name, rows, "the items of the index", np.empty((0, width)))


def as_canaries(rows: Any, width: int) -> Rows:
    """Return rows of the same few inputs, embedded by the model of the index."""
    canaries = validation.as_rows("canaries", rows)
    check_width("canaries", canaries, width)
    return canaries


class OfModel:
    """The model of an index; a part of ``SimilarityIndex``."""

    model: str | None = None
    _canaries: Any = None

    def check_canaries(self, rows: Any, *, least: float = 0.99) -> npt.NDArray[np.float64]:
        """Return the cosines of the canaries with those of ``save``, 1 for the same model.

        Parameters
        ----------
        rows : array_like (c, d)
            The same inputs, embedded today, in the same order.
        least : float
            Least cosine of each, for rounding and hardware.

        Returns
        -------
        ndarray (c,), float64

        Raises
        ------
        ValueError
            A cosine below least, or the index has no canaries.
        """
        if self._canaries is None:
            raise ValueError("canaries must be given to save before they are checked, got none")
        least = validation.as_real("least", least)
        then = np.asarray(self._canaries, np.float64)
        today = as_canaries(rows, then.shape[1]).astype(np.float64)
        if len(today) != len(then):
            raise ValueError(f"rows must be of the {len(then)} canaries, got {len(today)}")
        lengths = np.linalg.norm(today, axis=1) * np.linalg.norm(then, axis=1)
        scores: Floats = (today * then).sum(axis=1) / np.where(lengths > 0, lengths, 1)
        worst = int(scores.argmin())
        if scores[worst] < least:
            raise ValueError(
                f"rows must be as the model {self.model or 'of the index'} embedded them, got a "
                f"cosine of {scores[worst]:.3f} for canary {worst}"
            )
        return scores
