"""The model whose rows an index holds: its name, and rows that tell whether it is the same."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.validation import Floats, Rows


def as_model(model: object) -> str | None:
    """Return the name of a model, such as "minilm@2"; None for none."""
    if model is None:
        return None
    return validation.as_instance("model", model, str, 'a name such as "minilm@2"')


def check_same_model(name: str, mine: str | None, other: str | None) -> None:
    """Refuse to combine what two models made; nothing is known of one without a name."""
    if mine is not None and other is not None and mine != other:
        raise ValueError(f"{name} must be of the model {mine!r} as the index, got {other!r}")


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
