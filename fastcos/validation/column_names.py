"""Recognise the columns of users, items and values in a table by the names of the columns."""

import re
from collections.abc import Collection

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
    "value", "rating", "feedback", "quantity", "qty", "count", "score", "weight", "plays", "stars",
    "amount", "units",
))
NAME_WORDS = frozenset(("name", "title", "description"))
# fmt: on
# The endings that column_word removes. For example, movieId, User_ID, anime_ids and StockCode
# become movie, user, anime and stock.
ENDINGS = ("ids", "id", "code", "number")
# This pattern matches the names of columns that hold ids, such as id, user_id and itemID, but not
# grid or covid.
_ID = re.compile(r"(?i:ids?|.*[\W_]ids?)|.*[a-z](Id|ID)s?")


def column_word(name: str, words: Collection[str]) -> str:
    """Return the letters and digits of a column name in lower case.

    If the name is one of `words`, followed by one of ENDINGS, the ending is removed.
    """
    word = "".join(letter for letter in name.casefold() if letter.isalnum())
    for ending in ENDINGS:
        if word.removesuffix(ending) in words:
            return word.removesuffix(ending)
    return word


def is_id(name: str) -> bool:
    """Return whether the name of a column says that the column holds ids."""
    return _ID.fullmatch(name) is not None
