"""Which column of a table means what, told by its name."""

from collections.abc import Collection, Sequence
from pathlib import Path

from fastcos.storage import FastcosFormatError

# fmt: off
USER_WORDS = frozenset((
    "user", "customer", "household", "reader", "listener", "viewer", "visitor", "session", "member",
    "account", "client", "deck", "playlist",
))
ITEM_WORDS = frozenset((
    "item", "product", "movie", "film", "book", "track", "song", "artist", "album", "anime", "game",
    "article", "stock", "card", "asin", "isbn", "sku", "word",
))
VALUE_WORDS = frozenset((
    "value", "rating", "feedback", "quantity", "count", "score", "weight", "plays",
))
NAME_WORDS = frozenset(("name", "title", "description"))
# fmt: on
# movieId, User_ID, anime_ids and StockCode are a movie, a user, an anime and a stock
ENDINGS = ("ids", "id", "code", "number")


def find_column(
    argument: str, given: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str | None:
    """Return the column that was given, or the one that words tell; None where none does.

    Parameters
    ----------
    argument : str
        Name of the argument, for messages.
    given : str or None
        Name of a column, exactly as the header has it.
    words : collection of str
        Words of which a column's name, less case, punctuation and an ending such as Id, is one.
    names : sequence of str
        The header.
    path : pathlib.Path

    Raises
    ------
    FastcosFormatError
        No such column, or several.

    Examples
    --------
    >>> header = ["userId", "movieId", "rating", "timestamp"]
    >>> find_column("item", None, ITEM_WORDS, header, Path("ratings.csv"))
    'movieId'
    """
    if given is not None:
        if names.count(given) != 1:
            raise FastcosFormatError(
                f"{argument} must name one column of {path} ({_listed(names)}), got {given!r}"
            )
        return given
    found = [name for name in names if _word(name, words) in words]
    if len(found) > 1:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: it may be any of {_listed(found)}"
        )
    return found[0] if found else None


def require_column(
    argument: str, given: str | None, words: Collection[str], names: Sequence[str], path: Path
) -> str:
    """Return find_column's answer; raise where it has none."""
    column = find_column(argument, given, words, names, path)
    if column is None:
        raise FastcosFormatError(
            f"{argument} must be given for {path}: no name tells it among {_listed(names)}"
        )
    return column


def interaction_columns(
    path: Path, names: Sequence[str], user: str | None, item: str | None, value: str | None
) -> tuple[str, str, str | None]:
    """Return the columns of users, items and values; no values where value is the empty string."""
    user = require_column("user", user, USER_WORDS, names, path)
    item = require_column("item", item, ITEM_WORDS, names, path)
    value = find_column("value", value, VALUE_WORDS, names, path) if value != "" else None
    if user == item or value in (user, item):
        raise FastcosFormatError(
            f"user, item and value must be different columns of {path}, got {user!r}, {item!r} "
            f"and {value!r}"
        )
    return user, item, value


def _word(name: str, words: Collection[str]) -> str:
    word = "".join(letter for letter in name.casefold() if letter.isalnum())
    for ending in ENDINGS:
        if word.removesuffix(ending) in words:
            return word.removesuffix(ending)
    return word


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(name[:40] for name in names[:20]) + more
