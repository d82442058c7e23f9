"""The base of results: fields as plain Python values."""

from dataclasses import fields
from typing import Any

import numpy as np


class Record:
    """Base of the dataclasses of this package that hold results."""

    def to_dict(self) -> dict[str, Any]:
        """Fields as plain Python values: records as dicts, arrays as lists."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def _plain(value: Any) -> Any:
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value
