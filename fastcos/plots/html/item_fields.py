"""What pages with a script say of items: their names and labels, and numbers as base64."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation import Integers


def encoded(values: npt.ArrayLike, dtype: str = "<f4") -> str:
    """Return numbers as base64 of little-endian float32, or of another type."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")


def item_fields(numbers: Integers, names: Any, labels: Any) -> dict[str, Any]:
    """Return what a page says of items: names, codes and names of labels, where labels change.

    names and labels are those of all items, by number; None for none, and for no label.
    """
    order = numbers.tolist()
    shown = [f"item {number}" if names is None else str(names[number]) for number in order]
    if labels is None:
        return {"names": shown, "labels": None, "classes": None, "boundaries": []}
    known = [None if labels[number] is None else str(labels[number]) for number in order]
    classes = sorted({label for label in known if label is not None})
    code = {label: place for place, label in enumerate(classes)}
    codes = [-1 if label is None else code[label] for label in known]
    return {"names": shown, "labels": codes, "classes": classes, "boundaries": boundaries(codes)}


def boundaries(codes: Sequence[int]) -> list[float]:
    """Return where the label changes in a sequence, as shares of its length."""
    changes = (np.flatnonzero(np.diff(codes)) + 1) / len(codes)
    return changes.round(6).tolist()
