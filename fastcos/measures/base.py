"""What a measure is to the search engine: two maps of rows, offsets per item, and a finish."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.storage import memmap

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Keys = npt.NDArray[np.float64]
Form = Literal["dot", "cosine", "euclidean", "norm_angle"]


@runtime_checkable
class Measure(Protocol):
    """A similarity that reduces to keys of transformed rows.

    The engine ranks item b for query q by a float64 key of x = queries(q) and y = items(b):
    ``form`` "dot": <x, y> + item_offsets(b); "cosine": <x, y> / (|x| |y|), 0 for a zero row;
    "euclidean": -|x - y|^2; "norm_angle": -(||x| - |y|| + the angle of x and y). ``finish`` then
    turns keys into the scores that a caller sees; it must never decrease where keys of one query
    increase.

    Attributes
    ----------
    name : str
        The name by which ``measure=`` finds the class.
    form : {"dot", "cosine", "euclidean", "norm_angle"}
        How a pair of transformed rows is scored.
    """

    name: ClassVar[str]
    form: ClassVar[Form]

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Return a measure that has learned from the items, and from the other side if given."""
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


@runtime_checkable
class Bounded(Measure, Protocol):
    """A similarity that is no inner product, but cannot exceed a bound that the engine can rank by.

    The engine's keys choose candidates, ``rescore`` ranks them, and ``bound`` shows when nothing
    that was not chosen can be better; where it does not, all items whose bound reaches the k-th
    best are scored. ``finish`` takes what ``rescore`` returns.
    """

    def facts(self, B: Rows) -> Any:
        """What rescore needs of the items B (p, d), made once per search."""
        ...

    def rescore(self, Q: Rows, facts: Any, columns: npt.NDArray[np.int64]) -> Keys:
        """Exact keys (n, k) of the queries Q (n, d) and the items columns (n, k), -1 for none."""
        ...

    def bound(self, Q: Rows, keys: Keys) -> Keys:
        """A key (n,) that no item with an engine's key of at most keys (n,) can exceed.

        It never decreases where keys increase.
        """
        ...


@runtime_checkable
class Floored(Bounded, Protocol):
    """A bounded similarity that sees early that a pair is below a floor."""

    def rescore_above(
        self, Q: Rows, facts: Any, columns: npt.NDArray[np.int64], floors: Keys
    ) -> Keys:
        """As rescore, but it may give -inf for keys that are below the query's floor (n,)."""
        ...


class SharpRows(NamedTuple):
    """Rows of either side for a sharp measure: (n, d'), and of each one number (n,), at most 1."""

    rows: Rows
    offsets: Keys

    def of(self, some: npt.NDArray[np.int64]) -> "SharpRows":
        """Some of the rows, rising numbers; a view where none is left out between them."""
        first, last = int(some[0]), int(some[-1]) + 1
        if last - first == len(some):
            return SharpRows(self.rows[first:last], self.offsets[first:last])
        return SharpRows(self.rows[some], self.offsets[some])


class SharpQueries(NamedTuple):
    """Queries (n, d'), weights (n,) from 0 to 1 of the offsets, and the least keys (n,)."""

    rows: Rows
    weights: Keys
    least: Keys


@runtime_checkable
class Sharp(Bounded, Protocol):
    """A bounded similarity that one inner product tells apart well, once a floor is known.

    The sharp key of query x and item y is <x, y> + weight(x) offset(y). Every item whose exact key
    is at least a query's floor has a sharp key that is at least the query's own least one. Where
    queries are many the engine guesses a floor for each, lists what may reach it, and scores what
    ``narrow`` leaves of that.
    """

    def sharp_rows(self, rows: Rows) -> SharpRows:
        """Transformed rows of either side, float32."""
        ...

    def sharp_queries(self, rows: SharpRows, floors: Keys) -> SharpQueries:
        """Transformed rows as queries with these floors (n,)."""
        ...

    def likely(self, floors: Keys, keys: Keys) -> Keys:
        """An exact key (n,) that an item with this sharp key for these floors is likely to have."""
        ...

    def narrow(
        self,
        queries: SharpRows,
        items: SharpRows,
        k: int,
        counts: npt.NDArray[np.int64],
        columns: npt.NDArray[np.int64],
    ) -> None:
        """Drop of the first counts (n,) of columns (n, c) what is not among the k best, in place.

        Nothing that equals the k-th best may be dropped.
        """
        ...


class Candidates(NamedTuple):
    """Likely neighbours of every item among the others.

    Attributes
    ----------
    columns : ndarray (p, c), int64
        Different items, not the item itself.
    keys, named_keys : ndarray (p, c), float64
        The engine's keys of row i as a query with items columns[i], and of rows columns[i] as
        queries with item i.
    errors : ndarray (p,), float64
        Keys with item i are the engine's to within errors[i].
    ceilings : ndarray (p,), float64
        No key of a pair of items neither of which is on the other's list exceeds it; -inf where all
        others are listed, inf where nothing is known.
    """

    columns: npt.NDArray[np.int64]
    keys: Keys
    named_keys: Keys
    errors: Keys
    ceilings: Keys


@runtime_checkable
class Guided(Measure, Protocol):
    """A similarity that has met likely neighbours of its items while it was fitted.

    A search of the items among themselves scores them first, and those whose likely neighbour the
    item is. Where the ceiling shows that nothing else can be better it is done; for the other items
    the worst of the best k says below what the engine need not look.
    """

    def candidates(self) -> Candidates | None:
        """What fit has met; None where it sought somewhere else."""
        ...


class Invariances(NamedTuple):
    """What a change of the embeddings does to the scores: "y" nothing, "rank" only monotone, "-".

    Attributes
    ----------
    s, r : str
        One positive scale for all rows; one per row.
    R, D, G : str
        Rotation; rescaling of the columns; any invertible map. They act on both sides of a model:
        (P, B) becomes (P G'^-1, B G).
    t : str
        One vector added to all rows.
    """

    s: str
    r: str
    R: str
    D: str
    G: str
    t: str


def invariances(cells: str) -> Invariances:
    """Read "s=y r=rank R=y D=- G=- t=-"."""
    return Invariances(**dict(cell.split("=") for cell in cells.split()))


class Plain:
    """The identity in every part: a base for measures that change only some of them."""

    name: ClassVar[str]
    form: ClassVar[Form] = "cosine"
    invariances: ClassVar[Invariances] = invariances("s=y r=y R=y D=- G=- t=-")
    needs: ClassVar[str] = ""
    # whether learn takes memory-mapped rows and reads them a block at a time
    learns_in_blocks: ClassVar[bool] = False

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Return a fitted copy, so that a measure that others hold never changes."""
        as_rows = memmap.as_mapped_rows if learns_in_blocks(self) else validation.as_rows
        items = as_rows("items", items)
        if users is not None:
            users = validation.as_rows("users", users)
        fitted = copy.copy(self)
        fitted.learn(items, users)
        return fitted

    def learn(self, items: Rows, users: Rows | None) -> None:
        """Learn nothing."""

    def queries(self, Q: Rows) -> Rows:
        """Return the rows as the items' map has them."""
        return self.items(Q)

    def items(self, B: Rows) -> Rows:
        """Return the rows as they are."""
        return B

    def item_offsets(self, B: Rows) -> Keys | None:
        """Return None: no offsets."""
        return None

    def finish(self, keys: Keys, Q: Rows) -> Keys:
        """Return the keys as they are."""
        return keys


def learns_in_blocks(measure: Any) -> bool:
    """Whether a measure can be fitted to, and its maps be had of, a block of rows at a time."""
    kind = type(measure)
    if isinstance(measure, Bounded):
        return False
    return getattr(kind, "learn", None) is Plain.learn or getattr(kind, "learns_in_blocks", False)


_MAKERS: dict[str, Callable[..., Any]] = {}


def register(measure: type[Any]) -> type[Any]:
    """Class decorator: make a measure known by its name."""
    _MAKERS[measure.name] = measure
    return measure


def register_variant(name: str, maker: Callable[..., Any]) -> None:
    """Make a measure with some parameters known by a name of its own, such as "radial:dot"."""
    _MAKERS[name] = maker


def registered() -> dict[str, Callable[..., Any]]:
    """What makes a measure, by name."""
    return dict(_MAKERS)
