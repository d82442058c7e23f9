"""Cells of a comparison and who answers them: this process, or others that hold a copy."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol


class Judge(Protocol):
    """What answers cells one by one, here or wherever its copy is."""

    def answer(self, cell: Any) -> Any:
        """The answer of one cell."""
        ...


# how the cells of a judge are answered: (judge, cells) to the answers, in the order of the cells
Over = Callable[[Judge, Sequence[Any]], Iterable[Any]]


def here(judge: Judge, cells: Sequence[Any]) -> Iterable[Any]:
    """Answer cell after cell in this process."""
    return map(judge.answer, cells)
