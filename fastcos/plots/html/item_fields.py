"""Item names, labels and numbers, in the form in which the script of a page reads them."""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation import Integers


def encoded(values: npt.ArrayLike, dtype: str = "<f4") -> str:
    """Return numbers in base64; by default, each number is a little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")


def item_fields(numbers: Integers, names: Any, labels: Any) -> dict[str, Any]:
    """Return item names, label codes, label names, and the boundaries between labels.

    `names` and `labels` contain one entry per item of the whole data set, or are None. The entry of
    an item without a label is None.
    """
    order = numbers.tolist()
    item_names = [f"item {number}" if names is None else str(names[number]) for number in order]
    if labels is None:
        return {"names": item_names, "labels": None, "classes": None, "boundaries": []}
    texts = [None if labels[number] is None else str(labels[number]) for number in order]
    classes = sorted({label for label in texts if label is not None})
    code = {label: number for number, label in enumerate(classes)}
    codes = [-1 if label is None else code[label] for label in texts]
    return {
        "names": item_names, "labels": codes, "classes": classes, "boundaries": boundaries(codes)
    }  # fmt: skip


def boundaries(codes: Sequence[int]) -> list[float]:
    """Return the positions at which the label changes, as fractions of the sequence's length."""
    changes = (np.flatnonzero(np.diff(codes)) + 1) / len(codes)
    return changes.round(6).tolist()
