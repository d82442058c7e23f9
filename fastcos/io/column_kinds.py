"""What a column of a table of vectors holds, decided by all of its cells."""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from fastcos.io.columns import (
    NUMBER_PATTERN,
    Cells,
    Unsupported,
    cell_text,
    classify_text,
    ids_of_cells,
    refuse_rows,
)
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Floats, Integers

# numbers that are written in another way than tables write them: several in one cell that is no
# JSON, such as NumPy's "[0.1 0.2]" or "0.1|0.2"; with a decimal comma or a unit; hexadecimal ones
_SOME = rf"(?:{NUMBER_PATTERN}|nan|None|\.\.\.)"
_ODD_NUMBERS = re.compile(
    rf"(?:array\()?[\[({{]?\s*{_SOME}(?:[\s,;|]+{_SOME})+[\s,]*[\])}}]?(?:,\s*dtype=\w+)?\)?"
    rf"|\[\s*{_SOME}\s*\]"
    rf"|[$€£\u2212]?\s?{NUMBER_PATTERN}\s?[%‰$€£]?"
    r"|0[xX][0-9a-fA-F]+",
    re.ASCII,
)
# rows that a message may name
_NAMED_ROWS = 5


class Column:
    """A column of a table of vectors: what all of its cells are, and its numbers or lists.

    is_kept: whether the cells are kept, as is needed for a column of ids.
    """

    def __init__(self, name: str, is_kept: bool = False) -> None:
        self.name = name
        self.is_kept = is_kept
        self._cells: list[Cells] = []
        self._lines: list[Integers] = []
        self._rows: dict[str, list[int]] = {}
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, Any] = {}
        self._blocks: list[npt.NDArray[Any]] = []
        self._widths: dict[int, int] = {}
        self._is_whole = True

    def add(self, cells: Cells, lines: Integers) -> None:
        """Add the next cells, which are in these lines of the file."""
        if self.is_kept:
            self._cells.append(cells)
            self._lines.append(lines)
        if isinstance(cells, np.ndarray) and self._add_array(cells, lines):
            return
        if not isinstance(cells, np.ndarray) and (values := _all_numbers(cells)) is not None:
            self._note("number", lines, cells[0])
            self._is_whole &= not _has_decimals(cells)
            self._blocks.append(values)
            return
        if not isinstance(cells, np.ndarray) and (rows := _all_lists(cells)) is not None:
            self._add_rows(rows, lines)
            return
        numbers: list[float] = []
        for cell, line in zip(cells, lines.tolist(), strict=True):
            category, value = _classify(cell)
            self._note(category, np.array([line]), cell)
            if category == "list":
                self._add_list(value, line)
            elif category in ("number", "boolean"):
                numbers.append(value)
                self._is_whole &= category == "number" and not _has_decimals([cell])
        if numbers:
            self._blocks.append(np.array(numbers))

    def _add_array(self, cells: npt.NDArray[Any], lines: Integers) -> bool:
        """Add an array of numbers; False if some are not finite."""
        if cells.ndim == 2:
            self._add_rows(cells, lines)
            return True
        if cells.dtype.kind not in "iufb" or (
            cells.dtype.kind == "f" and not np.isfinite(cells).all()
        ):
            return False
        self._note("boolean" if cells.dtype.kind == "b" else "number", lines, cells[0])
        self._blocks.append(cells)
        self._is_whole &= cells.dtype.kind in "iu"
        return True

    def _add_rows(self, rows: npt.NDArray[Any], lines: Integers) -> None:
        self._note("list", lines, rows[0])
        self._widths.setdefault(rows.shape[1], int(lines[0]))
        if len(self._widths) == 1:
            self._blocks.append(rows)

    def _add_list(self, values: list[Any], line: int) -> None:
        self._widths.setdefault(len(values), line)
        if len(self._widths) > 1:
            return
        try:
            self._blocks.append(np.array([values], np.float64))
        except OverflowError:
            self._note("infinity", np.array([line]), values)

    def _note(self, category: str, lines: Integers, example: Any) -> None:
        rows = self._rows.setdefault(category, [])
        rows.extend(lines[: _NAMED_ROWS - len(rows)].tolist())
        self._counts[category] += len(lines)
        self._examples.setdefault(category, example)

    @property
    def kind(self) -> str:
        """What the column holds: lists, numbers, texts, odd numbers, blanks, other or mixed."""
        filled = self._rows.keys() - {"blank", "blank word", "infinity", "empty list"}
        if not filled.isdisjoint(("list", "list with blanks")):
            return "lists"
        if not filled:
            return "blanks"
        if len(filled) == 1 and filled <= {"number", "boolean"}:
            return "numbers"
        if "other" in filled:
            return "other"
        if filled == {"odd number"}:
            return "odd numbers"
        return "mixed" if "number" in filled else "texts"

    @property
    def may_be_ids(self) -> bool:
        """Whether the column could be one of ids, beside a column of lists."""
        if self.kind == "other":
            example = self._examples["other"]
            return isinstance(example, Unsupported) and not example.is_nested
        if self.kind == "numbers":
            return self._is_whole and "boolean" not in self._rows
        return self.kind in ("texts", "mixed", "odd numbers")

    def counts_rows(self, path: PathLike) -> bool:
        """Whether the cells are 0, 1, 2, ..., the numbers of the rows."""
        if self.kind != "numbers" or not self._is_whole:
            return False
        numbers = self.numbers(path)
        return np.array_equal(numbers, np.arange(len(numbers)))

    def ids(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the cells as ids (n,), int64 or texts."""
        lines, cells = np.concatenate(self._lines), self._cells
        if all(isinstance(block, np.ndarray) for block in cells):
            return ids_of_cells(path, self.name, np.concatenate(cells), lines)
        return ids_of_cells(path, self.name, [cell for block in cells for cell in block], lines)

    def numbers(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the numbers (n,), or refuse the first cells that are none."""
        odd = self._rows.keys() - {"number"}
        if odd == {"boolean"} and "number" not in self._rows:
            odd = set()
        if odd:
            self._refuse(path, "a number in every row", odd)
        return np.concatenate(self._blocks)

    def lists(self, path: PathLike) -> npt.NDArray[Any]:
        """Return the lists as rows (n, d), or refuse the first cells that are none."""
        if odd := self._rows.keys() - {"list"}:
            if self._counts["number"] > self._counts["list"]:
                self._refuse(path, "a number in every row", {"list"})
            self._refuse(path, "a list of numbers in every row", odd)
        if len(self._widths) > 1:
            (width, first), (other, line), *_ = self._widths.items()
            got = f"{other} numbers in row {line} ({width} in row {first})"
            rule = f"column {self.name!r} must hold lists of one length"
            raise FastcosFormatError(f"{path}: {rule}, got {got}")
        return np.concatenate(self._blocks) if len(self._blocks) > 1 else self._blocks[0]

    def _refuse(self, path: PathLike, rule: str, odd: Collection[str]) -> NoReturn:
        category = min(odd, key=lambda one: self._rows[one][0])
        example, what = self._examples[category], repr(self._examples[category])[:60]
        if category == "blank":
            what = "a blank"
        elif isinstance(example, Unsupported):
            what = example.type
        elif category == "odd number":
            what += " (write numbers as 0.5 and lists as JSON, [0.5, 1])"
        # only the first rows are known, and only they are named
        lines = np.resize(np.array(self._rows[category]), self._counts[category])
        refuse_rows(path, f"column {self.name!r} must have {rule}", what, lines)

    def describe(self) -> str:
        """Return the name and what the column holds."""
        other = cell_text(self._examples.get("other"))
        what = other.type if isinstance(other, Unsupported) else self.kind
        return f"{self.name[:40]!r} ({what})"

    def refuse_as_numbers(self, path: PathLike) -> NoReturn:
        """Refuse a column that is neither numbers nor texts."""
        rule = "a number in every row, or texts"
        if self.kind == "mixed":
            rule = f"a number in every row (or be given: id_column={self.name!r})"
        self._refuse(path, rule, self._rows.keys() - {"number"})


def _classify(cell: Any) -> tuple[str, Any]:
    """Return the category of a cell, and its value if that is a number or a list of numbers."""
    if isinstance(cell, list):
        return _classify_list(cell)
    text = cell_text(cell)
    if isinstance(text, Unsupported):
        return "other", None
    category, number = classify_text(text)
    if category != "text":
        return category, number
    text = text.strip()
    if text[0] == "[":
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            return _classify_list(values)
    return ("odd number" if _ODD_NUMBERS.fullmatch(text) else "text"), None


def _classify_list(values: list[Any]) -> tuple[str, Any]:
    if not values:
        return "empty list", None
    types = set(map(type, values)) - {int, float, bool, Decimal}
    if not types:
        return "list", values
    return ("list with blanks" if types == {type(None)} else "other"), None


def _all_numbers(cells: Sequence[Any]) -> Floats | None:
    """Return cells as float64 if all are finite numbers, by type or in ASCII text; else None."""
    types = set(map(type, cells))
    if types == {str}:
        joined = "".join(cells)
        if not joined.isascii() or "_" in joined:
            return None
    elif not types or not types <= {int, float}:
        return None
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except (ValueError, OverflowError):
        return None
    return values if np.isfinite(values).all() else None


def _all_lists(cells: Sequence[Any]) -> Floats | None:
    """Return cells as rows (n, d) if all are lists of numbers of one length; else None."""
    if set(map(type, cells)) != {list} or len(widths := set(map(len, cells))) > 1 or 0 in widths:
        return None
    if not set(map(type, chain.from_iterable(cells))) <= {int, float, bool}:
        return None
    try:
        return np.array(cells, np.float64)
    except OverflowError:
        return None


def _has_decimals(cells: Iterable[Any]) -> bool:
    """Whether a number of these is spelled with a point or an exponent, or is a float."""
    return any(
        not isinstance(cell, int) and not str(cell).strip().lstrip("+-").isdigit() for cell in cells
    )
