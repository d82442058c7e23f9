"""Exact formulas in mpmath, and difficult rows; the scripts on rounding errors use both."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mpmath
import numpy as np

DEPTH = 100
# The largest number of times that a term of an inner product is rounded:
# - once when two entries are multiplied,
# - DEPTH // 16 times when the products in one of the 16 lanes are added,
# - 4 times when the lanes are added,
# - DEPTH % 16 times when the remaining products are added.
STEPS = 1 + DEPTH // 16 + 4 + DEPTH % 16
# The precision is high, because the terms of a sum may have any exponents of float64.
mpmath.mp.prec = 400


class Line(NamedTuple):
    """A row of the table: the largest error of an operation, and its bound.

    The error and the bound are in ULP. One ULP is the distance between neighbouring numbers of the
    result's data type near a size, and `unit` is the name of this size; `dtype` is the type of the
    rows.
    """

    operation: str
    dtype: str
    values: str
    unit: str
    error: float
    bound: float


# truth


def exact(values: Any) -> list[Any]:
    return [mpmath.mpf(float(value)) for value in values]


def pairwise(function: Callable[..., Any], X: Any, Y: Any) -> Any:
    """Return the exact value of function(x, y) for each row x of X and each row y of Y."""
    left, right = [exact(x) for x in X], [exact(y) for y in Y]
    return np.array([[function(x, y) for y in right] for x in left], object)


def dot(x: Any, y: Any) -> Any:
    return mpmath.fdot(x, y)


def terms(x: Any, y: Any) -> Any:
    return mpmath.fdot([abs(a) for a in x], [abs(b) for b in y])


def cosine(x: Any, y: Any) -> Any:
    size = mpmath.sqrt(mpmath.fdot(x, x) * mpmath.fdot(y, y))
    return mpmath.fdot(x, y) / size if size else mpmath.mpf(0)


def distance(x: Any, y: Any) -> Any:
    return mpmath.sqrt(mpmath.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True)))


def ulps(value: Any, truth: Any, size: Any, dtype: Any) -> float:
    """Return the largest error, in units in the last place (ULP) of a number of type dtype.

    The error of each entry is divided by the spacing of dtype at the size of this entry. Entries
    with an infinite size are left out.
    """
    largest, worst = mpmath.mpf(float(np.finfo(dtype).max)), 0.0
    for one, true, at in np.broadcast(value, truth, size):
        if abs(at) < largest:
            spacing = float(np.spacing(np.asarray(float(abs(at)), dtype)))
            error = abs(mpmath.mpf(float(one)) - true) / mpmath.mpf(spacing)
            worst = max(worst, float(error) if np.isfinite(float(one)) else np.inf)
    return worst


# rows that hurt


def families(
    dtype: Any, random: Any, n: int = 5, depth: int = DEPTH
) -> Iterator[tuple[str, Any, Any]]:
    """Yield a name, queries (3, depth) and items (n, depth) in float64."""
    wide = dtype == np.float64
    queries, items = random.standard_normal((3, depth)), random.standard_normal((n, depth))
    noise, both = random.standard_normal((n, depth)), (n + 3, depth)
    yield "ordinary", queries, items
    prefix = items[: depth // 2]
    yield "cancelling", queries - queries @ np.linalg.pinv(prefix) @ prefix, items
    yield "near-duplicates", (items * (1 + (1e-13 if wide else 1e-6) * noise))[:3], items
    decades = 60 if wide else 15
    spread = 10.0 ** random.uniform(-decades, decades, both) * random.choice([-1, 1], (n + 3, 1))
    yield "many decades", spread[:3], spread[3:]
    counts = random.integers(-1000, 1000, both) * float(np.finfo(dtype).smallest_subnormal)
    yield "subnormal", counts[:3], counts[3:]
    tiny, huge = (1e-155, 1e147) if wide else (1e-38, 1e37)
    yield "tiny", tiny * queries, tiny * items
    yield "tiny and ordinary", tiny * queries, items
    yield "huge", huge * queries, huge * items
    yield "huge and tiny", huge * queries, items / huge


def cases(
    dtype: Any, repeats: int, n: int = 5, depth: int = DEPTH
) -> Iterator[tuple[str, Any, Any]]:
    for seed in range(repeats):
        for name, queries, items in families(dtype, np.random.default_rng(seed), n, depth):
            yield name, queries.astype(dtype), items.astype(dtype)


class Worst:
    """Keeps the largest error of each operation and kind of rows."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str, str, float], float] = {}

    def note(
        self,
        names: tuple[str, str, str],
        unit: str,
        bound: float,
        result: Any,
        truth: Any,
        size: Any,
        dtype: Any = np.float64,
    ) -> None:
        """Record the largest error of a result, which is a number or an array.

        names: The operation, the type of the rows, and the kind of their values.
        """
        key = (*names, unit, bound)
        error = ulps(*(np.asarray(part, object) for part in (result, truth, size)), dtype)
        self._found[key] = max(self._found.get(key, 0.0), error)

    def lines(self) -> list[Line]:
        """Sorted."""
        return sorted(Line(*key[:4], error, key[4]) for key, error in self._found.items())
