"""What a measure is to the search engine: two maps of rows, offsets per item, and a finish."""

from typing import Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Keys = npt.NDArray[np.float64]
Form = Literal["dot", "cosine", "euclidean"]


@runtime_checkable
class Measure(Protocol):
    """A similarity that reduces to keys of transformed rows.

    The engine ranks item b for query q by a float64 key of x = queries(q) and y = items(b):
    ``form`` "dot": <x, y> + item_offsets(b); "cosine": <x, y> / (|x| |y|), 0 for a zero row;
    "euclidean": -|x - y|^2. ``finish`` then turns keys into the scores that a caller sees; it must
    never decrease where keys increase.

    Attributes
    ----------
    name : str
        The name by which ``measure=`` finds the class.
    form : {"dot", "cosine", "euclidean"}
        How a pair of transformed rows is scored.
    """

    name: ClassVar[str]
    form: ClassVar[Form]

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Learn what the maps need from the items, and from the users where they matter."""
        ...

    def queries(self, Q: Rows) -> Rows:
        """Transformed queries phi(q), (n, d')."""
        ...

    def items(self, B: Rows) -> Rows:
        """Transformed items psi(b), (p, d')."""
        ...

    def item_offsets(self, B: Rows) -> Keys | None:
        """What is added to each item's inner product, (p,) float64; None for nothing."""
        ...

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Scores (n, k) from keys (n, k) of the queries Q (n, d)."""
        ...


class Plain:
    """The identity in every part: a base for measures that change only some of them."""

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Learn nothing."""
        return self

    def queries(self, Q: Rows) -> Rows:
        """Return the rows as they are."""
        return Q

    def items(self, B: Rows) -> Rows:
        """Return the rows as they are."""
        return B

    def item_offsets(self, B: Rows) -> Keys | None:
        """Return None: no offsets."""
        return None

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return the keys as they are."""
        return keys


_CLASSES: dict[str, type[Any]] = {}


def register(measure: type[Any]) -> type[Any]:
    """Class decorator: make a measure known by its name."""
    _CLASSES[measure.name] = measure
    return measure


def registered() -> dict[str, type[Any]]:
    """Every known class by its name."""
    return dict(_CLASSES)
